//! Tests that memory used by clients is charged to the node's memory budget. If the budget is used up, requests are
//! refused, and the refusal names the limit.

use std::io::Write;

use dunlin::scheduler::{AttemptReport, TaskCommand};
use dunlin::state::{ControlCommand, ControlQuery, KeyOperation};
use dunlin::topic::{MemoryCharge, Publish, TopicConfig};
use dunlin::wire::{
    Control, ControlKind, ErrorCode, FromClient, FromNode, LogPosition, MessageList, Position, Resume,
    StartAt, Tasks, TasksKind, U32PrefixedBytes,
};
use dunlin::{Config, Node, NodeLimits};
use dunlin_server::{Server, ServerConfig};
use dunlin_wait::until;

use crate::bad_input::await_sessions;
use crate::nats_peer::NatsPeer;
use crate::peer::Peer;

fn serve_with_memory(memory_bytes_max: u64) -> (Node, Server) {
    let limits = NodeLimits { memory_bytes_max, idle_bytes_max: 0, ..NodeLimits::default() };
    let node = Node::start(Config { limits, ..Config::default() }).unwrap();
    let any = vec![([127, 0, 0, 1], 0).into()];
    let config = ServerConfig { tcp: any.clone(), nats: any, threads: 1, ..ServerConfig::default() };
    let server = Server::start(node.clone(), config).unwrap();
    (node, server)
}

/// Charges so much to a node's memory budget that only `free_bytes` bytes remain free.
pub(crate) fn charge_all_but(node: &Node, free_bytes: u64) -> MemoryCharge {
    let bytes = node.budget().room() - free_bytes;
    MemoryCharge::of(node.budget(), bytes as usize).unwrap()
}

#[test]
fn refused_records_of_new_subjects_create_no_topics() {
    let (node, server) = serve_with_memory(4 << 20);
    node.create_topic("theirs", TopicConfig::default(), false).unwrap();
    node.publisher("theirs").unwrap().publish("first").unwrap();
    let mut peer = NatsPeer::open(&server);
    let (mut sent, mut refused) = (0, 0);
    for _ in 0..20 {
        for _ in 0..100 {
            peer.publish(&format!("flood.{sent}"), "x");
            sent += 1;
        }
        peer.send_line("PING");
        loop {
            let line = peer.line();
            if line == "PONG" {
                break;
            }
            assert!(line.contains("Publish to") && line.contains("memory budget exhausted"), "{line}");
            refused += 1;
        }
    }
    assert!(refused > 0);
    let topics = node.topics(None, "", 10_000).topics;
    assert_eq!(topics.len() - 1, sent - refused);
    assert!(topics.iter().all(|topic| topic.logs()[0].info().next_seq == 2), "none is empty");
    assert!(node.budget().used() <= 4 << 20);
    // The topic `theirs`, which existed before the flood, must still accept records, because it can drop its own
    // history to make room.
    node.publisher("theirs").unwrap().publish("second").unwrap();
}

#[test]
fn refused_nats_records_create_no_topic() {
    let (node, server) = serve_with_memory(64 << 20);
    let mut peer = NatsPeer::open(&server);
    peer.send(b"HPUB bad.headers 20 21\r\nNATS/1.0\r\n: empty\r\n\r\nx\r\n");
    peer.send_line("PING");
    let _ = peer.line();
    let mut peer = NatsPeer::open(&server);
    let long = "x".repeat(256);
    peer.send(format!("HPUB refused 276 277\r\nNATS/1.0\r\n{long}: b\r\n\r\n\r\nx\r\n").as_bytes());
    peer.send_line("PING");
    let _ = peer.line();
    assert_eq!(node.topics(None, "", 10).topics.len(), 0);
}

#[test]
fn nats_session_ends_if_an_operation_exhausts_the_memory() {
    let (node, server) = serve_with_memory(1 << 20);
    let idle = node.budget().used();
    let mut peer = NatsPeer::open(&server);
    peer.send_line("PUB large 3000000");
    // The node may close the connection before all bytes are written, so a failure is ignored.
    let _ = peer.reader.get_mut().write_all(&vec![b'x'; 3_000_000]);
    drop(peer);
    await_sessions(&server, 0);
    assert_eq!(node.budget().used(), idle);
}

