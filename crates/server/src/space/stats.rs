//! Statistics of a runner.

use super::samples::DurationHistogram;

/// Counters and durations of a process's regions since its start, or since [`stats_anew`](super::Runner::stats_anew).
#[derive(Debug, Clone, Default)]
pub struct RunnerStats {
    /// Duration of ticks, until their results are published and written.
    pub ticks: DurationHistogram,
    /// Delay of ticks.
    pub late: DurationHistogram,
    /// Ticks that were skipped because the runner was too late.
    pub left_out: u64,
    /// Duration of handovers, from Prepare to Taken, per entity.
    pub handovers: DurationHistogram,
    /// Ghosts received from other processes.
    pub ghosts: u64,
    /// Delay of ghosts from the end of their tick; meaningful only between processes of one machine.
    pub ghosts_late: DurationHistogram,
    /// Bytes sent to other processes.
    pub sent_bytes: u64,
    /// Bytes received from other processes.
    pub received_bytes: u64,
    /// Messages that were dropped because too many were queued for their process, or it was unreachable.
    pub dropped: u64,
    /// Connections that were established.
    pub connections: u64,
    /// Start of the statistics, ns.
    pub since_ns: u64,
}
