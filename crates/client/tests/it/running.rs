//! A real node with its door open.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunlin::{Config, Node};
use dunlin_client::topic::{Start, SubscribeOptions};
use dunlin_client::{Client, Options};
use dunlin_server::{Server, ServerConfig};

pub struct Running {
    pub node: Node,
    server: Option<Server>,
    pub address: SocketAddr,
    pub unix: PathBuf,
}

impl Running {
    pub fn start() -> Running {
        Running::start_at("127.0.0.1:0".parse().unwrap())
    }

    pub fn start_at(address: SocketAddr) -> Running {
        Running::start_prepared(address, |_| ())
    }

    fn start_prepared(address: SocketAddr, prepare: impl FnOnce(&Node)) -> Running {
        let node = Node::start(Config { auto_create: false, ..Config::default() }).unwrap();
        prepare(&node);
        Running::of_at(node, address)
    }

    /// The doors of this node.
    pub fn of(node: Node) -> Running {
        Running::of_at(node, "127.0.0.1:0".parse().unwrap())
    }

    fn of_at(node: Node, address: SocketAddr) -> Running {
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
        Running { node, server: Some(server), address, unix }
    }

    pub fn url(&self) -> String {
        format!("dunlin://{}", self.address)
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.url(), Options::default()).unwrap()
    }

    /// Cuts every connection; the node goes on.
    pub fn cut(&mut self) {
        drop(self.server.take());
        let deadline = Instant::now() + Duration::from_secs(5);
        let config = || ServerConfig { tcp: vec![self.address], threads: 1, ..ServerConfig::default() };
        self.server = loop {
            match Server::start(self.node.clone(), config()) {
                Ok(server) => break Some(server),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            thread::sleep(Duration::from_millis(5));
        };
    }

    /// Ends this node without a good-bye and starts another in its place.
    pub fn restart(self) -> Running {
        self.restart_with(|_| ())
    }

    /// [`restart`](Running::restart); the new node is prepared before anybody is let in.
    pub fn restart_with(mut self, prepare: impl FnOnce(&Node)) -> Running {
        drop(self.server.take());
        self.node.stop();
        // Epochs are times, in steps of 100 ms: no process comes up as fast as a node in a test.
        thread::sleep(Duration::from_millis(250));
        let address = self.address;
        drop(self);
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::net::TcpListener::bind(address).is_err() {
            assert!(Instant::now() < deadline, "the port stays taken");
            thread::sleep(Duration::from_millis(5));
        }
        Running::start_prepared(address, prepare)
    }
}

pub fn from_the_first() -> SubscribeOptions {
    SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() }
}
