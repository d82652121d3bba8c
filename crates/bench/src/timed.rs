//! Times transfers of messages. Each throughput is measured in two ways.
//!
//! ServerLink's document on its SPOT benchmarks ("the SPOT document") has low message counts: 100,000 messages of 64 B
//! take only a few ms, which is too short to compare rates. Each transfer therefore has two measurements. One
//! measurement sends the document's count, for the document's table. The *sustained* measurement sends as many messages
//! as take about `--time`, for comparisons.

use std::rc::Rc;

use anyhow::Result;

use crate::params::Params;
use crate::point::{BenchContext, Measurement, RunSample};

/// The size and duration of a transfer, from the first send until the last message was received and checked.
#[derive(Clone, Copy, Debug)]
pub struct TimedTransfer {
    /// The start on the machine's monotonic clock, in ns.
    pub start_ns: u64,
    /// The end on the machine's monotonic clock, in ns. Another process may have read it.
    pub end_ns: u64,
    /// The number of messages that were sent, received and checked.
    pub messages: u64,
    /// The payload bytes of each message.
    pub bytes: usize,
    /// The number of bytes of each payload that the receiver read.
    pub touched: usize,
}

impl TimedTransfer {
    /// Returns the messages per second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 * 1e9 / self.elapsed_ns() as f64
    }

    /// Returns the duration in ns.
    pub fn elapsed_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns).max(1)
    }

    /// Returns the SPOT document's columns, and the share of each payload that the receiver read.
    pub fn sample(&self) -> RunSample {
        RunSample::new()
            .with("messages", self.messages as f64)
            .with("elapsed_ns", self.elapsed_ns() as f64)
            .with("msgs_per_s", self.rate())
            .with("bytes_per_s", self.rate() * self.bytes as f64)
            .with("touched_bytes", self.touched as f64)
    }
}

/// Returns the SPOT document's message count for payloads of `bytes` bytes, or fewer messages for a quick run.
pub fn document_count(bytes: usize, quick: bool) -> u64 {
    let (full, ci) = match bytes {
        0..=64 => (100_000, 1_000),
        65..=1024 => (50_000, 500),
        1025..=8192 => (10_000, 100),
        _ => (1_000, 50),
    };
    if quick { ci } else { full }
}

/// Value of parameter `length`: each run sends as many messages as the SPOT document states.
pub const DOCUMENT: &str = "document";
/// Value of parameter `length`: each run sends as many messages as take about `--time`.
pub const SUSTAINED: &str = "sustained";

const COUNT_MAX: f64 = 2e9;

/// Makes each run of a transfer take about `--time`: computes the message count of a run from the speed of the previous
/// run. The count is at least `first`.
pub fn sustained(
    first: impl Fn(&BenchContext) -> u64 + 'static,
    transfer: impl Fn(&BenchContext, u64) -> Result<TimedTransfer> + 'static,
) -> impl FnMut(&BenchContext) -> Result<TimedTransfer> + 'static {
    let mut per_s = None;
    move |bench: &BenchContext| {
        let first = first(bench);
        let rate = |count: u64, timed: &TimedTransfer| count as f64 * 1e9 / timed.elapsed_ns() as f64;
        let per_s_now = match per_s {
            Some(per_s) => per_s,
            None => rate(first, &transfer(bench, first)?),
        };
        let count = (per_s_now * bench.options.time.as_secs_f64()).clamp(first as f64, COUNT_MAX) as u64;
        let timed = transfer(bench, count)?;
        per_s = Some(rate(count, &timed));
        Ok(timed)
    }
}

/// Returns the two measurements of a transfer: `document` and `sustained`.
pub fn points(
    target: &'static str,
    params: Params,
    bytes: usize,
    transfer: impl Fn(&BenchContext, u64) -> Result<TimedTransfer> + 'static,
) -> [Measurement; 2] {
    let transfer = Rc::new(transfer);
    let params = params.with("bytes", bytes);
    let document = {
        let transfer = Rc::clone(&transfer);
        move |bench: &BenchContext| Ok(transfer(bench, document_count(bytes, bench.options.quick))?.sample())
    };
    let first = move |bench: &BenchContext| document_count(bytes, bench.options.quick);
    let mut measure_sustained = sustained(first, move |bench, count| transfer(bench, count));
    [
        Measurement::new("throughput", target, params.clone().with("length", DOCUMENT), document),
        Measurement::new("throughput", target, params.with("length", SUSTAINED), move |bench| {
            Ok(measure_sustained(bench)?.sample())
        }),
    ]
}
