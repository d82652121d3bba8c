//! Statistics of the thread that runs a process's regions.

use super::samples::DurationHistogram;

/// Counters and durations of a process's regions, since the process started or since the last call of
/// [`take_stats`](super::WorldRunner::take_stats).
#[derive(Debug, Clone, Default)]
pub struct RunnerStats {
    /// Duration of ticks, from the start of a tick until its results are published and sent.
    pub ticks: DurationHistogram,
    /// Delay with which ticks began.
    pub late: DurationHistogram,
    /// Number of ticks that were skipped because too many ticks were late.
    pub skipped: u64,
    /// Duration of handovers, one value for each entity: from the message that offers the handover (Prepare) to the one
    /// that confirms it (Taken).
    pub handovers: DurationHistogram,
    /// Number of ghosts received from other processes.
    pub ghosts: u64,
    /// Time from the end of the tick in which a ghost was made until the ghost arrives. Only meaningful between
    /// processes of one machine.
    pub ghosts_late: DurationHistogram,
    /// Number of bytes sent to other processes.
    pub sent_bytes: u64,
    /// Number of bytes received from other processes.
    pub received_bytes: u64,
    /// Number of messages that were dropped because the receiving process was not connected, or because too many bytes
    /// waited to be sent to it.
    pub dropped: u64,
    /// Number of connections that were established.
    pub connections: u64,
    /// Time since which the statistics count, ns of the monotonic clock.
    pub since_ns: u64,
}
