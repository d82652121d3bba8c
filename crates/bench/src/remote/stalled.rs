//! Full load for one reader while many others are connected, subscribed, and never read.

use anyhow::{Context, Result};
use dunlin::topic::{SubscribeOptions, Wait};
use dunlin_client::Subscriber;

use crate::cores::Pin;
use crate::point::{Bench, Sample};
use crate::remote::node::{NodeProcess, NodeSetup, TOPIC, Task};
use crate::remote::throughput::subscribe;
use crate::sockets::Transport;
use crate::timed::Timed;
use crate::workload::{Manner, receive_all};

const BYTES: usize = 64;

/// Delivers `count` records to one reader beside so many stalled ones. The node publishes as soon as the
/// reader is there, which is when all the stalled ones are.
pub fn measure(bench: &Bench, stalled: usize, count: u64) -> Result<Sample> {
    let manner = Manner::OneByOne;
    let task = Task::Send { manner, bytes: BYTES, count };
    let setup = NodeSetup { transport: Transport::Tcp, spin: false, pin: Pin::Free, task };
    let mut node = NodeProcess::start(bench, setup)?;
    let before = node.resident_bytes()?;
    let never_read = (0..stalled).map(|_| stall(&node)).collect::<Result<Vec<_>>>()?;
    let client = node.client(Wait::Default)?;
    let end_ns = receive_all(&mut subscribe(&client)?, manner, 1, count)?;
    let timed = Timed { start_ns: node.sent()?, end_ns, messages: count, bytes: BYTES, touched: BYTES };
    let grown = node.resident_bytes_max()?.saturating_sub(before);
    drop(never_read);
    Ok(timed.sample().with("rss_bytes", grown as f64))
}

/// A client's connection is driven by whoever waits; nobody does, so nothing is ever read from it.
fn stall(node: &NodeProcess) -> Result<Subscriber> {
    node.client(Wait::Parked)?.subscribe(TOPIC, SubscribeOptions::default()).context("subscribing")
}
