//! A node with its doors open, from a validated configuration.

use anyhow::{Context, Result};
use dunlin::{Limits, Node};
use dunlin_server::{Server, ServerConfig};
use dunlin_topic::{Retention, TopicConfig};

use crate::config::Config;

#[derive(Debug)]
pub struct Running {
    pub node: Node,
    pub server: Server,
}

impl Running {
    pub fn start(config: &Config) -> Result<Running> {
        let node = Node::start(node_config(config)).context("cannot start the node")?;
        let server = Server::start(node.clone(), server_config(config)).context("cannot open the doors")?;
        Ok(Running { node, server })
    }

    /// The first address a client can use.
    pub fn url(&self) -> String {
        self.urls().next().unwrap_or_default()
    }

    pub fn urls(&self) -> impl Iterator<Item = String> {
        let tcp = self.server.tcp_addresses().iter().map(|address| format!("dunlin://{address}"));
        tcp.chain(self.server.unix_paths().map(|path| format!("unix://{}", path.display())))
    }

    /// Says good-bye to everyone, then ends the topics.
    pub fn stop(self) {
        self.server.stop();
        self.node.stop();
    }
}

fn node_config(config: &Config) -> dunlin::Config {
    let retention = Retention {
        bytes: config.retention_bytes,
        records: config.retention_records,
        age: config.retention_age,
    };
    let record_bytes_max = u32::try_from(config.record_bytes_max).unwrap_or(u32::MAX);
    dunlin::Config {
        topic: TopicConfig { retention, record_bytes_max, ..TopicConfig::default() },
        auto_create: config.auto_create,
        limits: Limits {
            memory_bytes_max: config.memory_bytes_max,
            topics_max: config.topics_max,
            ..Limits::default()
        },
        ..dunlin::Config::default()
    }
}

fn server_config(config: &Config) -> ServerConfig {
    ServerConfig {
        tcp: config.listen.into_iter().collect(),
        unix: config.unix.clone().into_iter().collect(),
        // `Config` has refused it already unless it was told so.
        anyone_on_the_network_may_connect: true,
        threads: config.threads.unwrap_or(0),
        spin: config.spin,
        limits: dunlin_server::Limits {
            sessions_max: config.connections_max,
            subscriptions_max: u32::try_from(config.subscriptions_max).unwrap_or(u32::MAX),
            heartbeat_ms: u32::try_from(config.heartbeat.as_millis()).unwrap_or(u32::MAX),
            ..dunlin_server::Limits::default()
        },
    }
}
