//! Collects the measurements of a simulated run: a histogram of waiting times, the number of slow minutes, and a digest
//! of all task starts.

use hdrhistogram::Histogram;

use super::outcome::WaitTimes;

/// A histogram of times in µs. The times are at most one hour, and exact to three digits.
pub(super) struct TimeHistogram(Histogram<u64>);

const LONGEST_US: u64 = 3_600_000_000;

impl TimeHistogram {
    pub(super) fn new() -> TimeHistogram {
        TimeHistogram(Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are valid"))
    }

    pub(super) fn record(&mut self, us: u64) {
        self.0.saturating_record(us.clamp(1, LONGEST_US));
    }

    pub(super) fn p99_ms(&self) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(0.99) / 1_000)
    }

    pub(super) fn clear(&mut self) {
        self.0.reset();
    }

    pub(super) fn waits(&self) -> WaitTimes {
        let at = |quantile| self.0.value_at_quantile(quantile);
        WaitTimes { count: self.0.len(), p50_us: at(0.5), p99_us: at(0.99), max_us: self.0.max() }
    }
}

/// Counts all simulated minutes, and also the slow minutes, in which tasks waited too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Minutes {
    pub(super) all: u64,
    pub(super) violated: u64,
}

/// A digest (FNV-1a) of all task starts. Equal runs have equal digests.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartsDigest(pub(super) u64);

impl StartsDigest {
    pub(super) fn new() -> StartsDigest {
        StartsDigest(0xCBF2_9CE4_8422_2325)
    }

    pub(super) fn add(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x0100_0000_01B3);
    }
}
