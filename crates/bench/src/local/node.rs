//! A node in this process, with topics for the measurements.

use std::sync::Arc;

use anyhow::{Context, Result};
use dunlin::topic::{
    Publisher, ReliableOptions, Retention, Start, SubscribeOptions, Subscriber, Topic, TopicConfig,
    WaitStrategy,
};
use dunlin::{Config, Node, NodeLimits};

use crate::child::TIMEOUT;

const MEMORY_BYTES_MAX: u64 = 8 << 30;

/// A node in this process, with limits that allow every workload.
#[derive(Debug)]
pub struct LocalNode(Node);

impl LocalNode {
    /// Starts a node in this process.
    pub fn start() -> Result<Self> {
        let limits = NodeLimits::with_memory(MEMORY_BYTES_MAX);
        let config = Config { name: "bench".to_owned(), limits, ..Config::default() };
        Node::start(config).map(Self).context("cannot start a node")
    }

    /// Returns the node.
    pub fn node(&self) -> &Node {
        &self.0
    }

    /// Creates a topic whose publishers wait for its registered subscribers, so that no record is lost.
    pub fn lossless(&self, name: &str, history_bytes: u64) -> Result<Arc<Topic>> {
        let reliable = ReliableOptions { wait_max: TIMEOUT, ..ReliableOptions::default() };
        self.topic(name, history_bytes, Some(reliable))
    }

    /// Creates a topic whose publishers do not wait for subscribers.
    pub fn volatile(&self, name: &str, history_bytes: u64) -> Result<Arc<Topic>> {
        self.topic(name, history_bytes, None)
    }

    fn topic(&self, name: &str, history_bytes: u64, reliable: Option<ReliableOptions>) -> Result<Arc<Topic>> {
        let retention = Retention { bytes: history_bytes, ..Retention::default() };
        let config = TopicConfig { retention, reliable, ..TopicConfig::default() };
        self.0.create_topic(name, config, false).with_context(|| format!("cannot create topic {name}"))
    }

    /// Returns a publisher for the subject.
    pub fn publisher(&self, subject: &str) -> Result<Publisher> {
        self.0.publisher(subject).with_context(|| format!("cannot publish to {subject}"))
    }

    /// Creates a registered subscriber that starts at the first record. The publishers of a lossless topic wait for
    /// this subscriber.
    pub fn subscriber(&self, pattern: &str, wait: WaitStrategy) -> Result<Subscriber> {
        let options = SubscribeOptions {
            start: Start::Earliest,
            registered: true,
            wait,
            ..SubscribeOptions::default()
        };
        self.0.subscribe(pattern, &options).with_context(|| format!("cannot subscribe to {pattern}"))
    }
}
