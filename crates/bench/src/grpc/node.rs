//! A node in a separate process. The node has only a gRPC listener, and can publish records itself. Dropping the handle
//! kills the process.

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

/// A topic whose publishers do not wait for subscribers.
pub const TOPIC: &str = "dunlin-bench";
/// A topic whose publishers wait for its registered subscribers.
pub const LOSSLESS: &str = "dunlin-bench-lossless";

const HISTORY_BYTES: u64 = 4 << 20;

/// The line that a server process prints when it listens. The line contains the process's address.
#[derive(Serialize, Deserialize)]
pub struct ServerReady {
    /// The address at which the node listens.
    pub address: SocketAddr,
}

#[derive(Serialize, Deserialize)]
struct Sent {
    start_ns: u64,
}

/// The server process of a gRPC measurement: a node, or the echo server.
#[derive(Debug)]
pub struct ServedProcess {
    child: Child,
    /// The address at which the process listens.
    pub address: SocketAddr,
}

impl ServedProcess {
    /// Starts a node that publishes records to [`LOSSLESS`] as soon as a registered subscriber exists.
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

    /// Waits until the node's publisher has sent all records. Returns the time at which the publisher started, in ns.
    pub fn wait_until_sent(&mut self) -> Result<u64> {
        Ok(self.child.read_line::<Sent>(TIMEOUT)?.start_ns)
    }
}

/// The main function of the node's process. It serves until it is killed.
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
        // `park` may return spuriously, so the loop repeats it. The call of `black_box` keeps the node alive in the
        // loop.
        std::hint::black_box(&server);
    }
}
