//! Tests that the node behaves like nats-server in cases on which the test suites of NATS clients rely, and which
//! `nats.rs` does not test.

use crate::http::socket::Socket;
use crate::nats_peer::{NatsPeer, nats_address, serve_nats};
use dunlin::topic::Publish;
use dunlin_server::Protocol;

#[test]
fn pong_follows_all_earlier_messages_of_queue_groups() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    peer.send_line("SUB jobs crew 1\r\nSUB jobs crew 2\r\nSUB jobs.* all 3");
    peer.ping();
    // Publishes more records than the node delivers to a member in one turn.
    (0..1_000).for_each(|n| peer.publish("jobs", &n.to_string()));
    let mut got = Vec::new();
    peer.ping_collecting(&mut got);
    let mut numbers: Vec<u32> = got.iter().map(|n| n.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
    (0..1_000).for_each(|n| peer.publish(&format!("jobs.{}", n % 7), &n.to_string()));
    got.clear();
    peer.ping_collecting(&mut got);
    assert_eq!(got.len(), 1_000);
}

#[test]
fn nats_pong_follows_earlier_messages_even_on_a_busy_thread() {
    const SUBSCRIBERS: usize = 200;
    let (node, server) = serve_nats(|_| {});
    let mut crowd: Vec<NatsPeer> = (0..SUBSCRIBERS).map(|_| NatsPeer::open(&server)).collect();
    crowd.iter_mut().for_each(|peer| peer.subscribe("crowd 1"));
    let mut peer = NatsPeer::open(&server);
    peer.subscribe("own 1");
    let mut publisher = node.publisher("crowd").unwrap();
    // The node's only thread is busy with writing to all subscribers of `crowd`. On such a thread, a session that has
    // just written is paused, so that its next messages are written together.
    for n in 0..500 {
        publisher.publish("x").unwrap();
        peer.send_line(&format!("PUB own {}\r\n{n}\r\nPING", n.to_string().len()));
        assert_eq!(peer.text(), ("own".to_owned(), n.to_string()));
        assert_eq!(peer.line(), "PONG");
    }
    crowd.iter_mut().for_each(|peer| (0..500).for_each(|_| assert_eq!(peer.text().1, "x")));
}

#[test]
fn nats_info_contains_the_address_of_the_client() {
    let (_node, server) = serve_nats(|_| {});
    let info = NatsPeer::raw(&server).line();
    assert!(info.contains("\"client_ip\":\"127.0.0.1\""), "{info}");
    assert!(!info.contains("ldm") && !info.contains("nonce") && !info.contains("cluster"), "{info}");
}

#[test]
fn only_protocol_1_clients_are_notified_when_the_node_stops() {
    let (_node, server) = serve_nats(|_| {});
    let mut protocol_1 = NatsPeer::open_with(&server, ",\"protocol\":1");
    let mut old = NatsPeer::open(&server);
    let stopping = std::thread::spawn(move || server.stop());
    let info = protocol_1.line();
    assert!(info.starts_with("INFO {") && info.contains("\"ldm\":true"), "{info:?}");
    assert!(protocol_1.is_at_end() && old.is_at_end());
    drop((protocol_1, old));
    stopping.join().unwrap();
}

#[test]
fn client_receives_no_info_between_connect_and_its_first_pong() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::new(&server);
    peer.send_line("CONNECT {\"verbose\":false,\"protocol\":1}\r\nSUB a 1\r\nPUB a 1\r\nx");
    assert_eq!(peer.text(), ("a".to_owned(), "x".to_owned()));
    let stopping = std::thread::spawn(move || server.stop());
    assert!(peer.is_at_end());
    drop(peer);
    stopping.join().unwrap();
}

#[test]
fn nats_protocol_works_over_websocket() {
    let (_node, server) = serve_nats(|config| config.http = vec![([127, 0, 0, 1], 0).into()]);
    let http = server.addresses().iter().find(|(protocol, _)| *protocol == Protocol::Http).unwrap().1;
    assert_ne!(http, nats_address(&server));
    let mut socket = Socket::nats_at(http);
    assert!(socket.bytes_until(b"\r\n").starts_with(b"INFO {"));
    socket.send_bytes(b"CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB a 1\r\nPI");
    socket.send_bytes(b"NG\r\n");
    assert_eq!(socket.bytes_until(b"\r\n"), b"PONG\r\n");
    let mut other = NatsPeer::open(&server);
    other.publish("a", "over");
    assert_eq!(socket.bytes_until(b"over\r\n"), b"MSG a 1 4\r\nover\r\n");
    other.subscribe("b 1");
    socket.send_bytes(b"PUB b 2\r\nhi\r\n");
    assert_eq!(other.text().1, "hi");
}

#[test]
fn records_of_topics_created_in_one_burst_keep_their_order() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    let subjects: Vec<String> = (0..20).map(|number| format!("a.{number}")).collect();
    subjects.iter().rev().for_each(|subject| peer.subscribe(&format!("{subject} {subject}")));
    let burst: String = subjects.iter().map(|subject| format!("PUB {subject} 1\r\nx\r\n")).collect();
    peer.send(burst.as_bytes());
    let order: Vec<String> = subjects.iter().map(|_| peer.text().0).collect();
    assert_eq!(order, subjects);
}
