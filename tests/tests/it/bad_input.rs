//! Tests of clients that send invalid data or read nothing. Meanwhile, the node of these clients must serve a publisher
//! and a subscriber that behave correctly.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use dunlin::topic::frame::RecordMeta;
use dunlin::wire::{
    DecodeOutcome, Decoder, DecoderLimits, ErrorCode, FLAG_ACK, FromClient, FromNode, Hello, MessageHeader,
    MessageKind, NO_PRODUCER, OnGap, OpenPublisher, Ping, Preamble, Publish, PublishHeader, StartAt,
    Subscribe,
};
use dunlin_system_tests::process::PATIENCE;
use dunlin_system_tests::seed::SeededRandom;

use crate::processes::{Node, SubscriberProcess, Writer, audit_all};
use crate::stopped::create_reliable;
use crate::tier;

/// The number of bytes by which the node's memory may grow during one test.
const GROWTH_BYTES_MAX: u64 = 96 << 20;

fn connect(node: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(node).expect("the node lets anybody connect");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    stream
}

fn encode(message: FromClient<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn greeting() -> Vec<u8> {
    let hello = encode(FromClient::Hello(Hello { tenant: "", credentials: &[], client: "hostile" }));
    [&Preamble::OURS.to_bytes()[..], &hello].concat()
}

fn subscribe(number: u32, pattern: &str) -> Vec<u8> {
    encode(FromClient::Subscribe(Subscribe {
        subscription: number,
        credit: u64::MAX,
        start: StartAt::Earliest,
        on_gap: OnGap::Oldest,
        registered: false,
        pattern,
        name: "",
    }))
}

fn open_publisher(publisher: u32, subject: &str) -> Vec<u8> {
    encode(FromClient::OpenPublisher(OpenPublisher {
        publisher,
        producer: NO_PRODUCER,
        producer_epoch: 0,
        subject,
    }))
}

/// Encodes a PUBLISH message with one small record.
fn publish(publisher: u32, producer_seq: u64) -> Vec<u8> {
    let (meta, payload) = (RecordMeta::default(), b"hostile");
    let encoded = meta.measure(payload.len()).unwrap();
    let mut frames = vec![0; encoded.padded()];
    meta.encode(encoded, 0, payload, &mut frames);
    let header = PublishHeader {
        publisher,
        partition: 0,
        expect_seq: 0,
        producer_seq,
        count: 1,
        bytes: frames.len() as u32,
    };
    encode(FromClient::Publish(Publish { flags: FLAG_ACK, header, frames: &frames }))
}

fn header(len: u32, kind: u8, flags: u8) -> Vec<u8> {
    MessageHeader { len, kind, flags }.to_bytes().to_vec()
}

/// Reads until the node closes the connection. Returns the last error that the node sent.
fn last_error(mut stream: TcpStream) -> Option<ErrorCode> {
    let mut received = Vec::new();
    // This read may end with an error: the node may close the connection before it has read all bytes, and then resets
    // the connection.
    let _ = stream.read_to_end(&mut received);
    let mut at = 8;
    let decoder = Decoder::new(DecoderLimits::default());
    let mut code = None;
    while let Ok(DecodeOutcome::Message(message, length)) = decoder.next_from_node(received.get(at..)?) {
        if let FromNode::Refused(refusal) | FromNode::Error(refusal) = message {
            code = Some(refusal.code);
        }
        at += length;
    }
    code
}

/// Sends one invalid message of each kind. Checks the error with which the node responds.
fn check_error_codes(node: SocketAddr) {
    let garbage = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    let future_version = Preamble { version_min: 200, version_max: 201 }.to_bytes().to_vec();
    let after_greeting = |bytes: Vec<u8>| [greeting(), bytes].concat();
    let cases = [
        ("garbage", garbage, ErrorCode::Protocol),
        ("a version of the future", future_version, ErrorCode::Version),
        (
            "an oversized publish",
            after_greeting(header(!7, MessageKind::Publish as u8, 0)),
            ErrorCode::Protocol,
        ),
        (
            "an oversized request",
            after_greeting(header(1 << 30, MessageKind::Subscribe as u8, 0)),
            ErrorCode::Protocol,
        ),
        ("an unknown message", after_greeting(header(16, 250, 0)), ErrorCode::Protocol),
        ("a length of nothing", after_greeting(header(0, 1, 0)), ErrorCode::Protocol),
        ("an odd length", after_greeting(header(9, 1, 0)), ErrorCode::Protocol),
        ("silence", Vec::new(), ErrorCode::Handshake),
        ("half a preamble and silence", b"DUNL".to_vec(), ErrorCode::Handshake),
    ];
    for (what, bytes, code) in cases {
        let mut stream = connect(node);
        stream.write_all(&bytes).unwrap();
        assert_eq!(last_error(stream), Some(code), "{what}");
    }
}

/// Sends random bytes on new connections: at the start, after the preamble, after the greeting, or inside a message.
fn send_noise(node: SocketAddr, seed: &mut SeededRandom) {
    for _ in 0..300 {
        let mut bytes: Vec<u8> = (0..seed.between(1, 3_000)).map(|_| seed.draw() as u8).collect();
        let start = match seed.between(0, 3) {
            0 => Vec::new(),
            1 => Preamble::OURS.to_bytes().to_vec(),
            2 => greeting(),
            _ => {
                let kind = seed.between(1, 18) as u8;
                let len = (bytes.len() as u32 + 8) & !7;
                bytes.truncate(len as usize - 8);
                [greeting(), header(len, kind, seed.between(0, 7) as u8)].concat()
            }
        };
        let mut stream = connect(node);
        // Ignores the error, because the node may already have closed the connection.
        let _ = stream.write_all(&start).and_then(|()| stream.write_all(&bytes));
        if seed.between(0, 1) == 1 {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

/// Sends valid messages, cuts them off at a random byte, and drops the connection. Repeats this many times.
fn send_truncated(node: SocketAddr, seed: &mut SeededRandom) {
    let messages =
        [greeting(), subscribe(1, "t"), subscribe(2, ">"), encode(FromClient::Ping(Ping { token: 1 }))]
            .concat();
    for _ in 0..100 {
        let mut stream = connect(node);
        let cut = seed.between(1, messages.len() as u64) as usize;
        let _ = stream.write_all(&messages[..cut]);
    }
}

/// Opens `connections` connections, and drops each at once. Every third connection sends a greeting first.
fn open_and_close(node: SocketAddr, connections: u64) {
    for number in 0..connections {
        let mut stream = connect(node);
        if number % 3 == 0 {
            let _ = stream.write_all(&greeting());
        }
        // If the node has already sent a response, dropping the stream resets the connection, because the response is
        // unread.
        drop(stream);
    }
}

/// Opens five clients that read nothing: three subscribe to the topic, one sends PING messages, and one publishes.
fn open_deaf_clients(node: SocketAddr) -> Vec<TcpStream> {
    let open = |requests: Vec<u8>| {
        let mut stream = connect(node);
        stream.write_all(&greeting()).unwrap();
        let _ = stream.write_all(&requests);
        stream
    };
    let subscribed = |count: u32| open((1..=count).flat_map(|number| subscribe(number, "t")).collect());
    let mut streams = Vec::from([1, 1, 200].map(subscribed));
    let mut pinging = open(Vec::new());
    let pings: Vec<u8> = (0..2_000).flat_map(|token| encode(FromClient::Ping(Ping { token }))).collect();
    send_until_unread(&mut pinging, || pings.clone());
    // The node acknowledges consecutive records of one publisher with a single response. The records of two publishers
    // alternate here, so that the node has to send many responses.
    let mut publishing = open([open_publisher(1, "hostile"), open_publisher(2, "hostile")].concat());
    let mut numbers = 1..;
    send_until_unread(&mut publishing, || {
        let next = numbers.by_ref().take(1_000);
        next.flat_map(|number| [publish(1, number), publish(2, number)].concat()).collect()
    });
    streams.extend([pinging, publishing]);
    streams
}

/// Sends requests until the node stops reading them. The node must stop at some time, because this client does not read
/// the responses.
fn send_until_unread(stream: &mut TcpStream, mut next: impl FnMut() -> Vec<u8>) {
    let mut sent = 0;
    loop {
        let requests = next();
        if stream.write_all(&requests).is_err() {
            return;
        }
        sent += requests.len();
        assert!(sent < 256 << 20, "the node reads without end from a client that reads no responses");
    }
}

#[test]
fn hostile_clients_are_disconnected_without_affecting_others() {
    for seed in tier::seeds(1) {
        println!("seed {seed}");
        let mut random = SeededRandom::new(seed);
        let node = Node::start_anywhere(&["handshake=500"]);
        create_reliable(&node.url(), "t");
        let reader = SubscriberProcess::start(&node.url(), &["good=registered@t"]);
        let mut writer = Writer::start(&node.url(), "t", &["mode=batch", "batch=20", "pause=1000"]);
        writer.wait_for_acks(100);
        let rss_before = node.process.rss_bytes();
        let deaf = open_deaf_clients(node.address);
        check_error_codes(node.address);
        send_noise(node.address, &mut random);
        send_truncated(node.address, &mut random);
        open_and_close(node.address, tier::crowd(2_000));
        writer.wait_for_acks(1_000);
        let growth = node.process.rss_bytes().saturating_sub(rss_before);
        let ledger = writer.finish();
        assert!(ledger.failures.is_empty(), "the publisher noticed: {:?}", ledger.failures);
        let counts = audit_all(&reader.finish(), &ledger)["good"];
        println!("{counts:?}, the node grew by {} KB", growth / 1_000);
        assert_eq!(
            (counts.gaps, counts.disconnects, counts.records),
            (0, 0, ledger.attempted),
            "the reader noticed"
        );
        assert!(growth < GROWTH_BYTES_MAX, "the node grew by {growth} bytes");
        node.assert_no_errors();
        drop(deaf);
    }
}
