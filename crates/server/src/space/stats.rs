//! What a runner has done so far.

use super::samples::Samples;

/// What a runner has done since it began, or since this was taken [anew](super::Runner::stats_anew).
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// From a tick's begin until all that follows from it was published and given to the kernel.
    pub ticks: Samples,
    /// How late ticks began.
    pub late: Samples,
    /// Ticks that were left out because the runner was too far behind.
    pub left_out: u64,
    /// From Prepare sent until Taken heard, one for each entity.
    pub handovers: Samples,
    /// Ghosts that were told by others.
    pub ghosts: u64,
    /// From the end of a tick elsewhere until its ghosts were taken in here; only of use between processes of one machine.
    pub ghosts_late: Samples,
    /// Bytes sent to other processes.
    pub sent_bytes: u64,
    /// Bytes that came from others.
    pub received_bytes: u64,
    /// Messages that were dropped, since too much waited for their process or it could not be reached.
    pub dropped: u64,
    /// Connections that were made.
    pub connections: u64,
    /// When this began, ns.
    pub since_ns: u64,
}
