use std::io::Write;
use std::net::TcpListener;
use std::thread;

use dunlin_client::{Client, ClientLimits, ClientOptions, ConnectError, DisconnectReason, ErrorCode};
use dunlin_wire::{FromNode, Preamble, Refusal};

use crate::peer::ScriptedNode;

fn connect(url: &str) -> Result<Client, ConnectError> {
    let limits = ClientLimits { connect_ms_max: 300, ..ClientLimits::default() };
    Client::connect(url, ClientOptions { limits, ..ClientOptions::default() })
}

fn disconnect_reason(url: &str) -> DisconnectReason {
    match connect(url) {
        Err(ConnectError::Disconnected(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn connected_client_knows_the_name_of_its_node() {
    let (client, node) = ScriptedNode::serve(|_, link| link.wait_until_closed());
    assert_eq!((client.node_name().as_str(), client.is_up(), client.connections()), ("scripted", true, 1));
    drop(client);
    node.join().unwrap();
}

#[test]
fn connecting_to_a_closed_port_fails_at_once() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(disconnect_reason(&format!("dunlin://{address}")).to_string().contains("refused"));
    let error = disconnect_reason("unix:///nowhere/dunlin.sock").to_string();
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn refused_connection_keeps_its_error_code() {
    let peer = ScriptedNode::new();
    let url = peer.url();
    let node = thread::spawn(move || {
        let mut link = peer.accept_silently();
        link.read_hello();
        link.send_bytes(&Preamble::OURS.to_bytes());
        link.send(FromNode::Refused(Refusal::new(ErrorCode::Unauthenticated, "no such token")));
    });
    let DisconnectReason::Refused(refused) = disconnect_reason(&url) else { panic!("not refused") };
    assert_eq!((refused.code, refused.text.as_str()), (ErrorCode::Unauthenticated, "no such token"));
    node.join().unwrap();
}

#[test]
fn connect_error_names_the_protocol_of_a_nats_listener() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("dunlin://{}", listener.local_addr().unwrap());
    let node = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"INFO {\"server_id\":\"x\"}\r\n").unwrap();
        stream
    });
    let error = disconnect_reason(&url).to_string();
    assert!(error.contains("is the address of a NATS listener"), "{error}");
    drop(node.join().unwrap());
}

#[test]
fn connecting_to_a_silent_node_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = disconnect_reason(&format!("dunlin://{}", listener.local_addr().unwrap()));
    assert!(error.to_string().contains("did not answer in time"), "{error}");
}
