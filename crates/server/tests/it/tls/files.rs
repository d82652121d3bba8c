//! Tests the files of the TLS configuration: an error names the faulty file, and new files are used for new
//! connections.

use dunlin::{Config, Node};
use dunlin_server::{Server, ServerConfig};
use dunlin_wait::until;

use super::authority::Authority;
use super::{connect, refusal_text, serve_tls};

/// Starts a node that must refuse to start, and returns the error.
fn start(authority: &Authority, mutual: bool) -> String {
    let node = Node::start(Config::default()).unwrap();
    let tcp = vec![([127, 0, 0, 1], 0).into()];
    let config = ServerConfig { tcp, tls: Some(authority.tls(mutual)), ..ServerConfig::default() };
    Server::start(node, config).expect_err("it started").to_string()
}

#[test]
fn tls_file_error_names_the_file_and_the_reason() {
    let authority = Authority::new();
    std::fs::remove_file(authority.path("server-key.pem")).unwrap();
    let error = start(&authority, false);
    assert!(error.contains("server-key.pem") && error.contains("No such file"), "{error}");
    authority.write("server-key.pem", &authority.sign("localhost").key);
    let error = start(&authority, false);
    assert!(
        error.contains("server.pem") && error.contains("the key does not belong to the certificate"),
        "{error}"
    );
    authority.write("server-key.pem", "nonsense");
    assert!(start(&authority, false).contains("server-key.pem: the file has no private key"));
    authority.write("server.pem", "-----BEGIN CERTIFICATE-----\n???");
    let error = start(&authority, false);
    assert!(error.contains("server.pem: the file is not PEM"), "{error}");
    authority.write_certificate("server", &authority.sign("localhost"));
    authority.write("ca.pem", "");
    let error = start(&authority, true);
    assert!(error.contains("client_ca") && error.contains("ca.pem: the file has no certificate"), "{error}");
}

#[test]
fn reloaded_certificate_is_used_and_a_broken_one_ignored() {
    let (old, new) = (Authority::new(), Authority::new());
    let (_node, server) = serve_tls(&old, false);
    let before = connect(&server, old.client_options()).unwrap();

    old.write("server.pem", "nonsense");
    assert!(!server.reload(), "it says that something is wrong");
    connect(&server, old.client_options()).expect("what was there stays");

    old.write_certificate("server", &new.sign("localhost"));
    assert!(server.reload());
    assert!(refusal_text(connect(&server, old.client_options())).contains("not trusted here"));
    connect(&server, new.client_options()).unwrap();
    // A connection that was open before must stay open.
    before.publisher("t").unwrap();
    assert_eq!(before.connections(), 1);
}

#[test]
fn changed_tls_files_are_reloaded_automatically() {
    let (old, new) = (Authority::new(), Authority::new());
    let (_node, server) = serve_tls(&old, false);
    connect(&server, old.client_options()).unwrap();
    old.write_certificate("server", &new.sign("localhost"));
    until("the new certificate is shown", || connect(&server, new.client_options()).is_ok());
}

#[test]
fn certificate_of_a_replaced_client_authority_is_refused() {
    let (theirs, other) = (Authority::new(), Authority::new());
    let (_node, server) = serve_tls(&theirs, true);
    let worker = theirs.sign("worker-7");
    connect(&server, theirs.with_certificate(&worker)).unwrap();
    theirs.write("ca.pem", &other.ca());
    assert!(server.reload());
    let error = refusal_text(connect(&server, theirs.with_certificate(&worker)));
    assert!(error.contains("does not accept the client's certificate"), "{error}");
    connect(&server, theirs.with_certificate(&other.sign("worker-8"))).unwrap();
}
