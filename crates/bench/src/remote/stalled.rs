//! Measures the throughput of one subscriber while many other subscribers are connected and never read.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::topic::{SubscribeOptions, WaitStrategy};
use dunlin_client::Subscriber;

use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::point::{BenchContext, RunSample};
use crate::remote::node::{NodeProcess, NodeTask, RemoteNodeSetup, TOPIC};
use crate::remote::throughput::subscribe;
use crate::sockets::SocketKind;
use crate::timed::TimedTransfer;
use crate::workload::{PublishMode, receive_from};

const BYTES: usize = 64;

/// The number of records that are published before the measurement. They stall the subscribers that never read: neither
/// the topic nor such a subscriber's connection can hold so many records.
const FILL: u64 = 200_000;
/// The pause before the measurement. During this pause, the node fills the connections of the stalled subscribers,
/// until they accept no more data.
const SETTLE: Duration = Duration::from_millis(1_500);

/// Delivers `count` records to one subscriber while `stalled` other subscribers are connected but never read. The node
/// begins to publish when all subscribers have subscribed. The measurement begins when the subscribers that never read
/// have stalled.
pub fn measure(bench: &BenchContext, stalled: usize, count: u64) -> Result<RunSample> {
    let mode = PublishMode::OneByOne;
    let task = NodeTask::Send { mode, bytes: BYTES, count: FILL + count };
    let setup = RemoteNodeSetup { transport: SocketKind::Tcp, spin: false, pin: CorePinning::Free, task };
    let mut node = NodeProcess::start(bench, setup)?;
    let before = node.resident_bytes()?;
    let never_read = (0..stalled).map(|_| subscribe_without_reading(&node)).collect::<Result<Vec<_>>>()?;
    let client = node.client(WaitStrategy::Parked)?;
    let mut reader = subscribe(&client)?;
    receive_from(&mut reader, mode, 0..FILL)?;
    thread::sleep(SETTLE);
    let start_ns = monotonic_ns();
    let end_ns = receive_from(&mut reader, mode, FILL..FILL + count)?;
    node.wait_until_sent()?;
    let timed = TimedTransfer { start_ns, end_ns, messages: count, bytes: BYTES, touched: BYTES };
    let grown = node.resident_bytes_max()?.saturating_sub(before);
    drop(never_read);
    Ok(timed.sample().with("rss_bytes", grown as f64))
}

/// Creates a subscriber. The caller never reads from it, so its socket is never read either.
fn subscribe_without_reading(node: &NodeProcess) -> Result<Subscriber> {
    node.client(WaitStrategy::Parked)?
        .subscribe(TOPIC, SubscribeOptions::default())
        .context("cannot subscribe")
}
