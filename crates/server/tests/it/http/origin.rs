use super::HttpServer;

#[test]
fn http_request_of_an_unlisted_origin_is_refused() {
    let fixture = HttpServer::with(|config| config.http_origins = vec!["https://app.example".to_owned()]);
    let own = format!("http://{}", fixture.address());
    let post = |origin: &str| fixture.post("/v1/topics/t", &[("origin", origin)], b"x");
    for forged in [
        "http://evil.example",
        "null",
        "https://app.example.evil.example",
        "http://app.example",
        "http://127.0.0.1:1",
    ] {
        let response = post(forged);
        assert_eq!((response.status, response.code().as_str()), (403, "FORBIDDEN"), "{forged}");
        assert_eq!(response.header("access-control-allow-origin"), None);
    }
    let events =
        fixture.peer().request("GET", "/v1/topics/t/events", &[("origin", "http://evil.example")], b"");
    assert_eq!(events.status, 403);
    assert_eq!(post(&own).status, 200);
    let listed = post("https://app.example");
    assert_eq!(
        (listed.status, listed.header("access-control-allow-origin")),
        (200, Some("https://app.example"))
    );
    assert_eq!(listed.header("vary"), Some("origin"));
    assert!(listed.header("access-control-expose-headers").unwrap().contains("etag"));
    assert_eq!(fixture.node.topic("t").unwrap().logs()[0].info().next_seq, 3, "only two were published");
}

#[test]
fn preflight_lists_the_methods_for_an_allowed_origin() {
    let fixture = HttpServer::with(|config| config.http_origins = vec!["https://app.example".to_owned()]);
    let request = |origin: &str| {
        let headers = [("origin", origin), ("access-control-request-method", "PUT")];
        fixture.peer().request("OPTIONS", "/v1/topics/t", &headers, b"")
    };
    let response = request("https://app.example");
    assert_eq!(response.status, 204);
    assert_eq!(response.header("access-control-allow-methods"), Some("GET, POST, PUT, DELETE"));
    let allowed: Vec<_> = response.header("access-control-allow-headers").unwrap().split(", ").collect();
    for header in ["authorization", "last-event-id", "if-match", "dunlin-last-position", "*"] {
        assert!(allowed.contains(&header), "{header}: {allowed:?}");
    }
    assert_eq!(request("https://evil.example").status, 403);
}

#[test]
fn request_with_an_unknown_host_header_is_refused() {
    let fixture = HttpServer::with(|config| config.http_origins = vec!["https://app.example".to_owned()]);
    let get = |host: &str| fixture.peer().request("GET", "/v1/topics", &[("host", host)], b"").status;
    for host in ["localhost", "localhost:8222", "127.0.0.1:8222", "[::1]:8222", "app.example", "a.localhost"]
    {
        assert_eq!(get(host), 200, "{host}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8222"] {
        assert_eq!(get(host), 403, "{host}");
    }
    assert_eq!(get("not a host"), 400);
    let twice = [("host", "localhost"), ("host", "evil.example")];
    assert_eq!(fixture.peer().request("GET", "/v1/topics", &twice, b"").status, 400);
}

#[test]
fn request_with_two_origins_or_hosts_is_refused() {
    let fixture = HttpServer::new();
    let own = format!("http://{}", fixture.address());
    let twice = [("origin", own.as_str()), ("origin", "http://evil.example")];
    let response = fixture.post("/v1/topics/t", &twice, b"x");
    assert_eq!((response.status, response.code().as_str()), (400, "PROTOCOL"));
    assert!(response.json()["advice"].as_str().unwrap().starts_with("Change the request"), "{response:?}");
    let request = |head: &str| {
        let mut peer = fixture.peer();
        peer.send_some(format!("{head}\r\n\r\n").as_bytes());
        peer.read_response().status
    };
    assert_eq!(request("GET /v1/topics HTTP/1.1"), 400, "no Host");
    assert_eq!(request("GET /v1/topics HTTP/1.0"), 200, "older clients need none");
    assert_eq!(request("GET http://evil.example/v1/topics HTTP/1.1\r\nhost: localhost"), 400);
    assert_eq!(request("GET http://evil.example/v1/topics HTTP/1.1"), 403);
    assert_eq!(request("GET http://localhost/v1/topics HTTP/1.1\r\nhost: localhost"), 200);
    assert!(fixture.node.topic("t").is_none());
}
