//! Measures a node with many idle topics and one subscriber, which subscribes to all topics or to a single one.
//!
//! There are two figures: the share of a core that the process uses while nothing is published, and how long a publish
//! takes while the subscriber sleeps.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use dunlin::topic::{Publish, Publisher, Subscriber, WaitStrategy};

use crate::child::TIMEOUT;
use crate::clock::{monotonic_ns, processor_ns};
use crate::cores::CorePinning;
use crate::local::node::LocalNode;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::point::RunSample;
use crate::stats::Latencies;
use crate::workload::with_next;

const HISTORY_BYTES: u64 = 1 << 20;
const BYTES: usize = 64;
const TOPIC: &str = "bench.0";
/// How long the publisher pauses before a publish, so that the subscriber falls asleep.
const PAUSE: Duration = Duration::from_micros(100);
const IDLE_WAIT_MAX: Duration = Duration::from_secs(5);
const IDLE_SAMPLE: Duration = Duration::from_millis(50);
const IDLE_SHARE_MAX: f64 = 0.01;

/// Publishes `records` records to one of `topics` topics. The subscriber subscribes to `pattern`. Also measures, for
/// the time `idle`, the share of a core that the process uses while nothing is published.
pub fn measure(topics: usize, pattern: &str, records: u64, idle: Duration) -> Result<RunSample> {
    let local_node = LocalNode::start()?;
    for nth in 0..topics {
        local_node.volatile(&format!("bench.{nth}"), HISTORY_BYTES)?;
    }
    let subscriber = local_node.subscriber(pattern, WaitStrategy::Parked)?;
    let mut publisher = local_node.publisher(TOPIC)?;
    let read_count = Arc::new(AtomicU64::new(0));
    let reading = thread::spawn({
        let read_count = Arc::clone(&read_count);
        move || read(subscriber, records, &read_count)
    });
    let published = CorePinning::Apart.side(0).and_then(|_pinned| {
        let mut latencies = Latencies::default();
        // All threads fall asleep after the subscriber has read the first record.
        publish(&mut publisher, &read_count, 0..1, &mut latencies)?;
        let cpu_share = idle_share(idle);
        publish(&mut publisher, &read_count, 1..records, &mut latencies)?;
        Ok(latencies.sample().with("cpu_share", cpu_share))
    });
    // Stopping the node ends the subscriber's thread, even if a publish has failed.
    local_node.node().stop();
    let read = reading.join().map_err(|_| anyhow!("the subscriber thread panicked"))?;
    let sample = published?;
    read?;
    Ok(sample)
}

/// Returns the share of one core that the idle process uses. First waits until the process is idle, because 100,000
/// cursors take a while to fall asleep. If the process does not become idle in time, the share is measured without it
/// being idle.
fn idle_share(idle: Duration) -> f64 {
    let deadline = Instant::now() + IDLE_WAIT_MAX;
    while cpu_share_over(IDLE_SAMPLE) > IDLE_SHARE_MAX && Instant::now() < deadline {}
    cpu_share_over(idle)
}

fn cpu_share_over(span: Duration) -> f64 {
    let (start_ns, used_ns) = (monotonic_ns(), processor_ns());
    thread::sleep(span);
    (processor_ns() - used_ns) as f64 / (monotonic_ns() - start_ns) as f64
}

fn publish(
    publisher: &mut Publisher,
    read_count: &AtomicU64,
    records: Range<u64>,
    latencies: &mut Latencies,
) -> Result<()> {
    let mut payload = NumberedPayload::new(BYTES);
    for nth in records {
        thread::sleep(PAUSE);
        let record = payload.with_seq(nth);
        let start_ns = monotonic_ns();
        publisher.publish(record)?;
        latencies.record(monotonic_ns() - start_ns);
        let deadline = Instant::now() + TIMEOUT;
        while read_count.load(Ordering::Acquire) <= nth {
            ensure!(Instant::now() < deadline, "record {nth} was not read within {TIMEOUT:?}");
            std::hint::spin_loop();
        }
    }
    Ok(())
}

fn read(mut subscriber: Subscriber, records: u64, read_count: &AtomicU64) -> Result<()> {
    let _pinned = CorePinning::Apart.side(1)?;
    for nth in 0..records {
        let is_valid = with_next(&mut subscriber, |payload| ReadExtent::All.check(payload, nth))?;
        ensure!(is_valid, "record {nth} has a wrong payload");
        read_count.store(nth + 1, Ordering::Release);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn wildcard_subscriber_reads_every_record_of_the_busy_topic() {
        let sample = super::measure(50, ">", 20, std::time::Duration::from_millis(10)).unwrap();
        assert!(sample.get("p99_ns").unwrap() > 0.0);
    }
}
