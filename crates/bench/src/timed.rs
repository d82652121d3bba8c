//! Times transfers of messages. The throughput of each kind of transfer is measured in two ways.
//!
//! The first measurement sends as many messages as the SPOT document, in which ServerLink describes its SPOT
//! benchmarks. Its result appears in the document's table. The document uses few messages: 100,000 messages of 64 B
//! take only some ms, which is too short to compare rates. The second, *sustained* measurement therefore sends as many
//! messages as the time in `--time` allows. Its result is used for comparisons.

use std::rc::Rc;

use anyhow::Result;

use crate::params::Params;
use crate::point::{BenchContext, Measurement, RunSample};

/// The size and the duration of a transfer. The transfer begins with the first send, and ends when the last message has
/// been received and checked.
#[derive(Clone, Copy, Debug)]
pub struct TimedTransfer {
    /// The beginning of the transfer on the machine's monotonic clock, in ns.
    pub start_ns: u64,
    /// The end of the transfer on the machine's monotonic clock, in ns. Another process may have measured it.
    pub end_ns: u64,
    /// The number of messages that were sent, received and checked.
    pub messages: u64,
    /// The size of a message's payload in bytes.
    pub bytes: usize,
    /// The number of bytes that the receiver read of each payload.
    pub touched: usize,
}

impl TimedTransfer {
    /// Returns the number of messages per second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 * 1e9 / self.elapsed_ns() as f64
    }

    /// Returns the duration in ns.
    pub fn elapsed_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns).max(1)
    }

    /// Returns the figures for the SPOT document's columns, and the number of bytes that the receiver read of each
    /// payload.
    pub fn sample(&self) -> RunSample {
        RunSample::new()
            .with("messages", self.messages as f64)
            .with("elapsed_ns", self.elapsed_ns() as f64)
            .with("msgs_per_s", self.rate())
            .with("bytes_per_s", self.rate() * self.bytes as f64)
            .with("touched_bytes", self.touched as f64)
    }
}

/// Returns the number of messages that the SPOT document sends with payloads of `bytes` bytes; fewer if the run is
/// quick.
pub fn document_count(bytes: usize, quick: bool) -> u64 {
    let (full, ci) = match bytes {
        0..=64 => (100_000, 1_000),
        65..=1024 => (50_000, 500),
        1025..=8192 => (10_000, 100),
        _ => (1_000, 50),
    };
    if quick { ci } else { full }
}

/// The value of the parameter `length` for runs that send as many messages as the SPOT document.
pub const DOCUMENT: &str = "document";
/// The value of the parameter `length` for runs that send messages for about as long as `--time` states.
pub const SUSTAINED: &str = "sustained";

const COUNT_MAX: f64 = 2e9;

/// Returns a function that makes transfers of about `--time`. The function computes the number of messages from the
/// speed of the previous transfer. The number is at least `first`.
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

/// Returns the two measurements of a transfer. The parameter `length` is `document` for the first, and `sustained` for
/// the second.
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
