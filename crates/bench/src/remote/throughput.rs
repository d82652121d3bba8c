//! Measures one publisher and one subscriber. At least one of them is not in the node's process.

use std::thread;

use anyhow::{Context, Result, anyhow};
use dunlin::topic::{Start, SubscribeOptions, WaitStrategy};
use dunlin_client::{Client, Subscriber};

use crate::cores::CorePinning;
use crate::point::BenchContext;
use crate::remote::node::{NodeProcess, NodeTask, RemoteNodeSetup, TOPIC};
use crate::sockets::SocketKind;
use crate::timed::TimedTransfer;
use crate::workload::{PublishMode, receive_all, send_all};

/// How all threads wait. They park, as the threads of the measured peers do. A spinning thread would take a core from
/// the other threads.
const WAIT: WaitStrategy = WaitStrategy::Parked;

/// Measures a publisher in the node's process and a subscriber in this process.
pub fn embedded(
    bench: &BenchContext,
    transport: SocketKind,
    mode: PublishMode,
    bytes: usize,
    count: u64,
) -> Result<TimedTransfer> {
    let task = NodeTask::Send { mode, bytes, count };
    let mut node =
        NodeProcess::start(bench, RemoteNodeSetup { transport, spin: false, pin: CorePinning::Free, task })?;
    let client = node.client(WAIT)?;
    let end_ns = receive_all(&mut subscribe(&client)?, mode, 1, count)?;
    let touched = mode.read_extent().bytes(bytes);
    Ok(TimedTransfer { start_ns: node.wait_until_sent()?, end_ns, messages: count, bytes, touched })
}

/// Measures a publisher and a subscriber that are both clients of the node, in two threads of this process. The node is
/// in another process.
pub fn brokered(
    bench: &BenchContext,
    transport: SocketKind,
    bytes: usize,
    count: u64,
) -> Result<TimedTransfer> {
    let setup = RemoteNodeSetup { transport, spin: false, pin: CorePinning::Free, task: NodeTask::Serve };
    let node = NodeProcess::start(bench, setup)?;
    node.recreate_topics()?;
    let reader = node.client(WAIT)?;
    let mut subscriber = subscribe(&reader)?;
    let writer = node.client(WAIT)?;
    let mut publisher = writer.publisher(TOPIC).context("cannot open a publisher")?;
    let sending = thread::spawn(move || send_all(&mut publisher, PublishMode::OneByOne, bytes, count));
    let received = receive_all(&mut subscriber, PublishMode::OneByOne, 1, count);
    let mut node = Some(node);
    if received.is_err() {
        // Dropping the node ends the publisher's pending call.
        drop((node.take(), subscriber));
    }
    let start_ns = sending.join().map_err(|_| anyhow!("the publishing thread panicked"))?;
    let end_ns = received?;
    Ok(TimedTransfer { start_ns: start_ns?, end_ns, messages: count, bytes, touched: bytes })
}

/// Subscribes to the lossless topic, whose publisher waits for this subscriber.
pub fn subscribe(client: &Client) -> Result<Subscriber> {
    let options = SubscribeOptions {
        start: Start::Earliest,
        registered: true,
        wait: WAIT,
        ..SubscribeOptions::default()
    };
    client.subscribe(TOPIC, options).with_context(|| format!("cannot subscribe to {TOPIC}"))
}
