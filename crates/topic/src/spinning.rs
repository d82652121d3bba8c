//! Decides how long a waiting thread spins before it parks. The decision depends on the thread's earlier waits.
//!
//! A spin saves time if the awaited event arrives sooner than a parked thread would wake up. If the event arrives
//! later, the spin is wasted. With few cores, the spin even delays the thread that would produce the event.
//!
//! Each wait that is longer than a spin halves the next spin, until the thread parks at once. After a short wait, the
//! thread spins for the full time again.

/// The longest time for which [`WaitStrategy::Default`](crate::WaitStrategy::Default) spins before it parks, µs.
pub const SPIN_US_DEFAULT: u32 = 20;

const SPIN_NS: u64 = SPIN_US_DEFAULT as u64 * 1_000;
/// A wait that ended while the thread was parked counts as short up to this time, ns. A spin would have been long
/// enough for it, because the wake-up took the rest of the time.
const SHORT_WAIT_NS: u64 = 2 * SPIN_NS;
/// After the spin was halved this many times, the thread parks at once.
const HALVED_MAX: u8 = 5;

/// How long a waiting thread spins before it parks. The time depends on the thread's earlier waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpinBudget {
    halved: u8,
}

impl SpinBudget {
    /// How long the next wait should spin, ns.
    #[inline]
    pub fn budget_ns(self) -> u64 {
        if self.halved < HALVED_MAX { SPIN_NS >> self.halved } else { 0 }
    }

    /// Stores that the awaited event arrived during the spin.
    #[inline]
    pub fn record_spun(&mut self) {
        self.halved = 0;
    }

    /// Stores that the awaited event arrived `waited_ns` after the wait began, while the thread was parked.
    pub fn record_parked(&mut self, waited_ns: u64) {
        self.halved = if waited_ns <= SHORT_WAIT_NS { 0 } else { (self.halved + 1).min(HALVED_MAX) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_reduce_spinning_to_zero() {
        let mut spinning = SpinBudget::default();
        let mut spent_ns = 0;
        for _ in 0..100 {
            spent_ns += spinning.budget_ns();
            spinning.record_parked(1_000_000);
        }
        assert_eq!(spinning.budget_ns(), 0);
        assert!(spent_ns < 2 * SPIN_NS, "{spent_ns} ns of spinning for nothing");
    }

    #[test]
    fn short_wait_restores_the_full_spinning_time() {
        let mut spinning = SpinBudget::default();
        (0..10).for_each(|_| spinning.record_parked(1_000_000));
        spinning.record_parked(SHORT_WAIT_NS);
        assert_eq!(spinning.budget_ns(), SPIN_NS);
        spinning.record_parked(1_000_000);
        assert_eq!(spinning.budget_ns(), SPIN_NS / 2);
        spinning.record_spun();
        assert_eq!(spinning.budget_ns(), SPIN_NS);
    }
}
