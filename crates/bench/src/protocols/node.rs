//! A node in a separate process, with the listeners and topics of a measurement. Dropping the handle kills the process.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use dunlin::journal::RealDisk;
use dunlin::topic::{AckLevel, DurableOptions, ReliableOptions, Retention, TopicConfig};
use dunlin::{Config, Node};
use dunlin_server::{Protocol, Server, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::child::{Child, TIMEOUT};
use crate::local::node::LocalNode;
use crate::point::BenchContext;
use crate::role::{RoleArgs, print_line};
use crate::scratch_disk::ScratchDisk;

/// The largest number of registered subscribers that a lossless topic may have.
const READERS_MAX: u16 = 10_000;

/// The settings of a measured node: its listeners, topics and users.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeSetup {
    /// Whether the node's threads spin and never park.
    pub spin: bool,
    /// The names of the listeners to open.
    pub protocols: Vec<String>,
    /// The topics to create.
    pub topics: Vec<TopicSetup>,
    /// The content of the users file; `None` for a node without users.
    pub users: Option<String>,
}

/// The settings of one topic of a measured node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TopicSetup {
    /// The topic's name.
    pub name: String,
    /// The most bytes that the topic retains.
    pub history_bytes: u64,
    /// Whether publishers wait for registered subscribers.
    pub lossless: bool,
    /// Whether each record is synced to disk before it is delivered.
    pub durable: bool,
}

impl TopicSetup {
    /// Describes a topic whose publishers wait for its registered subscribers.
    pub fn lossless(name: &str, history_bytes: u64) -> Self {
        Self { name: name.to_owned(), history_bytes, lossless: true, durable: false }
    }

    /// Describes a topic whose publishers do not wait for subscribers.
    pub fn volatile(name: &str, history_bytes: u64) -> Self {
        Self { lossless: false, ..Self::lossless(name, history_bytes) }
    }

    /// Describes a topic whose records are synced to disk before delivery.
    pub fn durable(name: &str, history_bytes: u64) -> Self {
        Self { durable: true, ..Self::volatile(name, history_bytes) }
    }

    /// Returns the topic's configuration for the node.
    pub fn config(&self) -> TopicConfig {
        let reliable =
            ReliableOptions { subscribers_max: READERS_MAX, wait_max: TIMEOUT, ..ReliableOptions::default() };
        let reliable = self.lossless.then_some(reliable);
        let durable = self
            .durable
            .then(|| DurableOptions { acknowledge: AckLevel::Synced, ..DurableOptions::default() });
        let retention = Retention { bytes: self.history_bytes, ..Retention::default() };
        TopicConfig { retention, reliable, durable, ..TopicConfig::default() }
    }
}

#[derive(Serialize, Deserialize)]
struct Ready {
    listeners: Vec<(String, SocketAddr)>,
}

/// A node in another process, with the listeners and topics of a measurement.
#[derive(Debug)]
pub struct ListenerNode {
    child: Child,
    listeners: Vec<(String, SocketAddr)>,
    _users: Option<tempfile::NamedTempFile>,
    /// The directory of the node's data. Dropping this handle removes the directory, because a killed node cannot
    /// remove it.
    _disk: Option<ScratchDisk>,
}

impl ListenerNode {
    /// Starts the node and waits for its listeners.
    pub fn start(bench: &BenchContext, setup: &NodeSetup) -> Result<Self> {
        let disk = setup.topics.iter().any(|topic| topic.durable).then(ScratchDisk::new).transpose()?;
        let mut args = vec![("setup", serde_json::to_string(setup)?)];
        args.extend(disk.iter().map(|disk| ("disk", disk.path().display().to_string())));
        let users = setup.users.as_deref().map(users_file).transpose()?;
        args.extend(users.iter().map(|file| ("users", file.path().display().to_string())));
        let mut child = bench.child.start("listener-node", &args)?;
        let Ready { listeners } = child.read_line(TIMEOUT)?;
        Ok(Self { child, listeners, _users: users, _disk: disk })
    }

    /// Returns the address of a listener.
    pub fn address(&self, protocol: Protocol) -> Result<SocketAddr> {
        let found = self.listeners.iter().find(|(name, _)| name == protocol.name());
        found.map(|(_, address)| *address).with_context(|| format!("listener {protocol} is not open"))
    }

    /// Returns a field of the process's memory as the kernel reports it, in bytes.
    pub fn memory(&self, field: &str) -> Result<u64> {
        self.child.memory(field)
    }
}

fn users_file(users: &str) -> Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new().context("cannot create a users file")?;
    file.write_all(users.as_bytes()).context("cannot write a users file")?;
    Ok(file)
}

pub(crate) fn serve(args: &RoleArgs) -> Result<()> {
    let setup: NodeSetup =
        serde_json::from_str(args.text("setup")?).context("cannot read the setup from the parent process")?;
    let node = open(&setup.topics, args.text("disk").ok().map(Path::new))?;
    let addresses = |protocol: Protocol| match setup.protocols.iter().any(|name| name == protocol.name()) {
        true => vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        false => Vec::new(),
    };
    let config = ServerConfig {
        spin: setup.spin,
        // Only one thread, because two spinning threads would take both cores of a small machine from the clients.
        threads: usize::from(setup.spin),
        tcp: addresses(Protocol::Tcp),
        nats: addresses(Protocol::Nats),
        http: addresses(Protocol::Http),
        grpc: addresses(Protocol::Grpc),
        users_file: args.text("users").ok().map(Into::into),
        ..ServerConfig::default()
    };
    let server = Server::start(node, config).context("cannot open the listeners")?;
    let listeners =
        server.addresses().iter().map(|(protocol, address)| (protocol.name().to_owned(), *address)).collect();
    print_line(&Ready { listeners })?;
    loop {
        thread::park();
        // `park` may return spuriously, so the loop repeats it. The call of `black_box` keeps the node alive in the
        // loop.
        std::hint::black_box(&server);
    }
}

/// Opens a node in this process with these topics. A topic is durable if its settings require it and a directory is
/// given.
pub fn open(topics: &[TopicSetup], disk: Option<&Path>) -> Result<Node> {
    let node = match disk {
        Some(path) => Node::open(Config::default(), Arc::new(RealDisk), path)?.0,
        None => LocalNode::start()?.node().clone(),
    };
    for topic in topics {
        let created = node.create_topic(&topic.name, topic.config(), false);
        created.with_context(|| format!("cannot create topic {}", topic.name))?;
    }
    Ok(node)
}
