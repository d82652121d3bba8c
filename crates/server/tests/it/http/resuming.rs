use std::collections::BTreeSet;

use dunlin::topic::{ReducerConfig, TopicConfig};
use dunlin::{Config, Node};
use serde_json::json;

use super::socket::Socket;
use super::{HttpServer, short};

const ID: &str = "last-event-id";

#[test]
fn returning_subscriber_gets_the_records_after_its_last_record() {
    let stage = HttpServer::new();
    let mut events = stage.events("/v1/topics/t/events", &[]);
    for n in 0..10 {
        stage.publish("t", format!("{n}").as_bytes());
    }
    assert_eq!(events.records(4), ["0", "1", "2", "3"]);
    let id = events.last_id.clone();
    drop(events);
    stage.publish("t", b"10");
    let mut events = stage.events("/v1/topics/t/events?from=earliest", &[(ID, &id)]);
    assert_eq!(events.records(7), ["4", "5", "6", "7", "8", "9", "10"]);
    let path = format!("/v1/topics/t/events?last_event_id={id}");
    assert_eq!(stage.events(&path, &[]).records(1), ["4"], "as the query says it");
}

#[test]
fn subscriber_gets_a_resume_position_before_any_record() {
    let stage = HttpServer::new();
    stage.publish("t", b"before");
    let mut events = stage.events("/v1/topics/t/events", &[]);
    // The id must arrive before any event.
    while events.last_id.is_empty() {
        let block = events.block().unwrap();
        events.last_id = block.strip_prefix("id: ").unwrap_or_default().to_owned();
    }
    let id = events.last_id.clone();
    drop(events);
    stage.publish("t", b"meanwhile");
    assert_eq!(stage.events("/v1/topics/t/events", &[(ID, &id)]).records(1), ["meanwhile"]);
}

#[test]
fn late_returning_subscriber_gets_an_exact_gap() {
    let stage = HttpServer::new();
    stage.node.create_topic("t", short(), false).unwrap();
    let first = stage.publish("t", b"first").position;
    for _ in 0..5_000 {
        stage.publish("t", &[b'x'; 100]);
    }
    let mut events = stage.events("/v1/topics/t/events", &[(ID, &first.to_string())]);
    let (before, gap) = events.until("gap");
    assert!(before.iter().all(|told| told.event == "lagging"), "{before:?}");
    let (gap, id) = (gap.json(), gap.id);
    assert_eq!((&gap["first"], &gap["topic"], &gap["partition"]), (&json!(2), &json!("t"), &json!(0)));
    let last = gap["last"].as_u64().unwrap();
    assert_eq!((gap["records"].as_u64().unwrap(), id), (last - 1, format!("{}-{last}", first.epoch)));
    let next = loop {
        let told = events.next().unwrap();
        if told.event == "message" {
            break told;
        }
    };
    assert_eq!(next.id, format!("{}-{}", first.epoch, last + 1));
}

/// Publishes to many topics, while a subscriber of all of them is disconnected repeatedly.
#[test]
fn subscriber_of_many_logs_resumes_in_each_log() {
    let stage = HttpServer::new();
    stage
        .node
        .create_topic(
            "many",
            TopicConfig { pattern: Some("m.parts".into()), partitions: 3, ..short() },
            false,
        )
        .unwrap();
    let mut seen = BTreeSet::new();
    let mut id = String::new();
    let mut published = 0;
    for round in 0..20 {
        // In addition, each round uses a topic of its own. Some of these are created while the subscriber is away.
        for subject in ["m.a", "m.b", "m.parts", &format!("m.new{}", round / 2)] {
            for _ in 0..3 {
                stage.publish(subject, format!("{published}").as_bytes());
                published += 1;
            }
        }
        let headers = if id.is_empty() { vec![] } else { vec![(ID, id.as_str())] };
        let mut events = stage.events("/v1/topics/m.*/events?from=earliest", &headers);
        // Disconnects the subscriber while it has unread events.
        let wanted = published - if round % 3 == 0 { 5 } else { 0 };
        while seen.len() < wanted {
            let told = events.next().unwrap();
            assert_eq!(told.event, "message", "{told:?}");
            seen.insert(told.data.parse::<usize>().unwrap());
        }
        id = events.last_id.clone();
    }
    let mut events = stage.events("/v1/topics/m.*/events", &[(ID, &id)]);
    while seen.len() < published {
        seen.insert(events.next().unwrap().data.parse().unwrap());
    }
    assert_eq!(seen, (0..published).collect());
}

#[test]
fn resuming_with_an_id_of_many_logs_reports_deleted_logs() {
    let stage = HttpServer::new();
    stage.publish("m.a", b"1");
    stage.publish("m.b", b"2");
    let mut events = stage.events("/v1/topics/m.*/events?from=earliest", &[]);
    events.records(2);
    // The id must arrive after the events that it covers.
    stage.publish("m.a", b"3");
    events.records(1);
    let id = events.last_id.clone();
    assert!(id.starts_with('m'), "{id}");
    drop(events);
    stage.node.delete_topic("m.b").unwrap();
    stage.publish("m.a", b"4");
    let mut events = stage.events("/v1/topics/m.*/events", &[(ID, &id)]);
    let told = events.next().unwrap();
    assert_eq!((told.event.as_str(), told.json()), ("deleted", json!({"topic": null, "logs": 1})));
    let (_, last) = (events.records(1), &events);
    assert!(!last.last_id.is_empty());
}

