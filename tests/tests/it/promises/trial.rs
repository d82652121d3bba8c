//! A node with all listeners, which the tests of the guarantees use. The node can be restarted at the same addresses.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use dunlin::topic::{Publish, Publisher, ReducerConfig, Retention, TopicConfig};
use dunlin::{Config, Node};
use dunlin_server::{Server, ServerConfig};
use dunlin_system_tests::port;
use dunlin_system_tests::proxy::Proxy;
use tempfile::TempDir;

use super::listener::{
    Listener, ListenerClient, ListenerSubscriber, ReceivedRecord, SubscriberEvent, SubscriptionOptions,
};

/// The longest time that a test waits for an expected event.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The token with which clients log in, and the token's entry in the users file. A node without users ignores the
/// token.
pub static TOKEN: LazyLock<(String, String)> =
    LazyLock::new(|| dunlin_server::access::new_token().expect("the system has random numbers"));

/// A running node, with the addresses of its listeners.
pub struct NodeUnderTest {
    pub node: Node,
    server: Option<Server>,
    config: ServerConfig,
    /// The directory that contains the Unix socket and the users file.
    directory: Arc<TempDir>,
}

impl NodeUnderTest {
    pub fn start() -> Result<NodeUnderTest> {
        let directory = Arc::new(tempfile::tempdir()?);
        NodeUnderTest::with(NodeUnderTest::config_on_free_ports(&directory), directory)
    }

    /// Starts a node that authenticates its clients.
    pub fn start_with_users() -> Result<NodeUnderTest> {
        let directory = Arc::new(tempfile::tempdir()?);
        let mut config = NodeUnderTest::config_on_free_ports(&directory);
        let file = directory.path().join("users.toml");
        let digest = &TOKEN.1;
        let all = ["publish", "subscribe", "create", "delete"];
        let rules =
            all.map(|right| format!("{right} = ['>']\n{right}_deny = ['never.>', '*.never.>']\n")).concat();
        std::fs::write(&file, format!("[users.visitor]\ntokens = ['{digest}']\ngroups = ['>']\n{rules}"))?;
        config.users_file = Some(file);
        NodeUnderTest::with(config, directory)
    }

    fn config_on_free_ports(directory: &TempDir) -> ServerConfig {
        ServerConfig {
            tcp: vec![port::free()],
            unix: vec![directory.path().join("node.sock")],
            http: vec![port::free()],
            nats: vec![port::free()],
            grpc: vec![port::free()],
            threads: 1,
            ..ServerConfig::default()
        }
    }

    fn with(config: ServerConfig, directory: Arc<TempDir>) -> Result<NodeUnderTest> {
        let node = Node::start(Config { auto_create: false, ..Config::default() })?;
        let deadline = Instant::now() + PATIENCE;
        let server = loop {
            match Server::start(node.clone(), config.clone()) {
                Ok(server) => break server,
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        Ok(NodeUnderTest { node, server: Some(server), config, directory })
    }

    /// Ends the node without a farewell message to its clients. Then starts an empty node at the addresses of the ended
    /// one.
    pub fn restart(&mut self) -> Result<()> {
        drop(self.server.take());
        self.node.stop();
        // An epoch is the start time of its node, in steps of 100 ms. Without this pause, the new node could get the
        // epoch of the old node.
        thread::sleep(Duration::from_millis(250));
        *self = NodeUnderTest::with(self.config.clone(), Arc::clone(&self.directory))?;
        Ok(())
    }

    pub fn tcp(&self) -> SocketAddr {
        self.config.tcp[0]
    }

    pub fn http(&self) -> SocketAddr {
        self.config.http[0]
    }

    pub fn nats(&self) -> SocketAddr {
        self.config.nats[0]
    }

    pub fn grpc(&self) -> SocketAddr {
        self.config.grpc[0]
    }

    pub fn unix(&self) -> &PathBuf {
        &self.config.unix[0]
    }
}

/// One check of a guarantee: the listener that is checked, and the node.
pub struct GuaranteeTest<'a> {
    pub listener: &'a dyn Listener,
    pub node: NodeUnderTest,
}

impl GuaranteeTest<'_> {
    pub fn create(&self, topic: &str, config: TopicConfig) -> Result<()> {
        self.node.node.create_topic(topic, config, false)?;
        Ok(())
    }