#[test]
fn ids_of_nats_subscriptions_count_towards_the_memory_budget() {
    let (node, server) = serve_with_memory(1 << 20);
    let idle = node.budget().used();
    let mut peer = NatsPeer::open(&server);
    let mut taken = 0;
    loop {
        peer.send_line(&format!("SUB some.{taken}.* {}{taken}", "s".repeat(1_000)));
        peer.send_line("PING");
        match peer.line().as_str() {
            "PONG" => taken += 1,
            refused => {
                let why = "the limit memory_bytes_max = 1048576 is reached";
                let text =
                    format!("-ERR 'Permissions Violation for Subscription to \"some.{taken}.*\": {why}'");
                assert_eq!(refused, text);
                break;
            }
        }
    }
    assert!((200..400).contains(&taken), "{taken}");
    drop(peer);
    await_sessions(&server, 0);
    assert_eq!(node.budget().used(), idle);
}

#[test]
fn resume_positions_count_towards_the_memory_budget() {
    let (node, server) = serve_with_memory(1 << 20);
    let idle = node.budget().used();
    let mut peer = Peer::connect(&server);
    let name = "n".repeat(200);
    let topics: Vec<String> = (0..100).map(|n| format!("{name}{n}")).collect();
    for subscription in 0..100 {
        let position = Position { epoch: 1, seq: 1 };
        let logs: Vec<_> = topics.iter().map(|topic| LogPosition { topic, partition: 0, position }).collect();
        peer.send(FromClient::Resume(Resume { subscription, logs: MessageList::new(&logs) }));
    }
    let limit = peer.next(|message| match message {
        FromNode::Error(error) => Some(error.text.to_owned()),
        _ => None,
    });
    assert_eq!(limit.as_deref(), Some("memory_bytes_max"));
    await_sessions(&server, 0);
    assert_eq!(node.budget().used(), idle);
}

#[test]
fn resume_messages_count_towards_the_subscription_limit() {
    let (_node, server) = crate::serve_with(|config| config.limits.subscriptions_max = 10);
    let mut peer = Peer::connect(&server);
    // A RESUME counts until its subscription starts. Subscription 0 starts, so ten of the eleven RESUMEs count after
    // the loop.
    for subscription in 0..11 {
        peer.send(FromClient::Resume(Resume { subscription, logs: MessageList::new(&[]) }));
        if subscription == 0 {
            peer.subscribe(0, "t", StartAt::Latest, 1 << 20);
            peer.await_subscribed();
        }
    }
    peer.send(FromClient::Resume(Resume { subscription: 10, logs: MessageList::new(&[]) }));
    peer.send(FromClient::Resume(Resume { subscription: 11, logs: MessageList::new(&[]) }));
    let limit = peer.next(|message| match message {
        FromNode::Error(error) => Some(error.text.to_owned()),
        _ => None,
    });
    assert_eq!(limit.as_deref(), Some("subscriptions_max"));
    await_sessions(&server, 0);
}

#[test]
fn each_log_of_a_subscription_counts_towards_the_memory_budget() {
    let (node, server) = serve_with_memory(1 << 20);
    for n in 0..300 {
        node.create_topic(&format!("many.{n}"), TopicConfig::default(), false).unwrap();
    }
    let mut peer = Peer::connect(&server);
    let before = node.budget().used();
    peer.subscribe(1, "many.*", StartAt::Latest, 1 << 20);
    peer.await_subscribed();
    assert!(node.budget().used() - before > 300 << 10);
    peer.subscribe(2, "many.*", StartAt::Latest, 1 << 20);
    let ended = peer.next(|message| match message {
        FromNode::SubscriptionEnded(ended) => Some((ended.subscription, ended.refusal.text.to_owned())),
        _ => None,
    });
    assert_eq!(ended, Some((2, "memory_bytes_max".to_owned())));
    drop(peer);
    await_sessions(&server, 0);
    assert_eq!(node.budget().used(), before);
}

fn send_command(peer: &mut Peer, request: u32, command: &ControlCommand<'_>) {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    let (kind, bytes) = (ControlKind::Command, U32PrefixedBytes(&bytes));
    peer.send(FromClient::Control(Control { request, kind, bytes }));
}

