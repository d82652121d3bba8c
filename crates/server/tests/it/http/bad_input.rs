use dunlin::topic::TopicConfig;
use dunlin::{Config, Node, NodeLimits};
use dunlin_wait::until;

use super::{HttpServer, Peer};

/// Checks that the node still responds to other clients.
fn assert_healthy(fixture: &HttpServer) {
    assert_eq!(fixture.get("/healthz").status, 200);
}

#[test]
fn oversized_http_body_is_refused_even_if_it_is_chunked() {
    let fixture = HttpServer::new();
    let config = TopicConfig { record_bytes_max: 1_000, ..TopicConfig::default() };
    fixture.node.create_topic("t", config, false).unwrap();
    // The head announces the body's length. The node must refuse the request without waiting for the body.
    let mut peer = fixture.peer();
    peer.head("POST", "/v1/topics/t", &[("content-length", "1000000000000")]);
    let response = peer.read_response();
    assert_eq!((response.status, response.code().as_str()), (413, "RECORD_TOO_LARGE"));
    assert_eq!(response.json()["numbers"]["bytes_allowed"], 1_000);
    // The length of a chunked body is not announced. The node must refuse the request as soon as the body exceeds the
    // limit.
    let mut peer = fixture.peer();
    peer.head("POST", "/v1/topics/t", &[("transfer-encoding", "chunked")]);
    for _ in 0..3 {
        peer.send_some(format!("190\r\n{}\r\n", "x".repeat(400)).as_bytes());
    }
    assert_eq!(peer.read_response().status, 413);
    // A record's frame is larger than its payload. This payload is within the limit, but the frame exceeds it.
    assert_eq!(fixture.post("/v1/topics/t", &[], &[b'x'; 999]).code(), "RECORD_TOO_LARGE");
    assert_eq!(fixture.post("/v1/topics/t", &[], &[b'x'; 900]).status, 200);
    assert_healthy(&fixture);
}

#[test]
fn body_over_the_memory_budget_is_refused() {
    let limits = NodeLimits { memory_bytes_max: 4 << 20, ..NodeLimits::default() };
    let fixture = HttpServer::of(Node::start(Config { limits, ..Config::default() }).unwrap(), |_| ());
    let refused = fixture.post("/v1/topics/t", &[], &vec![b'x'; 5 << 20]);
    assert_eq!((refused.status, refused.code().as_str()), (503, "BUDGET_SPENT"));
    assert_eq!(fixture.post("/v1/topics/t", &[], b"small").status, 200);
    assert!(fixture.node.budget().used() < 1 << 20, "the memory charge was released");
}

#[test]
fn batch_of_records_over_the_memory_budget_is_refused() {
    let limits = NodeLimits { memory_bytes_max: 4 << 20, ..NodeLimits::default() };
    let fixture = HttpServer::of(Node::start(Config { limits, ..Config::default() }).unwrap(), |_| ());
    let post = |lines: &[u8]| fixture.post("/v1/topics/t/batch", &[("content-type", "text/plain")], lines);
    // Each empty line of the body becomes a record. The memory budget has room for the body, but not for these records.
    let refused = post(&vec![b'\n'; 512 << 10]);
    assert_eq!((refused.status, refused.code().as_str()), (503, "BUDGET_SPENT"));
    assert_eq!(post(b"small\n").json()["published"], 1);
    assert!(fixture.node.budget().used() < 1 << 20, "the memory charge was released");
}

