use std::collections::BTreeSet;

use dunlin::topic::{ReducerConfig, TopicConfig};
use dunlin::{Config, Node};
use serde_json::json;

use super::socket::Socket;
use super::{HttpServer, short};

const ID: &str = "last-event-id";

#[test]
fn event_stream_resumes_after_the_last_received_record() {
    let fixture = HttpServer::new();
    let mut events = fixture.events("/v1/topics/t/events", &[]);
    for n in 0..10 {
        fixture.publish("t", format!("{n}").as_bytes());
    }
    assert_eq!(events.records(4), ["0", "1", "2", "3"]);
    let id = events.last_id.clone();
    drop(events);
    fixture.publish("t", b"10");
    let mut events = fixture.events("/v1/topics/t/events?from=earliest", &[(ID, &id)]);
    assert_eq!(events.records(7), ["4", "5", "6", "7", "8", "9", "10"]);
    let path = format!("/v1/topics/t/events?last_event_id={id}");
    assert_eq!(fixture.events(&path, &[]).records(1), ["4"], "as the query says it");
}

#[test]
fn event_stream_states_a_position_before_its_first_record() {
    let fixture = HttpServer::new();
    fixture.publish("t", b"before");
    let mut events = fixture.events("/v1/topics/t/events", &[]);
    // The stream must state an id before its first event.
    while events.last_id.is_empty() {
        let block = events.block().unwrap();
        events.last_id = block.strip_prefix("id: ").unwrap_or_default().to_owned();
    }
    let id = events.last_id.clone();
    drop(events);
    fixture.publish("t", b"meanwhile");
    assert_eq!(fixture.events("/v1/topics/t/events", &[(ID, &id)]).records(1), ["meanwhile"]);
}

#[test]
fn subscriber_that_returns_late_gets_an_exact_gap() {
    let fixture = HttpServer::new();
    fixture.node.create_topic("t", short(), false).unwrap();
    let first = fixture.publish("t", b"first").position;
    for _ in 0..5_000 {
        fixture.publish("t", &[b'x'; 100]);
    }
    let mut events = fixture.events("/v1/topics/t/events", &[(ID, &first.to_string())]);
    let (before, gap) = events.until("gap");
    assert!(before.iter().all(|event| event.event == "lagging"), "{before:?}");
    let (gap, id) = (gap.json(), gap.id);
    assert_eq!((&gap["first"], &gap["topic"], &gap["partition"]), (&json!(2), &json!("t"), &json!(0)));
    let last = gap["last"].as_u64().unwrap();
    assert_eq!((gap["records"].as_u64().unwrap(), id), (last - 1, format!("{}-{last}", first.epoch)));
    let next = loop {
        let event = events.next().unwrap();
        if event.event == "message" {
            break event;
        }
    };
    assert_eq!(next.id, format!("{}-{}", first.epoch, last + 1));
}

/// Publishes to many topics. A client that subscribes to all of them disconnects and resumes several times.
#[test]
fn subscriber_of_many_logs_resumes_in_each_log() {
    let fixture = HttpServer::new();
    fixture
        .node
        .create_topic(
            "many",
            TopicConfig { pattern: Some("m.parts".into()), partitions: 3, ..short() },
            false,
        )
        .unwrap();
    let mut received = BTreeSet::new();
    let mut id = String::new();
    let mut published = 0;
    for round in 0..20 {
        // The fourth subject changes in every second round. Its topic may be created while the subscriber is
        // disconnected.
        for subject in ["m.a", "m.b", "m.parts", &format!("m.new{}", round / 2)] {
            for _ in 0..3 {
                fixture.publish(subject, format!("{published}").as_bytes());
                published += 1;
            }
        }
        let headers = if id.is_empty() { vec![] } else { vec![(ID, id.as_str())] };
        let mut events = fixture.events("/v1/topics/m.*/events?from=earliest", &headers);
        // In every third round, the subscriber disconnects before it has read the last five events.
        let expected = published - if round % 3 == 0 { 5 } else { 0 };
        while received.len() < expected {
            let event = events.next().unwrap();
            assert_eq!(event.event, "message", "{event:?}");
            received.insert(event.data.parse::<usize>().unwrap());
        }
        id = events.last_id.clone();
    }
    let mut events = fixture.events("/v1/topics/m.*/events", &[(ID, &id)]);
    while received.len() < published {
        received.insert(events.next().unwrap().data.parse().unwrap());
    }
    assert_eq!(received, (0..published).collect());
}

#[test]
fn stream_resumed_over_many_logs_reports_the_deleted_logs() {
    let fixture = HttpServer::new();
    fixture.publish("m.a", b"1");
    fixture.publish("m.b", b"2");
    let mut events = fixture.events("/v1/topics/m.*/events?from=earliest", &[]);
    events.records(2);
    // The id that includes an event's position must arrive after the event.
    fixture.publish("m.a", b"3");
    events.records(1);
    let id = events.last_id.clone();
    assert!(id.starts_with('m'), "{id}");
    drop(events);
    fixture.node.delete_topic("m.b").unwrap();
    fixture.publish("m.a", b"4");
    let mut events = fixture.events("/v1/topics/m.*/events", &[(ID, &id)]);
    let event = events.next().unwrap();
    assert_eq!((event.event.as_str(), event.json()), ("deleted", json!({"topic": null, "logs": 1})));
    let (_, last) = (events.records(1), &events);
    assert!(!last.last_id.is_empty());
}

