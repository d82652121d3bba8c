use super::HttpServer;

#[test]
fn pages_of_other_origins_are_refused_unless_they_are_named() {
    let stage = HttpServer::with(|config| config.http_origins = vec!["https://app.example".to_owned()]);
    let own = format!("http://{}", stage.address());
    let post = |origin: &str| stage.post("/v1/topics/t", &[("origin", origin)], b"x");
    for forged in [
        "http://evil.example",
        "null",
        "https://app.example.evil.example",
        "http://app.example",
        "http://127.0.0.1:1",
    ] {
        let answer = post(forged);
        assert_eq!((answer.status, answer.code().as_str()), (403, "FORBIDDEN"), "{forged}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let events =
        stage.peer().request("GET", "/v1/topics/t/events", &[("origin", "http://evil.example")], b"");
    assert_eq!(events.status, 403);
    assert_eq!(post(&own).status, 200);
    let named = post("https://app.example");
    assert_eq!(
        (named.status, named.header("access-control-allow-origin")),
        (200, Some("https://app.example"))
    );
    assert_eq!(named.header("vary"), Some("origin"));
    assert!(named.header("access-control-expose-headers").unwrap().contains("etag"));
    assert_eq!(stage.node.topic("t").unwrap().logs()[0].info().next_seq, 3, "only two were published");
}

#[test]
fn preflight_lists_the_methods_for_an_allowed_origin() {
    let stage = HttpServer::with(|config| config.http_origins = vec!["https://app.example".to_owned()]);
    let ask = |origin: &str| {
        let headers = [("origin", origin), ("access-control-request-method", "PUT")];
        stage.peer().request("OPTIONS", "/v1/topics/t", &headers, b"")
    };
    let told = ask("https://app.example");
    assert_eq!(told.status, 204);
    assert_eq!(told.header("access-control-allow-methods"), Some("GET, POST, PUT, DELETE"));
    assert!(told.header("access-control-allow-headers").unwrap().contains("last-event-id"));
    assert!(told.header("access-control-allow-headers").unwrap().contains("if-match"));
    assert_eq!(ask("https://evil.example").status, 403);
}

#[test]
fn foreign_host_name_is_refused() {
    let stage = HttpServer::with(|config| config.http_origins = vec!["https://app.example".to_owned()]);
    let get = |host: &str| stage.peer().request("GET", "/v1/topics", &[("host", host)], b"").status;
    for host in ["localhost", "localhost:8222", "127.0.0.1:8222", "[::1]:8222", "app.example", "a.localhost"]
    {
        assert_eq!(get(host), 200, "{host}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8222"] {
        assert_eq!(get(host), 403, "{host}");
    }
    assert_eq!(get("not a host"), 400);
    let twice = [("host", "localhost"), ("host", "evil.example")];
    assert_eq!(stage.peer().request("GET", "/v1/topics", &twice, b"").status, 400);
}

#[test]
fn request_with_two_origins_or_hosts_is_refused() {
    let stage = HttpServer::new();
    let own = format!("http://{}", stage.address());
    let twice = [("origin", own.as_str()), ("origin", "http://evil.example")];
    let answer = stage.post("/v1/topics/t", &twice, b"x");
    assert_eq!((answer.status, answer.code().as_str()), (400, "PROTOCOL"));
    assert!(answer.json()["advice"].as_str().unwrap().starts_with("Change the request"), "{answer:?}");
    let ask = |head: &str| {
        let mut peer = stage.peer();
        peer.send_some(format!("{head}\r\n\r\n").as_bytes());
        peer.answer().status
    };
    assert_eq!(ask("GET /v1/topics HTTP/1.1"), 400, "no Host");
    assert_eq!(ask("GET /v1/topics HTTP/1.0"), 200, "older clients need none");
    assert_eq!(ask("GET http://evil.example/v1/topics HTTP/1.1\r\nhost: localhost"), 400);
    assert_eq!(ask("GET http://evil.example/v1/topics HTTP/1.1"), 403);
    assert_eq!(ask("GET http://localhost/v1/topics HTTP/1.1\r\nhost: localhost"), 200);
    assert!(stage.node.topic("t").is_none());
}
