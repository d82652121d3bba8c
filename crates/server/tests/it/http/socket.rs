//! Tests WebSockets with raw sockets: from which web pages they may be opened, and how the node treats clients that
//! violate the protocol.

use std::io::{Read, Write};
use std::net::SocketAddr;

use dunlin_wait::until;
use serde_json::{Value, json};

use super::{HttpServer, Peer, short};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const MASK: [u8; 4] = [7, 0, 255, 3];
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A WebSocket client that sends and receives single frames.
pub(crate) struct Socket(Peer);

fn handshake(fixture: &HttpServer, more: &[(&str, &str)]) -> (Peer, u16) {
    handshake_at(fixture.address(), more)
}

fn handshake_at(address: SocketAddr, more: &[(&str, &str)]) -> (Peer, u16) {
    handshake_at_path(address, "/v1/ws", more)
}

fn handshake_at_path(address: SocketAddr, path: &str, more: &[(&str, &str)]) -> (Peer, u16) {
    let mut headers =
        vec![("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    headers.push(("sec-websocket-key", KEY));
    headers.extend(more);
    let mut peer = Peer::connect(address);
    peer.head("GET", path, &headers);
    let (status, _) = peer.read_response_head();
    (peer, status)
}

impl Socket {
    fn open(fixture: &HttpServer, protocol: &str) -> Socket {
        Socket::open_at(fixture.address(), protocol)
    }

    fn open_at(address: SocketAddr, protocol: &str) -> Socket {
        let (peer, status) = handshake_at(address, &[("sec-websocket-protocol", protocol)]);
        assert_eq!(status, 101);
        Socket(peer)
    }

    /// Opens a WebSocket at the path that NATS clients use.
    pub(crate) fn nats_at(address: SocketAddr) -> Socket {
        let (peer, status) = handshake_at_path(address, "/", &[]);
        assert_eq!(status, 101);
        Socket(peer)
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.frame(0x80 | BINARY, bytes);
    }

    /// Reads binary messages until their bytes end with `end`, and returns all bytes.
    pub(crate) fn bytes_until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut received = Vec::new();
        while !received.ends_with(end) {
            let (kind, payload) = self.next();
            assert_eq!(kind, BINARY, "{payload:?}");
            received.extend(payload);
        }
        received
    }

    fn json(fixture: &HttpServer) -> Socket {
        Socket::json_at(fixture.address())
    }

    pub(crate) fn json_at(address: SocketAddr) -> Socket {
        Socket::json_as(address, &json!({}))
    }

    /// Opens a WebSocket for JSON messages, and logs in with these credentials.
    pub(crate) fn json_as(address: SocketAddr, credentials: &Value) -> Socket {
        let mut socket = Socket::open_at(address, "dunlin.v1.json");
        let mut hello = credentials.clone();
        hello["op"] = "hello".into();
        socket.send_json(&hello);
        assert_eq!(socket.receive_json()["op"], "welcome");
        socket
    }

    fn frame(&mut self, first: u8, payload: &[u8]) {
        let mut frame = vec![first];
        match payload.len() {
            len @ ..126 => frame.push(0x80 | len as u8),
            len @ ..65_536 => {
                frame.push(0x80 | 126);
                frame.extend((len as u16).to_be_bytes());
            }
            len => {
                frame.push(0x80 | 127);
                frame.extend((len as u64).to_be_bytes());
            }
        }
        frame.extend(MASK);
        frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
        self.0.send_some(&frame);
    }

    pub(crate) fn send_json(&mut self, value: &Value) {
        self.frame(0x80 | TEXT, value.to_string().as_bytes());
    }

    /// Reads the next frame. Returns its kind and its payload.
    fn next(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.stream.read_exact(&mut head).unwrap();
        assert!(head[0] & 0x80 != 0 && head[1] & 0x80 == 0, "a node neither cuts messages nor masks them");
        let mut long = [0; 8];
        let length = match head[1] {
            126 => {
                self.0.stream.read_exact(&mut long[6..]).unwrap();
                u64::from_be_bytes(long)
            }
            127 => {
                self.0.stream.read_exact(&mut long).unwrap();
                u64::from_be_bytes(long)
            }
            length => length.into(),
        };
        let mut payload = vec![0; length as usize];
        self.0.stream.read_exact(&mut payload).unwrap();
        (head[0] & 15, payload)
    }

    pub(crate) fn receive_json(&mut self) -> Value {
        let (kind, payload) = self.next();
        assert_eq!(kind, TEXT, "{payload:?}");
        serde_json::from_slice(&payload).unwrap()
    }

    /// Returns the status of the close frame, which must be the next frame and the last one.
    fn closed(&mut self) -> u16 {
        let (kind, payload) = self.next();
        assert_eq!(kind, CLOSE, "{payload:?}");
        let mut rest = Vec::new();
        let _ = self.0.stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
        u16::from_be_bytes([payload[0], payload[1]])
    }
}

#[test]
fn websocket_is_refused_if_the_origin_is_not_allowed() {
    let fixture = HttpServer::with(|config| config.http_origins = vec!["https://app.example".to_owned()]);
    let protocol = ("sec-websocket-protocol", "dunlin.v1.json");
    let own = format!("http://{}", fixture.address());
    for (origin, status) in
        [("http://evil.example", 403), ("null", 403), ("https://app.example", 101), (own.as_str(), 101)]
    {
        assert_eq!(handshake(&fixture, &[protocol, ("origin", origin)]).1, status, "{origin}");
    }
    assert_eq!(handshake(&fixture, &[protocol, ("host", "evil.example")]).1, 403, "a name that points here");
    assert_eq!(handshake(&fixture, &[]).1, 400, "no sub-protocol");
    assert_eq!(fixture.get("/v1/ws").status, 426);
}

#[test]
fn json_messages_are_processed_in_order() {
    let fixture = HttpServer::new();
    let mut socket = Socket::json(&fixture);
    socket.send_json(&json!({"op": "subscribe", "id": 7, "pattern": "a.>"}));
    assert_eq!(socket.receive_json()["op"], "subscribed");
    for request in 1..=3 {
        let payload = json!({"n": request});
        socket.send_json(
            &json!({"op": "publish", "request": request, "subject": "a.b", "payload": payload, "key": "k"}),
        );
    }
    socket.send_json(&json!({"op": "publish", "request": 4, "subject": "a..b", "payload": "x"}));
    socket.send_json(&json!({"op": "unsubscribe", "id": 7}));
    socket.send_json(&json!({"op": "ping"}));
    let (mut replies, mut records) = (Vec::new(), Vec::new());
    loop {
        let message = socket.receive_json();
        match message["op"].as_str().unwrap() {
            "pong" => break,
            "record" => records.push(message["payload"].as_str().unwrap().to_owned()),
            "position" => {}
            op => replies.push((op.to_owned(), message["title"].as_str().unwrap_or("").to_owned())),
        }
    }
    let expected =
        [("published", ""), ("published", ""), ("published", ""), ("refused", "SUBJECT"), ("end", "ENDED")];
    assert_eq!(replies, expected.map(|(op, title)| (op.to_owned(), title.to_owned())));
    assert!(records.len() <= 3 && records.iter().zip(1..).all(|(text, n)| *text == format!("{{\"n\":{n}}}")));
}

#[test]
fn websocket_violation_closes_the_socket_with_a_fitting_status() {
    let fixture = HttpServer::new();
    let mut text = Socket::open(&fixture, "dunlin.v1");
    text.frame(0x80 | TEXT, b"{}");
    assert_eq!(text.closed(), 1003);
    let mut bytes = Socket::json(&fixture);
    bytes.frame(0x80 | BINARY, b"DUNLIN");
    assert_eq!(bytes.closed(), 1003);
    let mut reserved = Socket::open(&fixture, "dunlin.v1");
    reserved.frame(0xf0 | BINARY, b"DUNLIN");
    assert_eq!(reserved.closed(), 1002);
    let mut not_json = Socket::json(&fixture);
    not_json.frame(0x80 | TEXT, b"{\"op\":");
    assert_eq!(not_json.receive_json()["op"], "error");
    assert_eq!(not_json.closed(), 1008);
    let mut not_utf8 = Socket::json(&fixture);
    not_utf8.frame(0x80 | TEXT, b"{\"op\": \"\xff\"}");
    assert!(not_utf8.receive_json()["detail"].as_str().unwrap().contains("not UTF-8"));
    assert_eq!(not_utf8.closed(), 1007);
    let mut no_hello = Socket::open(&fixture, "dunlin.v1.json");
    no_hello.send_json(&json!({"op": "ping"}));
    assert_eq!(no_hello.receive_json()["title"], "PROTOCOL");
    assert_eq!(no_hello.closed(), 1008);
    assert_eq!(fixture.get("/healthz").status, 200);
}

#[test]
fn http_1_0_request_is_no_websocket_handshake() {
    let fixture = HttpServer::new();
    let mut peer = fixture.peer();
    let head = format!(
        "GET /v1/ws HTTP/1.0\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\nsec-websocket-protocol: dunlin.v1\r\n\r\n"
    );
    peer.send_some(head.as_bytes());
    assert_eq!(peer.read_response_head().0, 400);
}

#[test]
fn websocket_message_over_the_size_limit_is_refused() {
    let fixture = HttpServer::with(|config| config.limits.ws.message_bytes_max = 1 << 16);
    let mut socket = Socket::json(&fixture);
    socket.frame(0x80 | TEXT, &vec![b' '; 1 << 17]);
    let message = socket.receive_json();
    assert_eq!((message["op"].as_str(), message["title"].as_str()), (Some("error"), Some("LIMIT")));
    assert!(message["detail"].as_str().unwrap().contains("ws.message_bytes_max"), "{message}");
    let mut subscribing = Socket::json(&fixture);
    subscribing.send_json(&json!({"op": "subscribe", "id": 1, "pattern": "a"}));
    assert_eq!(subscribing.receive_json()["op"], "subscribed");
    subscribing.send_json(&json!({"op": "subscribe", "id": 1, "pattern": "b"}));
    assert_eq!(subscribing.receive_json()["op"], "end");
}

#[test]
fn message_before_hello_has_a_smaller_size_limit() {
    let fixture = HttpServer::new();
    let mut socket = Socket::open(&fixture, "dunlin.v1.json");
    socket.frame(0x80 | TEXT, &vec![b' '; 20_000]);
    let message = socket.receive_json();
    assert!(message["detail"].as_str().unwrap().contains("ws.hello_bytes_max"), "{message}");
    assert_eq!(socket.closed(), 1008);
}

#[test]
fn unfinished_websocket_message_times_out() {
    let fixture = HttpServer::with(|config| {
        config.limits.ws.message_ms_max = 300;
        config.limits.http.heartbeat_ms = 100;
    });
    let mut socket = Socket::json(&fixture);
    socket.frame(TEXT, b"{\"op\":");
    let message = std::iter::repeat_with(|| socket.receive_json())
        .find(|message| message["op"] != "heartbeat")
        .unwrap();
    assert!(message["detail"].as_str().unwrap().contains("ws.message_ms_max"), "{message}");
    assert_eq!(socket.closed(), 1008);
}

#[test]
fn websocket_ping_does_not_count_as_an_unfinished_message() {
    let fixture = HttpServer::with(|config| {
        config.limits.ws.message_ms_max = 50;
        config.limits.http.heartbeat_ms = 100;
    });
    let mut socket = Socket::json(&fixture);
    socket.frame(0x80 | PING, b"");
    let (mut heartbeats, mut pongs) = (0, 0);
    // Heartbeats arrive every 100 ms, and an incomplete message is refused after 50 ms. If the node took the ping for
    // the beginning of a message, it would refuse that message before the second heartbeat.
    while heartbeats < 3 || pongs < 1 {
        match socket.next() {
            (PONG, _) => (heartbeats, pongs) = (0, pongs + 1),
            (TEXT, text) => {
                let message: Value = serde_json::from_slice(&text).unwrap();
                assert_eq!(message["op"], "heartbeat", "{message}");
                heartbeats += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    socket.send_json(&json!({"op": "ping"}));
    let reply = std::iter::repeat_with(|| socket.receive_json())
        .find(|message| message["op"] != "heartbeat")
        .unwrap();
    assert_eq!(reply["op"], "pong", "{reply}");
}

#[test]
fn overlong_length_encoding_is_a_protocol_violation() {
    let fixture = HttpServer::new();
    for protocol in ["dunlin.v1", "dunlin.v1.json"] {
        let mut socket = Socket::open(&fixture, protocol);
        for byte in [0x81, 0xfe, 0, 0x7d, 0, 0, 0, 0] {
            socket.0.send_some(&[byte]);
            // One thread serves both connections. When the thread has responded to this request, it has also read the
            // byte that was sent over the WebSocket.
            assert_eq!(fixture.get("/healthz").status, 200);
        }
        assert_eq!(socket.closed(), 1002, "{protocol}");
    }
    assert_eq!(fixture.get("/healthz").status, 200);
}

#[test]
fn ping_gets_a_pong_and_close_gets_a_close() {
    let fixture = HttpServer::new();
    for protocol in ["dunlin.v1", "dunlin.v1.json"] {
        let mut socket = Socket::open(&fixture, protocol);
        socket.frame(0x80 | PING, b"still there?");
        assert_eq!(socket.next(), (PONG, b"still there?".to_vec()), "{protocol}");
        socket.frame(0x80 | CLOSE, &1000_u16.to_be_bytes());
        assert_eq!(socket.closed(), 1000, "{protocol}");
    }
}

#[test]
fn stalled_websocket_uses_little_memory_and_gets_exact_gaps() {
    let fixture = HttpServer::new();
    fixture.node.create_topic("t", short(), false).unwrap();
    let mut socket = Socket::json(&fixture);
    socket.send_json(&json!({"op": "subscribe", "id": 1, "pattern": "t"}));
    assert_eq!(socket.receive_json()["op"], "subscribed");
    let before = fixture.node.budget().used();
    // Publishes much more than fits in the sockets' buffers.
    for _ in 0..200_000 {
        fixture.publish("t", &[b'x'; 100]);
    }
    assert!(fixture.node.budget().used() < before + (1 << 20));
    let (mut next, mut lost) = (1, 0);
    while next <= 200_000 {
        let message = socket.receive_json();
        let number = |name: &str| message[name].as_u64().unwrap();
        match message["op"].as_str().unwrap() {
            "record" => {
                assert_eq!(number("seq"), next);
                next += 1;
            }
            "gap" => {
                assert_eq!(number("first"), next);
                lost += number("records");
                next = number("last") + 1;
            }
            "lagging" | "position" => {}
            other => panic!("{other}: {message}"),
        }
    }
    assert!(lost > 0);
}

#[test]
fn node_that_stops_closes_websockets_with_a_reason() {
    let fixture = HttpServer::new();
    let mut socket = Socket::json(&fixture);
    let server = fixture.server;
    let stopping = std::thread::spawn(move || server.stop());
    let message = socket.receive_json();
    assert_eq!((message["op"].as_str(), message["title"].as_str()), (Some("error"), Some("SHUTTING_DOWN")));
    assert_eq!(socket.closed(), 1001);
    stopping.join().unwrap();
}

#[test]
fn connections_are_counted_separately_for_each_listener() {
    let fixture = HttpServer::new();
    let _socket = Socket::json(&fixture);
    until("it is counted", || {
        fixture.get("/metrics").text().contains("dunlin_connections{protocol=\"ws\"} 1\n")
    });
    // The server must stop although this connection has sent only the first line of its WebSocket request.
    let mut half = fixture.peer();
    half.send(b"GET /v1/ws HTTP/1.1\r\n");
    half.stream.get_mut().flush().unwrap();
}

#[test]
fn websocket_publish_with_invalid_reply_subject_is_refused() {
    let fixture = HttpServer::new();
    let mut socket = Socket::json(&fixture);
    let mut subscriber = fixture.node.subscribe("chat", &Default::default()).unwrap();
    for (request, reply) in
        ["r 0\r\n\r\nMSG admin.cmd 2 4\r\nevil\r\nMSG chat 1 z", "a b", "a\u{7f}", "a.*", "a..b"]
            .into_iter()
            .enumerate()
    {
        socket.send_json(
            &json!({"op": "publish", "request": request, "subject": "chat", "reply": reply, "payload": "x"}),
        );
        let message = socket.receive_json();
        assert_ne!(message["op"], "published", "{reply:?}: {message}");
    }
    socket.send_json(
        &json!({"op": "publish", "request": 9, "subject": "chat", "reply": "a.b", "payload": "good"}),
    );
    assert_eq!(socket.receive_json()["op"], "published");
    use dunlin::topic::{Event, Subscribe};
    match subscriber.next().unwrap() {
        Event::Record(record) => {
            assert_eq!((record.payload(), record.frame.reply()), (&b"good"[..], Some("a.b")))
        }
        other => panic!("{other:?}"),
    };
}
