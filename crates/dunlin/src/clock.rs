//! The clock that stamps records.
//!
//! `SystemTime::now` takes 30 ns, longer than appending a record. This clock reads the processor's tick counter (9 ns)
//! and adds the ticks since the last reading of the system clock.
//!
//! Invariant: while the clock is used, it reads the system clock at least every [`RENEW_NS`] ns. If the system clock is
//! set back, this clock goes back, too, but the append times in a log never decrease.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_topic::Clock;

/// The clock of topics: the wall clock [`now_ns`] for the times of records, and [`steady_ns`] for the lengths of waits.
pub const CLOCK: Clock = Clock::new(now_ns).with_steady(steady_ns);

/// [`steady_ns`] as a [`Clock`], for leases and waits.
pub(crate) const STEADY: Clock = Clock::new(steady_ns);

/// The interval between two readings of the system clock, in ns. With an interval of a second, the tick counter would
/// be off by 20 µs, which subscribers in other processes would notice.
const RENEW_NS: u64 = 20_000_000;

static ANCHOR: LazyLock<Anchor> = LazyLock::new(Anchor::new);

struct Anchor {
    ticks: quanta::Clock,
    /// The time of the system clock minus the time of the tick counter, in ns. The subtraction wraps around.
    offset_ns: AtomicU64,
    renew_at_ns: AtomicU64,
}

/// The present time, ns since the Unix epoch.
#[inline]
pub fn now_ns() -> u64 {
    let anchor = &*ANCHOR;
    let ticks_ns = anchor.ticks_ns();
    if ticks_ns >= anchor.renew_at_ns.load(Ordering::Relaxed) {
        anchor.renew(ticks_ns);
    }
    ticks_ns.wrapping_add(anchor.offset_ns.load(Ordering::Relaxed))
}

/// Monotonic time since an arbitrary moment, ns. Waits and rates use it, because it does not change when the system's
/// time is set.
#[inline]
pub fn steady_ns() -> u64 {
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

    /// Reads the system clock. Concurrent calls are safe, because each call stores a valid offset.
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
        // The first call calibrates the tick counter.
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
