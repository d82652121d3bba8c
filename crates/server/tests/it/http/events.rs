use dunlin::topic::{Draft, Payload, Publish, RecordMeta, TopicConfig};
use serde_json::json;

use super::{HttpServer, short};

#[test]
fn event_stream_sends_each_record_with_its_position() {
    let fixture = HttpServer::new();
    let mut events = fixture.events("/v1/topics/ticks/events", &[]);
    let epoch = fixture.publish("ticks", b"one").position.epoch;
    fixture.publish("ticks", b"two");
    for (seq, data) in [(1, "one"), (2, "two")] {
        let event = events.next().unwrap();
        assert_eq!(
            (event.id, event.event.as_str(), event.data.as_str()),
            (format!("{epoch}-{seq}"), "message", data)
        );
    }
}

#[test]
fn event_stream_delivers_payloads_unchanged() {
    let fixture = HttpServer::new();
    for payload in ["", " a", "a\nb\n", "\n", "data: x\n\nevent: y", "ä😀"] {
        fixture.publish("t", payload.as_bytes());
    }
    fixture.publish("t", b"\x00\xff");
    fixture.publish("t", b"a\r\nb");
    let mut events = fixture.events("/v1/topics/t/events?from=earliest", &[]);
    assert_eq!(events.records(6), ["", " a", "a\nb\n", "\n", "data: x\n\nevent: y", "ä😀"]);
    // A payload must be sent as base64 if it is not text, or if an event would change its line ends.
    for data in ["AP8=", "YQ0KYg=="] {
        let event = events.next().unwrap();
        assert_eq!((event.event.as_str(), event.data.as_str()), ("base64", data));
    }
}

#[test]
fn json_event_has_every_field_of_a_record() {
    let fixture = HttpServer::new();
    let headers = [("a", b"b".as_slice())];
    let meta =
        RecordMeta { key: Some(b"k"), event_time_ns: Some(7), headers: &headers, ..RecordMeta::default() };
    let draft = Draft { meta, payload: Payload::Copied(b"\xff") };
    fixture.node.publisher("t.x").unwrap().publish(draft).unwrap();
    let event = fixture.events("/v1/topics/t.*/events?from=earliest&as=json", &[]).next().unwrap();
    let received = event.json();
    let expected = json!({
        "topic": "t.x", "partition": 0, "subject": "t.x", "epoch": received["epoch"], "seq": 1,
        "position": format!("{}-1", received["epoch"]), "append_time_ns": received["append_time_ns"],
        "event_time_ns": "7", "key": "k", "headers": [{"name": "a", "value": "b"}], "payload_base64": "/w==",
    });
    assert_eq!(received, expected);
    assert!(received["append_time_ns"].as_str().is_some_and(|ns| ns.parse::<u64>().is_ok()), "{received}");
}

#[test]
fn event_stream_starts_at_the_requested_position_or_time() {
    let fixture = HttpServer::new();
    let first = fixture.publish("t", b"1");
    fixture.publish("t", b"2");
    let before_third = dunlin::now_ns();
    fixture.publish("t", b"3");
    let from = |from: &str| {
        let mut events = fixture.events(&format!("/v1/topics/t/events?from={from}"), &[]);
        events.next().unwrap().data
    };
    assert_eq!(from("earliest"), "1");
    assert_eq!(from(&first.position.to_string()), "2");
    assert_eq!(from(&before_third.to_string()), "3");
    assert_eq!(from("1h"), "1");
    let mut latest = fixture.events("/v1/topics/t/events", &[]);
    fixture.publish("t", b"4");
    assert_eq!(latest.next().unwrap().data, "4");
}

#[test]
fn http_wildcard_subscriber_reads_existing_and_later_topics() {
    let fixture = HttpServer::new();
    fixture.publish("orders.eu", b"1");
    let mut events = fixture.events("/v1/topics/orders.*/events?from=earliest&as=json", &[]);
    let mut subject = || events.next().unwrap().json()["subject"].clone();
    assert_eq!(subject(), "orders.eu");
    fixture.publish("orders.us", b"2");
    assert_eq!(subject(), "orders.us");
    // URLs must not contain `>`, so it is percent-encoded.
    let mut all = fixture.events("/v1/topics/%3E/events?from=earliest", &[]);
    let mut received = all.records(2);
    received.sort();
    assert_eq!(received, ["1", "2"]);
}

