//! Tests that a node sends traces to an OpenTelemetry collector. The command `cargo xtask otel` runs these tests.

mod collector;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use dunlin_server::grpc::proto::dunlin as v1;
use dunlin_wait::PATIENCE;
use v1::dunlin_client::DunlinClient;

use crate::dunlin::{Node, run};
use collector::{Collector, ExportedSpan};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn start_node(collector: &str) -> Node {
    Node::start_with(&[
        "--otlp-endpoint",
        collector,
        "--http-listen",
        "127.0.0.1:0",
        "--nats-listen",
        "127.0.0.1:0",
        "--grpc-listen",
        "127.0.0.1:0",
    ])
}

fn address<'n>(node: &'n Node, protocol: &str) -> &'n str {
    let found = node.ready.split_whitespace().find_map(|word| word.strip_prefix(&format!("{protocol}=")));
    found.expect("READY names the listener")
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends an HTTP request whose headers name a parent span. `line` is the method and the path. Returns the whole
/// response.
fn request(node: &Node, line: &str, body: &str) -> String {
    let mut stream = connect(address(node, "http"));
    let bytes = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {bytes}\r\n");
    let parent = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n\r\n");
    stream.write_all((head + &parent + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn call_grpc(node: &Node) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = tonic::transport::Endpoint::new(format!("http://{}", address(node, "grpc"))).unwrap();
        let mut client = DunlinClient::new(endpoint.connect().await.unwrap());
        client.get_stats(v1::GetStatsRequest::default()).await.unwrap();
        let missing = v1::DescribeTopicRequest { name: "no.such.topic".to_owned() };
        assert_eq!(client.describe_topic(missing).await.unwrap_err().code(), tonic::Code::NotFound);
    });
}

fn nats_session(node: &Node) {
    let mut stream = BufReader::new(connect(address(node, "nats")));
    let send = |stream: &mut BufReader<TcpStream>, text: &str| {
        stream.get_mut().write_all(text.as_bytes()).unwrap();
    };
    send(&mut stream, "CONNECT {\"verbose\":false,\"name\":\"probe\"}\r\nSUB t 1\r\nPING\r\n");
    let mut line = String::new();
    while line != "PONG\r\n" {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the node answers PING");
    }
    send(&mut stream, "PUB t 1\r\na\r\nPUB t 1\r\nb\r\n");
    for _ in 0..4 {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the node delivers the message");
    }
    send(&mut stream, "NONSENSE\r\n");
    // This read waits until the node has closed the connection. Its bytes and its result do not matter.
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn spans_continue_the_traces_of_their_requests() {
    let collector = Collector::start();
    let node = start_node(&collector.url());
    assert!(request(&node, "POST /v1/topics/orders.eu", "{}").starts_with("HTTP/1.1 200 "));
    assert!(request(&node, "GET /v1/topics/no.such.topic", "").starts_with("HTTP/1.1 404 "));
    call_grpc(&node);
    nats_session(&node);
    let out = node.run(&["sub", "orders.eu", "--from", "earliest", "--count", "1", "--name", "audit"]);
    assert!(out.done().contains("{}"));
    // A node that ends sends its remaining spans first.
    assert_eq!(node.stop(), Some(0));

    let spans = collector.spans();
    let publish = find(&spans, "POST /v1/topics/{name}");
    assert_eq!((publish.trace.as_str(), publish.parent.as_str()), (TRACE, PARENT));
    assert_eq!(publish.text("http.request.method"), "POST");
    assert_eq!(publish.text("http.route"), "/v1/topics/{name}");
    assert_eq!(publish.text("url.path"), "/v1/topics/orders.eu");
    assert_eq!((publish.number("http.response.status_code"), publish.is_server), (200, true));
    assert_eq!(find(&spans, "GET /v1/topics/{name}").number("http.response.status_code"), 404);

    let stats = find(&spans, "dunlin.v1.Dunlin/GetStats");
    assert_eq!((stats.text("rpc.system"), stats.text("rpc.service")), ("grpc", "dunlin.v1.Dunlin"));
    assert_eq!((stats.text("rpc.method"), stats.number("rpc.grpc.status_code")), ("GetStats", 0));
    assert_eq!(find(&spans, "dunlin.v1.Dunlin/DescribeTopic").number("rpc.grpc.status_code"), 5);

    let nats = find(&spans, "nats session");
    assert_eq!((nats.text("dunlin.client.name"), nats.number("dunlin.records.sent")), ("probe", 2));
    assert!(nats.is_error && nats.text("dunlin.session.end").contains("Unknown Protocol"), "{nats:?}");
    assert_eq!(nats.text("network.peer.address"), "127.0.0.1");
    let session = find(&spans, "dunlin session");
    assert!(!session.is_error && session.number("dunlin.records.sent") == 1, "{session:?}");
    assert!(spans.iter().all(|span| span.service == "dunlin"), "{spans:?}");
    assert_eq!(spans.len(), 6, "and nothing else: {spans:?}");
}

#[test]
fn unreachable_collector_does_not_stop_the_node() {
    // No program listens on port 1, because only root may open it.
    let node = start_node("http://127.0.0.1:1");
    assert!(request(&node, "POST /v1/topics/orders.eu", "{}").starts_with("HTTP/1.1 200 "));
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn otlp_endpoint_must_be_an_http_url() {
    for endpoint in ["https://collector:4318", "127.0.0.1:4318"] {
        let outcome = run(&["serve", "--listen", "127.0.0.1:0", "--otlp-endpoint", endpoint]);
        assert!(
            outcome.code == Some(2) && outcome.err.contains("does not begin with http://"),
            "{outcome:?}"
        );
    }
}

#[track_caller]
fn find<'s>(spans: &'s [ExportedSpan], name: &str) -> &'s ExportedSpan {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no span {name:?} in {spans:#?}"))
}
