//! How much a scaler keeps.

/// Of one [`Scaler`](crate::Scaler).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Workers at once, whatever a policy says.
    pub workers_max: u32,
    /// Buckets of history that a forecast is made from.
    pub buckets_max: usize,
    /// Decisions that are remembered.
    pub decisions_max: usize,
    /// Windows of a schedule.
    pub windows_max: usize,
    /// Launches that failed one after another before the next is put off, and for how long.
    pub failures_max: u32,
    /// See `failures_max`.
    pub failure_pause_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            workers_max: 1_000_000,
            buckets_max: 16_384,
            decisions_max: 10_000,
            windows_max: 1_000,
            failures_max: 5,
            failure_pause_ms: 30_000,
        }
    }
}
