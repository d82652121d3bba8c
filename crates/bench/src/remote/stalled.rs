//! Full load for one reader while many others are connected, subscribed, and never read.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::topic::{SubscribeOptions, Wait};
use dunlin_client::Subscriber;

use crate::clock::monotonic_ns;
use crate::cores::Pin;
use crate::point::{Bench, Sample};
use crate::remote::node::{NodeProcess, NodeSetup, TOPIC, Task};
use crate::remote::throughput::subscribe;
use crate::sockets::Transport;
use crate::timed::Timed;
use crate::workload::{Manner, receive_from};

const BYTES: usize = 64;

/// Records that all readers are sent at first, for the stalled ones to stall: many times what the node
/// keeps, and what a client allows it to send.
const FILL: u64 = 200_000;
/// Nobody reads for so long, while the node gives the stalled readers what they take.
const SETTLE: Duration = Duration::from_millis(1_500);

/// Delivers `count` records to one reader beside so many stalled ones. The node publishes as soon as the
/// reader is there, which is when all the stalled ones are; what is counted begins when they have
/// stalled and the node waits for the one reader.
pub fn measure(bench: &Bench, stalled: usize, count: u64) -> Result<Sample> {
    let manner = Manner::OneByOne;
    let task = Task::Send { manner, bytes: BYTES, count: FILL + count };
    let setup = NodeSetup { transport: Transport::Tcp, spin: false, pin: Pin::Free, task };
    let mut node = NodeProcess::start(bench, setup)?;
    let before = node.resident_bytes()?;
    let never_read = (0..stalled).map(|_| stall(&node)).collect::<Result<Vec<_>>>()?;
    let client = node.client(Wait::Parked)?;
    let mut reader = subscribe(&client)?;
    receive_from(&mut reader, manner, 0..FILL)?;
    thread::sleep(SETTLE);
    let start_ns = monotonic_ns();
    let end_ns = receive_from(&mut reader, manner, FILL..FILL + count)?;
    node.sent()?;
    let timed = Timed { start_ns, end_ns, messages: count, bytes: BYTES, touched: BYTES };
    let grown = node.resident_bytes_max()?.saturating_sub(before);
    drop(never_read);
    Ok(timed.sample().with("rss_bytes", grown as f64))
}

/// A client's connection is driven by whoever waits; nobody does, so nothing is ever read from it.
fn stall(node: &NodeProcess) -> Result<Subscriber> {
    node.client(Wait::Parked)?.subscribe(TOPIC, SubscribeOptions::default()).context("subscribing")
}
