//! Measures round trips over sockets with one request in flight, through the interface that programs use.

use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use dunlin::topic::{Event, Subscribe, SubscribeOptions, Wait};
use dunlin_client::{Client, Responder, Subscriber};

use crate::child::PATIENCE;
use crate::clock::monotonic_ns;
use crate::cores::Pin;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::point::Bench;
use crate::raw::ping_pong::WaitMethod as HowTo;
use crate::remote::node::{ASK, NodeProcess, NodeTask, RemoteNodeSetup};
use crate::sockets::SocketKind;
use crate::stats::Latencies;
use crate::workload::{describe, rounds};

/// Measures requests of a client in this process to a responder inside the node. Each request takes two transfers.
pub fn responder_in_the_node(
    bench: &Bench,
    transport: SocketKind,
    how: HowTo,
    pin: Pin,
    bytes: usize,
    iterations: u64,
) -> Result<Latencies> {
    let setup = RemoteNodeSetup { transport, spin: how == HowTo::Spin, pin, task: NodeTask::Answer };
    let node = NodeProcess::start(bench, setup)?;
    let _pinned = pin.side(0)?;
    let wait = if how == HowTo::Spin { Wait::Spin } else { Wait::Parked };
    ask_all(&node.client(wait)?, bytes, iterations)
}

/// Measures requests of a client to a responder that is also a client; both are threads of this process. Each round
/// trip passes the node twice and takes four transfers. The clients park; the node parks or spins. With
/// [`Pin::Apart`], both clients use the first core.
pub fn two_clients(
    bench: &Bench,
    transport: SocketKind,
    node_waits: HowTo,
    pin: Pin,
    bytes: usize,
    iterations: u64,
) -> Result<Latencies> {
    let spin = node_waits == HowTo::Spin;
    let node = NodeProcess::start(bench, RemoteNodeSetup { transport, spin, pin, task: NodeTask::Serve })?;
    node.prepare()?;
    let _pinned = pin.side(0)?;
    let (asker, answerer) = (node.client(Wait::Parked)?, node.client(Wait::Parked)?);
    let options = SubscribeOptions { wait: Wait::Parked, ..SubscribeOptions::default() };
    let mut asked = answerer.subscribe(ASK, options).context("cannot subscribe to the requests")?;
    let mut replies = answerer.responder();
    let answering = thread::spawn(move || answer_all(&mut replies, &mut asked, rounds(iterations)));
    let latencies = ask_all(&asker, bytes, iterations);
    let mut node = Some(node);
    if latencies.is_err() {
        // Dropping the node makes the responder's pending call return.
        node.take();
    }
    let answered = answering.join().map_err(|_| anyhow!("the responder thread panicked"))?;
    let latencies = latencies?;
    answered?;
    Ok(latencies)
}

/// Makes requests with one in flight, after a warm-up with a tenth as many.
fn ask_all(client: &Client, bytes: usize, iterations: u64) -> Result<Latencies> {
    let mut requester = client.requester();
    let mut payload = NumberedPayload::new(bytes);
    let mut latencies = Latencies::default();
    let unmeasured = iterations / 10;
    for nth in 0..rounds(iterations) {
        let start_ns = monotonic_ns();
        let reply = requester
            .request(ASK, payload.of(nth), PATIENCE)
            .with_context(|| format!("request {nth} failed"))?;
        let took = monotonic_ns() - start_ns;
        ensure!(ReadExtent::All.check(&reply.payload, nth), "the reply to request {nth} has another payload");
        if nth >= unmeasured {
            latencies.record(took);
        }
    }
    Ok(latencies)
}

fn answer_all(replies: &mut Responder, asked: &mut Subscriber, rounds: u64) -> Result<()> {
    for _ in 0..rounds {
        match asked.next_timeout(PATIENCE)? {
            Some(Event::Record(request)) => {
                let to = request.frame.reply().context("a request has no reply subject")?;
                replies.reply(to, request.payload()).context("cannot publish a reply")?;
            }
            Some(notice) => bail!("expected a request, received: {}", describe(&notice)),
            None => bail!("no request arrived within {PATIENCE:?}"),
        }
    }
    Ok(())
}
