//! Integration tests of the listeners: the tests connect to a running server as clients.

mod access;
mod bad_input;
mod clients;
mod cluster;
mod crowds;
mod following;
mod groups;
mod grpc;
mod http;
mod members;
mod memory;
mod nats;
mod nats_bad_input;
mod nats_like_server;
mod nats_peer;
mod nats_refusals;
mod nats_services;
mod nodes;
mod opening;
mod peer;
mod publishers;
mod publishing;
mod sights;
mod subscribing;
mod tls;
mod topics;
mod waiting;
mod workers;
mod worlds;

use dunlin::{Config, Node};
use dunlin_server::{Server, ServerConfig};

/// Heartbeat interval of the tests. A client gives up a node after two missing heartbeats, so the interval is long
/// enough for slow machines.
const HEARTBEAT_MS: u32 = 10_000;

/// A node with one listener on a free port.
fn serve() -> (Node, Server) {
    serve_with(|_| ())
}

fn serve_with(change: impl FnOnce(&mut ServerConfig)) -> (Node, Server) {
    let node = Node::start(Config::default()).unwrap();
    let server = serve_node(&node, change);
    (node, server)
}

fn serve_node(node: &Node, change: impl FnOnce(&mut ServerConfig)) -> Server {
    let mut config =
        ServerConfig { tcp: vec![([127, 0, 0, 1], 0).into()], threads: 1, ..ServerConfig::default() };
    config.limits.heartbeat_ms = HEARTBEAT_MS;
    change(&mut config);
    Server::start(node.clone(), config).unwrap()
}
