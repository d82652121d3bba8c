//! Measures round trips in one process over two topics: one for requests, and one for replies.

use std::thread;

use anyhow::{Result, anyhow, ensure};
use dunlin::topic::{Publish, WaitStrategy};

use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::local::node::LocalNode;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::stats::Latencies;
use crate::workload::{measure_round_trips, rounds, send_back_all, with_next};

const HISTORY_BYTES: u64 = 1 << 20;

/// Measures round trips between two threads on separate cores. Both threads wait in the same way.
pub fn two_threads(wait: WaitStrategy, bytes: usize, iterations: u64) -> Result<Latencies> {
    let local_node = two_topics()?;
    let (mut requests, mut replies) =
        (local_node.subscriber("ping", wait)?, local_node.subscriber("pong", wait)?);
    let (mut requester, mut responder) = (local_node.publisher("ping")?, local_node.publisher("pong")?);
    let responding = thread::spawn(move || -> Result<()> {
        let _pinned = CorePinning::Apart.side(1)?;
        send_back_all(&mut responder, &mut requests, rounds(iterations))
    });
    let pinned = CorePinning::Apart.side(0)?;
    let latencies = measure_round_trips(&mut requester, &mut replies, bytes, iterations)?;
    drop(pinned);
    responding.join().map_err(|_| anyhow!("the responder thread panicked"))??;
    Ok(latencies)
}

/// Measures round trips in a single thread. A round trip is two publishes and two reads.
pub fn one_thread(bytes: usize, iterations: u64) -> Result<Latencies> {
    let local_node = two_topics()?;
    let (mut requests, mut replies) = (
        local_node.subscriber("ping", WaitStrategy::Spin)?,
        local_node.subscriber("pong", WaitStrategy::Spin)?,
    );
    let (mut requester, mut responder) = (local_node.publisher("ping")?, local_node.publisher("pong")?);
    let mut payload = NumberedPayload::new(bytes);
    let mut latencies = Latencies::default();
    for nth in 0..rounds(iterations) {
        let start_ns = monotonic_ns();
        requester.send(payload.with_seq(nth))?;
        with_next(&mut requests, |request| responder.send(request))??;
        let is_valid = with_next(&mut replies, |reply| ReadExtent::All.check(reply, nth))?;
        let elapsed_ns = monotonic_ns() - start_ns;
        ensure!(is_valid, "the response to record {nth} has a wrong payload");
        if nth >= iterations / 10 {
            latencies.record(elapsed_ns);
        }
    }
    Ok(latencies)
}

fn two_topics() -> Result<LocalNode> {
    let local_node = LocalNode::start()?;
    local_node.volatile("ping", HISTORY_BYTES)?;
    local_node.volatile("pong", HISTORY_BYTES)?;
    Ok(local_node)
}
