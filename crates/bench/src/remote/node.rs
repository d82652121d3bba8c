//! A node in a process of its own. The node can also publish records or answer requests itself. Dropping the handle
//! kills the process.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dunlin::Responder;
use dunlin::topic::{Publish, ReliableOptions, Retention, TopicConfig, WaitStrategy};
use dunlin_client::tls::TlsOptions;
use dunlin_client::{Client, ClientOptions};
use dunlin_server::{Server, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::child::{Child, TIMEOUT};
use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::local::node::LocalNode;
use crate::payload::NumberedPayload;
use crate::point::BenchContext;
use crate::role::{RoleArgs, print_line};
use crate::sockets::{SocketKind, unused_path};
use crate::workload::{PublishMode, send_all};

/// The topic of all measurements except those of round trips.
pub const TOPIC: &str = "dunlin-bench";
/// The topic of the requests in measurements of round trips.
pub const REQUEST_TOPIC: &str = "dunlin-bench-ask";

const HISTORY_BYTES: u64 = 4 << 20;

/// The settings of a node in a process of its own: its transport, its threads, and its additional work.
#[derive(Clone, Copy, Debug)]
pub struct RemoteNodeSetup {
    /// The transport of the node's listener.
    pub transport: SocketKind,
    /// Whether the node's threads spin while they wait.
    pub spin: bool,
    /// Whether the node's threads and the clients' threads run on different fixed cores, or on any core.
    pub pin: CorePinning,
    /// The node's work in addition to serving clients.
    pub task: NodeTask,
}

/// The work of a measured node in addition to serving clients, such as publishing records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeTask {
    /// The node only serves clients.
    Serve,
    /// The node answers each request to [`REQUEST_TOPIC`] with the request's payload.
    Respond,
    /// The node publishes records to [`TOPIC`] as soon as this topic has a registered subscriber.
    Send {
        /// How the publisher passes its records to the node: one by one, in batches, or by reference.
        mode: PublishMode,
        /// The size of a record in bytes.
        bytes: usize,
        /// The number of records.
        count: u64,
    },
    /// The node publishes records to [`TOPIC`] at a fixed rate, as soon as this topic has enough subscribers.
    Tick {
        /// The number of subscribers for which the node waits.
        readers: usize,
        /// The number of records.
        count: u64,
        /// The number of records per second.
        per_s: u64,
    },
}

#[derive(Serialize, Deserialize)]
struct Ready {
    url: String,
}

#[derive(Serialize, Deserialize)]
struct Sent {
    start_ns: u64,
}

/// A measured node in another process. The benchmark has started this node, or it is the running node at the URL of the
/// option `--url`.
#[derive(Debug)]
pub struct NodeProcess {
    child: Option<Child>,
    url: String,
    tls: TlsOptions,
}

impl NodeProcess {
    /// Starts the node, and waits until its listener is open. With `--url`, uses the running node instead.
    pub fn start(bench: &BenchContext, setup: RemoteNodeSetup) -> Result<Self> {
        if let Some(url) = &bench.options.url {
            ensure!(setup.task == NodeTask::Serve, "this case starts its own node: leave --url out");
            return Ok(Self { child: None, url: url.clone(), tls: bench.options.tls.clone() });
        }
        let mut args = vec![
            ("transport", setup.transport.name().to_owned()),
            ("spin", setup.spin.to_string()),
            ("pin", setup.pin.name().to_owned()),
        ];
        args.extend(setup.task.arguments());
        let mut child = bench.child.start("remote-node", &args)?;
        let Ready { url } = child.read_line(TIMEOUT)?;
        Ok(Self { child: Some(child), url, tls: TlsOptions::default() })
    }

    /// Deletes and recreates the topics of a running node, because an earlier run may have left records in them.
    pub fn recreate_topics(&self) -> Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let client = self.client(WaitStrategy::Default)?;
        let reliable = Some(ReliableOptions { wait_max: TIMEOUT, ..ReliableOptions::default() });
        for (topic, reliable) in [(TOPIC, reliable), (REQUEST_TOPIC, None)] {
            // This call fails if the topic does not exist; this is no error.
            let _ = client.delete_topic(topic);
            let retention = Retention { bytes: HISTORY_BYTES, ..Retention::default() };
            let config = TopicConfig { retention, reliable, ..TopicConfig::default() };
            client
                .create_topic(topic, &config, false)
                .with_context(|| format!("cannot create topic {topic}"))?;
        }
        Ok(())
    }

    fn child(&self) -> Result<&Child> {
        self.child.as_ref().context("the node was not started by this benchmark")
    }

    /// Returns a client that is connected to the node. The client's threads wait as `wait` says.
    pub fn client(&self, wait: WaitStrategy) -> Result<Client> {
        let (name, tls) = ("bench".to_owned(), self.tls.clone());
        let options = ClientOptions { name, tls, wait, ..ClientOptions::default() };
        Client::connect(&self.url, options).with_context(|| format!("cannot connect to {}", self.url))
    }

    /// Waits until the node has published all records. Returns the time at which the node began to publish, in ns.
    pub fn wait_until_sent(&mut self) -> Result<u64> {
        let child = self.child.as_mut().context("the node was not started by this benchmark")?;
        Ok(child.read_line::<Sent>(TIMEOUT)?.start_ns)
    }

    /// Returns the resident memory of the node's process, in bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.child()?.memory("VmRSS")
    }

    /// Returns the highest resident memory of the node's process so far, in bytes.
    pub fn resident_bytes_max(&self) -> Result<u64> {
        self.child()?.memory("VmHWM")
    }
}

