//! Measures the use cases of Ratatoskr's benchmark document end to end, in an open loop: each record is published when
//! it is due, even if earlier records have not been received yet. The latency of a record is the time from when it is
//! due until a subscriber has read and checked it.

use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use rustix::thread::set_current_timer_slack;

use super::payload::{BYTES, SequencePayload};
use super::protocols::receive;
use crate::clock::monotonic_ns;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{BenchContext, Measurement, MeasurementGroup, RunSample};
use crate::protocols::node::TopicSetup;
use crate::protocols::route::{ProtocolRoute, RouteEnds, Sink, Source, TOPIC};
use crate::stats::Latencies;

const CASE: &str = "use_cases";
/// The retention of a topic in bytes, which is much larger than the lag of any subscriber.
const HISTORY_BYTES: u64 = 256 << 20;
/// The smallest number of measured records, which is enough for a 99th percentile.
const RECORDS_MIN: u64 = 1_500;
/// The number of records that are published to warm up is the number of measured records divided by this number.
const UNMEASURED: u64 = 5;

/// A use case of messaging, such as chat: its records per second, and the highest acceptable latency.
#[derive(Clone, Copy, Debug)]
pub struct UseCase {
    /// The short name of the use case, such as `chat`.
    pub name: &'static str,
    /// The number of records per second.
    pub per_s: u64,
    /// The highest acceptable 99th percentile of the latency.
    pub limit: Duration,
    /// Whether each record must be on disk before it is delivered.
    pub durable: bool,
}

const fn case(name: &'static str, per_s: u64, limit_us: u64) -> UseCase {
    UseCase { name, per_s, limit: Duration::from_micros(limit_us), durable: false }
}

/// The measured use cases, one for each row of the table. The use case `financial` appears twice: with a volatile and
/// with a durable topic.
pub const USE_CASES: [UseCase; 7] = [
    case("chat", 1_000, 5_000),
    case("iot", 5_000, 10_000),
    case("financial", 500, 1_000),
    UseCase { durable: true, ..case("financial", 500, 1_000) },
    case("high_frequency", 10_000, 500),
    case("enterprise", 100_000, 1_000),
    case("ultimate", 200_000, 1_000),
];

/// Returns one group of measurements for each use case. The group has a measurement for each protocol and, if
/// `with_peers` is set, one of nats-server with the raw client.
pub fn groups(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let group = |case: UseCase| {
        let mut routes = ProtocolRoute::OURS.to_vec();
        if case.durable {
            // Durable topics are measured only over connections: a node with a disk runs in another process.
            routes.retain(|route| *route != ProtocolRoute::Inproc);
        } else if with_peers {
            routes.push(ProtocolRoute::NatsServer);
        }
        routes.into_iter().map(|route| point(route, case, options)).collect()
    };
    USE_CASES.map(group).into()
}

fn point(route: ProtocolRoute, case: UseCase, options: &BenchOptions) -> Measurement {
    let params = Params::new()
        .with("use", case.name)
        .with("transport", route.name())
        .with("wait", "parked")
        .with("bytes", BYTES)
        .with("rate", case.per_s)
        .with("storage", if case.durable { "synced" } else { "memory" });
    let records_min = if options.quick { 50 } else { RECORDS_MIN };
    Measurement::new(CASE, route.target(), params, move |bench: &BenchContext| {
        let count = ((case.per_s as f64 * bench.options.time.as_secs_f64()) as u64).max(records_min);
        let topic = if case.durable {
            TopicSetup::durable(TOPIC, HISTORY_BYTES)
        } else {
            TopicSetup::volatile(TOPIC, HISTORY_BYTES)
        };
        measure(route.open(bench, topic)?, &case, count)
    })
}

fn measure(ends: RouteEnds, case: &UseCase, count: u64) -> Result<RunSample> {
    let RouteEnds { source, sink, node } = ends;
    // If a read has failed, the node is dropped, so that the publisher's pending call returns.
    run(source, sink, case, count, || drop(node))
}

/// Publishes and reads some records to warm up, and then `count` measured records. A call of `cancel` must make the
/// publisher's pending calls return.
pub fn run(
    mut source: Box<dyn Source>,
    mut sink: Box<dyn Sink>,
    case: &UseCase,
    count: u64,
    cancel: impl FnOnce(),
) -> Result<RunSample> {
    let (all, per_s) = (count + count / UNMEASURED, case.per_s);
    let publishing = thread::spawn(move || publish(&mut *source, all, per_s));
    let (mut latencies, mut nth, mut within) = (Latencies::default(), 0, 0);
    let limit_ns = case.limit.as_nanos() as u64;
    let received = receive(&mut *sink, all, |due_ns| {
        let late_ns = monotonic_ns().saturating_sub(due_ns);
        if nth >= all - count {
            latencies.record(late_ns);
            within += u64::from(late_ns <= limit_ns);
        }
        nth += 1;
    });
    if received.is_err() {
        cancel();
    }
    let start_ns = publishing.join().map_err(|_| anyhow!("the publishing thread panicked"))?;
    let (end_ns, start_ns) = (received?, start_ns?);
    Ok(RunSample::new()
        .with("msgs_per_s", all as f64 * 1e9 / end_ns.saturating_sub(start_ns).max(1) as f64)
        .and(latencies.sample())
        .with("limit_ns", limit_ns as f64)
        .with("within_percent", within as f64 * 100.0 / count as f64))
}

/// Publishes `count` records, `per_s` a second, each when it is due. Records that are due together are published
/// together. Returns the due time of the first record, in ns.
fn publish(source: &mut dyn Source, count: u64, per_s: u64) -> Result<u64> {
    // By default, the kernel may end a sleep up to 50 µs late. This call reduces the delay.
    set_current_timer_slack(NonZeroU64::new(1))?;
    let mut buffer = SequencePayload::default();
    let start_ns = monotonic_ns() + 1_000_000;
    let due_ns = |nth: u64| start_ns + nth * 1_000_000_000 / per_s;
    let mut nth = 0;
    while nth < count {
        let now_ns = monotonic_ns();
        if let Some(early_ns @ 1..) = due_ns(nth).checked_sub(now_ns) {
            thread::sleep(Duration::from_nanos(early_ns));
            continue;
        }
        while nth < count && due_ns(nth) <= now_ns {
            source.send(buffer.encode(nth, due_ns(nth)))?;
            nth += 1;
        }
        source.push()?;
    }
    source.finish()?;
    Ok(start_ns)
}
