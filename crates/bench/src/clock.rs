//! The machine's monotonic clock. All processes can compare times of this clock with each other, until the machine
//! restarts.
//!
//! Such a clock is needed, because a throughput measurement begins with the first send in one process, and ends with
//! the last check in another process. An `Instant` cannot be passed from one process to another.

use rustix::time::{ClockId, clock_gettime};

/// Returns the time in ns since a fixed moment. All processes have the same fixed moment until the machine restarts.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the processor time that this process has used so far, in ns.
pub fn processor_ns() -> u64 {
    let cpu_time = clock_gettime(ClockId::ProcessCPUTime);
    cpu_time.tv_sec as u64 * 1_000_000_000 + cpu_time.tv_nsec as u64
}
