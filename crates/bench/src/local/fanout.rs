//! Measures one publisher and many subscribers in one process.
//!
//! Two threads run on separate cores. Each thread reads with half of the subscribers. The first thread is also the
//! publisher: it publishes a burst of records, and then reads the burst with its subscribers, one after another. The
//! second thread reads with its own subscribers all the time, so records are published while earlier records are
//! delivered. If the second thread is more than two bursts behind, the first thread waits before it publishes the next
//! burst. The topic retains more than two bursts, so no record is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use dunlin::topic::{Event, Publish, Publisher, Subscribe, Subscriber, WaitStrategy};

use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::local::node::LocalNode;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::point::RunSample;
use crate::workload::record_fault;

const HISTORY_BYTES: u64 = 8 << 20;
const BYTES: usize = 64;

/// Publishes bursts for about `time`, and at least one burst. Returns the delivery rate.
pub fn measure(subscribers: usize, time: Duration) -> Result<RunSample> {
    let local_node = LocalNode::start()?;
    local_node.volatile("bench", HISTORY_BYTES)?;
    let setup_start_ns = monotonic_ns();
    let (first_half, second_half) =
        (subscribe(&local_node, subscribers.div_ceil(2))?, subscribe(&local_node, subscribers / 2)?);
    let setup_ns = monotonic_ns() - setup_start_ns;
    let shared = Arc::new(Shared::default());
    let start_ns = monotonic_ns();
    let reading = thread::spawn({
        let shared = Arc::clone(&shared);
        move || read_loop(second_half, &shared)
    });
    let published =
        publish_and_read(local_node.publisher("bench")?, first_half, &shared, burst(subscribers), time);
    // The second thread ends when it has read this number of records. The number is 0 if publishing failed.
    shared.last.store(published.as_ref().map_or(0, |published| published.records), Ordering::Release);
    reading.join().map_err(|_| anyhow!("the subscriber thread panicked"))??;
    let (published, elapsed_ns) = (published?, monotonic_ns() - start_ns);
    let per_s = (published.records * subscribers as u64) as f64 * 1e9 / elapsed_ns as f64;
    Ok(RunSample::new()
        .with("setup_ns", setup_ns as f64)
        .with("messages", published.records as f64)
        .with("publish_ns", published.publish_ns as f64)
        .with("deliveries_per_s", per_s)
        .with("bytes_per_s", per_s * BYTES as f64)
        .with("touched_bytes", ReadExtent::All.bytes(BYTES) as f64))
}

struct Shared {
    /// The number of records that all subscribers of the second thread have read so far.
    read: AtomicU64,
    /// The number of all published records; `u64::MAX` until the last record is published.
    last: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self { read: AtomicU64::new(0), last: AtomicU64::new(u64::MAX) }
    }
}

struct Published {
    records: u64,
    publish_ns: u64,
}

/// Returns the number of records in a burst. A burst fits into the second-level cache. The more subscribers there are,
/// the smaller is a burst, so that reading it with all subscribers does not take too long.
fn burst(subscribers: usize) -> u64 {
    (4_000_000 / subscribers.max(1) as u64).clamp(128, 4096)
}

fn subscribe(local_node: &LocalNode, count: usize) -> Result<Vec<Subscriber>> {
    (0..count).map(|_| local_node.subscriber("bench", WaitStrategy::Spin)).collect()
}

fn publish_and_read(
    mut publisher: Publisher,
    mut first_half: Vec<Subscriber>,
    shared: &Shared,
    burst: u64,
    time: Duration,
) -> Result<Published> {
    let _pinned = CorePinning::Apart.side(0)?;
    let mut published = Published { records: 0, publish_ns: 0 };
    let end = Instant::now() + time;
    while published.records == 0 || Instant::now() < end {
        published.publish_ns += publish(&mut publisher, published.records, burst)?;
        let from = published.records;
        published.records += burst;
        read_all(&mut first_half, from, published.records)?;
        let deadline = Instant::now() + TIMEOUT;
        while published.records.saturating_sub(shared.read.load(Ordering::Acquire)) > 2 * burst {
            ensure!(Instant::now() < deadline, "the second half of the subscribers makes no progress");
            std::hint::spin_loop();
        }
    }
    Ok(published)
}

fn publish(publisher: &mut Publisher, from: u64, count: u64) -> Result<u64> {
    let mut payload = NumberedPayload::new(BYTES);
    let start_ns = monotonic_ns();
    for nth in from..from + count {
        publisher.send(payload.with_seq(nth))?;
    }
    Ok(monotonic_ns() - start_ns)
}

fn read_loop(mut second_half: Vec<Subscriber>, shared: &Shared) -> Result<()> {
    let _pinned = CorePinning::Apart.side(1)?;
    let Some((first, rest)) = second_half.split_first_mut() else {
        shared.read.store(u64::MAX, Ordering::Release);
        return Ok(());
    };
    let mut read = 0;
    while read < shared.last.load(Ordering::Acquire) {
        let until = read_available(first, read)?;
        if until > read {
            read_all(rest, read, until)?;
        }
        read = until;
        shared.read.store(read, Ordering::Release);
    }
    Ok(())
}

/// Reads all available records with one subscriber, beginning with record number `from`. Returns the number of the
/// first record that was not read. The caller then lets the other subscribers read up to this record.
fn read_available(subscriber: &mut Subscriber, from: u64) -> Result<u64> {
    let mut next = from;
    drain(subscriber, usize::MAX, &mut next)?;
    Ok(next)
}

/// Reads the records with the numbers from `from` to `until - 1` with every subscriber.
fn read_all(subscribers: &mut [Subscriber], from: u64, until: u64) -> Result<()> {
    for subscriber in subscribers {
        let mut next = from;
        while next < until {
            drain(subscriber, (until - next) as usize, &mut next)?;
        }
    }
    Ok(())
}

#[inline]
fn drain(subscriber: &mut Subscriber, max: usize, next: &mut u64) -> Result<()> {
    let mut fault = None;
    subscriber.drain(max, |event| match event {
        Event::Record(record)
            if record.seq() == *next + 1 && ReadExtent::All.check(record.payload(), *next) =>
        {
            *next += 1
        }
        other => record_fault(&mut fault, other),
    })?;
    match fault {
        Some(fault) => bail!("expected record {}, received: {fault}", *next + 1),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subscriber_reads_every_record() {
        for subscribers in [1, 2, 7] {
            let sample = measure(subscribers, Duration::from_millis(5)).unwrap();
            assert!(sample.get("deliveries_per_s").unwrap() > 0.0);
        }
    }
}
