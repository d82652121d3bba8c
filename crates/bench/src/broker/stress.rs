//! The stress test of Ratatoskr's benchmark document. In one process, many messages are published to many topics and
//! read by many subscribers.
//!
//! The publisher works in rounds: in each round, it publishes a few records to every topic. (The document's own test
//! fills one topic after another instead.) A second thread, on another core, repeatedly takes the next few subscribers
//! and reads the round's records with each of them. The publishing thread helps to read whenever the subscribers are
//! more than two rounds behind, and after the last round. Every topic keeps several rounds, and a gap fails the run.
//!
//! Every record contains a time that was taken shortly before the record was published. The age of a delivery is
//! therefore slightly overstated, never understated. In each round, every eighth subscriber measures the age of the
//! oldest and of the newest record that it reads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use dunlin::topic::{Event, Publish, Publisher, Subscribe, Subscriber, WaitStrategy};
use serde::{Deserialize, Serialize};

use crate::child::{Child, TIMEOUT};
use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::local::memory::resident_bytes;
use crate::local::node::LocalNode;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::point::{BenchContext, Measurement, MeasurementGroup, RunSample, target};
use crate::role::{RoleArgs, print_line};
use crate::stats::Latencies;
use crate::workload::record_fault;

/// For each row of the table: the number of messages, of topics and of subscribers. First come the document's five
/// newer rows, then its two older ones. The document's row of 1,000 messages is left out: sending so few messages takes
/// too little time to be measured.
const SHAPES: [(u64, u64, u64); 7] = [
    (100_000, 100, 10),
    (1_000_000, 100, 10),
    (1_000_000, 1_000, 1_000),
    (1_000_000, 1_000, 10_000),
    (1_000_000, 1_000, 100_000),
    (1_000_000, 1, 50),
    (50_000, 10, 2_000),
];
const BYTES: usize = 64;
/// The size in bytes of a record, with the header of its frame.
const FRAME_BYTES: u64 = 128;
/// The number of records in a round, over all topics. With this number, each topic has enough records for one read, and
/// the records of a round fit into the processor's caches.
const ROUND: u64 = 16_384;
const HISTORY_ROUNDS: u64 = 8;
const HISTORY_BYTES_MIN: u64 = 32 << 10;
/// How many rounds the publisher may be ahead of the subscribers.
const ROUNDS_AHEAD_MAX: u64 = 2;
/// The number of subscribers in a chunk. A thread takes a chunk, and reads with all subscribers of the chunk, one after
/// another.
const CHUNK_SUBSCRIBERS: usize = 100;
/// The ages of deliveries are recorded for the first of every eight subscribers.
const AGE_SAMPLE_STEP: usize = 8;

/// Returns one group of measurements for each row of the table.
pub fn groups(options: &BenchOptions) -> Vec<MeasurementGroup> {
    let scaled = |(messages, topics, subscribers): (u64, u64, u64)| {
        (options.count(messages, messages / 50), topics, options.count(subscribers, subscribers.div_ceil(20)))
    };
    SHAPES.map(|shape| vec![point(scaled(shape))]).into()
}

fn point((messages, topics, subscribers): (u64, u64, u64)) -> Measurement {
    let params = Params::new()
        .with("transport", "inproc")
        .with("bytes", BYTES)
        .with("messages", messages)
        .with("topics", topics)
        .with("subscribers", subscribers);
    Measurement::new("stress", target::DUNLIN, params, move |bench: &BenchContext| {
        let args = [("messages", messages), ("topics", topics), ("subscribers", subscribers)];
        let args = args.map(|(name, value)| (name, value.to_string()));
        let mut child: Child = bench.child.start("broker-stress", &args)?;
        let report: StressReport = child.read_line(TIMEOUT)?;
        let peak = child.memory("VmHWM")?;
        Ok(report.sample(messages, subscribers, peak.saturating_sub(report.baseline_bytes)))
    })
}

#[derive(Serialize, Deserialize)]
struct StressReport {
    /// The resident memory of the process before the first topic is created, in bytes.
    baseline_bytes: u64,
    deliveries: u64,
    expected: u64,
    setup_ns: u64,
    elapsed_ns: u64,
    avg_ns: Option<f64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
}

impl StressReport {
    fn sample(&self, messages: u64, subscribers: u64, grown_bytes: u64) -> RunSample {
        let per_s = |count: u64| count as f64 * 1e9 / self.elapsed_ns.max(1) as f64;
        RunSample::new()
            .with("msgs_per_s", per_s(messages))
            .with("deliveries", self.deliveries as f64)
            .with("success_percent", self.deliveries as f64 * 100.0 / self.expected as f64)
            .with("deliveries_per_s", per_s(self.deliveries))
            .with("rss_bytes", grown_bytes as f64)
            .with("subscriber_bytes", grown_bytes as f64 / subscribers as f64)
            .with("msgs_per_s_and_mb", per_s(messages) * 1e6 / grown_bytes.max(1) as f64)
            .with_optional("avg_ns", self.avg_ns)
            .with_time("p50_ns", self.p50_ns)
            .with_time("p99_ns", self.p99_ns)
            .with("setup_ns", self.setup_ns as f64)
    }
}

