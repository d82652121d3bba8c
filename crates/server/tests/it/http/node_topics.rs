//! Tests the reports that a node makes about itself, over HTTP and in the topic `$node`.

use serde_json::Value;

use super::{HttpServer, short};

const ALL: [&str; 5] = ["stats", "topics", "cluster", "work", "spaces"];

fn number(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find(|line| line.split([' ', '{']).next() == Some(name));
    line.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn node_stats_over_http_equal_the_metrics() {
    let fixture = HttpServer::new();
    fixture.node.create_topic("t", short(), false).unwrap();
    for _ in 0..500 {
        fixture.publish("t", &[b'x'; 100]);
    }
    let _subscriber = fixture.events("/v1/topics/t/events?name=slow&from=earliest", &[]);
    let metrics = fixture.get("/metrics").text().to_owned();
    let stats = fixture.get("/v1/node/stats").json();
    assert_eq!(stats["totals"]["records"], number(&metrics, "dunlin_records_total"));
    assert_eq!(stats["totals"]["bytes"], number(&metrics, "dunlin_bytes_total"));
    assert_eq!(stats["memory"]["limit_bytes"], number(&metrics, "dunlin_memory_limit_bytes"));
    assert_eq!(stats["topics"], 1);
    assert_eq!(stats["missing"], Value::Array(Vec::new()));
    assert!(stats["process"]["rss_bytes"].as_u64().unwrap() > 1 << 20);
    let topics = fixture.get("/v1/node/topics").json();
    assert_eq!((&topics["topics"][0]["name"], &topics["topics"][0]["records"]), (&"t".into(), &500.into()));
    let cluster = fixture.get("/v1/node/cluster").json();
    let nodes = cluster["nodes"].as_array().unwrap();
    assert_eq!((nodes.len(), &nodes[0]["alive"]), (1, &true.into()));
    assert_eq!(nodes[0]["listeners"]["http"], fixture.address().to_string());
    assert!(cluster["tasks_shards"].is_array(), "{cluster}");
    assert_eq!(fixture.get("/v1/node/spaces").json()["worlds"], Value::Array(Vec::new()));
    assert_eq!(fixture.get("/v1/node/work").json()["tenants"], Value::Array(Vec::new()));
    assert_eq!(fixture.get("/v1/node/weather").status, 404);
}

#[test]
fn node_rates_are_null_in_the_first_second() {
    let fixture = HttpServer::new();
    fixture.publish("t", b"first");
    assert_eq!(fixture.get("/v1/node/stats").json()["rates"], Value::Null);
    loop {
        for _ in 0..100 {
            fixture.publish("t", b"next");
        }
        std::thread::sleep(dunlin_wait::POLL);
        let stats = fixture.get("/v1/node/stats").json();
        if let Some(rate) = stats["rates"]["records_per_s"].as_u64() {
            assert!(rate > 0);
            return;
        }
    }
}

#[test]
fn node_status_is_sent_at_once_and_then_every_second() {
    let fixture = HttpServer::new();
    let mut first = fixture.events("/v1/topics/$node.%3E/events?from=snapshot&as=json", &[]);
    let mut received_text = Vec::new();
    while received_text.len() < 2 * ALL.len() {
        let event = first.next().unwrap();
        if event.event == "message" {
            let record: Value = serde_json::from_str(&event.data).unwrap();
            let message: Value = serde_json::from_str(record["payload"].as_str().unwrap()).unwrap();
            assert!(message["at_ms"].as_u64().unwrap() > 1_700_000_000_000);
            let key = record["key"].as_str().unwrap().to_owned();
            assert_eq!(record["subject"], format!("$node.1.{key}"));
            received_text.push(key);
        }
    }
    assert_eq!(received_text, [ALL, ALL].concat());
    // A new subscriber must receive the last reports at once, without waiting for the next ones.
    let mut late = fixture.events("/v1/topics/$node.%3E/events?from=snapshot", &[]);
    let event = loop {
        let event = late.next().unwrap();
        if !event.data.is_empty() {
            break event;
        }
    };
    assert_eq!(event.event, "snapshot");
}

#[test]
fn clients_cannot_write_to_node_topics() {
    let fixture = HttpServer::new();
    assert!(fixture.post("/v1/topics/$node.1.stats", &[], b"{}").status >= 400);
    assert!(fixture.peer().request("DELETE", "/v1/topics/$node", &[], b"").status >= 400);
    assert!(fixture.peer().request("PUT", "/v1/topics/$node.x", &[], b"{}").status >= 400);
    assert_eq!(fixture.get("/v1/topics").json()["topics"], Value::Array(Vec::new()));
}
