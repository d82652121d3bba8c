use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::thread;

use dunlin::topic::Publish;
use dunlin::topic::frame::RecordMeta;
use dunlin::wire::{
    CreateTopic, ErrorCode, FromClient, FromNode, ListTopics, MessageHeader, MessageKind, NamedTopic,
    Preamble, StartAt, TopicConfig, VERSION, WhenFull,
};
use dunlin_server::{Server, ServerConfig, StartError};
use dunlin_wait::{PATIENCE, until};

use crate::peer::{Peer, frames};
use crate::{serve, serve_with};

/// Returns the last error that the node sends before it closes the connection.
fn read_final_error(peer: &mut Peer) -> ErrorCode {
    let code = peer.next(|m| match m {
        FromNode::Refused(refusal) | FromNode::Error(refusal) => Some(refusal.code),
        _ => None,
    });
    assert_eq!(peer.next(|_| None::<()>), None);
    code.expect("an error before the end")
}

pub fn await_sessions(server: &Server, sessions: usize) {
    until(format!("{sessions} sessions are left"), || server.sessions() == sessions);
}

#[test]
fn silent_client_is_disconnected_with_an_error() {
    let (_node, server) = serve_with(|config| config.limits.handshake_ms_max = 100);
    let mut peer = Peer::silent(&server);
    assert_eq!(peer.take_preamble(), Some(Preamble::OURS));
    assert_eq!(read_final_error(&mut peer), ErrorCode::Handshake);
}

#[test]
fn client_that_sends_no_preamble_gets_a_protocol_error() {
    let (_node, server) = serve();
    let mut peer = Peer::silent(&server);
    peer.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(peer.take_preamble(), Some(Preamble::OURS));
    assert_eq!(read_final_error(&mut peer), ErrorCode::Protocol);
}

#[test]
fn node_refuses_a_newer_protocol_and_states_its_own_version() {
    let (_node, server) = serve();
    let mut peer = Peer::silent(&server);
    peer.stream.write_all(&Preamble { version_min: 200, version_max: 201 }.to_bytes()).unwrap();
    assert_eq!(peer.take_preamble(), Some(Preamble::OURS));
    assert_eq!(read_final_error(&mut peer), ErrorCode::Version);
}

#[test]
fn invalid_messages_end_the_connection_with_an_error() {
    let (_node, server) = serve();
    let header = |len, kind, flags| MessageHeader { len, kind, flags }.to_bytes().to_vec();
    let hostile = [
        header(9, 1, 0),
        header(0, 1, 0),
        header(16, 250, 0),
        header(16, MessageKind::Batch as u8, 0),
        header(!7, MessageKind::Publish as u8, 0),
        header(1 << 20, MessageKind::Subscribe as u8, 0),
        [header(16, MessageKind::Unsubscribe as u8, 7), vec![0; 8]].concat(),
        [header(16, MessageKind::Subscribe as u8, 0), vec![255; 8]].concat(),
    ];
    for bytes in hostile {
        let mut peer = Peer::connect(&server);
        peer.stream.write_all(&bytes).unwrap();
        assert_eq!(read_final_error(&mut peer), ErrorCode::Protocol, "{bytes:?}");
    }
    await_sessions(&server, 0);
}

#[test]
fn bad_frame_is_refused_but_the_connection_stays_open() {
    let (_node, server) = serve();
    let mut peer = Peer::connect(&server);
    peer.open_publisher(1, "a");
    let mut broken = frames(&[b"12345678"]);
    broken[4] = 9;
    assert_eq!(publish_invalid(&mut peer, 1, &broken), Some(ErrorCode::BadFrame));
    peer.publish(1, 2, &[b"sound"]);
    assert!(peer.next(|m| matches!(m, FromNode::Published(_)).then_some(())).is_some());
}

