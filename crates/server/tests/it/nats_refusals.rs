//! Tests that a NATS client stays connected after a refusal.
//!
//! After the text of a permission violation, client libraries inform the program and continue: nats.go 1.55
//! (`processErr`), nats.py 2 (`_process_err`) and nats.js 3 (`processError`). After an unknown text, nats.go and
//! nats.py close the connection and do not reconnect.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dunlin::journal::{Disk, MemoryDisk};
use dunlin::raft::{RaftMember, RequestLane, ResponseFuture, Transport};
use dunlin::topic::{ReducerConfig, ReliableOptions, Retention, TopicConfig};
use dunlin::{Config, Node, NodeLimits, Tasks, TasksLimits};
use dunlin_server::Server;

use crate::nats_peer::{NatsPeer, serve_nats};
use crate::serve_node;

/// Checks that client libraries take this `-ERR` line for a violation of the permission for `operation` on `subject`,
/// and stay connected. Returns the text of the error.
pub fn permission_violation(line: &str, operation: &str, subject: &str) -> String {
    let text = line.strip_prefix("-ERR '").and_then(|rest| rest.strip_suffix('\'')).expect(line);
    // nats.go and nats.py compare the text in lower case. nats.go and nats.js also expect the operation before the
    // quoted subject.
    assert!(text.to_lowercase().starts_with("permissions violation"), "{line}");
    assert!(!text.to_lowercase().contains("stale connection"), "{line}");
    let (_, rest) = text.split_once(&format!("{operation} to \"")).expect(line);
    let word = rest.split(' ').next().unwrap();
    assert_eq!(word.rsplit_once('"').expect(line).0, subject, "{line}");
    text.to_owned()
}

fn serve_limited(change: impl FnOnce(&mut NodeLimits)) -> (Node, Server) {
    let mut config = Config::default();
    change(&mut config.limits);
    let node = Node::start(config).unwrap();
    let server = serve_node(&node, |config| config.nats = vec![([127, 0, 0, 1], 0).into()]);
    (node, server)
}

/// Checks that the client is connected, and can subscribe and publish to another subject.
fn assert_still_connected(peer: &mut NatsPeer) {
    peer.send_line("SUB other alive");
    peer.publish("other", "still here");
    assert_eq!(peer.text().1, "still here");
    peer.send_line("UNSUB alive");
    peer.ping();
}

#[test]
fn refused_records_leave_the_client_connected() {
    let (node, server) = serve_nats(|_| {});
    let reducer = Some(ReducerConfig { kind: "book".to_owned(), ..ReducerConfig::default() });
    node.create_topic("book", TopicConfig { reducer, ..TopicConfig::default() }, false).unwrap();
    let small = TopicConfig { record_bytes_max: 1_024, ..TopicConfig::default() };
    node.create_topic("small", small, false).unwrap();
    let mut peer = NatsPeer::open(&server);
    let (long, large) = ("a".repeat(305), "x".repeat(2_000));
    for (subject, payload, why) in [
        ("book", "no book", "the topic's state refuses it"),
        ("small", &large, "record_bytes_max"),
        (&long, "x", "subject of 305 bytes exceeds the limit of 255 bytes"),
        ("a..b", "x", "has an empty token"),
        ("a.*", "x", "'*'"),
        ("a\u{200b}b", "x", "where it is not allowed"),
    ] {
        peer.publish(subject, payload);
        let text = permission_violation(&peer.line(), "Publish", subject);
        assert!(text.contains(why), "{text}");
        assert_still_connected(&mut peer);
    }
    let headers = format!("NATS/1.0\r\n{}\r\n", "A: 1\r\n".repeat(1_025));
    peer.send(format!("HPUB many {0} {0}\r\n{headers}\r\n", headers.len()).as_bytes());
    let text = permission_violation(&peer.line(), "Publish", "many");
    assert!(text.ends_with("more than 1024 headers"), "{text}");
    assert_still_connected(&mut peer);
    peer.send_line("PUB a bad..reply 0\r\n");
    assert!(peer.line().starts_with("-ERR 'Permissions Violation for Publish with Reply of \"bad..reply\""));
    assert_still_connected(&mut peer);
}

#[test]
fn full_reliable_topic_leaves_its_publisher_connected() {
    let (node, server) = serve_nats(|_| {});
    let reliable = ReliableOptions { wait_max: Duration::from_millis(10), ..ReliableOptions::default() };
    let retention = Retention { bytes: 64 << 10, records: None, age: None };
    let config = TopicConfig { retention, reliable: Some(reliable), ..TopicConfig::default() };
    let topic = node.create_topic("full", config, false).unwrap();
    // A registered subscriber that never reads keeps the topic full.
    let options = dunlin::topic::SubscribeOptions { registered: true, ..Default::default() };
    let _reader = node.subscribe("full", &options).unwrap();
    let mut peer = NatsPeer::open(&server);
    let large = "x".repeat(8 << 10);
    (0..20).for_each(|_| peer.publish("full", &large));
    let text = permission_violation(&peer.line(), "Publish", "full");
    assert!(text.starts_with("Permissions Violation for Publish to \"full\": "), "{text}");
    assert!(text.contains("has not consumed record 1 after ") && !text.contains("after 0ns"), "{text}");
    drop(topic);
    drop(peer);
}