#[test]
fn stalled_event_stream_uses_little_memory_and_gets_exact_gaps() {
    let fixture = HttpServer::new();
    fixture.node.create_topic("t", short(), false).unwrap();
    let mut events = fixture.events("/v1/topics/t/events?name=sleeper", &[]);
    let before = fixture.node.budget().used();
    let mut publisher = fixture.node.publisher("t").unwrap();
    let payload = "x".repeat(1_000);
    // Publishes much more than fits in the sockets' buffers.
    for _ in 0..60_000 {
        publisher.publish(payload.as_str()).unwrap();
    }
    let held = fixture.node.budget().used() - before;
    assert!(held < 1 << 20, "{held} bytes are held for a history of 64 KiB and a subscriber that sleeps");
    let last = publisher.publish("end").unwrap().position.seq;
    let (mut read, mut lost) = (0, 0);
    loop {
        let event = events.next().unwrap();
        match event.event.as_str() {
            "message" if event.data == "end" => break,
            "message" => read += 1,
            "gap" => {
                let gap = event.json();
                assert_eq!(event.id, format!("{}-{}", gap["epoch"], gap["last"]));
                lost += gap["records"].as_u64().unwrap();
            }
            "lagging" => assert!(event.json()["behind"].as_u64().unwrap() > 0),
            other => panic!("{other}"),
        }
    }
    assert!(lost > 0, "the subscriber received a gap");
    assert_eq!(read + lost + 1, last, "every record was read or is in a gap");
}

#[test]
fn deleted_topic_is_reported_and_ends_the_event_stream() {
    let fixture = HttpServer::new();
    let mut events = fixture.events("/v1/topics/t/events?from=earliest", &[]);
    fixture.publish("t", b"1");
    assert_eq!(events.records(1), ["1"]);
    fixture.node.delete_topic("t").unwrap();
    let event = events.next().unwrap();
    assert_eq!((event.event.as_str(), &event.json()["topic"]), ("deleted", &json!("t")));
    let end = events.next().unwrap();
    assert_eq!((end.event.as_str(), &end.json()["title"]), ("end", &json!("CLOSED")));
    assert_eq!(events.next(), None);
}

#[test]
fn stopping_node_ends_the_event_stream_with_a_reason() {
    let HttpServer { node, server } = HttpServer::new();
    let fixture = HttpServer { node, server };
    let mut events = fixture.events("/v1/topics/t/events", &[]);
    fixture.publish("t", b"1");
    assert_eq!(events.records(1), ["1"]);
    let HttpServer { node: _node, server } = fixture;
    server.stop();
    let end = events.next().unwrap();
    assert_eq!((end.event.as_str(), &end.json()["title"]), ("end", &json!("SHUTTING_DOWN")));
    assert_eq!(events.next(), None);
}

#[test]
fn idle_event_stream_sends_comments() {
    let fixture = HttpServer::with(|config| config.limits.http.heartbeat_ms = 20);
    let mut events = fixture.events("/v1/topics/t/events", &[]);
    for _ in 0..5 {
        events.block().unwrap();
    }
    fixture.publish("t", b"1");
    assert_eq!(events.records(1), ["1"]);
}

#[test]
fn event_stream_ends_at_a_gap_if_parameter_on_gap_is_fail() {
    let fixture = HttpServer::new();
    fixture.node.create_topic("t", short(), false).unwrap();
    let first = fixture.publish("t", b"x").position;
    (0..5_000).for_each(|_| drop(fixture.publish("t", &[b'x'; 100]).position.seq.to_string()));
    let path = format!("/v1/topics/t/events?on_gap=fail&from={first}");
    let mut events = fixture.events(&path, &[]);
    let (_, gap) = events.until("gap");
    assert_eq!(gap.json()["first"], 2);
    assert_eq!(events.next().unwrap().json()["title"], "LOST");
    assert_eq!(events.next(), None);
}

#[test]
fn records_of_other_subjects_are_skipped_and_counted_as_read() {
    let fixture = HttpServer::with(|config| config.limits.http.heartbeat_ms = 20);
    let config = TopicConfig { pattern: Some("orders.>".to_owned()), ..TopicConfig::default() };
    fixture.node.create_topic("orders", config, false).unwrap();
    let mut events = fixture.events("/v1/topics/orders.eu/events", &[]);
    fixture.publish("orders.eu", b"1");
    assert_eq!(events.records(1), ["1"]);
    let last = fixture.publish("orders.us", b"2").position.to_string();
    // The id advances past the last record, although this subscriber does not receive it. A client that resumes after
    // this id misses nothing.
    while events.block().unwrap() != format!("id: {last}") {}
}
