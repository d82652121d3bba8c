//! Measures publishing to many topics at the same time. Each topic has a publishing thread, and one subscriber reads
//! all topics.

use std::sync::{Arc, Barrier};
use std::thread;

use anyhow::{Result, anyhow, bail, ensure};
use dunlin::topic::{Event, Publish, Publisher, Subscribe, Subscriber, WaitStrategy};

use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::local::node::LocalNode;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::timed::TimedTransfer;
use crate::workload::describe;

const HISTORY_BYTES: u64 = 256 << 10;

/// Publishes `messages` records of `bytes` bytes to each of `topics` topics. The subscriber checks that it receives all
/// records of each topic, in order.
pub fn measure(topics: usize, messages: u64, bytes: usize) -> Result<TimedTransfer> {
    let local_node = LocalNode::start()?;
    for nth in 0..topics {
        local_node.lossless(&format!("bench.{nth}"), HISTORY_BYTES)?;
    }
    let mut subscriber = local_node.subscriber("bench.*", WaitStrategy::Default)?;
    let barrier = Arc::new(Barrier::new(topics + 1));
    let mut publishing = Vec::new();
    for nth in 0..topics {
        let (publisher, barrier) = (local_node.publisher(&format!("bench.{nth}"))?, Arc::clone(&barrier));
        publishing.push(thread::spawn(move || publish(publisher, &barrier, messages, bytes)));
    }
    barrier.wait();
    let start_ns = monotonic_ns();
    let received = receive(&mut subscriber, topics, messages);
    drop(subscriber);
    for thread in publishing {
        thread.join().map_err(|_| anyhow!("a publisher thread panicked"))??;
    }
    Ok(TimedTransfer {
        start_ns,
        end_ns: received?,
        messages: messages * topics as u64,
        bytes,
        touched: bytes,
    })
}

fn publish(mut publisher: Publisher, barrier: &Barrier, messages: u64, bytes: usize) -> Result<()> {
    let mut payload = NumberedPayload::new(bytes);
    barrier.wait();
    for nth in 0..messages {
        publisher.send(payload.with_seq(nth))?;
    }
    Ok(())
}

fn receive(subscriber: &mut Subscriber, topics: usize, messages: u64) -> Result<u64> {
    let (mut read, mut next, mut fault) = (0, vec![0; topics], None);
    while read < messages * topics as u64 {
        let count = subscriber.drain(usize::MAX, |event| match &event {
            Event::Record(record) if is_next(record, &mut next) => read += 1,
            other => drop(fault.get_or_insert_with(|| describe(other))),
        })?;
        if let Some(fault) = fault {
            bail!("subscriber failed after {read} records: {fault}");
        }
        if count == 0 {
            ensure!(
                subscriber.wait(Some(TIMEOUT))?,
                "no record arrived within {TIMEOUT:?} after {read} records"
            );
        }
    }
    Ok(monotonic_ns())
}

/// Whether the record is undamaged, and is the next one of its topic.
fn is_next(record: &dunlin::topic::Record<'_>, next: &mut [u64]) -> bool {
    let topic = record.log.topic.strip_prefix("bench.").and_then(|nth| nth.parse::<usize>().ok());
    let Some(next) = topic.and_then(|nth| next.get_mut(nth)) else { return false };
    let is_valid = record.seq() == *next + 1 && ReadExtent::All.check(record.payload(), *next);
    *next += 1;
    is_valid
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_records_of_all_topics_arrive() {
        assert_eq!(super::measure(5, 400, 1024).unwrap().messages, 2_000);
    }
}
