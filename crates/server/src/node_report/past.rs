//! Keeps earlier samples of counters, so that reports can state rates per second.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Shortest time between two samples of a counter.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(900);
/// Number of samples that are kept of each counter.
const SAMPLES_MAX: usize = 6;
/// Samples of this age and older are not used for rates.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(20);

/// Earlier values of a counter, each with its time.
#[derive(Debug)]
pub(super) struct CounterSamples<T>(VecDeque<(Instant, T)>);

impl<T> Default for CounterSamples<T> {
    fn default() -> CounterSamples<T> {
        CounterSamples(VecDeque::new())
    }
}

/// The earlier samples of all counters for which the reports state rates.
#[derive(Debug, Default)]
pub(super) struct RateHistory {
    /// Totals of the node, in this order: records, bytes, gaps, warnings and requests.
    pub(super) totals: CounterSamples<[u64; 5]>,
    /// Processor time that the process has used, seconds.
    pub(super) cpu: CounterSamples<f64>,
    /// For each topic, the number of appended records and bytes.
    pub(super) topics: CounterSamples<HashMap<String, [u64; 2]>>,
    /// The task counters of each tenant, by the tenant's name.
    pub(super) tasks: CounterSamples<HashMap<Vec<u8>, TenantTaskTotals>>,
}

/// Totals of one tenant's tasks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TenantTaskTotals {
    pub(super) submitted: u64,
    pub(super) started: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) dead: u64,
    pub(super) cpu_us: u64,
    pub(super) cost_us: u64,
}

impl<T> CounterSamples<T> {
    /// Adds a sample. Does nothing if the last sample is less than [`SAMPLE_INTERVAL`] old.
    pub(super) fn add(&mut self, now: Instant, sample: T) {
        if self.0.back().is_some_and(|(at, _)| now - *at < SAMPLE_INTERVAL) {
            return;
        }
        if self.0.len() == SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, sample));
    }

    /// The newest sample that is at least [`SAMPLE_INTERVAL`] old, with its age in seconds; `None` if there is none, or
    /// if its age is [`SAMPLE_AGE_MAX`] or more.
    pub(super) fn recent(&self, now: Instant) -> Option<(f64, &T)> {
        let found = self.0.iter().rev().find(|(at, _)| now - *at >= SAMPLE_INTERVAL)?;
        CounterSamples::with_age(now, found)
    }

    /// The oldest sample with an age from [`SAMPLE_INTERVAL`] to below [`SAMPLE_AGE_MAX`], with its age in seconds;
    /// `None` if there is none.
    pub(super) fn oldest(&self, now: Instant) -> Option<(f64, &T)> {
        let found =
            self.0.iter().find(|(at, _)| now - *at >= SAMPLE_INTERVAL && now - *at < SAMPLE_AGE_MAX)?;
        CounterSamples::with_age(now, found)
    }

    fn with_age(now: Instant, (at, sample): &(Instant, T)) -> Option<(f64, &T)> {
        let age = now - *at;
        (age < SAMPLE_AGE_MAX).then_some((age.as_secs_f64(), sample))
    }
}

/// The rate per second at which a counter grew from `before` to `now`, rounded.
pub(super) fn per_s(now: u64, before: u64, seconds: f64) -> u64 {
    (now.saturating_sub(before) as f64 / seconds).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_rates_cover_about_the_last_second() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut samples = CounterSamples::default();
        assert!(samples.recent(at(0)).is_none());
        for ms in [0, 100, 1_000, 1_500, 2_000] {
            samples.add(at(ms), ms);
        }
        assert_eq!(samples.recent(at(2_100)), Some((1.1, &1_000)));
        assert_eq!(samples.oldest(at(2_100)), Some((2.1, &0)));
        assert_eq!(samples.recent(at(30_000)), None);
        assert_eq!(per_s(1_500, 500, 2.0), 500);
        assert_eq!(per_s(1, 500, 2.0), 0, "what counts anew");
    }
}
