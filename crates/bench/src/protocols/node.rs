//! A node in a process of its own, with the listeners and topics that a measurement needs. Dropping the handle kills
//! the process.

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
    /// Whether the node's threads spin instead of parking.
    pub spin: bool,
    /// The names of the listeners to open.
    pub protocols: Vec<String>,
    /// The topics to create.
    pub topics: Vec<TopicSetup>,
    /// The contents of the users file; `None` for a node without users.
    pub users: Option<String>,
}

/// The settings of one topic of a measured node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TopicSetup {
    /// The topic's name.
    pub name: String,
    /// The retention of the topic in bytes.
    pub history_bytes: u64,
    /// Whether publishers wait for the topic's registered subscribers.
    pub lossless: bool,
    /// Whether each record must be on disk before it is delivered.
    pub durable: bool,
}

impl TopicSetup {
    /// Returns the settings of a topic whose publishers wait for its registered subscribers.
    pub fn lossless(name: &str, history_bytes: u64) -> Self {
        Self { name: name.to_owned(), history_bytes, lossless: true, durable: false }
    }

    /// Returns the settings of a topic whose publishers do not wait for subscribers.
    pub fn volatile(name: &str, history_bytes: u64) -> Self {
        Self { lossless: false, ..Self::lossless(name, history_bytes) }
    }

    /// Returns the settings of a durable topic, which delivers a record only after the record is on disk.
    pub fn durable(name: &str, history_bytes: u64) -> Self {
        Self { durable: true, ..Self::volatile(name, history_bytes) }
    }

    /// Returns the configuration with which the node creates the topic.
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

/// A node in a process of its own, with the listeners and topics that a measurement needs. Dropping the handle kills
/// the process.
#[derive(Debug)]
pub struct ListenerNode {
    child: Child,
    listeners: Vec<(String, SocketAddr)>,
    _users: Option<tempfile::NamedTempFile>,
    /// The directory with the node's data. The directory is removed when this field is dropped, because a killed node
    /// cannot remove it.
    _disk: Option<ScratchDisk>,
}

impl ListenerNode {
    /// Starts the node, and waits until its listeners are open.
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

    /// Returns the address of the listener for `protocol`.
    pub fn address(&self, protocol: Protocol) -> Result<SocketAddr> {
        let found = self.listeners.iter().find(|(name, _)| name == protocol.name());
        found.map(|(_, address)| *address).with_context(|| format!("listener {protocol} is not open"))
    }

    /// Returns a field of the file `/proc/PID/status` of the node's process, such as `VmRSS`, in bytes.
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
        // A spinning listener gets only one thread. Two spinning threads would take both cores of a small machine, and
        // leave none to the clients.
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
        // The loop is needed because `park` may return without a reason. `black_box` keeps the server alive.
        std::hint::black_box(&server);
    }
}

/// Opens a node in this process with `topics`. Durable topics need the directory `disk`.
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
