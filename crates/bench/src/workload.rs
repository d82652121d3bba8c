//! The workloads of measurements of throughput and latency. They use the traits `Publish` and `Subscribe`, so the same
//! code measures within a process and over connections.
//!
//! A delivery counts when the subscriber has read the record, and has checked its sequence number and its content.
//! These workloads lose no records, so a notice, such as a gap, is an error. Waiting for a delivery fails after
//! [`TIMEOUT`].

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use dunlin::topic::{Draft, Event, Publish, Subscribe};

use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::stats::Latencies;

/// How a benchmark publishes: one record for each call, a batch for each call, or one record for each call by reference.
/// The publisher copies records unless they are passed by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishMode {
    /// Each record is published with one call. The publisher copies the record.
    OneByOne,
    /// This many records are published with one call. The publisher copies the records.
    Batches(usize),
    /// Each record is published with one call, and passed by reference. The publisher does not copy the record.
    ByRef,
}

impl fmt::Display for PublishMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneByOne => f.write_str("one_by_one"),
            Self::Batches(batch) => write!(f, "batches_of_{batch}"),
            Self::ByRef => f.write_str("by_ref"),
        }
    }
}

impl FromStr for PublishMode {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match (text, text.strip_prefix("batches_of_")) {
            ("one_by_one", _) => Ok(Self::OneByOne),
            ("by_ref", _) => Ok(Self::ByRef),
            (_, Some(batch)) => Ok(Self::Batches(
                batch.parse().with_context(|| format!("publish={text}: expected batches_of_COUNT"))?,
            )),
            _ => bail!("unknown value `publish={text}`"),
        }
    }
}

/// The number of payloads that are prepared before the measurement, and then published again and again. Preparing them
/// during the measurement would take most of a batch's time, and a payload that is passed by reference cannot be
/// rewritten. The sequence numbers in the payloads therefore repeat. The sequence numbers of the records do not repeat;
/// subscribers check both.
const PREPARED: u64 = 256;

impl PublishMode {
    /// Returns which part of each payload the receiver must check.
    pub fn read_extent(self) -> ReadExtent {
        if self == Self::ByRef { ReadExtent::Ends } else { ReadExtent::All }
    }

    /// Returns a function that computes which sequence number the payload of the nth record contains.
    fn payload_seq(self) -> impl Fn(u64) -> u64 {
        let mask = if self == Self::OneByOne { u64::MAX } else { PREPARED - 1 };
        move |nth| nth & mask
    }
}

/// Publishes `count` records of `bytes` bytes. Returns the time at which the first record was published, in ns.
pub fn send_all(publisher: &mut impl Publish, mode: PublishMode, bytes: usize, count: u64) -> Result<u64> {
    let start_ns = match mode {
        PublishMode::OneByOne => send_one_by_one(publisher, bytes, count),
        PublishMode::Batches(batch) => send_batches(publisher, bytes, count, batch),
        PublishMode::ByRef => send_by_ref(publisher, bytes, count),
    }?;
    publisher.flush().context("the last acknowledgement did not arrive")?;
    Ok(start_ns)
}

fn send_one_by_one(publisher: &mut impl Publish, bytes: usize, count: u64) -> Result<u64> {
    let mut payload = NumberedPayload::new(bytes);
    let start_ns = monotonic_ns();
    for nth in 0..count {
        publisher.send(payload.with_seq(nth)).with_context(|| format!("cannot send record {nth}"))?;
    }
    Ok(start_ns)
}

fn send_batches(publisher: &mut impl Publish, bytes: usize, count: u64, batch: usize) -> Result<u64> {
    let prepared = prepare(bytes);
    let drafts: Vec<Draft<'_>> = prepared.iter().map(|payload| Draft::from(payload.as_slice())).collect();
    ensure!(drafts.len().is_multiple_of(batch), "batch size {batch} must divide {PREPARED}");
    let start_ns = monotonic_ns();
    let mut sent = 0;
    while sent < count {
        let from = (sent % PREPARED) as usize;
        let until = from + batch.min((count - sent) as usize);
        publisher
            .publish_batch(&drafts[from..until])
            .with_context(|| format!("cannot send record {sent}"))?;
        sent += (until - from) as u64;
    }
    Ok(start_ns)
}

fn send_by_ref(publisher: &mut impl Publish, bytes: usize, count: u64) -> Result<u64> {
    let prepared: Vec<Bytes> = prepare(bytes).into_iter().map(Bytes::from).collect();
    let start_ns = monotonic_ns();
    for nth in 0..count {
        let payload = prepared[(nth % PREPARED) as usize].clone();
        publisher.send(payload).with_context(|| format!("cannot send record {nth}"))?;
    }
    Ok(start_ns)
}