#[test]
fn restarted_node_reports_an_epoch_change() {
    let fixture = HttpServer::new();
    let old = fixture.publish("t", b"1").position;
    drop(fixture);
    let fixture = HttpServer::of(Node::start(Config::default()).unwrap(), |_| ());
    let new = fixture.publish("t", b"2").position;
    assert!(new.epoch > old.epoch);
    let mut events = fixture.events("/v1/topics/t/events", &[(ID, &old.to_string())]);
    let event = events.next().unwrap();
    let epoch = event.json();
    assert_eq!(
        (event.event.as_str(), &epoch["old"], &epoch["last_seen"]),
        ("epoch", &json!(old.epoch), &json!(1))
    );
    assert_eq!((&epoch["known_through"], &epoch["new_first"]), (&json!(null), &json!(new.to_string())));
    assert_eq!(events.records(1), ["2"]);
}

#[test]
fn resumed_event_stream_creates_no_topic() {
    let fixture = HttpServer::new();
    let old = fixture.publish("t", b"1").position;
    drop(fixture);
    let fixture = HttpServer::of(Node::start(Config::default()).unwrap(), |_| ());
    let refused = fixture.peer().request("GET", "/v1/topics/t/events?from=snapshot", &[], b"");
    assert_eq!((refused.status, refused.code().as_str()), (404, "NO_TOPIC"));
    let mut events = fixture.events("/v1/topics/t/events", &[(ID, &old.to_string())]);
    let event = events.next().unwrap();
    assert_eq!((event.event.as_str(), event.json()), ("deleted", json!({"topic": null, "logs": 1})));
    assert!(fixture.node.topics(None, "", 10).topics.is_empty());
    fixture.publish("t", b"2");
    assert_eq!(events.records(1), ["2"]);
}

/// A plain topic replaces a state topic. Subscribers over server-sent events and over a JSON WebSocket must then end.
#[test]
fn subscription_to_a_state_ends_if_its_topic_becomes_plain() {
    let fixture = HttpServer::new();
    let reducer = ReducerConfig { kind: "last".to_owned(), ..ReducerConfig::default() };
    fixture
        .node
        .create_topic("t", TopicConfig { reducer: Some(reducer), ..TopicConfig::default() }, false)
        .unwrap();
    let old = fixture.node.topic("t").unwrap().logs()[0].last();
    let old = format!("{}-0", old.epoch);
    drop(fixture);
    let fixture = HttpServer::of(Node::start(Config::default()).unwrap(), |_| ());
    for state in ["from=snapshot", "on_gap=snapshot", "conflate=true"] {
        // The subscriber waits, because its topic no longer exists. Then another client creates a topic with the same
        // name.
        let mut events = fixture.events(&format!("/v1/topics/t/events?{state}"), &[(ID, &old)]);
        let event = events.next().unwrap();
        assert_eq!(event.event, "deleted", "{event:?}");
        let mut socket = Socket::json_at(fixture.address());
        let mut request = json!({"op": "subscribe", "id": 1, "pattern": "t", "resume": old});
        let (name, value) = state.split_once('=').unwrap();
        request[name] = if value == "true" { json!(true) } else { json!(value) };
        socket.send_json(&request);
        assert_eq!(socket.receive_json()["op"], "subscribed");
        fixture.publish("t", b"plain");
        let end = events.next().unwrap();
        assert_eq!((end.event.as_str(), &end.json()["title"]), ("end", &json!("NO_STATE")), "{state}");
        let end = socket.receive_json();
        assert_eq!((&end["op"], &end["title"]), (&json!("end"), &json!("NO_STATE")), "{state}");
        // Now the new topic exists before the subscriber connects again.
        let path = format!("/v1/topics/t/events?{state}");
        let response = fixture.peer().request("GET", &path, &[(ID, &old)], b"");
        assert_eq!((response.status, response.code().as_str()), (409, "NO_STATE"), "{state}");
        socket.send_json(&request);
        assert_eq!(socket.receive_json()["title"], "NO_STATE", "{state}");
        fixture.node.delete_topic("t").unwrap();
    }
}

#[test]
fn last_event_id_that_the_node_never_sent_is_refused() {
    let fixture = HttpServer::new();
    let at = fixture.publish("t", b"1").position;
    fixture.publish("u.a", b"1");
    fixture.publish("u.b", b"1");
    let get = |path: &str, id: &str| fixture.peer().request("GET", path, &[(ID, id)], b"");
    for (path, id, status, code) in [
        ("/v1/topics/t/events", "yesterday".to_owned(), 400, "PROTOCOL"),
        ("/v1/topics/t/events", "mAAAA".to_owned(), 400, "PROTOCOL"),
        ("/v1/topics/t/events", format!("{}-9", at.epoch), 416, "AHEAD"),
        ("/v1/topics/t/events", format!("{}-1", u32::MAX), 416, "AHEAD"),
        ("/v1/topics/u.*/events", at.to_string(), 400, "MANY_LOGS"),
        ("/v1/topics/*/events", at.to_string(), 400, "MANY_LOGS"),
    ] {
        let response = get(path, &id);
        assert_eq!((response.status, response.code().as_str()), (status, code), "{id}");
    }
}
