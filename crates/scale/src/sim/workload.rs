//! Defines the rates at which simulated tasks arrive over time.

use std::f64::consts::TAU;
use std::sync::Arc;

use super::series::TimeSeries;

/// The rate at which simulated tasks arrive, as a function of time.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// The rate does not change.
    Constant {
        /// The rate in tasks per second.
        per_s: f64,
    },
    /// The rate rises and falls as a wave, from `low_per_s` at midnight to `high_per_s` at noon and back. The days
    /// differ a little, but are the same in every run.
    Diurnal {
        /// The rate at midnight, in tasks per second.
        low_per_s: f64,
        /// The rate at noon, in tasks per second.
        high_per_s: f64,
        /// The length of a day in ms.
        day_ms: u64,
        /// How much the rates of a day may differ from the wave, as a share.
        differ: f64,
    },
    /// The rate is constant, except for one burst.
    Crowd {
        /// The rate before and after the burst, in tasks per second.
        base_per_s: f64,
        /// The rate during the burst, in tasks per second.
        peak_per_s: f64,
        /// When the burst begins, in ms.
        from_ms: u64,
        /// How long the burst lasts, in ms.
        for_ms: u64,
    },
    /// The rate follows a measured series. The series is scaled so that its maximum is `high_per_s`.
    Series {
        /// The measured series.
        series: Arc<TimeSeries>,
        /// The rate at the maximum of the series, in tasks per second.
        high_per_s: f64,
        /// The time between two values of the series, in ms.
        value_ms: u64,
        /// The index of the value with which the run begins.
        from: usize,
    },
}

impl Workload {
    /// Returns the rate at the time `at_ms`, in tasks per second. Negative times are before the start of the run.
    pub fn per_s(&self, at_ms: i64) -> f64 {
        match *self {
            Workload::Constant { per_s } => per_s,
            Workload::Diurnal { low_per_s, high_per_s, day_ms, differ } => {
                let days = at_ms as f64 / day_ms as f64;
                let wave = (1.0 - (TAU * days).cos()) / 2.0;
                // Each day has a factor of its own, which changes smoothly to that of the next day in the course of the
                // day.
                let (day, part) = (days.floor(), days - days.floor());
                let ease = part * part * (3.0 - 2.0 * part);
                let mix = day_factor(day as i64) * (1.0 - ease) + day_factor(day as i64 + 1) * ease;
                (low_per_s + (high_per_s - low_per_s) * wave) * (1.0 + differ * mix)
            }
            Workload::Crowd { base_per_s, peak_per_s, from_ms, for_ms } => {
                let is_burst = at_ms >= from_ms as i64 && at_ms < (from_ms + for_ms) as i64;
                if is_burst { peak_per_s } else { base_per_s }
            }
            Workload::Series { ref series, high_per_s, value_ms, from } => {
                let position = from as f64 + at_ms as f64 / value_ms as f64;
                series.at(position) / series.highest() * high_per_s
            }
        }
    }

    /// Returns the mean rates of the last `buckets` buckets before time 0, from the oldest to the newest.
    pub fn past_rates(&self, bucket_ms: u64, buckets: usize) -> Vec<f64> {
        let mean = |first_ms: i64| {
            let at = |part: i64| self.per_s(first_ms + part * bucket_ms as i64 / 8);
            (0..8).map(at).sum::<f64>() / 8.0
        };
        (1..=buckets as i64).rev().map(|back| mean(-back * bucket_ms as i64)).collect()
    }

    /// Returns the highest rate from `from_ms` to `until_ms`.
    pub fn highest(&self, from_ms: u64, until_ms: u64) -> f64 {
        let step = ((until_ms - from_ms) / 32).max(1);
        let times = (0..=32).map(|count| (from_ms + count * step).min(until_ms));
        times.map(|at_ms| self.per_s(at_ms as i64)).fold(0.0, f64::max)
    }
}

/// Returns a pseudo-random number from -1 to 1 that is always the same for a given day.
fn day_factor(day: i64) -> f64 {
    let mut random = crate::random::Random::new(day as u64 ^ 0xD0A7);
    2.0 * random.unit() - 1.0
}
