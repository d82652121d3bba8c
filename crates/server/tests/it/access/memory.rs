//! Tests that the memory of a tenant's connections counts towards the tenant's share of the memory budget, on every
//! listener.

use std::io::Write;

use dunlin::topic::Publish as _;
use dunlin::wire::{
    ErrorCode, FLAG_ACK, FLAG_EXPECT, FromClient, FromNode, Hello, Preamble, Publish, PublishHeader,
};
use dunlin::{Config, Node, NodeLimits};
use dunlin_wait::until;
use serde_json::json;

use super::{Guarded, HttpPeer, PASSWORD, Protocol, basic};
use crate::bad_input::await_sessions;
use crate::http::socket::Socket;
use crate::nats_peer::NatsPeer;
use crate::peer::{Peer, frames};

/// The share of the memory budget for the tenant of `eve`, bytes. The user `ana` belongs to another tenant.
const SHARE: u64 = 1 << 20;

fn guarded() -> Guarded {
    let may = "password = \"HASH\"\npublish = [\">\"]\nsubscribe = [\">\"]\ncreate = [\">\"]\n";
    let users = format!(
        "[tenants.small.limits]\nmemory_bytes = {SHARE}\n[users.eve]\ntenant = \"small\"\n{may}[users.ana]\n{may}"
    );
    // An operation that stays incomplete must not time out during a test.
    Guarded::with(&users, |config| config.limits.nats.publish_ms_max = 600_000)
}

/// Connects a client of Dunlin's own protocol, which logs in as `eve` and opens publisher 1.
fn connect_eve(guarded: &Guarded) -> Peer {
    let mut peer = Peer::log_in(&guarded.server, format!("eve\0{PASSWORD}").as_bytes());
    peer.open_publisher(1, "small.halves");
    peer.next(|message| matches!(message, FromNode::PublisherOpened(_)).then_some(())).unwrap();
    peer
}

/// Sends only the first `bytes` bytes of a PUBLISH message. The message has a record of `record_bytes` bytes.
fn send_half(peer: &mut Peer, record_bytes: usize, bytes: usize) {
    send_half_expecting(peer, None, record_bytes, bytes);
}

/// Like [`send_half`], but with the sequence number that the log's last record must have.
fn send_half_expecting(peer: &mut Peer, expect_seq: Option<u64>, record_bytes: usize, bytes: usize) {
    let payload = vec![7_u8; record_bytes];
    let frames = frames(&[payload.as_slice()]);
    let header = PublishHeader {
        publisher: 1,
        partition: 0,
        expect_seq: expect_seq.unwrap_or(0),
        producer_seq: 1,
        count: 1,
        bytes: frames.len() as u32,
    };
    let flags = if expect_seq.is_some() { FLAG_ACK | FLAG_EXPECT } else { FLAG_ACK };
    let mut message = Vec::new();
    FromClient::Publish(Publish { flags, header, frames: &frames }).encode(&mut message);
    peer.stream.write_all(&message[..bytes]).unwrap();
}

/// Returns the error code of the next refused publish, and the limit that the refusal states.
fn publish_refusal(peer: &mut Peer) -> (ErrorCode, u64) {
    let refusal = peer.next(|message| match message {
        FromNode::PublishRefused(refused) => Some((refused.refusal.code, refused.refusal.numbers[2])),
        _ => None,
    });
    refusal.expect("the connection stays open")
}

/// Checks that `ana`, who belongs to another tenant, can still publish and subscribe.
fn assert_others_have_memory(guarded: &Guarded) {
    let response = guarded.http("POST", "/v1/topics/other", &basic("ana", PASSWORD), &vec![b'x'; 2 << 20]);
    assert_eq!(response.status, 200, "{response:?}");
    guarded.nats_by_password("ana").subscribe("other.* 1");
}

#[test]
fn partial_tcp_message_counts_towards_tenant_memory() {
    let guarded = guarded();
    let mut eve = connect_eve(&guarded);
    send_half(&mut eve, 2 << 20, (2 << 20) - 1);
    assert_eq!(publish_refusal(&mut eve), (ErrorCode::BudgetSpent, SHARE));
    assert_others_have_memory(&guarded);
}

