//! Many topics at once: one publishing thread for each, all let loose together, and one subscriber of all.

use std::sync::{Arc, Barrier};
use std::thread;

use anyhow::{Result, anyhow, bail, ensure};
use dunlin_topic::{Event, Publish, Subscribe, Subscriber, Topic, Wait};

use crate::child::PATIENCE;
use crate::clock::monotonic_ns;
use crate::local::stand::{Stand, subscriber_of_all};
use crate::payload::{Payload, Touch};
use crate::timed::Timed;
use crate::workload::describe;

const HISTORY_BYTES: u64 = 256 << 10;

/// Every topic gets so many records of `bytes`; the subscriber checks them all, in each topic's order.
pub fn measure(topics: usize, messages: u64, bytes: usize) -> Result<Timed> {
    let stand = Stand::default();
    let named = |nth: usize| stand.lossless(&format!("bench.{nth}"), HISTORY_BYTES);
    let topics: Vec<Arc<Topic>> = (0..topics).map(named).collect::<Result<_>>()?;
    let mut subscriber = subscriber_of_all(&topics, Wait::Default)?;
    let barrier = Arc::new(Barrier::new(topics.len() + 1));
    let publishing: Vec<_> = topics
        .iter()
        .map(|topic| {
            let (topic, barrier) = (Arc::clone(topic), Arc::clone(&barrier));
            thread::spawn(move || publish(&topic, &barrier, messages, bytes))
        })
        .collect();
    barrier.wait();
    let start_ns = monotonic_ns();
    let received = receive(&mut subscriber, topics.len(), messages);
    drop(subscriber);
    for thread in publishing {
        thread.join().map_err(|_| anyhow!("a publishing thread panicked"))??;
    }
    Ok(Timed { start_ns, end_ns: received?, messages: messages * topics.len() as u64, bytes, touched: bytes })
}

fn publish(topic: &Arc<Topic>, barrier: &Barrier, messages: u64, bytes: usize) -> Result<()> {
    let mut publisher = topic.publisher(topic.name());
    let mut payload = Payload::new(bytes);
    barrier.wait();
    for nth in 0..messages {
        publisher.send(payload.of(nth))?;
    }
    Ok(())
}

fn receive(subscriber: &mut Subscriber, topics: usize, messages: u64) -> Result<u64> {
    let (mut seen, mut next, mut fault) = (0, vec![0; topics], None);
    while seen < messages * topics as u64 {
        let given = subscriber.drain(usize::MAX, |event| match &event {
            Event::Record(record) if is_next(record, &mut next) => seen += 1,
            other => drop(fault.get_or_insert_with(|| describe(other))),
        })?;
        if let Some(fault) = fault {
            bail!("after {seen} records: {fault}");
        }
        if given == 0 {
            ensure!(subscriber.wait(Some(PATIENCE))?, "no record within {PATIENCE:?} after {seen}");
        }
    }
    Ok(monotonic_ns())
}

/// Whether this is the next record of its topic, whole.
fn is_next(record: &dunlin_topic::Record<'_>, next: &mut [u64]) -> bool {
    let topic = record.log.topic.strip_prefix("bench.").and_then(|nth| nth.parse::<usize>().ok());
    let Some(next) = topic.and_then(|nth| next.get_mut(nth)) else { return false };
    let right = record.seq() == *next + 1 && Touch::All.check(record.payload(), *next);
    *next += 1;
    right
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_records_of_all_topics_arrive() {
        assert_eq!(super::measure(5, 400, 1024).unwrap().messages, 2_000);
    }
}
