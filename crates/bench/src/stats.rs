//! Computes the median, minimum and maximum over several runs, and collects the latencies of one run.
//!
//! A latency is counted in ns from the time at which the message should have been sent, so that the latency includes
//! the delay of a late sender. If a request is only sent after the response to the previous one, it has no such time.
//! Its latency is counted from the actual sending.

use hdrhistogram::Histogram;

use crate::point::RunSample;

/// A row is marked as noisy if its maximum exceeds its minimum by more than this share of its median.
pub const SPREAD_WARNED: f64 = 0.10;

/// The median, minimum and maximum of one figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The number of runs.
    pub runs: u64,
    /// The median; for an even number of runs, the mean of the two middle values.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Summary {
    /// Computes the summary of the values that one figure had in several runs. Returns `None` if `values` is empty.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Self { runs: sorted.len() as u64, median, min, max })
    }

    /// Returns the difference between maximum and minimum as a share of the median; 0 if the median is 0.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median.abs() }
    }

    /// Whether the values differ so much that the report must warn about the difference.
    pub fn is_noisy(&self) -> bool {
        self.spread() > SPREAD_WARNED
    }
}

/// A histogram of the latencies in one run, with a precision of three digits. A latency above a minute counts as a
/// minute.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

const LONGEST_NS: u64 = 60_000_000_000;

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are valid constants"))
    }
}

impl Latencies {
    /// Records a latency in ns.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    /// Whether no latency was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Adds all latencies of another histogram to this one.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both histograms have the same bounds");
    }

    /// Returns the quantile `share` (from 0 to 1) of the recorded latencies, in ns; `None` if no latency was recorded.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        (!self.is_empty()).then(|| self.0.value_at_quantile(share))
    }

    /// Returns the mean latency in ns; `None` if no latency was recorded.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.0.mean())
    }

    /// Returns a sample with the average, p50, p95, p99, p99.9 and p99.99. The sample is empty if no latency was
    /// recorded.
    pub fn sample(&self) -> RunSample {
        RunSample::new()
            .with_optional("avg_ns", self.mean_ns())
            .with_time("p50_ns", self.quantile_ns(0.50))
            .with_time("p95_ns", self.quantile_ns(0.95))
            .with_time("p99_ns", self.quantile_ns(0.99))
            .with_time("p999_ns", self.quantile_ns(0.999))
            .with_time("p9999_ns", self.quantile_ns(0.9999))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_count_is_the_mean_of_the_two_middle_values() {
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn measurement_with_a_spread_over_a_tenth_is_noisy() {
        assert!(!Summary::of(&[95.0, 100.0, 104.0]).unwrap().is_noisy());
        assert!(Summary::of(&[90.0, 100.0, 104.0]).unwrap().is_noisy());
    }

    #[test]
    fn percentiles_of_1000_known_latencies_are_exact() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|ns| latencies.record(ns));
        assert_eq!(latencies.quantile_ns(0.5), Some(500));
        assert_eq!(latencies.quantile_ns(0.99), Some(990));
    }

    #[test]
    fn empty_histogram_has_no_quantile_and_no_mean() {
        let latencies = Latencies::default();
        assert_eq!((latencies.quantile_ns(0.5), latencies.mean_ns()), (None, None));
        assert_eq!(latencies.sample(), RunSample::new());
    }

    #[test]
    fn latency_above_the_histogram_range_counts_as_its_maximum() {
        let mut latencies = Latencies::default();
        latencies.record(u64::MAX);
        assert!(latencies.quantile_ns(1.0) >= Some(LONGEST_NS));
    }
}