impl NodeTask {
    fn arguments(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Serve => vec![("task", "serve".to_owned())],
            Self::Respond => vec![("task", "answer".to_owned())],
            Self::Send { mode, bytes, count } => vec![
                ("task", "send".to_owned()),
                ("mode", mode.to_string()),
                ("bytes", bytes.to_string()),
                ("count", count.to_string()),
            ],
            Self::Tick { readers, count, per_s } => vec![
                ("task", "tick".to_owned()),
                ("readers", readers.to_string()),
                ("count", count.to_string()),
                ("per_s", per_s.to_string()),
            ],
        }
    }

    fn parse(args: &RoleArgs) -> Result<Self> {
        Ok(match args.text("task")? {
            "answer" => Self::Respond,
            "send" => {
                Self::Send { mode: args.get("mode")?, bytes: args.get("bytes")?, count: args.get("count")? }
            }
            "tick" => Self::Tick {
                readers: args.get("readers")?,
                count: args.get("count")?,
                per_s: args.get("per_s")?,
            },
            _ => Self::Serve,
        })
    }
}

pub(crate) fn serve(args: &RoleArgs) -> Result<()> {
    let _pinned = CorePinning::parse(args.text("pin")?)?.side(1)?;
    let task = NodeTask::parse(args)?;
    let local_node = LocalNode::start()?;
    let topic = match task {
        NodeTask::Tick { .. } => local_node.volatile(TOPIC, HISTORY_BYTES)?,
        _ => local_node.lossless(TOPIC, HISTORY_BYTES)?,
    };
    local_node.volatile(REQUEST_TOPIC, HISTORY_BYTES)?;
    let (server, url) = open(&local_node, args)?;
    let _responder = (task == NodeTask::Respond).then(|| respond(&local_node)).transpose()?;
    print_line(&Ready { url })?;
    match task {
        NodeTask::Serve | NodeTask::Respond => {}
        NodeTask::Send { mode, bytes, count } => {
            wait_until(|| topic.logs()[0].info().registered > 0, "no subscriber registered")?;
            let start_ns = send_all(&mut local_node.publisher(TOPIC)?, mode, bytes, count)?;
            print_line(&Sent { start_ns })?;
        }
        NodeTask::Tick { readers, count, per_s } => {
            wait_until(|| topic.logs()[0].info().waiting >= readers, "not all subscribers registered")?;
            print_line(&Sent { start_ns: tick(&local_node, count, per_s)? })?;
        }
    }
    loop {
        thread::park();
        // The loop is needed because `park` may return without a reason. `black_box` keeps the server alive.
        std::hint::black_box(&server);
    }
}

fn open(local_node: &LocalNode, args: &RoleArgs) -> Result<(Server, String)> {
    let spin = args.get("spin")?;
    // A spinning listener gets only one thread. Two spinning threads would take both cores of a small machine, and
    // leave none to the clients.
    let threads = if spin { 1 } else { 0 };
    let mut config = ServerConfig { spin, threads, ..ServerConfig::default() };
    if args.text("transport")? == SocketKind::Uds.name() {
        config.unix = vec![unused_path("sock")];
    } else {
        config.tcp = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    }
    let server = Server::start(local_node.node().clone(), config).context("cannot open the listeners")?;
    let tcp = server.tcp_addresses().first().map(|address| format!("dunlin://{address}"));
    let unix = server.unix_paths().next().map(|path| format!("unix://{}", path.display()));
    let url = tcp.or(unix).context("the node has no open listener")?;
    Ok((server, url))
}

fn respond(local_node: &LocalNode) -> Result<Responder> {
    let respond_with_payload = |mut request: dunlin::Request<'_, '_>| {
        let payload = request.record().payload();
        // If the reply cannot be published, the requester receives none, so the run fails.
        let _ = request.reply(payload);
    };
    local_node.node().respond(REQUEST_TOPIC, respond_with_payload).context("cannot register the responder")
}

/// Publishes `count` records, `per_s` a second. Each record contains the time at which it is due. A record whose time
/// has passed is published at once.
fn tick(local_node: &LocalNode, count: u64, per_s: u64) -> Result<u64> {
    let mut publisher = local_node.publisher(TOPIC)?;
    let mut payload = NumberedPayload::new(64);
    let start_ns = monotonic_ns();
    for nth in 0..count {
        let intended_ns = start_ns + nth * 1_000_000_000 / per_s;
        while let Some(early_ns @ 1..) = intended_ns.checked_sub(monotonic_ns()) {
            thread::sleep(Duration::from_nanos(early_ns));
        }
        publisher.send(payload.with_seq_and_time(nth, intended_ns))?;
    }
    Ok(start_ns)
}

fn wait_until(condition: impl Fn() -> bool, failure: &str) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        ensure!(Instant::now() < deadline, "{failure} within {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
