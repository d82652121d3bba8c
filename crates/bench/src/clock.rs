//! The machine's monotonic clock, comparable between processes of one boot.
//!
//! A throughput run is timed from just before the first send, in one process, until the last record
//! was checked, in another, so `Instant` (which another process cannot read) does not do.

use rustix::time::{ClockId, clock_gettime};

/// Now, in ns since some moment of this boot.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What this process has taken of its processors so far, in ns.
pub fn processor_ns() -> u64 {
    let taken = clock_gettime(ClockId::ProcessCPUTime);
    taken.tv_sec as u64 * 1_000_000_000 + taken.tv_nsec as u64
}
