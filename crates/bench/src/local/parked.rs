//! Measures how long a publish takes while many subscribers of the topic sleep.
//!
//! The subscribers are tasks of one thread. Before each publish, the publisher waits until all subscribers have read
//! the previous record, and then pauses until they sleep. Only the call that publishes is timed. The time that the
//! subscribers take to wake up does not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use dunlin::topic::{Event, Publish, Subscribe, Subscriber, Topic, WaitStrategy};

use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::local::node::LocalNode;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::point::RunSample;
use crate::stats::Latencies;

const HISTORY_BYTES: u64 = 1 << 20;
const BYTES: usize = 64;
/// How long the publisher pauses before a publish, so that the subscribers fall asleep.
const PAUSE: Duration = Duration::from_micros(200);

/// Publishes `records` records to a topic with `subscribers` sleeping subscribers.
pub fn measure(subscribers: usize, records: u64) -> Result<RunSample> {
    let local_node = LocalNode::start()?;
    let topic = local_node.volatile("bench", HISTORY_BYTES)?;
    let sleepers = (0..subscribers)
        .map(|_| local_node.subscriber("bench", WaitStrategy::Parked))
        .collect::<Result<Vec<_>>>()?;
    let read_count = Arc::new(AtomicU64::new(0));
    let reading = thread::spawn({
        let read_count = Arc::clone(&read_count);
        move || read_in_tasks(sleepers, records, &read_count)
    });
    let latencies = publish(&topic, &read_count, subscribers as u64, records);
    // Closing the topic ends the subscribers' tasks, even if a publish has failed.
    topic.close();
    let read = reading.join().map_err(|_| anyhow!("the subscriber thread panicked"))?;
    let latencies = latencies?;
    read?;
    Ok(latencies.sample())
}

fn publish(topic: &Arc<Topic>, read_count: &AtomicU64, subscribers: u64, records: u64) -> Result<Latencies> {
    let mut publisher = topic.publisher(topic.name());
    let mut payload = NumberedPayload::new(BYTES);
    let mut latencies = Latencies::default();
    for nth in 0..records {
        thread::sleep(PAUSE);
        let record = payload.with_seq(nth);
        let start_ns = monotonic_ns();
        publisher.publish(record)?;
        latencies.record(monotonic_ns() - start_ns);
        let deadline = Instant::now() + TIMEOUT;
        while read_count.load(Ordering::Acquire) < (nth + 1) * subscribers {
            ensure!(Instant::now() < deadline, "not all subscribers read record {nth} within {TIMEOUT:?}");
            thread::sleep(PAUSE);
        }
    }
    Ok(latencies)
}

fn read_in_tasks(sleepers: Vec<Subscriber>, records: u64, read_count: &Arc<AtomicU64>) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().context("cannot start a Tokio runtime")?;
    runtime.block_on(async {
        let spawn = |sleeper| tokio::spawn(read(sleeper, records, Arc::clone(read_count)));
        let tasks: Vec<_> = sleepers.into_iter().map(spawn).collect();
        for task in tasks {
            task.await.context("a subscriber task panicked")??;
        }
        Ok(())
    })
}

async fn read(mut sleeper: Subscriber, records: u64, read_count: Arc<AtomicU64>) -> Result<()> {
    for nth in 0..records {
        match sleeper.next_async().await? {
            Event::Record(record)
                if record.seq() == nth + 1 && ReadExtent::All.check(record.payload(), nth) => {}
            other => anyhow::bail!("expected record {}, received {other:?}", nth + 1),
        }
        read_count.fetch_add(1, Ordering::AcqRel);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_sleeping_subscribers_read_all_records() {
        assert!(super::measure(20, 10).unwrap().get("p99_ns").unwrap() > 0.0);
    }
}
