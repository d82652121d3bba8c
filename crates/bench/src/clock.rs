//! The machine's monotonic clock. Its times can be compared between processes until the machine restarts.
//!
//! A throughput measurement begins in one process with the first send, and ends in another with the last check. An
//! `Instant` cannot be passed between processes.

use rustix::time::{ClockId, clock_gettime};

/// Current time in ns since an arbitrary moment. All processes have the same moment until the machine restarts.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Processor time of this process so far, ns.
pub fn processor_ns() -> u64 {
    let cpu_time = clock_gettime(ClockId::ProcessCPUTime);
    cpu_time.tv_sec as u64 * 1_000_000_000 + cpu_time.tv_nsec as u64
}
