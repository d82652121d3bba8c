//! Measures the table *In process, and over each protocol*, which compares the same work in the node's process and over
//! each protocol.
//!
//! The measurement `one_in_flight` publishes a record, waits for the response, and then publishes the next record, as
//! Ratatoskr's benchmark document does. Afterwards all records are read back and checked. The measurement `stream`
//! publishes as fast as a subscriber over the same protocol can read, so that no record is lost.

use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use super::payload::{BYTES, SequencePayload};
use crate::clock::monotonic_ns;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{BenchContext, Measurement, MeasurementGroup, RunSample};
use crate::protocols::node::TopicSetup;
use crate::protocols::route::{ProtocolRoute, RouteEnds, Sink, TOPIC};
use crate::stats::Latencies;
use crate::timed::{TimedTransfer, sustained};

const CASE: &str = "protocols";
/// The retention of the topic in bytes, which is enough for all records of a run.
const HISTORY_BYTES: u64 = 64 << 20;

/// Returns the groups `one_in_flight` and `stream`. Each group has one measurement for each protocol.
pub fn groups(options: &BenchOptions) -> Vec<MeasurementGroup> {
    let publishes = options.count(10_000, 100);
    vec![
        ProtocolRoute::OURS.map(|route| one_in_flight(route, publishes)).into(),
        ProtocolRoute::OURS.map(stream).into(),
    ]
}

fn params(route: ProtocolRoute, pattern: &str) -> Params {
    Params::new().with("transport", route.name()).with("pattern", pattern).with("bytes", BYTES)
}

fn one_in_flight(route: ProtocolRoute, publishes: u64) -> Measurement {
    let params = params(route, "one_in_flight").with("in_flight", 1u64);
    Measurement::new(CASE, route.target(), params, move |bench: &BenchContext| {
        publish_one_by_one(bench, route, publishes)
    })
}

fn publish_one_by_one(bench: &BenchContext, route: ProtocolRoute, publishes: u64) -> Result<RunSample> {
    let mut ends = route.open(bench, TopicSetup::volatile(TOPIC, HISTORY_BYTES))?;
    drop(ends.sink);
    let (mut buffer, mut latencies, unmeasured) =
        (SequencePayload::default(), Latencies::default(), publishes / 10);
    let (mut elapsed_ns, all) = (0, publishes + unmeasured);
    for seq in 0..all {
        let payload = buffer.encode(seq, 0);
        let start_ns = monotonic_ns();
        ends.source.publish(payload)?;
        let ns = monotonic_ns() - start_ns;
        if seq >= unmeasured {
            latencies.record(ns);
            elapsed_ns += ns;
        }
    }
    receive(&mut *ends.node.read_back()?, all, |_| ()).context("cannot read the published records back")?;
    let rate = publishes as f64 * 1e9 / elapsed_ns.max(1) as f64;
    Ok(RunSample::new().with("msgs_per_s", rate).and(latencies.sample()))
}

fn stream(route: ProtocolRoute) -> Measurement {
    let mut measure = sustained(
        |bench| bench.options.count(20_000, 1_000),
        move |bench, count| transfer(route.open(bench, route.lossless())?, count),
    );
    let params = params(route, "stream").with("subscribers", 1u64);
    Measurement::new(CASE, route.target(), params, move |bench: &BenchContext| Ok(measure(bench)?.sample()))
}

fn transfer(ends: RouteEnds, count: u64) -> Result<TimedTransfer> {
    let RouteEnds { mut source, mut sink, node } = ends;
    let publishing = thread::spawn(move || -> Result<u64> {
        let mut buffer = SequencePayload::default();
        let start_ns = monotonic_ns();
        (0..count).try_for_each(|seq| source.send(buffer.encode(seq, 0)))?;
        source.finish()?;
        Ok(start_ns)
    });
    let received = receive(&mut *sink, count, |_| ());
    let mut node = Some(node);
    if received.is_err() {
        // Dropping the node ends the publisher's pending call.
        node.take();
    }
    let published = publishing.join().map_err(|_| anyhow!("the publishing thread panicked"))?;
    let (end_ns, start_ns) = (received?, published?);
    Ok(TimedTransfer { start_ns, end_ns, messages: count, bytes: BYTES, touched: BYTES })
}

/// Reads and checks `count` records, and calls `on_time` with the time that each record contains. Returns the time in
/// ns at which the last record was checked.
pub fn receive(sink: &mut dyn Sink, count: u64, mut on_time: impl FnMut(u64)) -> Result<u64> {
    let mut next = 0;
    while next < count {
        sink.read(&mut |payload| {
            let time_ns = SequencePayload::decode_time(payload, next)
                .with_context(|| format!("record {next} was lost or damaged"))?;
            next += 1;
            on_time(time_ns);
            Ok(())
        })?;
    }
    ensure!(next == count, "{next} of {count} records arrived");
    Ok(monotonic_ns())
}
