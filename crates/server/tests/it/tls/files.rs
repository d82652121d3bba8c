//! The TLS files: errors name the fault, and new files apply to new connections.

use dunlin::{Config, Node};
use dunlin_server::{Server, ServerConfig};
use dunlin_wait::until;

use super::authority::Authority;
use super::{connect, refused, serve_tls};

/// The error with which a node refuses to start.
fn start(authority: &Authority, mutual: bool) -> String {
    let node = Node::start(Config::default()).unwrap();
    let tcp = vec![([127, 0, 0, 1], 0).into()];
    let config = ServerConfig { tcp, tls: Some(authority.tls(mutual)), ..ServerConfig::default() };
    Server::start(node, config).expect_err("it started").to_string()
}

#[test]
fn unusable_tls_files_are_named_with_the_reason() {
    let authority = Authority::new();
    std::fs::remove_file(authority.path("server-key.pem")).unwrap();
    let said = start(&authority, false);
    assert!(said.contains("server-key.pem") && said.contains("No such file"), "{said}");
    authority.put("server-key.pem", &authority.sign("localhost").key);
    let said = start(&authority, false);
    assert!(
        said.contains("server.pem") && said.contains("the key does not belong to the certificate"),
        "{said}"
    );
    authority.put("server-key.pem", "nonsense");
    assert!(start(&authority, false).contains("server-key.pem: the file has no private key"));
    authority.put("server.pem", "-----BEGIN CERTIFICATE-----\n???");
    let said = start(&authority, false);
    assert!(said.contains("server.pem: the file is not PEM"), "{said}");
    authority.put_signed("server", &authority.sign("localhost"));
    authority.put("ca.pem", "");
    let said = start(&authority, true);
    assert!(said.contains("client_ca") && said.contains("ca.pem: the file has no certificate"), "{said}");
}

#[test]
fn reloaded_certificate_is_used_and_a_broken_one_ignored() {
    let (old, new) = (Authority::new(), Authority::new());
    let (_node, server) = serve_tls(&old, false);
    let before = connect(&server, old.trusted()).unwrap();

    old.put("server.pem", "nonsense");
    assert!(!server.reload(), "it says that something is wrong");
    connect(&server, old.trusted()).expect("what was there stays");

    old.put_signed("server", &new.sign("localhost"));
    assert!(server.reload());
    assert!(refused(connect(&server, old.trusted())).contains("not trusted here"));
    connect(&server, new.trusted()).unwrap();
    // An existing connection must stay open.
    before.publisher("t").unwrap();
    assert_eq!(before.connections(), 1);
}

#[test]
fn changed_tls_files_are_reloaded_automatically() {
    let (old, new) = (Authority::new(), Authority::new());
    let (_node, server) = serve_tls(&old, false);
    connect(&server, old.trusted()).unwrap();
    old.put_signed("server", &new.sign("localhost"));
    until("the new certificate is shown", || connect(&server, new.trusted()).is_ok());
}

#[test]
fn certificate_of_a_replaced_client_authority_is_refused() {
    let (theirs, other) = (Authority::new(), Authority::new());
    let (_node, server) = serve_tls(&theirs, true);
    let worker = theirs.sign("worker-7");
    connect(&server, theirs.showing(&worker)).unwrap();
    theirs.put("ca.pem", &other.ca());
    assert!(server.reload());
    let said = refused(connect(&server, theirs.showing(&worker)));
    assert!(said.contains("does not accept the client's certificate"), "{said}");
    connect(&server, theirs.showing(&other.sign("worker-8"))).unwrap();
}
