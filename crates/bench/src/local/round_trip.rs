//! Round trips between two topics of one process.

use std::thread;

use anyhow::{Result, anyhow, ensure};
use dunlin::topic::{Publish, Wait};

use crate::clock::monotonic_ns;
use crate::cores::Pin;
use crate::local::stand::LocalNode;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::stats::Latencies;
use crate::workload::{answer_all, ask_all, rounds, with_next};

const HISTORY_BYTES: u64 = 1 << 20;

/// Measures round trips between two threads on separate cores, both with the same wait mode.
pub fn two_threads(wait: Wait, bytes: usize, iterations: u64) -> Result<Latencies> {
    let stand = two_topics()?;
    let (mut asked, mut answered) = (stand.subscriber("ping", wait)?, stand.subscriber("pong", wait)?);
    let (mut ask, mut answer) = (stand.publisher("ping")?, stand.publisher("pong")?);
    let answering = thread::spawn(move || -> Result<()> {
        let _pinned = Pin::Apart.side(1)?;
        answer_all(&mut answer, &mut asked, rounds(iterations))
    });
    let pinned = Pin::Apart.side(0)?;
    let latencies = ask_all(&mut ask, &mut answered, bytes, iterations)?;
    drop(pinned);
    answering.join().map_err(|_| anyhow!("the responder thread panicked"))??;
    Ok(latencies)
}

/// Measures round trips in one thread: each is two publishes and two reads.
pub fn one_thread(bytes: usize, iterations: u64) -> Result<Latencies> {
    let stand = two_topics()?;
    let (mut asked, mut answered) =
        (stand.subscriber("ping", Wait::Spin)?, stand.subscriber("pong", Wait::Spin)?);
    let (mut ask, mut answer) = (stand.publisher("ping")?, stand.publisher("pong")?);
    let mut payload = NumberedPayload::new(bytes);
    let mut latencies = Latencies::default();
    for nth in 0..rounds(iterations) {
        let start_ns = monotonic_ns();
        ask.send(payload.of(nth))?;
        with_next(&mut asked, |question| answer.send(question))??;
        let right = with_next(&mut answered, |answer| ReadExtent::All.check(answer, nth))?;
        let took = monotonic_ns() - start_ns;
        ensure!(right, "the response to record {nth} has another payload");
        if nth >= iterations / 10 {
            latencies.record(took);
        }
    }
    Ok(latencies)
}

fn two_topics() -> Result<LocalNode> {
    let stand = LocalNode::start()?;
    stand.volatile("ping", HISTORY_BYTES)?;
    stand.volatile("pong", HISTORY_BYTES)?;
    Ok(stand)
}
