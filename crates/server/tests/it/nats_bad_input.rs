//! Tests NATS clients that violate the protocol. Each must receive an error, and other clients must not be affected.

use std::io::Write;
use std::net::Shutdown;
use std::thread;

use dunlin_server::Server;
use dunlin_wait::{Deadline, POLL};

use crate::bad_input::await_sessions;
use crate::nats_peer::{NatsPeer, serve_nats};
use crate::nats_refusals::permission_violation;

/// Sends the bytes, and returns the next line. The node must then close the connection.
fn ended_by(server: &Server, bytes: &[u8]) -> String {
    let mut peer = NatsPeer::open(server);
    peer.send(bytes);
    let error_line = peer.line();
    assert!(peer.is_at_end(), "{error_line}");
    error_line
}

#[test]
fn nats_protocol_error_is_reported_and_ends_only_its_connection() {
    let (_node, server) = serve_nats(|_| {});
    let mut bystander = NatsPeer::open(&server);
    let too_long = format!("SUB {} 1\r\n", "x".repeat(5_000));
    for (bytes, error_line) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "Unknown Protocol Operation"),
        (b"\xff\xfe\0\0", "Unknown Protocol Operation"),
        (b"PUB a 2\r\nxyz\r\n", "Unknown Protocol Operation"),
        (b"PUB a\r\n", "Parser Error"),
        (b"PUB a -5\r\n", "Parser Error"),
        (b"SUB a b c d\r\n", "Parser Error"),
        (b"HPUB a 9 4\r\n", "Parser Error"),
        (b"HPUB a 4 4\r\nabcd\r\n", "Parser Error"),
        (b"CONNECT {\r\n", "Parser Error"),
        (b"CONNECT {\"no_responders\":true}\r\n", "no responders requires headers support"),
        (b"PUB a 999999999\r\n", "Maximum Payload Violation"),
        (too_long.as_bytes(), "maximum control line exceeded"),
    ] {
        assert_eq!(
            ended_by(&server, bytes),
            format!("-ERR '{error_line}'"),
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
    bystander.ping();
}

#[test]
fn invalid_nats_subjects_are_refused_without_a_disconnect() {
    let (node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    for subject in ["a..b", ".a", "a.>", "a.*", "\u{ff}\u{85}"] {
        peer.publish(subject, "x");
        permission_violation(&peer.line(), "Publish", subject);
    }
    for subject in ["a..b", ">.a", "$DUNLIN.seq."] {
        peer.send_line(&format!("SUB {subject} 1"));
        assert_eq!(peer.line(), "-ERR 'Invalid Subject'", "{subject}");
    }
    peer.send(b"PUB \xff\xfe 1\r\nx\r\n");
    let text = permission_violation(&peer.line(), "Publish", "\u{fffd}\u{fffd}");
    assert!(text.contains("UTF-8"), "{text}");
    peer.ping();
    assert_eq!(node.topics(None, "", 10).topics.len(), 0);
}

#[test]
fn nats_subscription_to_a_subject_that_is_not_utf8_is_refused() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    peer.send(b"SUB caf\xe9 1\r\n");
    let refusal = "Permissions Violation for Subscription to \"caf\u{fffd}\": the subject is not UTF-8";
    assert_eq!(peer.line(), format!("-ERR '{refusal}'"));
    // The refused SUB did not use up its subscription id, which is 1.
    peer.subscribe("cafe 1");
    peer.publish("cafe", "x");
    assert_eq!(peer.text(), ("cafe".to_owned(), "x".to_owned()));
}

#[test]
fn nats_message_sent_byte_by_byte_is_read_whole() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    for byte in b"SUB slow 1\r\nPUB slow 5\r\nhello\r\n" {
        peer.send(&[*byte]);
    }
    assert_eq!(peer.text(), ("slow".to_owned(), "hello".to_owned()));
}

#[test]
fn silent_nats_client_is_disconnected() {
    let (_node, server) = serve_nats(|config| config.limits.handshake_ms_max = 50);
    let mut silent = NatsPeer::new(&server);
    assert_eq!(silent.line(), "-ERR 'Authentication Timeout'");
    assert!(silent.is_at_end());
}

