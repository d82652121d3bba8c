//! Tests that a starting node completes the TLS handshake, and then refuses the client with OPENING.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use dunlin::{Config, Node};
use dunlin_client::topic::Publish;
use dunlin_client::{Client, ClientLimits, ClientOptions};
use dunlin_server::{Protocol, Server, ServerConfig, StartupListeners};

use super::authority::Authority;
use super::other_listeners::{connect_tls, curl, read_line, text};
use super::patient_options;

#[test]
fn node_refuses_tls_clients_on_every_listener_while_it_starts() {
    let authority = Authority::new();
    let any = || vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let mut config = ServerConfig { tcp: any(), http: any(), threads: 1, ..ServerConfig::default() };
    config.tls = Some(authority.tls(false));
    config.limits.handshake_ms_max = 60_000;
    let opening = StartupListeners::start(&config, "its topics are being counted").unwrap();
    let port = |protocol| opening.addresses().iter().find(|(of, _)| *of == protocol).unwrap().1.port();
    let (tcp, http) = (format!("tls://localhost:{}", port(Protocol::Tcp)), port(Protocol::Http));

    let limits = ClientLimits { connect_ms_max: 3_000, ..ClientLimits::default() };
    let error =
        Client::connect(&tcp, ClientOptions { limits, ..patient_options(authority.client_options()) });
    let error = error.err().unwrap().to_string();
    assert!(error.contains("OPENING") && error.contains("its topics are being counted"), "{error}");
    let ca = authority.path("ca.pem");
    let url = format!("https://localhost:{http}/startupz");
    let response = text(&curl(&["-i", "--cacert", ca.to_str().unwrap(), &url]).stdout);
    assert!(response.contains(" 503 ") && response.contains("OPENING"), "{response}");
    let mut peer = connect_tls(TcpStream::connect(("localhost", http)).unwrap(), &authority);
    let handshake = "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: dunlin.v1.json\r\n\r\n";
    peer.get_mut().write_all(handshake.as_bytes()).unwrap();
    assert_eq!(read_line(&mut peer), "HTTP/1.1 503 Service Unavailable");

    let _server = Server::open(Node::start(Config::default()).unwrap(), config, opening).unwrap();
    let client = Client::connect(&tcp, patient_options(authority.client_options())).unwrap();
    client.publisher("t").unwrap().publish("x").unwrap();
}