/// The expected sequence is above the producer's number, which would be invalid in the header of a batch.
#[test]
fn large_conditional_publish_is_refused_without_a_disconnect() {
    let guarded = guarded();
    let mut eve = connect_eve(&guarded);
    send_half_expecting(&mut eve, Some(1_000), 2 << 20, (2 << 20) - 1);
    assert_eq!(publish_refusal(&mut eve), (ErrorCode::BudgetSpent, SHARE));
}

#[test]
fn many_partial_tcp_messages_count_towards_tenant_memory() {
    const HALF_BYTES: usize = 200_000;
    let guarded = guarded();
    let mut peers: Vec<Peer> = (0..6).map(|_| connect_eve(&guarded)).collect();
    let mut last = peers.pop().unwrap();
    let before = guarded.node.budget().used();
    peers.iter_mut().for_each(|peer| send_half(peer, 250_000, HALF_BYTES));
    until("the messages are charged", || {
        guarded.node.budget().used() >= before + (peers.len() * HALF_BYTES) as u64
    });
    send_half(&mut last, 250_000, HALF_BYTES);
    assert_eq!(publish_refusal(&mut last), (ErrorCode::BudgetSpent, SHARE));
    assert_others_have_memory(&guarded);
    let charged = (peers.len() * HALF_BYTES) as u64;
    let used = guarded.node.budget().used();
    drop(peers);
    until("the charges are released", || guarded.node.budget().used() <= used - charged);
}

#[test]
fn tcp_subscriptions_count_towards_tenant_memory() {
    let guarded = guarded();
    let eve = guarded.by_password("eve");
    let mut subscribers = Vec::new();
    let refused =
        (0..2_000).find_map(|number| match eve.subscribe(&format!("small.{number}.*"), Default::default()) {
            Ok(subscriber) => {
                subscribers.push(subscriber);
                None
            }
            Err(refused) => Some(refused.to_string()),
        });
    let refused = refused.expect("2,000 subscriptions take more than 1 MiB");
    assert!(refused.contains("tenants.limits.memory_bytes"), "{refused}");
    assert_others_have_memory(&guarded);
}

#[test]
fn nats_subscriptions_count_towards_tenant_memory() {
    let guarded = guarded();
    let mut eve = guarded.nats_by_password("eve");
    let refused = (0..2_000).find_map(|number| {
        eve.send_line(&format!("SUB small.{number}.* {number}"));
        eve.send_line("PING");
        let line = eve.line();
        (line != "PONG").then_some(line)
    });
    let refused = refused.expect("2,000 subscriptions take more than 1 MiB");
    let why = format!("the limit tenants.limits.memory_bytes = {SHARE} is reached");
    assert!(refused.contains(&why), "{refused}");
    assert_others_have_memory(&guarded);
}

#[test]
fn partial_nats_operation_counts_towards_tenant_memory() {
    let guarded = guarded();
    let mut eve = guarded.nats_by_password("eve");
    eve.send_line("PUB small.halves 2000000");
    // The node may close the connection before all bytes are written, so a failure is ignored.
    let _ = eve.reader.get_mut().write_all(&vec![b'x'; 1_900_000]);
    await_sessions(&guarded.server, 0);
    assert_others_have_memory(&guarded);
}

#[test]
fn many_partial_nats_operations_count_towards_tenant_memory() {
    const HALF_BYTES: usize = 200_000;
    let guarded = guarded();
    let half = || {
        let mut eve = guarded.nats_by_password("eve");
        eve.send_line("PUB small.halves 250000");
        let _ = eve.reader.get_mut().write_all(&vec![b'x'; HALF_BYTES]);
        eve
    };
    let before = guarded.node.budget().used();
    let held: Vec<NatsPeer> = (0..5).map(|_| half()).collect();
    until("the operations are charged", || {
        guarded.node.budget().used() >= before + (held.len() * HALF_BYTES) as u64
    });
    let _sixth = half();
    await_sessions(&guarded.server, held.len());
    assert_others_have_memory(&guarded);
}

#[test]
fn partial_http_body_counts_towards_tenant_memory() {
    let guarded = guarded();
    let mut eve = HttpPeer::connect(guarded.address(Protocol::Http));
    let authorization = basic("eve", PASSWORD);
    let headers = [("authorization", authorization.as_str()), ("content-length", "3000000")];
    eve.head("POST", "/v1/topics/small.halves", &headers);
    eve.send_some(&vec![b'x'; 1_100_000]);
    let refused = eve.read_response();
    assert_eq!((refused.status, refused.code().as_str()), (503, "BUDGET_SPENT"));
    assert_eq!(refused.json()["numbers"]["bytes_allowed"], SHARE);
    assert_others_have_memory(&guarded);
}