#[test]
fn nats_client_that_answers_no_ping_is_disconnected() {
    let (_node, server) = serve_nats(|config| config.limits.nats.ping_ms = 50);
    let mut dead = NatsPeer::new(&server);
    dead.send_line("CONNECT {\"verbose\":false}");
    assert_eq!([dead.line(), dead.line(), dead.line()], ["PING", "PING", "-ERR 'Stale Connection'"]);
    assert!(dead.is_at_end());
}

/// The refused client keeps sending, so its session always has bytes to read. The session must end nevertheless.
#[test]
fn refused_nats_client_that_keeps_sending_is_disconnected() {
    let (_node, server) = serve_nats(|_| {});
    let mut peer = NatsPeer::open(&server);
    peer.send(b"NONSENSE\r\n");
    let mut sending = peer.reader.get_ref();
    let flood = vec![b'x'; 1 << 20];
    let deadline = Deadline::new();
    while sending.write_all(&flood).is_ok() {
        deadline.check("the node disconnects the client");
    }
}

#[test]
fn nats_subscription_and_connection_over_the_limit_are_refused() {
    let (_node, server) = serve_nats(|config| {
        config.limits.subscriptions_max = 2;
        config.limits.sessions_max = 2;
    });
    let (mut peer, mut other) = (NatsPeer::open(&server), NatsPeer::open(&server));
    peer.send_line("SUB a 1\r\nSUB b 2\r\nSUB c 3");
    assert_eq!(peer.line(), "-ERR 'maximum subscriptions exceeded'");
    peer.send_line("UNSUB 1\r\nSUB c 3");
    peer.ping();
    let mut late = NatsPeer::new(&server);
    assert_eq!(late.line(), "-ERR 'maximum connections exceeded'");
    assert!(late.is_at_end());
    other.ping();
}

#[test]
fn client_that_never_finishes_an_operation_is_disconnected() {
    let (node, server) = serve_nats(|config| config.limits.nats.publish_ms_max = 300);
    let idle = node.budget().used();
    let mut slow = NatsPeer::open(&server);
    slow.send(format!("PUB large {}\r\n", 1 << 20).as_bytes());
    slow.send(&vec![b'x'; 300_000]);
    // Sends single bytes, which never complete the operation, until the server has closed the connection.
    let mut sending = slow.reader.get_ref().try_clone().unwrap();
    let sender_thread = thread::spawn(move || {
        while sending.write_all(b"x").is_ok() {
            thread::sleep(POLL);
        }
    });
    // The node must close the connection without `-ERR`, because client libraries do not reconnect after an error.
    assert!(slow.is_at_end());
    let _ = slow.reader.get_ref().shutdown(Shutdown::Both);
    sender_thread.join().unwrap();
    drop(slow);
    await_sessions(&server, 0);
    assert_eq!(node.budget().used(), idle);
}

#[test]
fn slow_client_is_kept_if_it_finishes_each_operation() {
    let (_node, server) = serve_nats(|config| config.limits.nats.publish_ms_max = 30_000);
    let (mut peer, mut other) = (NatsPeer::open(&server), NatsPeer::open(&server));
    peer.subscribe("halves 1");
    for n in 0..20 {
        peer.send(b"PUB halves 2\r\n");
        // One thread serves both clients. When it responds to the other client, it has read the incomplete operation.
        other.ping();
        peer.send(format!("{n:02}\r\n").as_bytes());
        assert_eq!(peer.text().1, format!("{n:02}"));
    }
}

#[test]
fn nats_message_received_slowly_is_published_whole() {
    let (node, server) = serve_nats(|_| {});
    let (mut peer, mut other) = (NatsPeer::open(&server), NatsPeer::open(&server));
    let payload = "x".repeat(200);
    for byte in format!("PUB slow {}\r\n{payload}\r\n", payload.len()).bytes() {
        peer.send(&[byte]);
        other.ping();
    }
    peer.ping();
    let topic = node.topic("slow").unwrap();
    let log = &topic.logs()[0];
    assert_eq!(log.read(1, |record| record.frame.payload().len()), Some(200));
    assert_eq!(log.info().next_seq, 2);
}
