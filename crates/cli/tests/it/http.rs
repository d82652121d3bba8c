//! Tests of the node's HTTP listener, to which `curl` sends the requests.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::dunlin::{Node, dunlin, signal};

pub fn curl(arguments: &[&str]) -> String {
    let out = Command::new("curl")
        .args(["-sS", "--max-time", "60"])
        .args(arguments)
        .output()
        .expect("curl is there");
    assert!(out.status.success(), "{arguments:?}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// Returns the URL of the HTTP listener that the READY line contains.
fn http_url(ready: &str) -> String {
    let address =
        ready.split_whitespace().find_map(|word| word.strip_prefix("http=")).expect("READY … http=…");
    format!("http://{address}")
}

#[test]
fn curl_and_dunlin_reach_the_same_topics() {
    let node = Node::start_with(&["--http-listen", "127.0.0.1:0"]);
    let url = http_url(&node.ready);
    assert!(node.ready.contains(&format!(" dashboard={url}/")), "{}", node.ready);
    assert!(curl(&["-H", "Accept: text/html", &format!("{url}/")]).contains("<title>"), "the page is there");
    assert!(curl(&[&format!("{url}/healthz")]).contains("\"alive\":true"));
    let receipt = curl(&["-d", "from curl", &format!("{url}/v1/topics/ticks")]);
    assert!(receipt.contains("\"acknowledged\":\"memory\""), "{receipt}");
    let read = node.run(&["sub", "ticks", "--from", "earliest", "--count", "1"]).done();
    assert!(read.contains("from curl"), "{read}");
    let metrics = curl(&[&format!("{url}/metrics")]);
    assert!(metrics.contains("dunlin_topic_records_total{topic=\"ticks\"} 1"), "{metrics}");
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn http_listener_is_off_by_default() {
    assert!(!Node::start().ready.contains("http="));
}

#[test]
fn json_log_format_prints_an_object_for_each_line() {
    let arguments = [
        "serve",
        "--listen",
        "off",
        "--http-listen",
        "127.0.0.1:0",
        "--log",
        "debug",
        "--log-format",
        "json",
    ];
    let mut child = dunlin(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 4_096];
    let read = child.stdout.as_mut().unwrap().read(&mut ready).unwrap();
    let url = http_url(std::str::from_utf8(&ready[..read]).unwrap());
    curl(&[&format!("{url}/readyz?x=1")]);
    signal("TERM", child.id());
    let out = child.wait_with_output().unwrap();
    let lines = String::from_utf8(out.stderr).unwrap();
    let objects: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let event = objects
        .iter()
        .find(|object| object["message"] == "the node answered a request")
        .expect("the request is logged");
    assert_eq!((&event["path"], &event["status"]), (&"/readyz".into(), &200.into()), "{event}");
    assert_eq!(event["level"], "DEBUG");
}

#[test]
fn autoscaler_reports_how_much_history_its_forecast_needs() {
    let worker = format!("'{}' task worker --kind work -- true", env!("CARGO_BIN_EXE_dunlin"));
    let forecast = |more: &[&str]| {
        let node =
            Node::start_with(&[&["--http-listen", "127.0.0.1:0", "--workers", &worker], more].concat());
        let url = format!("{}/v1/node/work", http_url(&node.ready));
        // The status shows that the autoscaler has run: it contains the decision to start a worker.
        let status = dunlin_wait::find("the autoscaler has run", || {
            let status: serde_json::Value = serde_json::from_str(&curl(&[&url])).expect("an object");
            status["scaling"]["events"].as_array().is_some_and(|events| !events.is_empty()).then_some(status)
        });
        assert_eq!(node.stop(), Some(0));
        status["scaling"]["forecast"].clone()
    };
    assert!(forecast(&[]).is_null(), "no season is configured");
    let without_history = forecast(&["--scale-season", "2m"]);
    assert_eq!(
        (&without_history["needed_ms"], &without_history["lead_ms"]),
        (&240_000.into(), &5_000.into()),
        "{without_history}"
    );
    assert!(without_history["wanted"].is_null() && without_history["used"] == false, "{without_history}");
}
