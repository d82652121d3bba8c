use std::collections::BTreeMap;

use dunlin::topic::{Publish, ReducerConfig, TopicConfig};
use serde_json::json;

use super::HttpServer;

/// Creates a topic whose state is the last value of each key.
fn create_state_topic(fixture: &HttpServer) {
    let reducer = ReducerConfig { kind: "last".to_owned(), options: BTreeMap::new() };
    fixture
        .node
        .create_topic("state", TopicConfig { reducer: Some(reducer), ..TopicConfig::default() }, false)
        .unwrap();
}

fn publish_value(fixture: &HttpServer, key: &str, value: &str) {
    let meta = dunlin::topic::RecordMeta { key: Some(key.as_bytes()), ..Default::default() };
    let payload = dunlin::topic::Payload::Copied(value.as_bytes());
    fixture.node.publisher("state").unwrap().publish(dunlin::topic::Draft { meta, payload }).unwrap();
}

#[test]
fn event_stream_starts_with_a_state_and_continues_with_records() {
    let fixture = HttpServer::new();
    create_state_topic(&fixture);
    publish_value(&fixture, "a", "1");
    publish_value(&fixture, "b", "2");
    let mut events = fixture.events("/v1/topics/state/events?from=snapshot", &[]);
    let event = events.next().unwrap();
    let snapshot = event.json();
    assert_eq!((event.event.as_str(), &snapshot["topic"]), ("snapshot", &json!("state")));
    assert_eq!(snapshot["position"], event.id);
    assert!(!snapshot["state_base64"].as_str().unwrap().is_empty());
    publish_value(&fixture, "a", "3");
    let (_, record) = events.until("message");
    assert_eq!(record.data, "3");
}

#[test]
fn reconnected_state_subscriber_gets_the_missed_change() {
    let fixture = HttpServer::new();
    create_state_topic(&fixture);
    publish_value(&fixture, "a", "1");
    let mut events = fixture.events("/v1/topics/state/events?from=snapshot", &[]);
    let first = events.block().unwrap();
    assert!(first.starts_with("retry: "), "no id goes before the state: {first}");
    let (_, event) = events.until("snapshot");
    drop(events);
    publish_value(&fixture, "a", "2");
    let mut events = fixture.events("/v1/topics/state/events?from=snapshot", &[("last-event-id", &event.id)]);
    let next = loop {
        let event = events.next().unwrap();
        if event.event != "checksum" {
            break event;
        }
    };
    // The node sends the missing record or the whole state, whichever is shorter. With both, the client gets the same
    // state.
    assert!(next.event == "message" && next.data == "2" || next.event == "snapshot", "{next:?}");
}

#[test]
fn request_for_the_state_of_a_plain_topic_is_refused() {
    let fixture = HttpServer::new();
    fixture.publish("t", b"x");
    for query in ["from=snapshot", "on_gap=snapshot", "conflate=true"] {
        let response = fixture.get(&format!("/v1/topics/t/events?{query}"));
        assert_eq!((response.status, response.code().as_str()), (409, "NO_STATE"), "{query}");
    }
}
