//! Measures round trips over sockets with one request in flight. The requests are made with Dunlin's client, as in a
//! user's program.

use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dunlin::topic::{Event, Subscribe, SubscribeOptions, WaitStrategy};
use dunlin_client::{Client, Responder, Subscriber};

use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::point::BenchContext;
use crate::raw::ping_pong::WaitMethod;
use crate::remote::node::{NodeProcess, NodeTask, REQUEST_TOPIC, RemoteNodeSetup};
use crate::sockets::SocketKind;
use crate::stats::Latencies;
use crate::workload::{describe, rounds};

/// Measures requests from a client in this process to a responder in the node's process. A request and its reply are
/// transferred once each.
pub fn responder_in_the_node(
    bench: &BenchContext,
    transport: SocketKind,
    wait_method: WaitMethod,
    pin: CorePinning,
    bytes: usize,
    iterations: u64,
) -> Result<Latencies> {
    let setup =
        RemoteNodeSetup { transport, spin: wait_method == WaitMethod::Spin, pin, task: NodeTask::Respond };
    let node = NodeProcess::start(bench, setup)?;
    let _pinned = pin.side(0)?;
    let wait = if wait_method == WaitMethod::Spin { WaitStrategy::Spin } else { WaitStrategy::Parked };
    request_all(&node.client(wait)?, bytes, iterations)
}

/// Measures requests from one client to another through the node; both clients are threads of this process. A request
/// and its reply are transferred twice each. The clients park while they wait; the node parks or spins. With
/// [`CorePinning::Apart`], both clients run on the first core.
pub fn two_clients(
    bench: &BenchContext,
    transport: SocketKind,
    node_wait: WaitMethod,
    pin: CorePinning,
    bytes: usize,
    iterations: u64,
) -> Result<Latencies> {
    let spin = node_wait == WaitMethod::Spin;
    let node = NodeProcess::start(bench, RemoteNodeSetup { transport, spin, pin, task: NodeTask::Serve })?;
    node.recreate_topics()?;
    let _pinned = pin.side(0)?;
    let (requester_client, responder_client) =
        (node.client(WaitStrategy::Parked)?, node.client(WaitStrategy::Parked)?);
    let options = SubscribeOptions { wait: WaitStrategy::Parked, ..SubscribeOptions::default() };
    let mut requests =
        responder_client.subscribe(REQUEST_TOPIC, options).context("cannot subscribe to the requests")?;
    let mut replies = responder_client.responder();
    let responding = thread::spawn(move || respond_all(&mut replies, &mut requests, rounds(iterations)));
    let latencies = request_all(&requester_client, bytes, iterations);
    let mut node = Some(node);
    if latencies.is_err() {
        // Dropping the node ends the responder's pending call.
        node.take();
    }
    let responded = responding.join().map_err(|_| anyhow!("the responder thread panicked"))?;
    let latencies = latencies?;
    responded?;
    Ok(latencies)
}

/// First makes `iterations` ÷ 10 requests to warm up. Then makes `iterations` requests, one after another.
fn request_all(client: &Client, bytes: usize, iterations: u64) -> Result<Latencies> {
    let mut requester = client.requester();
    let mut payload = NumberedPayload::new(bytes);
    let mut latencies = Latencies::default();
    let unmeasured = iterations / 10;
    for nth in 0..rounds(iterations) {
        let start_ns = monotonic_ns();
        let reply = requester
            .request(REQUEST_TOPIC, payload.with_seq(nth), TIMEOUT)
            .with_context(|| format!("request {nth} failed"))?;
        let elapsed_ns = monotonic_ns() - start_ns;
        ensure!(ReadExtent::All.check(&reply.payload, nth), "the reply to request {nth} has a wrong payload");
        if nth >= unmeasured {
            latencies.record(elapsed_ns);
        }
    }
    Ok(latencies)
}

fn respond_all(replies: &mut Responder, requests: &mut Subscriber, rounds: u64) -> Result<()> {
    for _ in 0..rounds {
        match requests.next_timeout(TIMEOUT)? {
            Some(Event::Record(request)) => {
                let to = request.frame.reply().context("a request has no reply subject")?;
                replies.reply(to, request.payload()).context("cannot publish a reply")?;
            }
            Some(notice) => bail!("expected a request, received: {}", describe(&notice)),
            None => bail!("no request arrived within {TIMEOUT:?}"),
        }
    }
    Ok(())
}
