//! Integration tests of the listeners. The tests start a server, and connect to it as clients.

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
mod turns;
mod waiting;
mod workers;
mod worlds;

use dunlin::{Config, Node};
use dunlin_server::{Server, ServerConfig};

/// Heartbeat interval of the servers in tests, ms. A client gives up a node after two missing heartbeats, so the
/// interval must be long enough for slow machines.
const HEARTBEAT_MS: u32 = 10_000;

/// Starts a node with a listener for Dunlin's own protocol at a free port.
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
