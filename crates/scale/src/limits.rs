//! The limits of a scaler.

/// Limits of one [`Scaler`](crate::Scaler): workers, history and decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalerLimits {
    /// Maximum number of workers of any policy.
    pub workers_max: u32,
    /// Maximum number of buckets of history for forecasts.
    pub buckets_max: usize,
    /// Maximum number of remembered decisions.
    pub decisions_max: usize,
    /// Maximum number of windows of a schedule.
    pub windows_max: usize,
    /// The number of consecutive failed launches after which the scaler pauses.
    pub failures_max: u32,
    /// How long the scaler pauses after `failures_max` consecutive failed launches, in ms.
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
