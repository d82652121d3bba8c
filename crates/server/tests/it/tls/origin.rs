//! Tests from which web origins HTTP may be used over TLS.

use dunlin_server::Protocol;

use super::authority::Authority;
use super::other_listeners::{curl, text};
use super::{at, serve_tls};

#[test]
fn https_listener_refuses_an_origin_with_scheme_http() {
    let authority = Authority::new();
    let (_node, server) = serve_tls(&authority, false);
    let (ca, place) = (authority.path("ca.pem"), at(&server, Protocol::Http));
    for (scheme, status) in [("https", " 200"), ("http", " 403")] {
        let (origin, url) = (format!("Origin: {scheme}://{place}"), format!("https://{place}/v1/topics"));
        let response = text(&curl(&["-i", "--cacert", ca.to_str().unwrap(), "-H", &origin, &url]).stdout);
        let first = response.lines().next().unwrap_or_default();
        assert!(first.contains(status), "{scheme}: {response}");
    }
}
