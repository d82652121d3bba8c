//! A real node, which runs in the process of the test, and its listeners.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dunlin::journal::FakeDisk;
use dunlin::{Config, Node};
use dunlin_client::topic::{Start, SubscribeOptions};
use dunlin_client::{Client, ClientLimits, ClientOptions};
use dunlin_server::{Server, ServerConfig};
use dunlin_wait::PATIENCE;

/// A real node in the process of the test, with a TCP listener and a Unix socket.
pub struct RunningNode {
    pub node: Node,
    server: Option<Server>,
    pub address: SocketAddr,
    pub unix: PathBuf,
}

impl RunningNode {
    pub fn start() -> RunningNode {
        RunningNode::start_at(free_address())
    }

    pub fn start_at(address: SocketAddr) -> RunningNode {
        RunningNode::start_prepared(address, |_| ())
    }

    fn start_prepared(address: SocketAddr, prepare: impl FnOnce(&Node)) -> RunningNode {
        let node = Node::start(Config { auto_create: false, ..Config::default() }).unwrap();
        prepare(&node);
        RunningNode::with_node_at(node, address)
    }

    /// Starts listeners for a node.
    pub fn with_node(node: Node) -> RunningNode {
        RunningNode::with_node_at(node, free_address())
    }

    fn with_node_at(node: Node, address: SocketAddr) -> RunningNode {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let unix = std::env::temp_dir().join(format!("dunlin-client-{}-{number}.sock", std::process::id()));
        let config = ServerConfig {
            tcp: vec![address],
            unix: vec![unix.clone()],
            threads: 1,
            ..ServerConfig::default()
        };
        let server = Server::start(node.clone(), config).unwrap();
        let address = server.tcp_addresses()[0];
        RunningNode { node, server: Some(server), address, unix }
    }

    pub fn url(&self) -> String {
        format!("dunlin://{}", self.address)
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.url(), patient()).unwrap()
    }

    /// Cuts all connections, but does not end the node.
    pub fn cut(&mut self) {
        drop(self.server.take());
        let config = || ServerConfig { tcp: vec![self.address], threads: 1, ..ServerConfig::default() };
        let start_server = || Server::start(self.node.clone(), config()).ok();
        self.server = Some(dunlin_wait::find("its address is free", start_server));
    }

    /// Ends the node without a message to its clients, and starts a new one at the same address.
    pub fn restart(self) -> RunningNode {
        self.restart_with(|_| ())
    }

    /// Like [`restart`](RunningNode::restart), but the new node creates topics automatically.
    pub fn restart_with_defaults(self) -> RunningNode {
        let address = self.stop();
        RunningNode::with_node_at(Node::start(Config::default()).unwrap(), address)
    }

    /// Like [`restart`](RunningNode::restart), but calls `prepare` for the new node before the node accepts clients.
    pub fn restart_with(self, prepare: impl FnOnce(&Node)) -> RunningNode {
        let address = self.stop();
        RunningNode::start_prepared(address, prepare)
    }

    /// Cuts all connections and calls `before`. Then ends the node as a crash of its machine would, and starts a new
    /// node on the same disk.
    pub fn crash(mut self, disk: &FakeDisk, before: impl FnOnce(&Node)) -> RunningNode {
        drop(self.server.take());
        before(&self.node);
        disk.crash();
        let address = self.address;
        drop(self);
        dunlin_wait::until("the port is free", || std::net::TcpListener::bind(address).is_ok());
        RunningNode::with_node_at(on_disk(disk), address)
    }

    /// Ends the node without a message to its clients. Returns the address of the node.
    fn stop(mut self) -> SocketAddr {
        drop(self.server.take());
        self.node.stop();
        let address = self.address;
        drop(self);
        dunlin_wait::until("the port is free", || std::net::TcpListener::bind(address).is_ok());
        address
    }
}

/// Starts a node that stores its data on this disk.
pub fn on_disk(disk: &FakeDisk) -> Node {
    Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).unwrap().0
}

/// Returns a free port on an IP address that only this process uses. No other test can then take the port while the
/// node is down.
fn free_address() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 64 + high, middle, low)), 0)
}

/// Returns options for a client that does not consider the node dead if the machine pauses.
pub fn patient() -> ClientOptions {
    let connect_ms_max = PATIENCE.as_millis() as u64;
    let limits = ClientLimits { connect_ms_max, patience_heartbeats: 120, ..ClientLimits::default() };
    ClientOptions { limits, ..ClientOptions::default() }
}

pub fn from_earliest() -> SubscribeOptions {
    SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() }
}