#[test]
fn http_request_heads_over_the_limits_are_refused() {
    let fixture = HttpServer::new();
    let mut peer = fixture.peer();
    peer.send_some(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ");
    peer.send_some(&vec![b'x'; 200_000]);
    assert_eq!(peer.read_response_head().0, 431);
    let mut peer = fixture.peer();
    let many: String = (0..200).map(|n| format!("x{n}: y\r\n")).collect();
    peer.send_some(format!("GET / HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes());
    assert_eq!(peer.read_response_head().0, 431);
    assert_healthy(&fixture);
}

#[test]
fn http_headers_before_login_take_only_the_login_share() {
    const HEAD_BYTES: usize = 60_000;
    let limits = NodeLimits { memory_bytes_max: 4 << 20, ..NodeLimits::default() };
    let node = Node::start(Config { limits, ..Config::default() }).unwrap();
    // A request head that stays incomplete must not time out during the test.
    let fixture = HttpServer::of(node, |config| config.limits.http.header_ms_max = 600_000);
    let before = fixture.node.budget().used();
    let half_head = || {
        let mut peer = fixture.peer();
        peer.send_some(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ");
        peer.send_some(&vec![b'x'; HEAD_BYTES]);
        peer
    };
    let held: Vec<Peer> = (0..4).map(|_| half_head()).collect();
    until("the heads are charged", || {
        fixture.node.budget().used() >= before + (held.len() * HEAD_BYTES) as u64
    });
    // The heads that are held use up the login share, which is a sixteenth of the memory budget.
    assert!(half_head().is_closed());
    assert_healthy(&fixture);
    drop(held);
    until("the charges are released", || fixture.node.budget().used() == before);
}

#[test]
fn slow_http_request_head_or_body_ends_the_connection() {
    let fixture = HttpServer::with(|config| {
        config.limits.http.header_ms_max = 100;
        config.limits.http.body_ms_max = 100;
    });
    let mut silent = fixture.peer();
    let mut half = fixture.peer();
    half.send(b"GET / HTTP/1.1\r\nhost: loc");
    let mut idle = fixture.peer();
    assert_eq!(idle.request("GET", "/healthz", &[], b"").status, 200);
    let mut slow = fixture.peer();
    slow.head("POST", "/v1/topics/t", &[("content-length", "10")]);
    slow.send(b"x");
    let response = slow.read_response();
    assert_eq!((response.status, response.code().as_str()), (408, "PROTOCOL"));
    for peer in [&mut silent, &mut idle] {
        assert!(peer.is_closed());
    }
    // Before the node closes the connection, it may send an error, because the client is too slow.
    while !half.is_closed() {}
    assert_healthy(&fixture);
}

/// A client that does not read may be stalled or gone. In both cases, the node must close the connection.
#[test]
fn client_that_accepts_no_data_is_disconnected() {
    let fixture = HttpServer::with(|config| config.limits.http.stalled_ms_max = 1_000);
    let events = fixture.events("/v1/topics/t/events", &[]);
    assert_eq!(fixture.server.sessions(), 1);
    let payload = vec![b'x'; 100_000];
    // Publishes much more than fits in the sockets' buffers.
    (0..300).for_each(|_| drop(fixture.publish("t", &payload).position.to_string()));
    until("the session has ended", || fixture.server.sessions() == 0);
    drop(events);
    assert_healthy(&fixture);
}

#[test]
fn truncated_body_publishes_nothing() {
    let fixture = HttpServer::new();
    fixture.node.create_topic("t", TopicConfig::default(), false).unwrap();
    let mut peer = fixture.peer();
    peer.head("POST", "/v1/topics/t", &[("content-length", "10")]);
    peer.send(b"half");
    peer.stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    while !peer.is_closed() {}
    assert_healthy(&fixture);
    assert_eq!(fixture.node.topic("t").unwrap().logs()[0].info().next_seq, 1);
}

#[test]
fn compressed_bodies_are_refused_without_decoding() {
    let fixture = HttpServer::new();
    for encoding in ["gzip", "br", "deflate", "zstd", "identity, gzip", "\u{7f}"] {
        let response = fixture.post("/v1/topics/t", &[("content-encoding", encoding)], b"\x1f\x8b bomb");
        if response.status == 400 && encoding == "\u{7f}" {
            continue;
        }
        assert_eq!((response.status, response.code().as_str()), (415, "PROTOCOL"), "{encoding}");
        assert_eq!(response.header("accept-encoding"), Some("identity"));
    }
    assert_eq!(fixture.post("/v1/topics/t", &[("content-encoding", "identity")], b"x").status, 200);
}

#[test]
fn transfer_encodings_other_than_chunked_are_refused() {
    let fixture = HttpServer::new();
    for encoding in ["gzip, chunked", "deflate, chunked"] {
        let mut peer = fixture.peer();
        peer.head("POST", "/v1/topics/t", &[("transfer-encoding", encoding)]);
        let response = peer.read_response();
        assert_eq!((response.status, response.code().as_str()), (501, "PROTOCOL"), "{encoding}");
    }
    assert!(fixture.node.topic("t").is_none());
    let mut peer = fixture.peer();
    peer.head("POST", "/v1/topics/t", &[("transfer-encoding", "chunked")]);
    peer.send_some(b"1\r\nx\r\n0\r\n\r\n");
    assert_eq!(peer.read_response().status, 200);
}

#[test]
fn error_code_of_an_oversized_body_depends_on_the_http_path() {
    let fixture = HttpServer::new();
    for (method, path, code) in [
        ("POST", "/v1/leases", "PROTOCOL"),
        ("PUT", "/v1/topics/t", "PROTOCOL"),
        ("POST", "/v1/topics/t/batch", "RECORD_TOO_LARGE"),
    ] {
        let mut peer = fixture.peer();
        peer.head(method, path, &[("content-length", "1000000000")]);
        let response = peer.read_response();
        assert_eq!((response.status, response.code().as_str()), (413, code), "{path}");
    }
}

#[test]
fn invalid_http_gets_an_error_or_a_disconnect() {
    let fixture = HttpServer::new();
    let garbage: [&[u8]; 9] = [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"PUB t 1\r\nx\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v1/topics/> HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /v1/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST /v1/topics/t HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ];
    for bytes in garbage {
        let mut peer = fixture.peer();
        peer.send_some(bytes);
        peer.stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
        let mut message = Vec::new();
        let _ = std::io::Read::read_to_end(&mut peer.stream, &mut message);
        let message = String::from_utf8_lossy(&message);
        assert!(message.is_empty() || message.starts_with("HTTP/1.1 4"), "{bytes:?}: {message}");
    }
    let info = fixture.node.topic("t").map(|topic| topic.logs()[0].info().next_seq);
    assert!(info.is_none_or(|next| next == 1), "nothing was published");
    assert_healthy(&fixture);
}

#[test]
fn smuggled_second_request_is_not_executed() {
    let fixture = HttpServer::new();
    let mut peer = fixture.peer();
    // The head states a length and also that the body is chunked. The node must read the body as chunked, and must not
    // handle the remaining bytes as a second request.
    peer.send_some(
        b"POST /v1/topics/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n\
          0\r\n\r\nPOST /v1/topics/hidden HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\nx",
    );
    let mut message = Vec::new();
    peer.stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let _ = std::io::Read::read_to_end(&mut peer.stream, &mut message);
    assert!(fixture.node.topic("hidden").is_none(), "{}", String::from_utf8_lossy(&message));
}

#[test]
fn invalid_http_requests_get_matching_error_codes() {
    let fixture = HttpServer::new();
    fixture.publish("t", b"x");
    for (method, path, status, code) in [
        ("GET", "/v2/topics", 404, "PROTOCOL"),
        ("GET", "/v1/topics/", 404, "PROTOCOL"),
        ("GET", "/v1/topics/a/b", 404, "PROTOCOL"),
        ("PATCH", "/v1/topics/t", 405, "PROTOCOL"),
        ("POST", "/metrics", 405, "PROTOCOL"),
        ("POST", "/v1/topics/a..b", 400, "SUBJECT"),
        ("POST", "/v1/topics/a.*", 400, "SUBJECT"),
        ("POST", "/v1/topics/%24SYS.x", 400, "SUBJECT"),
        ("POST", "/v1/topics/%00", 400, "SUBJECT"),
        ("POST", "/v1/topics/%ff", 400, "PROTOCOL"),
        ("GET", "/v1/topics/t/events?form=latest", 400, "PROTOCOL"),
        ("GET", "/v1/topics/t/events?from=never", 400, "PROTOCOL"),
        ("GET", "/v1/topics/t/events?from=%zz", 400, "PROTOCOL"),
        ("GET", "/v1/topics/a..b/events", 400, "SUBJECT"),
        ("GET", "/v1/topics?limit=0", 400, "PROTOCOL"),
        ("GET", "/v1/topics?limit=9999999", 400, "PROTOCOL"),
        ("GET", "/v1/subscriptions?sort=name", 400, "PROTOCOL"),
    ] {
        let response = fixture.peer().request(method, path, &[], b"");
        assert_eq!(
            (response.status, response.code().as_str()),
            (status, code),
            "{method} {path}: {response:?}"
        );
    }
    let long = "x".repeat(300);
    assert_eq!(fixture.post(&format!("/v1/topics/{long}"), &[], b"").code(), "SUBJECT");
}

#[test]
fn invalid_header_values_are_refused() {
    let fixture = HttpServer::new();
    for headers in [
        [("dunlin-expect-seq", "soon")],
        [("dunlin-expect-seq", "-1")],
        [("dunlin-expect-seq", "18446744073709551616")],
        [("dunlin-event-time", "yesterday")],
        [("dunlin-producer", "7")],
        [("dunlin-producer-seq", "7")],
        [("dunlin-producer-epoch", "4294967296")],
    ] {
        let response = fixture.post("/v1/topics/t", &headers, b"x");
        assert_eq!((response.status, response.code().as_str()), (400, "PROTOCOL"), "{headers:?}");
    }
    let large = "x".repeat(40_000);
    let response = fixture.post("/v1/topics/t", &[("dunlin-header-a", &large), ("dunlin-key", "k")], b"x");
    assert_eq!(response.status, 200, "{response:?}");
    let (a, b) = ("x".repeat(25_000), "y".repeat(25_000));
    let c = "z".repeat(14_000);
    let too_large = [("dunlin-header-a", a.as_str()), ("dunlin-header-b", &b), ("dunlin-key", &c)];
    let response = fixture.post("/v1/topics/t", &too_large, b"x");
    assert!([400, 431].contains(&response.status) || response.status == 200, "{response:?}");
}

#[test]
fn unknown_topic_is_refused_if_auto_create_is_off() {
    let fixture =
        HttpServer::of(Node::start(Config { auto_create: false, ..Config::default() }).unwrap(), |_| ());
    assert_eq!(fixture.post("/v1/topics/t", &[], b"x").code(), "NO_TOPIC");
    assert_eq!(fixture.get("/v1/topics/t/events").code(), "NO_TOPIC");
    // A subscription to a pattern is accepted, and waits until a matching topic is created.
    let mut events = fixture.events("/v1/topics/t.*/events", &[]);
    fixture.node.create_topic("t.a", TopicConfig::default(), false).unwrap();
    fixture.publish("t.a", b"x");
    assert_eq!(events.records(1), ["x"]);
}

#[test]
fn http_connection_over_the_limit_gets_429() {
    let fixture = HttpServer::with(|config| config.limits.sessions_max = 2);
    let mut kept: Vec<Peer> = (0..2).map(|_| fixture.peer()).collect();
    for peer in &mut kept {
        assert_eq!(peer.request("GET", "/startupz", &[], b"").status, 200);
    }
    let mut third = fixture.peer();
    let response = third.read_response();
    assert_eq!((response.status, response.code().as_str()), (429, "LIMIT"));
    assert_eq!(response.json()["detail"], "sessions_max = 2");
    let ready = kept[0].request("GET", "/readyz", &[], b"");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("limits.connections"), "{}", ready.text());
    drop(kept);
    // After the node has noticed the closed connections, it accepts clients again.
    until("all sessions have ended", || fixture.server.sessions() == 0);
    assert_healthy(&fixture);
}

#[test]
fn health_probes_are_served_while_all_connections_are_in_use() {
    let fixture = HttpServer::with(|config| config.limits.sessions_max = 1);
    let mut kept = fixture.peer();
    for _ in 0..2 {
        assert_eq!(kept.request("GET", "/startupz", &[], b"").status, 200, "the connection stays open");
        for path in ["/healthz", "/startupz"] {
            let response = fixture.get(path);
            assert_eq!(response.status, 200, "{path}: {response:?}");
        }
        let ready = fixture.get("/readyz");
        assert_eq!(ready.status, 503, "{ready:?}");
        assert!(ready.text().contains("limits.connections"), "{}", ready.text());
        let refused = fixture.get("/v1/topics");
        assert_eq!((refused.status, refused.code().as_str()), (429, "LIMIT"));
    }
    assert_eq!(fixture.server.sessions(), 1);
}

#[test]
fn http_request_head_received_in_one_read_is_limited_in_size() {
    let fixture = HttpServer::with(|config| config.limits.http.header_bytes_max = 10_000);
    let request = |bytes: usize| fixture.peer().request("GET", "/healthz", &[("x", &"y".repeat(bytes))], b"");
    assert_eq!(request(9_000).status, 200);
    let refused = request(10_000);
    assert_eq!(refused.status, 431);
    if refused.header("content-type").is_some() {
        assert_eq!(refused.code(), "LIMIT");
    }
    assert_healthy(&fixture);
}

#[test]
fn system_subjects_are_refused_as_client_errors() {
    let fixture = HttpServer::new();
    for subject in ["$DUNLIN.seq.a", "$DUNLIN.seq.%3E", "$SYS.a"] {
        let refused = fixture.get(&format!("/v1/topics/{subject}/events"));
        assert_eq!((refused.status, refused.code().as_str()), (400, "SUBJECT"), "{refused:?}");
    }
    assert_healthy(&fixture);
}