#[test]
fn restarted_node_reports_an_epoch_change() {
    let stage = HttpServer::new();
    let old = stage.publish("t", b"1").position;
    drop(stage);
    let stage = HttpServer::of(Node::start(Config::default()).unwrap(), |_| ());
    let new = stage.publish("t", b"2").position;
    assert!(new.epoch > old.epoch);
    let mut events = stage.events("/v1/topics/t/events", &[(ID, &old.to_string())]);
    let told = events.next().unwrap();
    let epoch = told.json();
    assert_eq!(
        (told.event.as_str(), &epoch["old"], &epoch["last_seen"]),
        ("epoch", &json!(old.epoch), &json!(1))
    );
    assert_eq!((&epoch["known_through"], &epoch["new_first"]), (&json!(null), &json!(new.to_string())));
    assert_eq!(events.records(1), ["2"]);
}

#[test]
fn subscriber_that_resumes_or_wants_a_state_creates_no_topic() {
    let stage = HttpServer::new();
    let old = stage.publish("t", b"1").position;
    drop(stage);
    let stage = HttpServer::of(Node::start(Config::default()).unwrap(), |_| ());
    let refused = stage.peer().request("GET", "/v1/topics/t/events?from=snapshot", &[], b"");
    assert_eq!((refused.status, refused.code().as_str()), (404, "NO_TOPIC"));
    let mut events = stage.events("/v1/topics/t/events", &[(ID, &old.to_string())]);
    let told = events.next().unwrap();
    assert_eq!((told.event.as_str(), told.json()), ("deleted", json!({"topic": null, "logs": 1})));
    assert!(stage.node.topics(None, "", 10).topics.is_empty());
    stage.publish("t", b"2");
    assert_eq!(events.records(1), ["2"]);
}

/// A state topic is replaced by a plain topic, while it has subscribers over server-sent events and a JSON WebSocket.
#[test]
fn plain_topic_replacing_a_state_topic_ends_its_subscribers() {
    let stage = HttpServer::new();
    let reducer = ReducerConfig { kind: "last".to_owned(), ..ReducerConfig::default() };
    stage
        .node
        .create_topic("t", TopicConfig { reducer: Some(reducer), ..TopicConfig::default() }, false)
        .unwrap();
    let old = stage.node.topic("t").unwrap().logs()[0].last();
    let old = format!("{}-0", old.epoch);
    drop(stage);
    let stage = HttpServer::of(Node::start(Config::default()).unwrap(), |_| ());
    for state in ["from=snapshot", "on_gap=snapshot", "conflate=true"] {
        // The subscriber waits for the lost topic while another client creates a new one.
        let mut events = stage.events(&format!("/v1/topics/t/events?{state}"), &[(ID, &old)]);
        let told = events.next().unwrap();
        assert_eq!(told.event, "deleted", "{told:?}");
        let mut socket = Socket::json_at(stage.address());
        let mut asked = json!({"op": "subscribe", "id": 1, "pattern": "t", "resume": old});
        let (name, value) = state.split_once('=').unwrap();
        asked[name] = if value == "true" { json!(true) } else { json!(value) };
        socket.say(&asked);
        assert_eq!(socket.hear()["op"], "subscribed");
        stage.publish("t", b"plain");
        let end = events.next().unwrap();
        assert_eq!((end.event.as_str(), &end.json()["title"]), ("end", &json!("NO_STATE")), "{state}");
        let end = socket.hear();
        assert_eq!((&end["op"], &end["title"]), (&json!("end"), &json!("NO_STATE")), "{state}");
        // A new topic is created before the subscriber returns.
        let path = format!("/v1/topics/t/events?{state}");
        let answer = stage.peer().request("GET", &path, &[(ID, &old)], b"");
        assert_eq!((answer.status, answer.code().as_str()), (409, "NO_STATE"), "{state}");
        socket.say(&asked);
        assert_eq!(socket.hear()["title"], "NO_STATE", "{state}");
        stage.node.delete_topic("t").unwrap();
    }
}

#[test]
fn last_event_id_that_the_node_never_sent_is_refused() {
    let stage = HttpServer::new();
    let at = stage.publish("t", b"1").position;
    stage.publish("u.a", b"1");
    stage.publish("u.b", b"1");
    let get = |path: &str, id: &str| stage.peer().request("GET", path, &[(ID, id)], b"");
    for (path, id, status, code) in [
        ("/v1/topics/t/events", "yesterday".to_owned(), 400, "PROTOCOL"),
        ("/v1/topics/t/events", "mAAAA".to_owned(), 400, "PROTOCOL"),
        ("/v1/topics/t/events", format!("{}-9", at.epoch), 416, "AHEAD"),
        ("/v1/topics/t/events", format!("{}-1", u32::MAX), 416, "AHEAD"),
        ("/v1/topics/u.*/events", at.to_string(), 400, "MANY_LOGS"),
        ("/v1/topics/*/events", at.to_string(), 400, "MANY_LOGS"),
    ] {
        let answer = get(path, &id);
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{id}");
    }
}