/// Publishes these bytes as the frame of one record, which the node must refuse. Returns the error code of the refusal;
/// `None` if the node closes the connection.
fn publish_invalid(peer: &mut Peer, producer_seq: u64, frames: &[u8]) -> Option<ErrorCode> {
    let header = dunlin::wire::PublishHeader {
        publisher: 1,
        partition: 0,
        expect_seq: 0,
        producer_seq,
        count: 1,
        bytes: frames.len() as u32,
    };
    let mut bytes = Vec::new();
    FromClient::Publish(dunlin::wire::Publish { flags: 0, header, frames }).encode(&mut bytes);
    peer.stream.write_all(&bytes).unwrap();
    peer.next(|m| if let FromNode::PublishRefused(r) = m { Some(r.refusal.code) } else { None })
}

#[test]
fn invalid_reply_subject_is_refused_as_a_bad_frame() {
    let (node, server) = serve();
    node.create_topic("a", dunlin::topic::TopicConfig::default(), false).unwrap();
    let meta = RecordMeta { reply: Some("r.Xyz"), ..RecordMeta::default() };
    let encoded = meta.measure(1).unwrap();
    let mut sound = vec![0; encoded.padded()];
    meta.encode(encoded, 0, b"x", &mut sound);
    let at = sound.windows(5).position(|bytes| bytes == b"r.Xyz").unwrap() + 2;
    // A client whose name looks like another node's must be checked like any other client.
    for client in ["client", "$node-7"] {
        let mut peer = Peer::connect_as(&server, client);
        peer.open_publisher(1, "a");
        for (number, wrong) in (1..).zip([b'\r', b'\n', b' ', b'\t', 0x7f, b'.']) {
            let mut broken = sound.clone();
            broken[at] = wrong;
            let refused = publish_invalid(&mut peer, number, &broken);
            assert_eq!(refused, Some(ErrorCode::BadFrame), "{client}: {wrong}");
        }
    }
    assert_eq!(node.topic("a").unwrap().logs()[0].last().seq, 0);
}

#[test]
fn invalid_names_are_refused_but_the_connection_stays_open() {
    let (_node, server) = serve();
    let mut peer = Peer::connect(&server);
    let long = "x".repeat(256);
    for name in ["", ".", "a.", ".a", "a..b", "a b", "a\u{7}", "a.*.b", "a*", ">.a", &long] {
        // Some names are invalid for topics, but not in all messages. An empty pattern lists all topics, and `a.*.b` is
        // a valid pattern to list and to subscribe to.
        let is_pattern = name == "a.*.b";
        peer.open_publisher(1, name);
        let publisher = peer.next(|m| match m {
            FromNode::PublisherRefused(refused) => Some(refused.refusal.code),
            _ => None,
        });
        assert!(
            matches!(publisher, Some(ErrorCode::Subject | ErrorCode::NoTopic)),
            "{name:?}: {publisher:?}"
        );
        if !is_pattern {
            peer.subscribe(1, name, StartAt::Latest, 1_000);
            let ended = peer.next(|m| match m {
                FromNode::SubscriptionEnded(ended) => Some(ended.refusal.code),
                _ => None,
            });
            assert_eq!(ended, Some(ErrorCode::Subject), "{name:?}");
        }
        if !is_pattern && !name.is_empty() {
            peer.send(FromClient::ListTopics(ListTopics {
                request: 5,
                topics_max: 1,
                pattern: name,
                after: "",
            }));
            assert_eq!(read_request_refusal(&mut peer), Some((5, ErrorCode::Subject)), "{name:?}");
        }
        peer.send(FromClient::CreateTopic(CreateTopic {
            request: 6,
            or_same: false,
            config: topic_config(name),
        }));
        let created = read_request_refusal(&mut peer);
        assert!(
            matches!(created, Some((6, ErrorCode::Subject | ErrorCode::TopicConfig))),
            "{name:?}: {created:?}"
        );
        peer.send(FromClient::DeleteTopic(NamedTopic { request: 7, topic: name }));
        assert_eq!(read_request_refusal(&mut peer), Some((7, ErrorCode::NoTopic)), "{name:?}");
    }
    peer.open_publisher(2, "a");
    assert!(
        peer.next(|m| matches!(m, FromNode::PublisherOpened(_)).then_some(())).is_some(),
        "the connection continues"
    );
}