#[test]
fn websocket_message_counts_towards_tenant_memory() {
    let guarded = guarded();
    let credentials = json!({"user": "eve", "password": PASSWORD});
    let mut eve = Socket::json_as(guarded.address(Protocol::Http), &credentials);
    let text = "x".repeat(1_100_000);
    eve.send_json(&json!({"op": "publish", "request": 1, "subject": "small.texts", "text": text}));
    let refused = std::iter::repeat_with(|| eve.receive_json()).find(|message| message["op"] != "heartbeat");
    let refused = refused.unwrap();
    assert_eq!((refused["op"].as_str(), refused["title"].as_str()), (Some("error"), Some("BUDGET_SPENT")));
    assert_others_have_memory(&guarded);
}

#[test]
fn nats_publish_without_login_is_refused_before_its_payload() {
    let guarded = guarded();
    let mut stranger = NatsPeer::new(&guarded.server);
    stranger.send_line("PUB small.halves 2000000");
    assert_eq!(stranger.line(), "-ERR 'Authorization Violation'");
}

/// Starts a node whose login share is used up by incomplete request heads. Also returns the connections that sent these
/// heads.
fn with_spent_login_share() -> (Guarded, Vec<HttpPeer>) {
    // The login share is a sixteenth of the memory budget, that is, 256 KiB.
    let limits = NodeLimits { memory_bytes_max: 4 << 20, ..NodeLimits::default() };
    let node = Node::start(Config { limits, ..Config::default() }).unwrap();
    let users =
        "[users.ana]\npassword = \"HASH\"\npublish = [\">\"]\nsubscribe = [\">\"]\ncreate = [\">\"]\n";
    // A request head that stays incomplete must not time out during a test.
    let guarded = Guarded::with_node(node, users, |config| config.limits.http.header_ms_max = 600_000);
    let before = guarded.node.budget().used();
    let heads = [60_000, 60_000, 60_000, 60_000, 20_000];
    let half_head = |bytes: usize| {
        let mut peer = HttpPeer::connect(guarded.address(Protocol::Http));
        peer.send_some(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ");
        peer.send_some(&vec![b'x'; bytes]);
        peer
    };
    let held = heads.map(half_head).into();
    until("the heads are charged", || {
        guarded.node.budget().used() >= before + heads.iter().sum::<usize>() as u64
    });
    (guarded, held)
}

#[test]
fn clients_can_log_in_while_the_login_share_is_used_up() {
    let (guarded, _held) = with_spent_login_share();
    let credentials = json!({"user": "ana", "password": PASSWORD, "name": "x".repeat(6_000)});
    Socket::json_as(guarded.address(Protocol::Http), &credentials);
    guarded.by_password("ana").publisher("t").unwrap().publish(b"x").unwrap();
    guarded.nats_by_password("ana").subscribe("t 1");
    assert_eq!(guarded.http("POST", "/v1/topics/t", &basic("ana", PASSWORD), b"x").status, 200);
}

/// The password is checked on another thread. Rarely, the check ends before the node has counted the bytes, so the test
/// tries several times.
#[test]
fn login_share_includes_bytes_sent_while_a_login_is_checked() {
    let (guarded, _held) = with_spent_login_share();
    let mut attempt = 0;
    until("a login without room for its bytes is refused", || {
        attempt += 1;
        let mut peer = Peer::silent(&guarded.server);
        let mut bytes = Preamble::OURS.to_bytes().to_vec();
        let credentials = format!("ana\0wrong {attempt}");
        let hello = Hello { tenant: "", credentials: credentials.as_bytes(), client: "test" };
        FromClient::Hello(hello).encode(&mut bytes);
        bytes.resize(64 << 10, 0);
        let _ = peer.stream.write_all(&bytes);
        peer.take_preamble();
        let code = peer.next(|message| match message {
            FromNode::Refused(refusal) => Some(refusal.code),
            _ => None,
        });
        code == Some(ErrorCode::BudgetSpent)
    });
}
