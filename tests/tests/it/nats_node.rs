//! A node with a NATS listener. Tests can kill the node, and restart it at the same address.

use std::net::SocketAddr;

use dunlin_client::Client;
use dunlin_client::topic::Publish;
use dunlin_system_tests::port;

use crate::processes::Node;

/// A node with a NATS listener at a fixed address. Tests can kill and restart the node.
pub struct NatsNode {
    node: Option<Node>,
    tcp: SocketAddr,
    nats: SocketAddr,
}

impl NatsNode {
    /// Starts a node that retains 64 KiB of each topic.
    pub fn start() -> NatsNode {
        let mut node = NatsNode { node: None, tcp: port::free(), nats: port::free() };
        node.node = Some(node.start_node());
        node
    }

    fn start_node(&self) -> Node {
        Node::start_with(self.tcp, &[&format!("nats={}", self.nats)])
    }

    /// Kills the node with SIGKILL, and starts another node at the same addresses.
    pub fn restart(&mut self) {
        if let Some(node) = self.node.take() {
            node.kill();
        }
        self.node = Some(self.start_node());
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.nats)
    }

    /// Publishes `count` records of 1,000 bytes, through Dunlin's own listener.
    pub fn publish(&self, subject: &str, count: u64) {
        let node = self.node.as_ref().expect("the node is running");
        let client = Client::connect(&node.url(), Default::default()).unwrap();
        let mut publisher = client.publisher(subject).unwrap();
        let payload = [b'x'; 1_000];
        (0..count).for_each(|_| publisher.send(payload.as_slice()).unwrap());
        publisher.flush().unwrap();
    }
}

impl Drop for NatsNode {
    fn drop(&mut self) {
        if let (Some(node), false) = (&self.node, std::thread::panicking()) {
            node.assert_no_errors();
        }
    }
}
