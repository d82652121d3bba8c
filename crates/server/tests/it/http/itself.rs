//! Tests the node's reports about itself.

use serde_json::Value;

use super::{HttpServer, short};

const ALL: [&str; 5] = ["stats", "topics", "cluster", "work", "spaces"];

fn number(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find(|line| line.split([' ', '{']).next() == Some(name));
    line.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn node_stats_over_http_equal_the_metrics() {
    let stage = HttpServer::new();
    stage.node.create_topic("t", short(), false).unwrap();
    for _ in 0..500 {
        stage.publish("t", &[b'x'; 100]);
    }
    let _subscriber = stage.events("/v1/topics/t/events?name=slow&from=earliest", &[]);
    let metrics = stage.get("/metrics").text().to_owned();
    let stats = stage.get("/v1/node/stats").json();
    assert_eq!(stats["totals"]["records"], number(&metrics, "dunlin_records_total"));
    assert_eq!(stats["totals"]["bytes"], number(&metrics, "dunlin_bytes_total"));
    assert_eq!(stats["memory"]["limit_bytes"], number(&metrics, "dunlin_memory_limit_bytes"));
    assert_eq!(stats["topics"], 1);
    assert_eq!(stats["missing"], Value::Array(Vec::new()));
    assert!(stats["process"]["rss_bytes"].as_u64().unwrap() > 1 << 20);
    let topics = stage.get("/v1/node/topics").json();
    assert_eq!((&topics["topics"][0]["name"], &topics["topics"][0]["records"]), (&"t".into(), &500.into()));
    let cluster = stage.get("/v1/node/cluster").json();
    let nodes = cluster["nodes"].as_array().unwrap();
    assert_eq!((nodes.len(), &nodes[0]["alive"]), (1, &true.into()));
    assert_eq!(nodes[0]["listeners"]["http"], stage.address().to_string());
    assert!(cluster["tasks_shards"].is_array(), "{cluster}");
    assert_eq!(stage.get("/v1/node/spaces").json()["worlds"], Value::Array(Vec::new()));
    assert_eq!(stage.get("/v1/node/work").json()["tenants"], Value::Array(Vec::new()));
    assert_eq!(stage.get("/v1/node/weather").status, 404);
}

#[test]
fn node_rates_are_null_in_the_first_second() {
    let stage = HttpServer::new();
    stage.publish("t", b"first");
    assert_eq!(stage.get("/v1/node/stats").json()["rates"], Value::Null);
    loop {
        for _ in 0..100 {
            stage.publish("t", b"next");
        }
        std::thread::sleep(dunlin_wait::POLL);
        let stats = stage.get("/v1/node/stats").json();
        if let Some(rate) = stats["rates"]["records_per_s"].as_u64() {
            assert!(rate > 0);
            return;
        }
    }
}

#[test]
fn node_figures_are_sent_at_once_and_then_every_second() {
    let stage = HttpServer::new();
    let mut first = stage.events("/v1/topics/$node.%3E/events?from=snapshot&as=json", &[]);
    let mut heard = Vec::new();
    while heard.len() < 2 * ALL.len() {
        let told = first.next().unwrap();
        if told.event == "message" {
            let record: Value = serde_json::from_str(&told.data).unwrap();
            let said: Value = serde_json::from_str(record["payload"].as_str().unwrap()).unwrap();
            assert!(said["at_ms"].as_u64().unwrap() > 1_700_000_000_000);
            let key = record["key"].as_str().unwrap().to_owned();
            assert_eq!(record["subject"], format!("$node.1.{key}"));
            heard.push(key);
        }
    }
    assert_eq!(heard, [ALL, ALL].concat());
    // A new subscriber must not have to wait for the next second.
    let mut late = stage.events("/v1/topics/$node.%3E/events?from=snapshot", &[]);
    let told = loop {
        let told = late.next().unwrap();
        if !told.data.is_empty() {
            break told;
        }
    };
    assert_eq!(told.event, "snapshot");
}

#[test]
fn clients_cannot_write_to_node_topics() {
    let stage = HttpServer::new();
    assert!(stage.post("/v1/topics/$node.1.stats", &[], b"{}").status >= 400);
    assert!(stage.peer().request("DELETE", "/v1/topics/$node", &[], b"").status >= 400);
    assert!(stage.peer().request("PUT", "/v1/topics/$node.x", &[], b"{}").status >= 400);
    assert_eq!(stage.get("/v1/topics").json()["topics"], Value::Array(Vec::new()));
}
