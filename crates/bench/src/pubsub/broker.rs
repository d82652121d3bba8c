//! Starts the measured brokers, each at a free port of 127.0.0.1. Dropping a broker's handle ends the broker's process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin_server::Protocol;

use super::dialect::Dialect;
use super::request::SERVICE;
use super::throughput::SUBJECT;
use crate::child::Child;
use crate::cores::CorePinning;
use crate::point::{BenchContext, target};
use crate::protocols::node::{ListenerNode, NodeSetup, TopicSetup};
use crate::sockets;

/// The address and the protocol of a broker, and the token with which clients log in.
#[derive(Clone, Copy, Debug)]
pub struct BrokerEndpoint {
    /// The broker's address.
    pub address: SocketAddr,
    /// The protocol of the broker.
    pub dialect: Dialect,
    /// The token with which clients log in; `None` if the broker has no users.
    pub token: Option<&'static str>,
}

impl BrokerEndpoint {
    /// Returns the endpoint of a broker with the NATS protocol at this address.
    pub fn nats(address: SocketAddr) -> Self {
        Self { address, dialect: Dialect::Nats, token: None }
    }

    /// Returns this endpoint with a token with which clients log in.
    pub fn with_token(self, token: &'static str) -> Self {
        Self { token: Some(token), ..self }
    }
}

/// A running broker process. Dropping the handle ends the process.
#[derive(Debug)]
pub struct Broker {
    endpoint: BrokerEndpoint,
    process: Process,
}

#[derive(Debug)]
enum Process {
    Peer { child: Child, _config: Option<ConfigFile> },
    Node(ListenerNode),
}

/// The path of a temporary configuration file. When the value is dropped, the file is removed.
#[derive(Debug)]
struct ConfigFile(PathBuf);

/// The configuration of nats-server. By default, nats-server closes a subscriber's connection when 64 MB of data wait
/// to be sent on it. A burst of 64 KB messages can reach this limit. A run must lose no message, so the limit is
/// raised. All other settings have their defaults.
const NATS_CONFIG: &str = "max_pending: 1GB\n";

/// The arguments of Redis. By default, Redis closes a subscriber's connection when 32 MB of data wait to be sent on it.
/// Some of these arguments remove that limit. The others turn off storage on disk, because the measured topics of the
/// other brokers are not on disk either.
const REDIS_ARGS: [&str; 12] = [
    "--save",
    "",
    "--appendonly",
    "no",
    "--client-output-buffer-limit",
    "pubsub 0 0 0",
    "--maxclients",
    "15000",
    "--bind",
    "127.0.0.1",
    "--daemonize",
    "no",
];

impl ConfigFile {
    fn write(text: &str) -> Result<Self> {
        let path = sockets::unused_path("conf");
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        // The file may already have been removed.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The subject of a topic whose publishers do not wait for subscribers.
pub const CROWD: &str = "crowd";
const START_TIMEOUT: Duration = Duration::from_secs(20);
const READY: &str = "Listening for client connections on ";
const HISTORY_BYTES: u64 = 4 << 20;

impl Broker {
    /// Starts the broker for a target: nats-server, Redis, or a node whose threads park.
    pub fn start(bench: &BenchContext, target: &str, pin: CorePinning) -> Result<Self> {
        // The broker's process inherits the pinning of this thread.
        let _pinned = pin.side(1)?;
        match target {
            target::NATS => Self::nats_server(bench),
            target::REDIS => Self::redis(bench),
            _ => Self::node(bench, false),
        }
    }

    /// Starts a node with listener `nats` and the topics that the raw clients use.
    pub fn node(bench: &BenchContext, spin: bool) -> Result<Self> {
        let topics = vec![
            TopicSetup::lossless(SUBJECT, HISTORY_BYTES),
            TopicSetup::lossless(SERVICE, HISTORY_BYTES),
            TopicSetup::volatile(CROWD, HISTORY_BYTES),
        ];
        let protocols = vec![Protocol::Nats.name().to_owned()];
        let node = ListenerNode::start(bench, &NodeSetup { spin, protocols, topics, users: None })?;
        Ok(Self { endpoint: Self::nats_listener(&node)?, process: Process::Node(node) })
    }

    /// Returns the endpoint of the node's listener `nats`.
    pub fn nats_listener(node: &ListenerNode) -> Result<BrokerEndpoint> {
        node.address(Protocol::Nats).map(BrokerEndpoint::nats)
    }

    fn nats_server(bench: &BenchContext) -> Result<Self> {
        let program = bench.peers.program("nats-server")?;
        let config = ConfigFile::write(NATS_CONFIG)?;
        let args = ["--addr", "127.0.0.1", "--port", "-1", "--config", &config.0.to_string_lossy()];
        let mut child = bench.child.start_program(&program, &args.map(str::to_owned))?;
        let address = wait_for_start(&mut child, "nats-server", |child| {
            let stderr = child.stderr_text();
            let line =
                stderr.split(READY).nth(1).filter(|rest| rest.contains('\n'))?.lines().next()?.to_owned();
            line.trim().parse().ok()
        })?;
        let endpoint = BrokerEndpoint::nats(address);
        Ok(Self { endpoint, process: Process::Peer { child, _config: Some(config) } })
    }

    fn redis(bench: &BenchContext) -> Result<Self> {
        let program = bench.peers.program("redis-server")?;
        // Redis cannot choose a free port by itself.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = address.context("cannot find a free port")?;
        let mut args = vec!["--port".to_owned(), address.port().to_string()];
        args.extend(REDIS_ARGS.map(str::to_owned));
        let mut child = bench.child.start_program(&program, &args)?;
        wait_for_start(&mut child, "redis-server", |_| TcpStream::connect(address).ok())?;
        let endpoint = BrokerEndpoint { address, dialect: Dialect::Redis, token: None };
        Ok(Self { endpoint, process: Process::Peer { child, _config: None } })
    }

    /// Returns the endpoint at which clients connect.
    pub fn endpoint(&self) -> BrokerEndpoint {
        self.endpoint
    }

    /// Returns a field of the file `/proc/PID/status` of the broker's process, such as `VmRSS`, in bytes.
    pub fn memory(&self, field: &str) -> Result<u64> {
        match &self.process {
            Process::Peer { child, .. } => child.memory(field),
            Process::Node(node) => node.memory(field),
        }
    }
}

/// Calls `probe` again and again until it returns a value, which means that the program has started. Returns an error
/// if the program ends or takes too long.
fn wait_for_start<T>(
    child: &mut Child,
    name: &str,
    mut probe: impl FnMut(&mut Child) -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(value) = probe(child) {
            return Ok(value);
        }
        if child.try_wait()?.is_some() || Instant::now() > deadline {
            bail!("{name} did not start{}", child.stderr_text());
        }
        thread::sleep(Duration::from_millis(5));
    }
}