/// The main function of the process that runs the measurement. After the measurement, the process waits until its
/// parent kills it. Before the kill, the parent reads how much memory the process used.
pub fn run_child(args: &RoleArgs) -> Result<()> {
    let shape = Shape::new(args.get("messages")?, args.get("topics")?, args.get("subscribers")?);
    print_line(&run(shape)?)?;
    loop {
        thread::park();
    }
}

/// The size of one run: the numbers of topics, subscribers, records and rounds.
#[derive(Clone, Copy, Debug)]
struct Shape {
    topics: u64,
    subscribers: u64,
    /// The number of records that are published to each topic.
    records: u64,
    /// The number of records that are published to each topic in a round. The last round may have fewer.
    in_round: u64,
    rounds: u64,
}

impl Shape {
    fn new(messages: u64, topics: u64, subscribers: u64) -> Self {
        let records = messages / topics;
        let in_round = (ROUND / topics).clamp(20, 512).min(records);
        Self { topics, subscribers, records, in_round, rounds: records.div_ceil(in_round) }
    }

    /// Returns the number of records in each topic at the end of a round.
    fn records_until(&self, round: u64) -> u64 {
        self.records.min((round + 1) * self.in_round)
    }

    /// Returns the number of the topic that a subscriber reads. Subscribers with adjacent numbers read the same topic.
    fn topic_of(&self, subscriber: u64) -> u64 {
        subscriber * self.topics / self.subscribers
    }
}

fn run(shape: Shape) -> Result<StressReport> {
    let local_node = LocalNode::start()?;
    let baseline_bytes = resident_bytes()?;
    let setup_start_ns = monotonic_ns();
    let history = (HISTORY_ROUNDS * shape.in_round * FRAME_BYTES).max(HISTORY_BYTES_MIN);
    let name = |nth: u64| format!("bench.{nth}");
    for nth in 0..shape.topics {
        local_node.volatile(&name(nth), history)?;
    }
    let publishers: Vec<Publisher> =
        (0..shape.topics).map(|nth| local_node.publisher(&name(nth))).collect::<Result<_>>()?;
    let subscribe = |nth| {
        Ok(Reader {
            subscriber: local_node.subscriber(&name(shape.topic_of(nth)), WaitStrategy::Spin)?,
            next: 0,
        })
    };
    let readers: Vec<Reader> = (0..shape.subscribers).map(subscribe).collect::<Result<_>>()?;
    let setup_ns = monotonic_ns() - setup_start_ns;
    let work = Work::new(shape, readers);
    let start_ns = monotonic_ns();
    let latencies = work.run_two_threads(publishers)?;
    let elapsed_ns = monotonic_ns() - start_ns;
    Ok(StressReport {
        baseline_bytes,
        deliveries: work.deliveries()?,
        expected: shape.subscribers * shape.records,
        setup_ns,
        elapsed_ns,
        avg_ns: latencies.mean_ns(),
        p50_ns: latencies.quantile_ns(0.5),
        p99_ns: latencies.quantile_ns(0.99),
    })
}

struct Reader {
    subscriber: Subscriber,
    /// The number of the next record to read, counted from 0.
    next: u64,
}

/// The state that the publishing thread and the reading thread share.
struct Work {
    shape: Shape,
    chunks: Vec<Mutex<Vec<Reader>>>,
    published: AtomicU64,
    /// The number of tickets that the threads have taken. A ticket stands for one round and one chunk of subscribers;
    /// the thread that takes the ticket reads the round with these subscribers. All tickets of a round come before the
    /// tickets of the next round.
    claimed: AtomicU64,
    completed: AtomicU64,
    failed: AtomicBool,
}

impl Work {
    fn new(shape: Shape, readers: Vec<Reader>) -> Self {
        let (mut readers, mut chunks) = (readers.into_iter(), Vec::new());
        while readers.len() > 0 {
            chunks.push(Mutex::new(readers.by_ref().take(CHUNK_SUBSCRIBERS).collect()));
        }
        let [published, claimed, completed] = [0; 3].map(AtomicU64::new);
        Self { shape, chunks, published, claimed, completed, failed: AtomicBool::new(false) }
    }

    fn run_two_threads(&self, publishers: Vec<Publisher>) -> Result<Latencies> {
        thread::scope(|scope| {
            let other = scope.spawn(|| self.stop_both_on_error(|| self.read_all(1)));
            let mine = self.stop_both_on_error(|| self.publish_and_read(publishers));
            let other = other.join().map_err(|_| anyhow!("the subscriber thread panicked"))?;
            let mut latencies = mine?;
            latencies.add(&other?);
            Ok(latencies)
        })
    }