#[test]
fn client_over_a_limit_of_the_node_stays_connected() {
    let (_node, server) = serve_limited(|limits| {
        limits.topics_max = 3;
        limits.groups_max = 1;
    });
    let mut peer = NatsPeer::open(&server);
    assert_still_connected(&mut peer);
    peer.send_line("SUB other crew 1\r\nSUB other others 2");
    let text = permission_violation(&peer.line(), "Subscription", "other");
    assert!(text.contains("using queue \"others\": ") && text.contains("groups_max"), "{text}");
    peer.send_line("UNSUB 1");
    let refused = (0..4).map(|n| format!("t{n}")).find_map(|subject| {
        peer.publish(&subject, "x");
        peer.send_line("PING");
        let line = peer.line();
        (line != "PONG").then(|| {
            assert_eq!(peer.line(), "PONG");
            permission_violation(&line, "Publish", &subject)
        })
    });
    assert!(refused.expect("one of four topics is too many").contains("topics_max"));
    assert_still_connected(&mut peer);
}

#[test]
fn refused_subscriptions_leave_the_client_connected() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    let long = format!("{}.>", "a".repeat(305));
    for (subject, why) in [
        (long.as_str(), "subject of 307 bytes exceeds the limit of 255 bytes"),
        ("a*b", "where it is not allowed"),
        ("a q..q", "invalid queue name: "),
    ] {
        peer.send_line(&format!("SUB {subject} 1"));
        let text = permission_violation(&peer.line(), "Subscription", subject.split(' ').next().unwrap());
        assert!(text.contains(why), "{text}");
        assert_still_connected(&mut peer);
    }
    let mut plain = NatsPeer::new(&server);
    plain.send_line("CONNECT {\"verbose\":false,\"headers\":false}");
    plain.send_line("SUB $DUNLIN.seq.a 1");
    let text = permission_violation(&plain.line(), "Subscription", "$DUNLIN.seq.a");
    assert!(text.contains("headers"), "{text}");
    assert_still_connected(&mut plain);
}

#[test]
fn pedantic_client_gets_the_nats_error_for_an_invalid_subject() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::new(&server);
    peer.send_line("CONNECT {\"verbose\":false,\"pedantic\":true}");
    peer.publish("a..b", "x");
    assert_eq!(peer.line(), "-ERR 'Invalid Publish Subject'");
    assert_still_connected(&mut peer);
}

#[test]
fn each_record_of_a_refused_burst_gets_its_own_error() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    // The refusals of 3,000 records have more text than a session buffers for its client.
    for count in [20, 3_000] {
        peer.send(format!("{}PING\r\n", "PUB a..b 1\r\nx\r\n".repeat(count)).as_bytes());
        for _ in 0..count {
            permission_violation(&peer.line(), "Publish", "a..b");
        }
        assert_eq!(peer.line(), "PONG");
    }
    assert_still_connected(&mut peer);
}

#[test]
fn headers_and_reply_subjects_survive_in_a_burst_of_messages() {
    let (_node, server) = serve_nats(|_| {});
    let mut reader = NatsPeer::open(&server);
    reader.subscribe("s 1");
    let mut peer = NatsPeer::open(&server);
    peer.send(
        b"PUB s 1\r\na\r\nHPUB s 18 19\r\nNATS/1.0\r\nA: 1\r\n\r\nb\r\nPUB s r.1 1\r\nc\r\nPUB s 1\r\nd\r\n",
    );
    let lines: Vec<String> = (0..11).map(|_| reader.line()).collect();
    let expected = [
        "MSG s 1 1",
        "a",
        "HMSG s 1 18 19",
        "NATS/1.0",
        "A: 1",
        "",
        "b",
        "MSG s 1 r.1 1",
        "c",
        "MSG s 1 1",
        "d",
    ];
    assert_eq!(lines, expected);
}

/// A transport for a Raft member that cannot reach any other member.
struct NoTransport;

impl Transport for NoTransport {
    fn request(&self, _: &RaftMember, _: RequestLane, _: Vec<Bytes>) -> ResponseFuture {
        let lost: io::Result<Bytes> = Err(io::ErrorKind::NotConnected.into());
        Box::pin(std::future::ready(lost))
    }
}

/// The node must disconnect the client, because client libraries subscribe again after a reconnect, but not after a
/// refusal.
#[test]
fn node_disconnects_a_nats_subscriber_if_raft_has_no_leader() {
    let node = Node::start(Config::default()).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let mut limits = TasksLimits::default();
    limits.raft.answer_ms_max = 500;
    // This Raft group has not begun, and its only known member is this one. The group therefore has no leader.
    let tasks = Tasks::start_member(&node, 1, &disk, Path::new("/tasks"), |_| NoTransport, limits).unwrap();
    assert!(node.set_tasks(tasks));
    let server = serve_node(&node, |config| config.nats = vec![([127, 0, 0, 1], 0).into()]);
    let mut peer = NatsPeer::open(&server);
    peer.send_line("SUB $tasks.acme 1");
    peer.send_line("PING");
    let mut received = String::new();
    peer.reader.read_to_string(&mut received).unwrap();
    assert_eq!(received, "", "neither an error nor a PONG");
}
