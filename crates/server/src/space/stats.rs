//! Statistics of a runner.

use super::samples::DurationHistogram;

/// Counters and durations of a process's regions since its start, or since
/// [`take_stats`](super::WorldRunner::take_stats).
#[derive(Debug, Clone, Default)]
pub struct RunnerStats {
    /// Time from the start of a tick until its results are published and written.
    pub ticks: DurationHistogram,
    /// Time by which ticks began too late.
    pub late: DurationHistogram,
    /// Number of ticks that were skipped because the runner was too late.
    pub skipped: u64,
    /// Duration of handovers for each entity, from Prepare to Taken.
    pub handovers: DurationHistogram,
    /// Number of ghosts received from other processes.
    pub ghosts: u64,
    /// Time between the end of a ghost's tick and its arrival. Meaningful only between processes of one machine.
    pub ghosts_late: DurationHistogram,
    /// Number of bytes sent to other processes.
    pub sent_bytes: u64,
    /// Number of bytes received from other processes.
    pub received_bytes: u64,
    /// Number of messages that were dropped because too many bytes were queued for their process, or the process was
    /// unreachable.
    pub dropped: u64,
    /// Number of connections that were established.
    pub connections: u64,
    /// Time at which the statistics began, ns of the monotonic clock.
    pub since_ns: u64,
}
