//! Tests of `dunlin topics` and `dunlin log dump`.

use dunlin_client::topic::{ReducerConfig, TopicConfig};
use dunlin_client::{Client, ClientOptions};
use serde_json::Value;

use crate::dunlin::Node;

#[test]
fn created_topic_has_the_requested_settings() {
    let node = Node::start();
    let create = ["topics", "create", "orders", "--pattern", "orders.>", "--partitions", "2"];
    let create =
        [&create[..], &["--retention-bytes", "1MiB", "--retention-records", "1000", "--retention-age", "1h"]]
            .concat();
    let create = [&create[..], &["--reliable", "--subscribers-max", "3", "--when-full", "evict"]].concat();
    node.run(&create).done();
    assert_eq!(node.run(&create).code, Some(1), "the topic exists");
    node.run(&[&create[..], &["--or-same"]].concat()).done();

    let described: Value =
        serde_json::from_str(&node.run(&["topics", "describe", "orders", "--json"]).done()).unwrap();
    assert_eq!(described["pattern"], "orders.>");
    assert_eq!(described["retention_bytes"], 1 << 20);
    assert_eq!(described["retention_records"], 1000);
    assert_eq!(described["retention_ms"], 3_600_000);
    assert_eq!(described["reliable"]["subscribers_max"], 3);
    assert_eq!(described["reliable"]["when_full"], "evict");
    assert_eq!(described["logs"].as_array().unwrap().len(), 2);

    node.run(&["pub", "orders.eu", "x", "--key", "k"]).done();
    let listed = node.run(&["topics", "list"]).done();
    assert!(
        listed.starts_with("TOPIC") && listed.contains("orders.>") && listed.contains("reliable"),
        "{listed}"
    );
    assert!(node.run(&["topics", "describe", "orders"]).done().contains("orders.>"));
    node.run(&["topics", "delete", "orders"]).done();
    assert_eq!(node.run(&["topics", "list", "--json"]).done(), "");
    let missing = node.run(&["topics", "describe", "orders"]);
    assert_eq!(missing.code, Some(1));
    assert_eq!(missing.err.lines().next().unwrap().matches("NO_TOPIC").count(), 1, "{missing:?}");
    assert_eq!(node.run(&["topics", "create", "none", "--partitions", "0"]).code, Some(2));
}

#[test]
fn list_of_topics_contains_the_kind_of_each_topic() {
    let node = Node::start();
    let client = Client::connect(&node.url, ClientOptions::default()).unwrap();
    let is_state = |number: &usize| number.is_multiple_of(3);
    for number in 0..600 {
        let reducer =
            is_state(&number).then(|| ReducerConfig { kind: "last".to_owned(), ..ReducerConfig::default() });
        let config = TopicConfig { reducer, ..TopicConfig::default() };
        client.create_topic(&format!("t.{number:03}"), &config, false).unwrap();
    }
    let listed = node.run(&["topics", "list", "--json"]).done();
    let topics: Vec<(String, bool)> = listed
        .lines()
        .map(|line| {
            let topic: Value = serde_json::from_str(line).unwrap();
            (topic["topic"].as_str().unwrap().to_owned(), topic["kind"] == serde_json::json!(["state last"]))
        })
        .collect();
    let expected: Vec<_> = (0..600).map(|number| (format!("t.{number:03}"), is_state(&number))).collect();
    assert_eq!(topics, expected);
}

#[test]
fn dump_shows_every_field_of_a_record_and_ends() {
    let node = Node::start();
    node.run(&["topics", "create", "orders", "--pattern", "orders.>"]).done();
    node.run(&[
        "pub",
        "orders.eu",
        "one\ntwo",
        "--key",
        "k 1",
        "-H",
        "trace=7f",
        "--event-time",
        "2026-01-02T03:04:05Z",
    ])
    .done();
    node.run(&["pub", "orders.us", "x", "--expires-in", "1h", "--reply", "answers"]).done();
    let out = node.run(&["log", "dump", "orders"]).done();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(
        lines[0].starts_with("0/")
            && lines[0].contains(
                "  orders.eu  event=2026-01-02T03:04:05.000000000Z  key=k 1  trace=7f  | one\\ntwo"
            ),
        "{out}"
    );
    assert!(
        lines[1].contains("  orders.us  expires=") && lines[1].ends_with("  reply=answers  | x"),
        "{out}"
    );
    let first = node.run(&["log", "dump", "orders", "--json", "--count", "1"]).done();
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap()["subject"], "orders.eu");
    node.run(&["topics", "create", "empty"]).done();
    assert_eq!(node.run(&["log", "dump", "empty"]).done(), "");
}

#[test]
fn dump_succeeds_if_no_record_is_left_to_print() {
    let node = Node::start();
    node.run(&["topics", "create", "orders", "--pattern", "orders.>"]).done();
    node.run(&["pub", "orders.eu", "one"]).done();
    node.run(&["pub", "orders.eu", "expired", "--expires-in", "1ms"]).done();
    let payloads = |from: &str| {
        let dumped = node.run(&["log", "dump", "orders", "--from", from]).done();
        dumped.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    dunlin_wait::until("the last record has expired", || payloads("earliest") == ["one"]);
    assert!(payloads("latest").is_empty());
    assert!(payloads("2100-01-01T00:00:00Z").is_empty());
}

#[test]
fn dunlin_topics_describe_shows_the_state_of_a_topic() {
    let node = Node::start();
    node.run(&["feed", "serve", "--config", "baseline_1x1_10k", "--time", "100ms"]).done();
    let text = node.run(&["topics", "describe", "md.BTC-USD"]).done();
    assert!(text.contains("\n  state       ") && text.contains("\n              log 0: at "), "{text}");
    let object: Value =
        serde_json::from_str(&node.run(&["topics", "describe", "md.BTC-USD", "--json"]).done()).unwrap();
    assert!(object["reducer"].is_string() && object["durable"].is_null(), "{object}");
}
