//! Tests the HTTP listener with raw sockets and with `curl`.

mod bad_input;
mod curl;
mod deploy;
mod events;
mod following;
mod kv;
mod metrics;
mod node_topics;
mod operating;
mod origin;
mod page;
pub(crate) mod peer;
mod publishing;
mod recent;
mod resuming;
pub(crate) mod socket;
mod tasks;
mod topics;

use std::net::SocketAddr;

use dunlin::topic::{Publish, Receipt, Retention, TopicConfig};
use dunlin::{Config, Node};
use dunlin_server::{Protocol, Server, ServerConfig};

pub(crate) use peer::{Events, HttpResponse, Peer};

/// A node that serves HTTP at a free port, with one thread.
pub(crate) struct HttpServer {
    pub(crate) node: Node,
    pub(crate) server: Server,
}

impl HttpServer {
    pub(crate) fn new() -> HttpServer {
        HttpServer::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServerConfig)) -> HttpServer {
        HttpServer::of(Node::start(Config::default()).unwrap(), change)
    }

    pub(crate) fn of(node: Node, change: impl FnOnce(&mut ServerConfig)) -> HttpServer {
        let mut config =
            ServerConfig { http: vec![([127, 0, 0, 1], 0).into()], threads: 1, ..ServerConfig::default() };
        change(&mut config);
        let server = Server::start(node.clone(), config).unwrap();
        HttpServer { node, server }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let http = self.server.addresses().iter().find(|(protocol, _)| *protocol == Protocol::Http);
        http.expect("the HTTP listener has an address").1
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer::connect(self.address())
    }

    pub(crate) fn get(&self, path: &str) -> HttpResponse {
        self.peer().request("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
        self.peer().request("POST", path, headers, body)
    }

    pub(crate) fn events(&self, path: &str, headers: &[(&str, &str)]) -> Events {
        self.peer().events(path, headers)
    }

    /// Publishes a record inside the test's process, not over HTTP.
    pub(crate) fn publish(&self, subject: &str, payload: &[u8]) -> Receipt {
        self.node.publisher(subject).unwrap().publish(payload).unwrap()
    }
}

/// The configuration of a topic that retains only some hundred records of 100 bytes.
pub(crate) fn short() -> TopicConfig {
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    TopicConfig { retention, ..TopicConfig::default() }
}
