//! The server processes of the gRPC measurements: a node, which has only a gRPC listener and can publish records
//! itself, and the echo server. Dropping a handle kills the process.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dunlin_server::{Protocol, Server, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::child::{Child, TIMEOUT};
use crate::cores::CorePinning;
use crate::local::node::LocalNode;
use crate::point::BenchContext;
use crate::role::{RoleArgs, print_line};
use crate::workload::{PublishMode, send_all};

/// The name of a topic whose publishers do not wait for subscribers.
pub const TOPIC: &str = "dunlin-bench";
/// The name of a topic whose publishers wait for its registered subscribers.
pub const LOSSLESS: &str = "dunlin-bench-lossless";

const HISTORY_BYTES: u64 = 4 << 20;

/// The line that a server process prints when its listener is open.
#[derive(Serialize, Deserialize)]
pub struct ServerReady {
    /// The address of the listener.
    pub address: SocketAddr,
}

#[derive(Serialize, Deserialize)]
struct Sent {
    start_ns: u64,
}

/// The server process of a gRPC measurement: a node, or the echo server. Dropping the handle kills the process.
#[derive(Debug)]
pub struct ServedProcess {
    child: Child,
    /// The address of the process's listener.
    pub address: SocketAddr,
}

impl ServedProcess {
    /// Starts a node. If `records` is not 0, the node waits until the topic [`LOSSLESS`] has a registered subscriber,
    /// and then publishes `records` records of `bytes` bytes to this topic.
    pub fn node(bench: &BenchContext, pin: CorePinning, (records, bytes): (u64, usize)) -> Result<Self> {
        let args =
            [("pin", pin.name().to_owned()), ("records", records.to_string()), ("bytes", bytes.to_string())];
        Self::start(bench.child.start("grpc-node", &args)?)
    }

    /// Starts the echo server.
    pub fn echo(bench: &BenchContext, pin: CorePinning) -> Result<Self> {
        Self::start(bench.child.start("grpc-echo", &[("pin", pin.name().to_owned())])?)
    }

    fn start(mut child: Child) -> Result<Self> {
        let ServerReady { address } = child.read_line(TIMEOUT)?;
        Ok(Self { child, address })
    }

    /// Waits until the node has published all records. Returns the time at which the node began to publish, in ns.
    pub fn wait_until_sent(&mut self) -> Result<u64> {
        Ok(self.child.read_line::<Sent>(TIMEOUT)?.start_ns)
    }
}

/// The main function of the node's process, which serves until it is killed.
pub fn serve(args: &RoleArgs) -> Result<()> {
    let _pinned = CorePinning::parse(args.text("pin")?)?.side(1)?;
    let (records, bytes) = (args.get("records")?, args.get("bytes")?);
    let local_node = LocalNode::start()?;
    local_node.volatile(TOPIC, HISTORY_BYTES)?;
    let lossless = local_node.lossless(LOSSLESS, HISTORY_BYTES)?;
    let config = ServerConfig { grpc: vec![(Ipv4Addr::LOCALHOST, 0).into()], ..ServerConfig::default() };
    let server = Server::start(local_node.node().clone(), config).context("cannot open the gRPC listener")?;
    let of_protocol =
        |(protocol, address): &(Protocol, SocketAddr)| (*protocol == Protocol::Grpc).then_some(*address);
    let address = server.addresses().iter().find_map(of_protocol).context("the gRPC listener is not open")?;
    print_line(&ServerReady { address })?;
    if records > 0 {
        let deadline = Instant::now() + TIMEOUT;
        while lossless.logs()[0].info().registered == 0 {
            ensure!(Instant::now() < deadline, "no subscriber connected within {TIMEOUT:?}");
            thread::sleep(Duration::from_millis(1));
        }
        let start_ns = send_all(&mut local_node.publisher(LOSSLESS)?, PublishMode::OneByOne, bytes, records)?;
        print_line(&Sent { start_ns })?;
    }
    loop {
        thread::park();
        // The loop is needed because `park` may return without a reason. `black_box` keeps the server alive.
        std::hint::black_box(&server);
    }
}