    /// Creates a topic that retains only 64 KiB. The tests publish more than this, so that subscribers miss records.
    pub fn create_short(&self, topic: &str) -> Result<()> {
        let retention = Retention { bytes: 64 << 10, ..Retention::default() };
        self.create(topic, TopicConfig { retention, ..TopicConfig::default() })
    }

    /// Creates a topic that keeps the last value of each key.
    pub fn create_stateful(&self, topic: &str) -> Result<()> {
        let reducer = ReducerConfig { kind: "last".to_owned(), options: Default::default() };
        self.create(topic, TopicConfig { reducer: Some(reducer), ..TopicConfig::default() })
    }

    pub fn client(&self) -> Result<Box<dyn ListenerClient>> {
        self.listener.connect_client(&self.node, self.listener.address(&self.node))
    }

    /// Returns two things: a proxy, and a client that connects to the listener through this proxy. The test can cut the
    /// connection at the proxy. Returns `None` if the listener has no TCP address.
    pub fn client_with_proxy(&self) -> Result<Option<(Box<dyn ListenerClient>, Proxy)>> {
        let Some(address) = self.listener.address(&self.node) else { return Ok(None) };
        let proxy = Proxy::start(address);
        Ok(Some((self.listener.connect_client(&self.node, Some(proxy.address))?, proxy)))
    }

    pub fn reader(&self, subject: &str) -> Result<Box<dyn ListenerSubscriber>> {
        self.client()?.subscribe(&SubscriptionOptions { subject, ..SubscriptionOptions::default() })
    }

    /// Returns a publisher inside the node's process. Tests compare the records of this publisher with the records that
    /// clients receive.
    pub fn publisher(&self, subject: &str) -> Result<Publisher> {
        Ok(self.node.node.publisher(subject)?)
    }
}

/// Publishes a record of 100 bytes for each number, with the number in its payload. Returns the sequence number of the
/// last record.
pub fn publish_numbers(publisher: &mut Publisher, numbers: RangeInclusive<u64>) -> Result<u64> {
    publish_padded(publisher, numbers, 100)
}

/// Publishes a record of `bytes` bytes for each number, with the number in its payload. Returns the sequence number of
/// the last record.
pub fn publish_padded(publisher: &mut Publisher, numbers: RangeInclusive<u64>, bytes: usize) -> Result<u64> {
    for number in numbers {
        publisher.send(&padded(number, bytes)[..])?;
    }
    Ok(publisher.flush()?.map_or(0, |receipt| receipt.position.seq))
}

pub fn numbered(number: u64) -> Vec<u8> {
    padded(number, 100)
}

fn padded(number: u64, bytes: usize) -> Vec<u8> {
    let mut payload = number.to_string().into_bytes();
    payload.resize(bytes, b' ');
    payload
}

pub fn number(record: &ReceivedRecord) -> Result<u64> {
    Ok(std::str::from_utf8(&record.payload)?.trim().parse()?)
}

impl dyn ListenerSubscriber + '_ {
    /// Returns the next record. Fails if another event arrives first.
    pub fn record(&mut self) -> Result<ReceivedRecord> {
        match self.next(PATIENCE)? {
            SubscriberEvent::Record(record) => Ok(record),
            other => bail!("{other:?} instead of a record"),
        }
    }

    /// Reads as many records as there are `numbers`. Checks that the records have these numbers, in order.
    pub fn numbers(&mut self, numbers: std::ops::RangeInclusive<u64>) -> Result<()> {
        for expected in numbers {
            let record = self.record()?;
            anyhow::ensure!(number(&record)? == expected, "{} instead of {expected}", number(&record)?);
            anyhow::ensure!(
                record.seq.is_none_or(|seq| seq == expected),
                "{record:?} is not number {expected}"
            );
        }
        Ok(())
    }
}
