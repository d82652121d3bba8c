//! Measures libzmq, with the C program in `peers/zmq`.

use anyhow::{Result, ensure};
use serde::Deserialize;

use crate::child::TIMEOUT;
use crate::cores::CorePinning;
use crate::point::{BenchContext, RunSample};
use crate::timed::TimedTransfer;

/// The types of the two ZeroMQ sockets in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZmqPattern {
    /// The publisher's socket is XPUB with NODROP, and the subscriber's is SUB.
    Pub,
    /// Both sockets are ROUTER, as in the column "Core" of the SPOT document (ServerLink's document on its benchmarks).
    Router,
    /// Both sockets are PAIR.
    Pair,
}

impl ZmqPattern {
    /// Returns the value for the parameter `pattern`, which the C program uses too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pub => "pub",
            Self::Router => "router",
            Self::Pair => "pair",
        }
    }
}

/// The settings of a measurement of ZeroMQ between two threads (`inproc`) or two processes (`tcp`).
#[derive(Clone, Copy, Debug)]
pub struct ZmqSetup {
    /// The types of the two sockets.
    pub pattern: ZmqPattern,
    /// The transport: `inproc` for two threads, `tcp` for two processes.
    pub transport: &'static str,
    /// The size of a message in bytes.
    pub bytes: usize,
    /// Whether both sides run on fixed cores, or on any core.
    pub pin: CorePinning,
}

#[derive(Deserialize)]
struct Span {
    start_ns: u64,
    end_ns: u64,
    messages: u64,
}

#[derive(Deserialize)]
struct RoundTrips {
    avg_ns: f64,
    p50_ns: f64,
    p95_ns: f64,
    p99_ns: f64,
}

/// Sends `count` messages from one side to the other. The receiving side checks each message.
pub fn throughput(bench: &BenchContext, setup: ZmqSetup, count: u64) -> Result<TimedTransfer> {
    let Span { start_ns, end_ns, messages } = run_peer(bench, "throughput", setup, count)?;
    ensure!(messages == count, "{messages} of {count} messages arrived");
    Ok(TimedTransfer { start_ns, end_ns, messages, bytes: setup.bytes, touched: setup.bytes })
}

/// Measures round trips with one message in flight.
pub fn latency(bench: &BenchContext, setup: ZmqSetup, iterations: u64) -> Result<RunSample> {
    let RoundTrips { avg_ns, p50_ns, p95_ns, p99_ns } = run_peer(bench, "latency", setup, iterations)?;
    Ok(RunSample::new()
        .with("avg_ns", avg_ns)
        .with("p50_ns", p50_ns)
        .with("p95_ns", p95_ns)
        .with("p99_ns", p99_ns))
}

fn run_peer<T: for<'de> Deserialize<'de>>(
    bench: &BenchContext,
    measurement: &str,
    setup: ZmqSetup,
    count: u64,
) -> Result<T> {
    let program = bench.peers.program("zmq_peer")?;
    let args = [
        measurement,
        setup.pattern.name(),
        setup.transport,
        &setup.bytes.to_string(),
        &count.to_string(),
        setup.pin.name(),
    ];
    let mut child = bench.child.start_program(&program, &args.map(str::to_owned))?;
    // A single wait in the program may take a minute, so the program's whole run may take longer.
    let report = child.read_line(2 * TIMEOUT + bench.options.time * 10)?;
    let status = child.wait(TIMEOUT)?;
    ensure!(status.success(), "zmq_peer ended with {status}{}", child.stderr_text());
    Ok(report)
}
