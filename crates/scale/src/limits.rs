//! Defines the limits of a scaler.

/// The limits of one [`Scaler`](crate::Scaler), such as the highest number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalerLimits {
    /// The highest number of workers that a policy may allow.
    pub workers_max: u32,
    /// The largest number of buckets in the history for forecasts. A bucket is an interval with one mean value.
    pub buckets_max: usize,
    /// The number of decisions to add workers that the scaler remembers, and also the number of decisions to remove
    /// workers.
    pub decisions_max: usize,
    /// The largest number of periods that the schedule of a policy may have.
    pub windows_max: usize,
    /// The number of failed launches in a row after which the scaler pauses.
    pub failures_max: u32,
    /// How long the scaler launches no instances after `failures_max` failed launches in a row, in ms.
    pub failure_pause_ms: u64,
}

impl Default for ScalerLimits {
    fn default() -> ScalerLimits {
        ScalerLimits {
            workers_max: 1_000_000,
            buckets_max: 16_384,
            decisions_max: 10_000,
            windows_max: 1_000,
            failures_max: 5,
            failure_pause_ms: 30_000,
        }
    }
}