fn read_request_refusal(peer: &mut Peer) -> Option<(u32, ErrorCode)> {
    peer.next(|m| match m {
        FromNode::RequestRefused(refused) => Some((refused.request, refused.refusal.code)),
        FromNode::Done { .. } | FromNode::Topics(_) => panic!("{m:?}"),
        _ => None,
    })
}

fn topic_config(name: &str) -> TopicConfig<'_> {
    TopicConfig {
        name,
        pattern: "",
        partitions: 1,
        retain_bytes: 0,
        retain_records: 0,
        retain_ms: 0,
        record_bytes_max: 0,
        reliable_subscribers_max: 0,
        wait_ms_max: 0,
        when_full: WhenFull::Refuse,
    }
}

#[test]
fn client_that_disconnects_mid_frame_leaves_no_session() {
    let (_node, server) = serve();
    for cut in [1, 8, 30, 100] {
        let mut peer = Peer::connect(&server);
        peer.open_publisher(1, "a");
        let mut bytes = Vec::new();
        let frames = frames(&[&[1; 500]]);
        let header = dunlin::wire::PublishHeader {
            publisher: 1,
            partition: 0,
            expect_seq: 0,
            producer_seq: 1,
            count: 1,
            bytes: frames.len() as u32,
        };
        FromClient::Publish(dunlin::wire::Publish { flags: 0, header, frames: &frames }).encode(&mut bytes);
        peer.stream.write_all(&bytes[..cut]).unwrap();
    }
    await_sessions(&server, 0);
}

#[test]
fn client_that_never_reads_does_not_delay_others() {
    let (node, server) = serve();
    let mut stalled = Peer::connect(&server);
    stalled.subscribe(1, "s", StartAt::Latest, u64::MAX);
    stalled.await_subscribed();
    let mut subscriber = Peer::connect(&server);
    subscriber.subscribe(1, "s", StartAt::Latest, u64::MAX);
    subscriber.await_subscribed();
    let publishing = std::thread::spawn(move || {
        let mut publisher = node.publisher("s").unwrap();
        for number in 0..2_000u64 {
            publisher.publish(&[number as u8; 1_000]).unwrap();
        }
    });
    assert_eq!(subscriber.records(2_000).len(), 2_000);
    publishing.join().unwrap();
}

#[test]
fn ten_thousand_dropped_connections_leave_no_session() {
    let (_node, server) = serve();
    for _ in 0..100 {
        let streams: Vec<_> =
            (0..100).map(|_| TcpStream::connect(server.tcp_addresses()[0]).unwrap()).collect();
        drop(streams);
    }
    await_sessions(&server, 0);
    Peer::connect(&server);
}

#[test]
fn session_over_the_limit_is_refused() {
    let (_node, server) = serve_with(|config| config.limits.sessions_max = 1);
    let _first = Peer::connect(&server);
    let mut second = Peer::silent(&server);
    assert_eq!(second.take_preamble(), Some(Preamble::OURS));
    assert_eq!(read_final_error(&mut second), ErrorCode::Limit);
}

#[test]
fn server_does_not_start_if_its_port_is_in_use() {
    let (node, server) = serve();
    let config = ServerConfig { tcp: server.tcp_addresses().to_vec(), ..ServerConfig::default() };
    let error = Server::start(node, config).unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
}

