//! Tests how the listeners of a starting node refuse clients.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use dunlin::{Config, Node};
use dunlin_client::topic::Publish;
use dunlin_client::{Client, ClientLimits, ClientOptions, ConnectError, DisconnectReason};
use dunlin_server::grpc::proto::dunlin as v1;
use dunlin_server::{Protocol, Server, ServerConfig, StartupListeners};
use dunlin_wait::{find, until};
use tonic::Code;
use tonic::transport::Endpoint;
use v1::tasks_client::TasksClient;

use crate::clients::patient_options;
use crate::grpc::run;
use crate::http::peer::Peer as HttpPeer;
use crate::nats_peer::NatsPeer;

fn listeners() -> ServerConfig {
    let any = || vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    ServerConfig { tcp: any(), nats: any(), http: any(), grpc: any(), threads: 1, ..ServerConfig::default() }
}

/// Returns the address at which this protocol is served.
fn address(listeners: &[(Protocol, SocketAddr)], protocol: Protocol) -> SocketAddr {
    listeners.iter().find(|(other, _)| *other == protocol).unwrap().1
}

/// Options for a client that gives up after a short time.
fn impatient_options() -> ClientOptions {
    ClientOptions {
        limits: ClientLimits { connect_ms_max: 100, ..ClientLimits::default() },
        ..ClientOptions::default()
    }
}

/// Forwards connections to a node, and counts them. If a client connects a second time, the node has refused it the
/// first time.
struct Relay {
    address: SocketAddr,
    count: Arc<AtomicUsize>,
}

impl Relay {
    fn to(node: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay { address: listener.local_addr().unwrap(), count: Arc::default() };
        let count = Arc::clone(&relay.count);
        thread::spawn(move || {
            for client in listener.incoming() {
                count.fetch_add(1, Ordering::Relaxed);
                if let (Ok(client), Ok(node)) = (client, TcpStream::connect(node)) {
                    let (to_node, to_client) = (node.try_clone().unwrap(), client.try_clone().unwrap());
                    thread::spawn(move || copy(client, to_node));
                    thread::spawn(move || copy(node, to_client));
                }
            }
        });
        relay
    }

    /// Waits until two more connections have been made. When the client connects for the second time, the node has
    /// refused its first connection.
    fn wait_until_refused(&self) {
        let before = self.count.load(Ordering::Relaxed);
        until("a client connects again", || self.count.load(Ordering::Relaxed) >= before + 2);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn node_reports_progress_while_it_starts_then_admits_clients() {
    let opening = StartupListeners::start(&listeners(), "its topics are being counted").unwrap();
    let addresses = opening.addresses().to_vec();
    let url = format!("dunlin://{}", address(&addresses, Protocol::Tcp));
    let error = find("a client receives OPENING", || {
        let error = Client::connect(&url, impatient_options()).err().unwrap().to_string();
        error.contains("OPENING").then_some(error)
    });
    assert!(error.contains("its topics are being counted"), "{error}");

    opening.set_step("it looks for its cluster");
    let mut http = HttpPeer::connect(address(&addresses, Protocol::Http));
    let response = http.request("GET", "/startupz", &[], b"");
    assert_eq!((response.status, response.code().as_str()), (503, "OPENING"), "{response:?}");
    assert!(response.text().contains("it looks for its cluster"), "{response:?}");
    let mut nats = NatsPeer::at(address(&addresses, Protocol::Nats));
    assert!(nats.line().starts_with("INFO {"));
    let refused = nats.line();
    assert!(refused.starts_with("-ERR 'OPENING: it looks for its cluster"), "{refused}");
    run(async {
        let endpoint = format!("http://{}", address(&addresses, Protocol::Grpc));
        let channel = Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap();
        let refused = TasksClient::new(channel).list(v1::ListTasksRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
        assert!(refused.message().contains("it looks for its cluster"), "{refused:?}");
    });

    let node = Node::start(Config::default()).unwrap();
    let server = Server::open(node, listeners(), opening).unwrap();
    assert_eq!(server.addresses(), addresses);
    let client = Client::connect(&url, patient_options()).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    publisher.publish("x").unwrap();
    let mut http = HttpPeer::connect(address(&addresses, Protocol::Http));
    assert_eq!(http.request("GET", "/startupz", &[], b"").status, 200);
}

#[test]
fn client_connects_when_a_starting_node_becomes_ready() {
    let opening = StartupListeners::start(&listeners(), "its topics are being counted").unwrap();
    let relay = Relay::to(address(opening.addresses(), Protocol::Tcp));
    let url = format!("dunlin://{}", relay.address);
    let connecting = thread::spawn(move || Client::connect(&url, patient_options()));
    relay.wait_until_refused();
    let _server = Server::open(Node::start(Config::default()).unwrap(), listeners(), opening).unwrap();
    connecting.join().unwrap().unwrap().publisher("t").unwrap().publish("x").unwrap();
}

#[test]
fn client_waits_for_a_starting_node_despite_a_dead_node() {
    let opening = StartupListeners::start(&listeners(), "its topics are being counted").unwrap();
    let relay = Relay::to(address(opening.addresses(), Protocol::Tcp));
    // The socket is bound but does not listen, so that no other program can listen at this port.
    let unused_socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    unused_socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let away = unused_socket.local_addr().unwrap().as_socket().unwrap();
    let all = format!("dunlin://{},{away}", relay.address);
    until("the client reports the opening node", || {
        let error = Client::connect(&all, impatient_options());
        matches!(&error, Err(ConnectError::Disconnected(DisconnectReason::Opening(_))))
    });

    let connecting = thread::spawn(move || Client::connect(&all, patient_options()));
    relay.wait_until_refused();
    let _server = Server::open(Node::start(Config::default()).unwrap(), listeners(), opening).unwrap();
    connecting.join().unwrap().unwrap().publisher("t").unwrap().publish("x").unwrap();
}

#[test]
fn client_continues_when_its_restarted_node_is_ready() {
    let (_node, server) = crate::serve();
    let at = server.tcp_addresses()[0];
    let relay = Relay::to(at);
    let client = Client::connect(&format!("dunlin://{}", relay.address), patient_options()).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    publisher.publish("before").unwrap();
    drop(server);
    let again = ServerConfig { tcp: vec![at], threads: 1, ..ServerConfig::default() };
    let opening = StartupListeners::start(&again, "its topics are being counted").unwrap();
    let opened = thread::spawn(move || {
        relay.wait_until_refused();
        Server::open(Node::start(Config::default()).unwrap(), again, opening).unwrap()
    });
    publisher.publish("after").unwrap();
    drop(opened.join().unwrap());
}