    /// Runs `work`. If `work` fails, makes the other thread fail too.
    fn stop_both_on_error<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = work();
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        result
    }

    fn publish_and_read(&self, mut publishers: Vec<Publisher>) -> Result<Latencies> {
        let _pinned = CorePinning::Apart.side(0).or_else(|_| CorePinning::Free.side(0))?;
        let (mut latencies, mut payload) = (Latencies::default(), NumberedPayload::new(BYTES));
        for round in 0..self.shape.rounds {
            self.read_while(&mut latencies, |work| {
                work.completed.load(Ordering::Acquire)
                    < round.saturating_sub(ROUNDS_AHEAD_MAX) * work.chunks.len() as u64
            })?;
            for seq in self.shape.in_round * round..self.shape.records_until(round) {
                let now_ns = monotonic_ns();
                for publisher in &mut publishers {
                    publisher.send(payload.with_seq_and_time(seq, now_ns))?;
                }
            }
            self.published.store(round + 1, Ordering::Release);
        }
        self.read_rest(&mut latencies)?;
        Ok(latencies)
    }

    fn read_all(&self, core: usize) -> Result<Latencies> {
        let _pinned = CorePinning::Apart.side(core).or_else(|_| CorePinning::Free.side(core))?;
        let mut latencies = Latencies::default();
        self.read_rest(&mut latencies)?;
        Ok(latencies)
    }

    fn read_rest(&self, latencies: &mut Latencies) -> Result<()> {
        let all = self.shape.rounds * self.chunks.len() as u64;
        self.read_while(latencies, |work| work.completed.load(Ordering::Acquire) < all)
    }

    /// While `should_continue` returns `true`, reads published rounds and waits for new ones.
    fn read_while(&self, latencies: &mut Latencies, should_continue: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        let mut spins = 0_u64;
        while should_continue(self) {
            if self.read_chunk(latencies)? {
                continue;
            }
            spins += 1;
            ensure!(!self.failed.load(Ordering::Acquire), "the other thread of this measurement failed");
            ensure!(
                !spins.is_multiple_of(1 << 20) || Instant::now() < deadline,
                "the other thread of this measurement made no progress"
            );
            if spins.is_multiple_of(1 << 10) { thread::yield_now() } else { std::hint::spin_loop() }
        }
        Ok(())
    }

    /// Takes a ticket, and reads the ticket's round with the ticket's chunk of subscribers. Returns `false` if no
    /// ticket of a published round is left.
    fn read_chunk(&self, latencies: &mut Latencies) -> Result<bool> {
        let chunks = self.chunks.len() as u64;
        let last = self.published.load(Ordering::Acquire) * chunks;
        let claimed = self
            .claimed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| (next < last).then_some(next + 1));
        let Ok(ticket) = claimed else { return Ok(false) };
        let until = self.shape.records_until(ticket / chunks);
        let mut readers = self.lock(&self.chunks[(ticket % chunks) as usize])?;
        for (nth, reader) in readers.iter_mut().enumerate() {
            let ages = reader.read(until)?;
            if let Some((oldest_ns, newest_ns)) = ages.filter(|_| nth.is_multiple_of(AGE_SAMPLE_STEP)) {
                let now_ns = monotonic_ns();
                latencies.record(now_ns.saturating_sub(oldest_ns));
                latencies.record(now_ns.saturating_sub(newest_ns));
            }
        }
        drop(readers);
        self.completed.fetch_add(1, Ordering::AcqRel);
        Ok(true)
    }

    fn deliveries(&self) -> Result<u64> {
        self.chunks
            .iter()
            .map(|chunk| Ok(self.lock(chunk)?.iter().map(|reader| reader.next).sum::<u64>()))
            .sum()
    }

    fn lock<'a>(&self, chunk: &'a Mutex<Vec<Reader>>) -> Result<std::sync::MutexGuard<'a, Vec<Reader>>> {
        chunk.lock().ok().context("a subscriber thread panicked")
    }
}

impl Reader {
    /// Reads and checks the next records. Record `until` is the first one that is not read. Returns the times that the
    /// first and the last of these records contain; `None` if there is no record to read.
    #[inline]
    fn read(&mut self, until: u64) -> Result<Option<(u64, u64)>> {
        let (mut next, mut fault, mut ages) = (self.next, None, None);
        let deadline = Duration::from_secs(1);
        while next < until {
            self.subscriber.drain((until - next) as usize, |event| match event {
                Event::Record(record)
                    if record.seq() == next + 1 && ReadExtent::AllButTime.check(record.payload(), next) =>
                {
                    let at_ns = NumberedPayload::time_of(record.payload());
                    ages = Some(ages.map_or((at_ns, at_ns), |(first, _)| (first, at_ns)));
                    next += 1;
                }
                other => record_fault(&mut fault, other),
            })?;
            if let Some(fault) = fault {
                bail!("expected record {}, received: {fault}", next + 1);
            }
            if next < until {
                ensure!(
                    self.subscriber.wait(Some(deadline))?,
                    "record {} was published but is missing",
                    next + 1
                );
            }
        }
        self.next = next;
        Ok(ages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subscriber_reads_every_record_of_its_topic() {
        for (messages, topics, subscribers) in [(1_000, 10, 3), (2_000, 4, 250), (600, 1, 50)] {
            let report = run(Shape::new(messages, topics, subscribers)).unwrap();
            assert_eq!(report.deliveries, messages / topics * subscribers);
            assert_eq!(report.deliveries, report.expected);
        }
    }
}