fn prepare(bytes: usize) -> Vec<Vec<u8>> {
    let mut payload = NumberedPayload::new(bytes);
    (0..PREPARED).map(|nth| payload.with_seq(nth).to_vec()).collect()
}

/// Receives and checks `count` records. The first of them has the sequence number `first_seq`. Returns the time of the
/// last check, in ns.
pub fn receive_all(
    subscriber: &mut impl Subscribe,
    mode: PublishMode,
    first_seq: u64,
    count: u64,
) -> Result<u64> {
    receive(subscriber, mode, first_seq, 0..count)
}

/// Receives and checks the records with the indexes in `range`. Index 0 is the record with sequence number 1. Returns
/// the time of the last check, in ns.
pub fn receive_from(subscriber: &mut impl Subscribe, mode: PublishMode, range: Range<u64>) -> Result<u64> {
    receive(subscriber, mode, 1, range)
}

fn receive(
    subscriber: &mut impl Subscribe,
    mode: PublishMode,
    first_seq: u64,
    range: Range<u64>,
) -> Result<u64> {
    let (read_extent, payload_seq) = (mode.read_extent(), mode.payload_seq());
    let (mut nth, mut fault) = (range.start, None);
    while nth < range.end {
        let count = usize::try_from(range.end - nth).unwrap_or(usize::MAX);
        subscriber.drain(count, |event| match event {
            Event::Record(record)
                if record.seq() == first_seq + nth
                    && read_extent.check(record.payload(), payload_seq(nth)) =>
            {
                nth += 1
            }
            other => record_fault(&mut fault, other),
        })?;
        if let Some(fault) = fault {
            bail!("expected record {}, received: {fault}", first_seq + nth);
        }
        if nth < range.end {
            ensure!(
                subscriber.wait(Some(TIMEOUT))?,
                "record {} did not come within {TIMEOUT:?}",
                first_seq + nth
            );
        }
    }
    Ok(monotonic_ns())
}

/// Stores the first error. The function is cold, so that the compiler does not inline it: the reading loop then
/// contains only the check.
#[cold]
#[inline(never)]
pub fn record_fault(fault: &mut Option<String>, unexpected: Event<'_>) {
    fault.get_or_insert_with(|| describe(&unexpected));
}

/// Describes an unexpected event for an error message.
#[cold]
pub fn describe(event: &Event<'_>) -> String {
    match event {
        Event::Record(record) => {
            format!("record {} with {} bytes, or a damaged record", record.seq(), record.payload().len())
        }
        Event::Notice(notice) => format!("{notice:?}"),
    }
}

/// First makes `iterations` ÷ 10 round trips to warm up. Then makes `iterations` round trips, with one request in
/// flight. The other side must run [`send_back_all`].
pub fn measure_round_trips(
    publisher: &mut impl Publish,
    subscriber: &mut impl Subscribe,
    bytes: usize,
    iterations: u64,
) -> Result<Latencies> {
    let mut payload = NumberedPayload::new(bytes);
    let mut latencies = Latencies::default();
    let unmeasured = iterations / 10;
    for nth in 0..rounds(iterations) {
        let start_ns = monotonic_ns();
        publisher.send(payload.with_seq(nth))?;
        let is_valid = with_next(subscriber, |reply| ReadExtent::All.check(reply, nth))?;
        let latency_ns = monotonic_ns() - start_ns;
        ensure!(is_valid, "the reply to request {nth} has a wrong payload");
        if nth >= unmeasured {
            latencies.record(latency_ns);
        }
    }
    Ok(latencies)
}

/// Returns the number of round trips that [`measure_round_trips`] makes, with the warm-up.
pub fn rounds(iterations: u64) -> u64 {
    iterations + iterations / 10
}

/// Receives `rounds` records, and sends each of them back at once.
pub fn send_back_all(
    publisher: &mut impl Publish,
    subscriber: &mut impl Subscribe,
    rounds: u64,
) -> Result<()> {
    for _ in 0..rounds {
        with_next(subscriber, |payload| publisher.send(payload))??;
    }
    Ok(())
}

/// Waits for the next record, and calls `read` with its payload.
#[inline]
pub fn with_next<T>(subscriber: &mut impl Subscribe, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
    match subscriber.next_timeout(TIMEOUT)? {
        Some(Event::Record(record)) => Ok(read(record.payload())),
        Some(notice) => bail!("expected a record, received: {}", describe(&notice)),
        None => bail!("no record arrived within {TIMEOUT:?}"),
    }
}
