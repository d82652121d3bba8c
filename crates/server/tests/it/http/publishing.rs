use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dunlin::journal::RealDisk;
use dunlin::topic::{
    Event, Record, ReducerConfig, ReliableOptions, Start, Subscribe, SubscribeOptions, TopicConfig,
};
use dunlin::{Config, Node};
use dunlin_wait::PATIENCE;
use serde_json::json;

use super::HttpServer;

/// Calls `read` with each record that matches the pattern, and returns the results.
fn read_all<R>(node: &Node, pattern: &str, read: impl Fn(&Record<'_>) -> R) -> Vec<R> {
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let mut subscriber = node.subscribe(pattern, &options).unwrap();
    let mut found = Vec::new();
    while let Some(event) = subscriber.try_next().unwrap() {
        match event {
            Event::Record(record) => found.push(read(&record)),
            other => panic!("{other:?}"),
        }
    }
    found
}

fn text(record: &Record<'_>) -> String {
    format!("{}={}", record.subject(), String::from_utf8_lossy(record.payload()))
}

#[test]
fn http_headers_set_the_key_time_and_headers_of_a_record() {
    let fixture = HttpServer::new();
    let headers = [
        ("content-type", "application/json"),
        ("dunlin-key", "k1"),
        ("dunlin-event-time", "2026-11-21T09:30:00Z"),
        ("dunlin-header-trace", "abc"),
    ];
    let response = fixture.post("/v1/topics/orders.eu", &headers, b"{\"order\":1}");
    assert_eq!(response.status, 200, "{response:?}");
    let receipt = response.json();
    assert_eq!((&receipt["topic"], &receipt["seq"]), (&json!("orders.eu"), &json!(1)));
    assert_eq!((&receipt["acknowledged"], &receipt["duplicate"]), (&json!("memory"), &json!(false)));
    assert_eq!(receipt["position"], format!("{}-1", receipt["epoch"]));
    let received = read_all(&fixture.node, "orders.eu", |record| {
        let frame = &record.frame;
        let headers: Vec<_> = frame.headers().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
        (text(record), frame.key().map(<[u8]>::to_vec), frame.event_time_ns(), headers)
    });
    let wanted_headers = vec![
        ("content-type".to_owned(), b"application/json".to_vec()),
        ("trace".to_owned(), b"abc".to_vec()),
    ];
    let expected = (
        "orders.eu={\"order\":1}".to_owned(),
        Some(b"k1".to_vec()),
        Some(1_795_253_400_000_000_000),
        wanted_headers,
    );
    assert_eq!(received, [expected]);
}

#[test]
fn payload_may_be_any_bytes_or_empty() {
    let fixture = HttpServer::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for payload in [&bytes, &Vec::new()] {
        assert_eq!(fixture.post("/v1/topics/t", &[], payload).status, 200);
    }
    assert_eq!(read_all(&fixture.node, "t", |record| record.payload().to_vec()), [bytes, Vec::new()]);
}

#[test]
fn one_http_connection_serves_pipelined_requests_in_order() {
    let fixture = HttpServer::new();
    let mut peer = fixture.peer();
    for seq in 1..=20 {
        let response = peer.request("POST", "/v1/topics/t", &[], b"x");
        assert_eq!(response.json()["seq"], seq);
    }
    // Sends three requests without waiting for responses.
    for _ in 0..3 {
        peer.head("POST", "/v1/topics/t", &[("content-length", "1")]);
        peer.send(b"y");
    }
    let seqs: Vec<_> = (0..3).map(|_| peer.read_response().json()["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [21, 22, 23]);
}

#[test]
fn retried_http_publish_returns_the_first_sequence_number() {
    let fixture = HttpServer::new();
    let post = |seq: &str| {
        let headers =
            [("dunlin-producer", "42"), ("dunlin-producer-epoch", "1"), ("dunlin-producer-seq", seq)];
        fixture.post("/v1/topics/t", &headers, b"x")
    };
    assert_eq!(post("1").json()["duplicate"], false);
    assert_eq!(post("2").json()["duplicate"], false);
    let again = post("1").json();
    assert_eq!((&again["duplicate"], &again["seq"]), (&json!(true), &json!(1)));
    let hole = post("9");
    assert_eq!((hole.status, hole.code().as_str()), (409, "PRODUCER_GAP"));
    assert_eq!(hole.json()["numbers"], json!({"producer_sequence": 9, "last_accepted": 2}));
}

#[test]
fn refused_publish_reports_expected_and_last_sequence() {
    let fixture = HttpServer::new();
    let post = |expected: &str| fixture.post("/v1/topics/t", &[("dunlin-expect-seq", expected)], b"x");
    assert_eq!(post("0").status, 200);
    let refused = post("0");
    assert_eq!((refused.status, refused.code().as_str()), (412, "SEQ_MOVED"));
    assert_eq!(refused.json()["numbers"], json!({"expected_sequence": 0, "last_sequence": 1}));
    assert_eq!(post("1").status, 200);
}

#[test]
fn batch_of_json_records_is_appended_whole_and_in_order() {
    let fixture = HttpServer::new();
    let lines = concat!(
        "{\"payload\": \"text\", \"key\": \"k\", \"headers\": [{\"name\": \"a\", \"value\": \"b\"}]}\n",
        "{\"payload\": {\"price\": 1.10}}\n",
        "\n",
        "{\"payload_base64\": \"AP8=\", \"event_time\": \"1970-01-01T00:00:01Z\"}\n",
        "{\"payload\": \"\", \"event_time_ns\": \"9007199254740993\"}\n",
        "{\"payload\": \"\", \"event_time_ns\": 9007199254740993}\n",
    );
    let response =
        fixture.post("/v1/topics/t/batch", &[("content-type", "application/x-ndjson")], lines.as_bytes());
    let body = response.json();
    assert_eq!((response.status, &body["published"]), (200, &json!(5)), "{body}");
    let outcome = &body["outcomes"][0];
    assert_eq!(
        (&outcome["first_seq"], &outcome["seq"], &outcome["records"]),
        (&json!(1), &json!(5), &json!(5))
    );
    let payloads = read_all(&fixture.node, "t", |record| record.payload().to_vec());
    assert_eq!(payloads[..3], [b"text".to_vec(), b"{\"price\": 1.10}".to_vec(), vec![0, 255]]);
    let times = read_all(&fixture.node, "t", |r| r.frame.event_time_ns());
    assert_eq!(times[2..], [1_000_000_000, 9_007_199_254_740_993, 9_007_199_254_740_993].map(Some));
    assert_eq!(read_all(&fixture.node, "t", |r| r.frame.key().map(<[u8]>::to_vec))[0], Some(b"k".to_vec()));
}

#[test]
fn text_batch_makes_one_record_for_each_line() {
    let fixture = HttpServer::new();
    let response = fixture.post("/v1/topics/t/batch", &[("content-type", "text/plain")], b"one\n\nthree\n");
    assert_eq!(response.json()["published"], 3);
    assert_eq!(read_all(&fixture.node, "t", text), ["t=one", "t=", "t=three"]);
}

#[test]
fn batch_with_one_bad_line_publishes_nothing() {
    let fixture = HttpServer::new();
    let bad = [
        "{\"payload\": \"a\"}\n{\"payload\": ",
        "{\"payload\": \"a\"}\n{}",
        "{\"payload\": \"a\"}\n{\"payload\": \"b\", \"payload_base64\": \"\"}",
        "{\"payload\": \"a\"}\n{\"playload\": \"b\"}",
        "{\"payload\": \"a\"}\n{\"payload_base64\": \"!\"}",
        "{\"payload\": \"a\"}\n[\"b\"]",
        "\u{0}",
    ];
    for lines in bad {
        let response =
            fixture.post("/v1/topics/t/batch", &[("content-type", "application/x-ndjson")], lines.as_bytes());
        assert_eq!((response.status, response.code().as_str()), (400, "PROTOCOL"), "{lines}");
    }
    let empty = fixture.post("/v1/topics/t/batch", &[("content-type", "application/x-ndjson")], b"\n");
    assert_eq!(empty.code(), "BATCH");
    let other = fixture.post("/v1/topics/t/batch", &[("content-type", "image/png")], b"x");
    assert_eq!(other.status, 415);
    assert!(read_all(&fixture.node, "t", text).is_empty());
}

#[test]
fn encoding_of_an_http_batch_stops_at_the_size_limit() {
    let fixture = HttpServer::new();
    // Each line becomes a record. All records together would be four times as large as the limit.
    let lines = vec![b'\n'; 4 << 20];
    let response = fixture.post("/v1/topics/t/batch", &[("content-type", "text/plain")], &lines);
    assert_eq!((response.status, response.code().as_str()), (413, "RECORD_TOO_LARGE"));
    let (bytes, limit) = (&response.json()["numbers"]["bytes"], 16 << 20);
    assert!((limit..limit + 1_000).contains(&bytes.as_u64().unwrap()), "{bytes}");
    assert!(read_all(&fixture.node, "t", text).is_empty());
}

#[test]
fn http_batch_returns_one_outcome_for_each_partition() {
    let fixture = HttpServer::new();
    let config = TopicConfig { partitions: 4, ..TopicConfig::default() };
    fixture.node.create_topic("t", config, false).unwrap();
    let lines: String = (0..100).map(|n| format!("{{\"payload\": \"{n}\", \"key\": \"k{n}\"}}\n")).collect();
    let response =
        fixture.post("/v1/topics/t/batch", &[("content-type", "application/x-ndjson")], lines.as_bytes());
    let body = response.json();
    assert_eq!(body["published"], 100, "{body}");
    let outcomes = body["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 4);
    let records: u64 = outcomes.iter().map(|outcome| outcome["records"].as_u64().unwrap()).sum();
    assert_eq!(records, 100);
    let expecting = [("content-type", "application/x-ndjson"), ("dunlin-expect-seq", "0")];
    assert_eq!(fixture.post("/v1/topics/t/batch", &expecting, lines.as_bytes()).code(), "BATCH");
}

#[test]
fn durable_topic_acknowledges_after_the_sync() {
    let dir = tempfile::tempdir().unwrap();
    let (node, _) = Node::open(Config::default(), Arc::new(RealDisk), dir.path()).unwrap();
    let fixture = HttpServer::of(node, |_| ());
    let created = fixture.peer().request("PUT", "/v1/topics/kept", &[], br#"{"durable": {}}"#);
    assert_eq!(created.status, 201, "{created:?}");
    let response = fixture.post("/v1/topics/kept", &[], b"x");
    assert_eq!((response.status, &response.json()["acknowledged"]), (200, &json!("synced")));
    let stored = fixture.node.topic("kept").unwrap().logs()[0].info().stored.unwrap();
    assert_eq!(stored.synced_seq, 1);
}

#[test]
fn publish_that_waits_for_a_subscriber_delays_no_other_request() {
    let fixture = HttpServer::new();
    let reliable = Some(ReliableOptions { wait_max: Duration::from_secs(120), ..ReliableOptions::default() });
    fixture.node.create_topic("t", TopicConfig { reliable, ..super::short() }, false).unwrap();
    let options =
        SubscribeOptions { registered: true, start: Start::Earliest, ..SubscribeOptions::default() };
    let mut reader = fixture.node.subscribe("t", &options).unwrap();
    let address = fixture.address();
    let publisher = thread::spawn(move || {
        let mut peer = super::Peer::connect(address);
        // Publishes more records than the log has room for.
        (0..2_000).all(|_| peer.request("POST", "/v1/topics/t", &[], &[b'x'; 100]).status == 200)
    });
    // When the number of records no longer grows, the publisher waits for room. The only thread of the server must
    // still respond meanwhile.
    let (mut last, mut unchanged) = (0, 0);
    while unchanged < 100 {
        assert_eq!(fixture.get("/healthz").status, 200);
        let next = fixture.node.topic("t").unwrap().logs()[0].info().next_seq;
        unchanged = if next == last && next > 100 { unchanged + 1 } else { 0 };
        last = next;
    }
    assert!(!publisher.is_finished(), "it waits for the reader");
    let mut read = 0;
    while read < 2_000 {
        if let Event::Record(_) = reader.next_timeout(PATIENCE).unwrap().expect("records come") {
            read += 1;
        }
    }
    assert!(publisher.join().unwrap(), "all are published when there is room");
}

#[test]
fn publish_is_refused_if_its_topic_stays_full() {
    let fixture = HttpServer::new();
    let reliable = Some(ReliableOptions { wait_max: Duration::from_millis(1), ..ReliableOptions::default() });
    fixture.node.create_topic("t", TopicConfig { reliable, ..super::short() }, false).unwrap();
    let options =
        SubscribeOptions { name: "laggard".to_owned(), registered: true, ..SubscribeOptions::default() };
    let _reader = fixture.node.subscribe("t", &options).unwrap();
    let mut peer = fixture.peer();
    let refused = (0..5_000).find_map(|_| {
        let response = peer.request("POST", "/v1/topics/t", &[], &[b'x'; 100]);
        (response.status != 200).then_some(response)
    });
    let refused = refused.expect("the history is full at last");
    assert_eq!((refused.status, refused.code().as_str()), (503, "FULL"));
    let detail = refused.json()["detail"].to_string();
    assert!(detail.contains("laggard") && detail.contains("has not consumed record "), "{detail}");
    assert_eq!(refused.header("retry-after"), Some("1"));
}

/// Encodes a level of an order book with this price and a size of 5.
fn level(price: i64) -> Vec<u8> {
    [&[1, 1, 0, 0, 0, 0, 0, 0][..], &price.to_le_bytes(), &5_i64.to_le_bytes()].concat()
}

#[test]
fn http_publisher_learns_that_its_topic_was_recreated() {
    let fixture = HttpServer::new();
    let reducer = Some(ReducerConfig { kind: "book".to_owned(), ..ReducerConfig::default() });
    for config in [TopicConfig::default(), TopicConfig { reducer, ..TopicConfig::default() }] {
        let keeps_state = config.reducer.is_some();
        fixture.node.create_topic("t", config.clone(), false).unwrap();
        let post = |price, after: Option<&str>| {
            let headers: Vec<_> = after.map(|last| ("dunlin-last-position", last)).into_iter().collect();
            fixture.post("/v1/topics/t", &headers, &level(price))
        };
        let first = post(1, None).json();
        assert_eq!(first["new_epoch"], json!(false));
        let last = first["position"].as_str().unwrap().to_owned();
        let second = post(2, Some(&last)).json();
        assert_eq!((&second["seq"], &second["new_epoch"]), (&json!(2), &json!(false)));
        fixture.node.delete_topic("t").unwrap();
        let refused = post(3, Some(&last));
        assert_eq!((refused.status, fixture.node.topic("t").is_none()), (404, true), "none is made for it");
        fixture.node.create_topic("t", config, false).unwrap();
        let response = post(3, Some(&last));
        if keeps_state {
            assert!(
                response.status >= 400 && response.json().to_string().contains("STATE_LOST"),
                "{}",
                response.json()
            );
            assert_eq!(post(3, None).json()["seq"], json!(1), "nothing was appended");
        } else {
            assert_eq!((&response.json()["seq"], &response.json()["new_epoch"]), (&json!(1), &json!(true)));
        }
        fixture.node.delete_topic("t").unwrap();
    }
    let wrong = fixture.post("/v1/topics/t", &[("dunlin-last-position", "yesterday")], b"");
    assert_eq!(wrong.status, 400);
}
