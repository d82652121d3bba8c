use super::HttpServer;

#[test]
fn report_page_is_sandboxed_and_returns_404_if_no_report_exists() {
    let none = HttpServer::new().get("/report");
    assert_eq!(none.status, 404);
    assert!(none.text().contains("http.report"), "{none:?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "<h1>figures</h1>").unwrap();
    let fixture = HttpServer::with(|config| config.http_report = Some(file.path().to_owned()));
    let report = fixture.get("/report");
    assert_eq!((report.status, report.text()), (200, "<h1>figures</h1>"));
    let policy = report.header("content-security-policy").unwrap();
    assert!(policy.contains("sandbox") && policy.contains("default-src 'none'"), "{policy}");
    std::fs::write(file.path(), vec![b'x'; (16 << 20) + 1]).unwrap();
    assert!(fixture.get("/report").text().contains("more than"));
    drop(file);
    let gone = fixture.get("/report");
    assert_eq!(gone.status, 404);
    assert!(gone.text().contains("does not exist"), "{gone:?}");
}

/// The headers that a browser sends when it opens a page.
const BROWSER: [(&str, &str); 2] =
    [("accept", "text/html,application/xhtml+xml"), ("accept-encoding", "gzip, br")];

#[test]
fn browser_gets_a_page_with_strict_policy_and_curl_gets_text() {
    let fixture = HttpServer::new();
    let words = fixture.get("/");
    assert!(words.text().starts_with("Dunlin's HTTP listener."), "{words:?}");
    let page = fixture.peer().request("GET", "/", &[BROWSER[0]], b"");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let policy = page.header("content-security-policy").unwrap();
    for part in ["default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(
        !page.text().contains("<style") && !page.text().contains("<script>"),
        "nothing that the policy refuses"
    );
}

#[test]
fn every_file_of_the_dashboard_is_compressed_and_small() {
    let fixture = HttpServer::new();
    let page = fixture.peer().request("GET", "/", &[BROWSER[0]], b"");
    // A proxy may serve the page at another path, so its links must be relative.
    let named = page.text().split('"').filter_map(|text| text.strip_prefix('.'));
    let named: Vec<_> = named.filter(|path| path.starts_with("/assets/") || *path == "/icon.svg").collect();
    assert!(named.len() >= 3, "a script, a style and an icon: {named:?}");
    let mut bytes = 0;
    for path in named {
        let file = fixture.peer().request("GET", path, &BROWSER, b"");
        assert_eq!((file.status, file.header("content-encoding")), (200, Some("gzip")), "{path}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"), "{path}");
        let plain = fixture.get(path);
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{path}");
        assert!(plain.body.len() > file.body.len(), "{path}");
        let forever = file.header("cache-control").unwrap().contains("immutable");
        assert_eq!(forever, path.starts_with("/assets/"), "{path}");
        bytes += file.body.len();
    }
    assert!(bytes < 300_000, "the page is {bytes} bytes");
    assert_eq!(fixture.peer().request("POST", "/icon.svg", &[], b"").status, 405);
    assert_eq!(fixture.get("/assets/none.js").status, 404);
}
