//! Tests of `dunlin serve` and `dunlin dev`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::dunlin::{Node, Outcome, dunlin, run, signal};

#[test]
fn ready_line_shows_the_addresses_and_sigterm_stops_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("dunlin.sock");
    let socket_text = socket.to_str().unwrap();
    let node = Node::start_with(&["--unix", socket_text]);
    assert!(node.ready.starts_with("READY pid="), "{}", node.ready);
    assert!(node.ready.trim_end().ends_with(&format!(" unix={socket_text}")), "{}", node.ready);
    assert!(!node.url.ends_with(":0"), "{}", node.url);
    let publish =
        node.command(&["pub", "ticks", "tick", "--quiet", "--url", &format!("unix://{socket_text}")]);
    assert!(Outcome::of({ publish }.spawn().unwrap()).code == Some(0));
    assert_eq!(node.stop(), Some(0));
    assert!(!socket.exists(), "the socket goes with its node");
}

#[test]
fn dunlin_serve_reports_the_address_that_is_already_in_use() {
    let node = Node::start();
    let address = node.url.strip_prefix("dunlin://").unwrap();
    let outcome = run(&["serve", "--listen", address]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains(address) && outcome.out.is_empty(), "{outcome:?}");
}

#[test]
fn serve_refuses_a_non_loopback_address_without_insecure_flag() {
    let outcome = run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("--insecure-listen-without-tls"), "{outcome:?}");
    drop(Node::start_with(&["--insecure-listen-without-tls"]));
}

#[cfg(not(feature = "otel"))]
#[test]
fn build_without_otel_refuses_an_otlp_endpoint() {
    let outcome = run(&["serve", "--listen", "127.0.0.1:0", "--otlp-endpoint", "http://127.0.0.1:4318"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("cargo install --path crates/cli --features otel"), "{outcome:?}");
}

#[test]
fn dunlin_dev_prints_commands_to_try_and_ends_on_ctrl_c() {
    let words = ["dev", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let mut dev = dunlin(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines().map(Result::unwrap);
    let url = lines.find(|line| line.trim().starts_with("dunlin://")).unwrap();
    lines
        .find(|line| line.trim().starts_with("http://127.0.0.1:") && line.contains("/  the dashboard"))
        .unwrap();
    lines.find(|line| line.contains(&format!("export DUNLIN_URL={}", url.trim()))).unwrap();
    lines.find(|line| line.contains("dunlin sub ticks")).unwrap();
    lines.find(|line| line.contains("curl -N http://127.0.0.1:")).unwrap();
    lines.find(|line| line.contains("Ctrl-C")).unwrap();
    signal("INT", dev.id());
    assert_eq!(dev.wait().unwrap().code(), Some(0));
}

#[test]
fn error_for_a_nats_or_http_listener_names_the_protocol() {
    let listeners = ["--nats-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let node = Node::start_with(&listeners);
    for (protocol, text) in [("nats=", "a NATS listener"), ("http=", "an HTTP listener")] {
        let address = node.ready_field(protocol);
        let url = format!("dunlin://{address}");
        let outcome = run(&["topics", "list", "--url", &url]);
        assert!(outcome.code == Some(2) && outcome.err.contains(text), "{outcome:?}");
    }
}

#[test]
fn error_of_feed_serve_for_a_port_in_use_suggests_two_options() {
    let node = Node::start();
    let address = node.url.strip_prefix("dunlin://").unwrap().to_owned();
    let outcome = run(&["feed", "serve", "--config", "baseline_1x1_10k", "--listen", &address]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains("--url dunlin://") && outcome.err.contains("--listen"), "{outcome:?}");
}
