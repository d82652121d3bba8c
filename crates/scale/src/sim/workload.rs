//! The arrival rates of simulated tasks over time.

use std::f64::consts::TAU;
use std::sync::Arc;

use super::series::TimeSeries;

/// The arrival rate of simulated tasks as a function of time.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// A rate that does not change.
    Constant {
        /// Tasks per second.
        per_s: f64,
    },
    /// A wave from `low_per_s` at midnight to `high_per_s` at noon. Days differ a little, by seed.
    Diurnal {
        /// Tasks per second at midnight.
        low_per_s: f64,
        /// Tasks per second at noon.
        high_per_s: f64,
        /// Length of a day, ms.
        day_ms: u64,
        /// The largest deviation of a day's rates from the wave, as a share.
        differ: f64,
    },
    /// A burst between two periods of constant rate.
    Crowd {
        /// Tasks per second before and after the burst.
        base_per_s: f64,
        /// Tasks per second during the burst.
        peak_per_s: f64,
        /// Start of the burst, ms.
        from_ms: u64,
        /// Duration of the burst, ms.
        for_ms: u64,
    },
    /// A measured series, scaled so that its maximum is `high_per_s`.
    Series {
        /// The measured series.
        series: Arc<TimeSeries>,
        /// Tasks per second at the series' maximum.
        high_per_s: f64,
        /// The time for which each value of the series applies, in ms.
        value_ms: u64,
        /// The index of the series' value that applies at time 0.
        from: usize,
    },
}

impl Workload {
    /// Returns the rate at a time. Negative times are before the start of the run.
    pub fn per_s(&self, at_ms: i64) -> f64 {
        match *self {
            Workload::Constant { per_s } => per_s,
            Workload::Diurnal { low_per_s, high_per_s, day_ms, differ } => {
                let days = at_ms as f64 / day_ms as f64;
                let wave = (1.0 - (TAU * days).cos()) / 2.0;
                // Each day has its own factor, with a smooth transition in the night.
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

    /// Returns the mean rates of the buckets before time 0, the oldest first.
    pub fn past_rates(&self, bucket_ms: u64, buckets: usize) -> Vec<f64> {
        let mean = |first_ms: i64| {
            let at = |part: i64| self.per_s(first_ms + part * bucket_ms as i64 / 8);
            (0..8).map(at).sum::<f64>() / 8.0
        };
        (1..=buckets as i64).rev().map(|back| mean(-back * bucket_ms as i64)).collect()
    }

    /// The highest rate in a time range.
    pub fn highest(&self, from_ms: u64, until_ms: u64) -> f64 {
        let step = ((until_ms - from_ms) / 32).max(1);
        let times = (0..=32).map(|count| (from_ms + count * step).min(until_ms));
        times.map(|at_ms| self.per_s(at_ms as i64)).fold(0.0, f64::max)
    }
}

/// Returns the pseudo-random factor of a day, from -1 to 1.
fn day_factor(day: i64) -> f64 {
    let mut random = crate::random::Random::new(day as u64 ^ 0xD0A7);
    2.0 * random.unit() - 1.0
}
