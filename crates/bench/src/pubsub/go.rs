//! Measures one publisher and several subscribers in one process. They use nats.go, a common client library, to show
//! which throughput such a library reaches.

use anyhow::Result;
use serde::Deserialize;

use super::broker::Broker;
use crate::child::TIMEOUT;
use crate::point::BenchContext;
use crate::timed::TimedTransfer;

#[derive(Deserialize)]
struct LoadReport {
    elapsed_ns: u64,
}

/// Publishes `count` messages of `bytes` bytes. Each subscriber receives all of them. The Go program checks and counts
/// every delivery.
pub fn measure(
    bench: &BenchContext,
    broker: &Broker,
    subscribers: usize,
    bytes: usize,
    count: u64,
) -> Result<TimedTransfer> {
    let program = bench.peers.program("nats_load")?;
    let url = format!("nats://{}", broker.endpoint().address);
    let args = [url, subscribers.to_string(), bytes.to_string(), count.to_string()];
    let mut child = bench.child.start_program(&program, &args)?;
    let LoadReport { elapsed_ns } = child.read_line(2 * TIMEOUT)?;
    let messages = count * subscribers as u64;
    Ok(TimedTransfer { start_ns: 0, end_ns: elapsed_ns, messages, bytes, touched: bytes })
}