#[test]
fn listening_beyond_loopback_needs_an_explicit_setting() {
    let node = dunlin::Node::start(dunlin::Config::default()).unwrap();
    let tcp = vec![([0, 0, 0, 0], 0).into()];
    let refused = Server::start(node.clone(), ServerConfig { tcp: tcp.clone(), ..ServerConfig::default() });
    assert!(matches!(refused, Err(StartError::OffLoopback(_))));
    let config =
        ServerConfig { tcp, anyone_on_the_network_may_connect: true, threads: 1, ..ServerConfig::default() };
    Server::start(node, config).unwrap();
}

#[test]
fn unix_socket_serves_clients_and_is_removed_with_the_server() {
    let path = std::env::temp_dir().join(format!("dunlin-test-{}.sock", std::process::id()));
    let (_node, server) = serve_with(|config| config.unix = vec![path.clone()]);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(&Preamble::OURS.to_bytes()).unwrap();
    let mut response = [0; 8];
    stream.read_exact(&mut response).unwrap();
    assert_eq!(response, Preamble::chosen(VERSION).to_bytes());
    drop(server);
    assert!(!path.exists());
}

#[test]
fn existing_file_is_not_replaced_by_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("dunlin-test-{}.txt", std::process::id()));
    std::fs::write(&path, "precious").unwrap();
    let node = dunlin::Node::start(dunlin::Config::default()).unwrap();
    let refused = Server::start(node, ServerConfig { unix: vec![path.clone()], ..ServerConfig::default() });
    assert!(matches!(refused, Err(StartError::ListenUnix { .. })), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn publish_request_without_hello_is_refused_at_its_header() {
    let (node, server) = serve();
    let idle = node.budget().used();
    let mut peer = Peer::silent(&server);
    let begin = MessageHeader { len: 16 << 20, kind: MessageKind::Publish as u8, flags: 0 }.to_bytes();
    peer.stream.write_all(&[&Preamble::OURS.to_bytes()[..], &begin].concat()).unwrap();
    assert_eq!(peer.take_preamble(), Some(Preamble::chosen(VERSION)));
    let why = peer.next(|message| match message {
        FromNode::Refused(refusal) => Some(refusal.text.to_owned()),
        _ => None,
    });
    assert!(why.is_some_and(|why| why.contains("expected HELLO")));
    assert_eq!(node.budget().used(), idle);
}

#[test]
fn unfinished_large_messages_stay_within_the_memory_budget() {
    let mut config = dunlin::Config::default();
    config.limits.memory_bytes_max = 8 << 20;
    let node = dunlin::Node::start(config).unwrap();
    let tcp = vec![([127, 0, 0, 1], 0).into()];
    let server = Server::start(node.clone(), ServerConfig { tcp, ..ServerConfig::default() }).unwrap();
    let idle = node.budget().used();
    let begin = MessageHeader { len: 16 << 20, kind: MessageKind::Publish as u8, flags: 0 }.to_bytes();
    let part = vec![0; 3 << 20];
    let mut peers: Vec<Peer> = (0..4).map(|_| Peer::connect(&server)).collect();
    for peer in &mut peers {
        peer.stream.write_all(&begin).unwrap();
        // The node may close the connection of a refused client that is still sending, so a failure is ignored.
        let _ = peer.stream.write_all(&part);
    }
    thread::scope(|scope| {
        let streams: Vec<_> = peers.iter().map(|peer| peer.stream.try_clone().unwrap()).collect();
        let (sender, ended) = mpsc::channel();
        for peer in &mut peers {
            let sender = sender.clone();
            scope.spawn(move || {
                sender.send(peer.next(|message| matches!(message, FromNode::Error(_)).then_some(())))
            });
        }
        let first = ended.recv_timeout(PATIENCE);
        let used = node.budget().used();
        streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        // The refused client receives an error, or its connection is reset before the error arrives.
        assert!(first.is_ok(), "one client is refused");
        assert!(used <= 8 << 20, "{used}");
    });
    drop(peers);
    await_sessions(&server, 0);
    assert_eq!(node.budget().used(), idle);
}