/// Sends a command for keys with about 100 KiB. It changes nothing, because its condition is false.
fn send_large_write(peer: &mut Peer, request: u32) {
    let value = vec![0; 100 << 10];
    send_command(peer, request, &ControlCommand::PutIf { key: b"k", value: &value, lease: 0, expect: 77 });
}

/// Sends a command for tasks with about 100 KiB. It changes nothing, because the task does not exist.
fn send_large_report(peer: &mut Peer, request: u32) {
    let report =
        AttemptReport { worker: 1, task: 1, token: 1, run_us: 0, cpu_us: 0, memory_bytes: 0, credit: 0 };
    let (error, mut command) = (vec![0; 100 << 10], Vec::new());
    TaskCommand::Fail { report, error: &error, retry: false }.encode(&mut command);
    let bytes = [&(command.len() as u32).to_le_bytes()[..], &command].concat();
    let (kind, bytes) = (TasksKind::Commands, U32PrefixedBytes(&bytes));
    peer.send(FromClient::Tasks(Tasks { request, kind, bytes }));
}

/// Reads the next response to a request. Returns the error code if it is a refusal, and `None` if it is a result.
fn next_refusal(peer: &mut Peer) -> Option<ErrorCode> {
    let response = peer.next(|message| match message {
        FromNode::RequestRefused(refused) => Some(Some(refused.refusal.code)),
        FromNode::ControlResult(_) | FromNode::TasksResult(_) => Some(None),
        _ => None,
    });
    response.expect("the connection stays open")
}

#[test]
fn pending_requests_count_towards_the_memory_budget() {
    let sends: [fn(&mut Peer, u32); 2] = [send_large_write, send_large_report];
    for send in sends {
        let (node, server) = serve_with_memory(16 << 20);
        let mut peer = Peer::connect(&server);
        send(&mut peer, 0);
        let usual = next_refusal(&mut peer);
        assert_ne!(usual, Some(ErrorCode::BudgetSpent));
        let rest = charge_all_but(&node, 50 << 10);
        send(&mut peer, 1);
        assert_eq!(next_refusal(&mut peer), Some(ErrorCode::BudgetSpent));
        drop(rest);
        // The memory for a request must be released with its response. Otherwise, 20 requests would not fit.
        let _rest = charge_all_but(&node, 1 << 20);
        for request in 2..22 {
            send(&mut peer, request);
            assert_eq!(next_refusal(&mut peer), usual, "request {request}");
        }
    }
}

/// Sends a transaction that reads the key `k` and changes nothing.
fn send_reading_transaction(peer: &mut Peer, request: u32) {
    let then = vec![KeyOperation::Get { key: b"k" }];
    let transaction = ControlCommand::Transaction { compare: Vec::new(), then, otherwise: Vec::new() };
    send_command(peer, request, &transaction);
}

/// Sends a query that reads the key `k`.
fn send_query(peer: &mut Peer, request: u32) {
    let mut bytes = Vec::new();
    ControlQuery::Get { key: b"k" }.encode(&mut bytes);
    let (kind, bytes) = (ControlKind::Query, U32PrefixedBytes(&bytes));
    peer.send(FromClient::Control(Control { request, kind, bytes }));
}

#[test]
fn large_results_of_key_requests_count_towards_the_budget() {
    type SendRequest = fn(&mut Peer, u32);
    let sends: [(SendRequest, ErrorCode); 2] =
        [(send_reading_transaction, ErrorCode::CommandUnknown), (send_query, ErrorCode::BudgetSpent)];
    let (node, server) = serve_with_memory(16 << 20);
    let mut peer = Peer::connect(&server);
    let value = vec![7; 100 << 10];
    send_command(&mut peer, 0, &ControlCommand::Put { key: b"k", value: &value, lease: 0 });
    assert_eq!(next_refusal(&mut peer), None);
    for (send, refusal) in sends {
        // The request is repeated, because the memory of earlier requests may be released late, and then leave room for
        // the result.
        until("a result is refused", || {
            let _rest = charge_all_but(&node, 50 << 10);
            send(&mut peer, 1);
            next_refusal(&mut peer) == Some(refusal)
        });
        // The memory for a result must be released after the result is sent. Otherwise, 20 results would not fit.
        let _rest = charge_all_but(&node, 1 << 20);
        for request in 2..22 {
            send(&mut peer, request);
            assert_eq!(next_refusal(&mut peer), None, "request {request}");
        }
    }
}
