//! The time that records are stamped with.
//!
//! A system call's `SystemTime::now` costs 30 ns here, more than appending a record does, so this
//! counts the processor's ticks (9 ns) from a moment at which the system clock was read.
//!
//! Invariant: never more than [`RENEW_NS`] pass between two looks at the system clock, if anyone
//! asks for the time at all. It follows the system clock, so it may go back when that does; a log
//! keeps its append times from going back by itself.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_topic::Clock;

/// The node's clock, as topics take it.
pub const CLOCK: Clock = Clock(now_ns);

/// By which leases and waits are measured, as topics take it.
pub(crate) const STEADY: Clock = Clock(steady_ns);

/// The ticks' own calibration is some 20 µs off after a second: readers in other processes would see it.
const RENEW_NS: u64 = 20_000_000;

static ANCHOR: LazyLock<Anchor> = LazyLock::new(Anchor::new);

struct Anchor {
    ticks: quanta::Clock,
    /// What to add to the ticks, wrapping.
    offset_ns: AtomicU64,
    renew_at_ns: AtomicU64,
}

/// Now, ns since the Unix epoch.
#[inline]
pub fn now_ns() -> u64 {
    let anchor = &*ANCHOR;
    let ticks_ns = anchor.ticks_ns();
    if ticks_ns >= anchor.renew_at_ns.load(Ordering::Relaxed) {
        anchor.renew(ticks_ns);
    }
    ticks_ns.wrapping_add(anchor.offset_ns.load(Ordering::Relaxed))
}

/// Ns since some moment in the past. It only goes forward, whatever is done to the time of day: for how long something takes, or may.
#[inline]
pub(crate) fn steady_ns() -> u64 {
    ANCHOR.ticks_ns()
}

impl Anchor {
    fn new() -> Anchor {
        let anchor = Anchor {
            ticks: quanta::Clock::new(),
            offset_ns: AtomicU64::new(0),
            renew_at_ns: AtomicU64::new(0),
        };
        anchor.renew(anchor.ticks_ns());
        anchor
    }

    #[inline(always)]
    fn ticks_ns(&self) -> u64 {
        self.ticks.delta_as_nanos(0, self.ticks.raw())
    }

    /// Looks at the system clock. Several threads may at once: each stores a sound pair.
    #[cold]
    fn renew(&self, ticks_ns: u64) {
        self.renew_at_ns.store(ticks_ns + RENEW_NS, Ordering::Relaxed);
        let before_ns = self.ticks_ns();
        let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let after_ns = self.ticks_ns();
        let middle_ns = before_ns + after_ns.saturating_sub(before_ns) / 2;
        self.offset_ns.store((system.as_nanos() as u64).wrapping_sub(middle_ns), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn clock_stays_within_20_ms_of_the_system_clock() {
        // The first call measures how fast the processor ticks.
        now_ns();
        for _ in 0..3 {
            let system_ns = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
            let (before, now, after) = (system_ns(), now_ns(), system_ns());
            let is_kept = (before - 20_000_000..after + 20_000_000).contains(&now);
            assert!(is_kept, "{now} is not between {before} and {after}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
