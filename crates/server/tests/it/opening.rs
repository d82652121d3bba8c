//! Doors of a node that is not there yet.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use dunlin::{Config, Node};
use dunlin_client::topic::Publish;
use dunlin_client::{Client, ConnectError, Limits, Options, Why};
use dunlin_server::grpc::proto::dunlin as v1;
use dunlin_server::{Door, Opening, Server, ServerConfig};
use tonic::Code;
use tonic::transport::Endpoint;
use v1::tasks_client::TasksClient;

use crate::grpc::run;
use crate::http::peer::Peer as HttpPeer;
use crate::nats_peer::NatsPeer;

fn doors() -> ServerConfig {
    let any = || vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    ServerConfig { tcp: any(), nats: any(), http: any(), grpc: any(), threads: 1, ..ServerConfig::default() }
}

/// As a command line says it, who is at this door.
fn address(doors: &[(Door, SocketAddr)], door: Door) -> SocketAddr {
    doors.iter().find(|(other, _)| *other == door).unwrap().1
}

#[test]
fn who_comes_before_the_node_is_open_is_told_what_it_is_doing_and_is_let_in_when_it_is() {
    let opening = Opening::start(&doors(), "its topics are being counted").unwrap();
    let addresses = opening.addresses().to_vec();
    let url = format!("dunlin://{}", address(&addresses, Door::Tcp));
    let hurried = Limits { connect_ms_max: 100, ..Limits::default() };
    let hurried = Options { limits: hurried, ..Options::default() };
    let told = Client::connect(&url, hurried).err().unwrap().to_string();
    assert!(told.contains("OPENING") && told.contains("its topics are being counted"), "{told}");

    opening.says("it looks for its cluster");
    let mut http = HttpPeer::connect(address(&addresses, Door::Http));
    let answer = http.request("GET", "/startupz", &[], b"");
    assert_eq!((answer.status, answer.code().as_str()), (503, "OPENING"), "{answer:?}");
    assert!(answer.text().contains("it looks for its cluster"), "{answer:?}");
    let mut nats = NatsPeer::at(address(&addresses, Door::Nats));
    assert!(nats.line().starts_with("INFO {"));
    let refused = nats.line();
    assert!(refused.starts_with("-ERR 'OPENING it looks for its cluster"), "{refused}");
    run(async {
        let endpoint = format!("http://{}", address(&addresses, Door::Grpc));
        let channel = Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap();
        let refused = TasksClient::new(channel).list(v1::ListTasksRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
        assert!(refused.message().contains("it looks for its cluster"), "{refused:?}");
    });

    let node = Node::start(Config::default()).unwrap();
    let server = Server::open(node, doors(), opening).unwrap();
    assert_eq!(server.addresses(), addresses);
    let client = Client::connect(&url, Options::default()).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    publisher.publish("x").unwrap();
    let mut http = HttpPeer::connect(address(&addresses, Door::Http));
    assert_eq!(http.request("GET", "/startupz", &[], b"").status, 200);
}

#[test]
fn a_client_that_comes_while_its_node_is_opening_is_let_in_when_it_is_open() {
    let opening = Opening::start(&doors(), "its topics are being counted").unwrap();
    let at = address(opening.addresses(), Door::Tcp);
    let opened = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        Server::open(Node::start(Config::default()).unwrap(), doors(), opening).unwrap()
    });
    let limits = Limits { connect_ms_max: 60_000, ..Limits::default() };
    let client = Client::connect(&format!("dunlin://{at}"), Options { limits, ..Options::default() });
    client.unwrap().publisher("t").unwrap().publish("x").unwrap();
    drop(opened.join().unwrap());
}

#[test]
fn one_node_that_is_opening_is_waited_for_though_another_cannot_be_reached() {
    let opening = Opening::start(&doors(), "its topics are being counted").unwrap();
    let at = address(opening.addresses(), Door::Tcp);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let all = format!("dunlin://{at},{nobody}");
    let hurried = Limits { connect_ms_max: 1_000, ..Limits::default() };
    let told = Client::connect(&all, Options { limits: hurried, ..Options::default() });
    assert!(matches!(&told, Err(ConnectError::Away(Why::Opening(_)))), "{told:?}");

    let patient = Limits { connect_ms_max: 60_000, ..Limits::default() };
    let connecting =
        thread::spawn(move || Client::connect(&all, Options { limits: patient, ..Options::default() }));
    // Longer than trying both of them once takes.
    thread::sleep(Duration::from_millis(500));
    let _server = Server::open(Node::start(Config::default()).unwrap(), doors(), opening).unwrap();
    connecting.join().unwrap().unwrap().publisher("t").unwrap().publish("x").unwrap();
}

#[test]
fn a_client_whose_node_starts_again_goes_on_when_that_is_open() {
    let (_node, server) = crate::serve();
    let at = server.tcp_addresses()[0];
    let limits = Limits { patience_heartbeats: 1_000, ..Limits::default() };
    let client =
        Client::connect(&format!("dunlin://{at}"), Options { limits, ..Options::default() }).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    publisher.publish("before").unwrap();
    drop(server);
    let again = ServerConfig { tcp: vec![at], threads: 1, ..ServerConfig::default() };
    let opening = Opening::start(&again, "its topics are being counted").unwrap();
    let opened = thread::spawn(move || {
        // Longer than a client waits between its first tries.
        thread::sleep(Duration::from_millis(500));
        Server::open(Node::start(Config::default()).unwrap(), again, opening).unwrap()
    });
    publisher.publish("after").unwrap();
    drop(opened.join().unwrap());
}
