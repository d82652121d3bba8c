//! Decides how long a waiting caller spins before it parks. The decision depends on earlier waits.
//!
//! A spin is useful if the awaited event arrives within the time that a wake-up takes. If the event arrives later, the
//! spin is wasted. With few cores, the spin even delays the thread that would produce the event.
//!
//! Each wait longer than a spin halves the next spin, until callers park at once. A short wait restores the full spin.

/// The longest time for which [`WaitStrategy::Default`](crate::WaitStrategy::Default) spins before it parks, µs.
pub const SPIN_US_DEFAULT: u32 = 20;

const SPIN_NS: u64 = SPIN_US_DEFAULT as u64 * 1_000;
/// A wait that ended while the caller was parked counts as short up to this time, ns. A spin would have been long
/// enough, because the wake-up took the rest of the time.
const SHORT_WAIT_NS: u64 = 2 * SPIN_NS;
/// After the spin was halved this many times, callers park at once.
const HALVED_MAX: u8 = 5;

/// The time for which a caller spins before it parks. The time depends on the caller's earlier waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpinBudget {
    halved: u8,
}

impl SpinBudget {
    /// The time for which the next wait should spin, ns.
    #[inline]
    pub fn budget_ns(self) -> u64 {
        if self.halved < HALVED_MAX { SPIN_NS >> self.halved } else { 0 }
    }

    /// Stores that the event arrived while the caller was spinning.
    #[inline]
    pub fn record_spun(&mut self) {
        self.halved = 0;
    }

    /// Stores that the event arrived `waited_ns` after the wait began, while the caller was parked.
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
    fn short_wait_restores_the_full_spin() {
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
