//! How long a waiting caller spins before it parks, learned from how long it waited before.
//!
//! To spin pays where what is waited for comes within the time it takes to be woken: an answer, the next record of a
//! stream. Where it comes later the spin is lost, and worse than lost where cores are few: whoever is to be waited
//! for may need this very core, and a thread that spins is not made to give way to one that has just been woken.
//!
//! So each wait that took longer than a spin halves the next, until callers park at once; a wait that was over soon, parked or
//! not, makes the next spin as long as it can be.

/// How long [`Wait::Default`](crate::Wait::Default) spins before parking, µs, where that pays.
pub const SPIN_US_DEFAULT: u32 = 20;

const SPIN_NS: u64 = SPIN_US_DEFAULT as u64 * 1_000;
/// A parked wait no longer than this would have been over within a spin: the rest is what waking takes.
const SOON_NS: u64 = 2 * SPIN_NS;
/// Halved so often, a spin is too short to be worth it.
const HALVED_MAX: u8 = 5;

/// What a caller has learned of its waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spinning {
    halved: u8,
}

impl Spinning {
    /// How long to spin.
    #[inline]
    pub fn budget_ns(self) -> u64 {
        if self.halved < HALVED_MAX { SPIN_NS >> self.halved } else { 0 }
    }

    /// What was waited for came within the spin.
    #[inline]
    pub fn caught(&mut self) {
        self.halved = 0;
    }

    /// It came so long after the wait began, and the caller was parked by then.
    pub fn parked(&mut self, waited_ns: u64) {
        self.halved = if waited_ns <= SOON_NS { 0 } else { (self.halved + 1).min(HALVED_MAX) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_reduce_spinning_until_parking_at_once() {
        let mut spinning = Spinning::default();
        let mut spent_ns = 0;
        for _ in 0..100 {
            spent_ns += spinning.budget_ns();
            spinning.parked(1_000_000);
        }
        assert_eq!(spinning.budget_ns(), 0);
        assert!(spent_ns < 2 * SPIN_NS, "{spent_ns} ns of spinning for nothing");
    }

    #[test]
    fn short_wait_restores_the_full_spin() {
        let mut spinning = Spinning::default();
        (0..10).for_each(|_| spinning.parked(1_000_000));
        spinning.parked(SOON_NS);
        assert_eq!(spinning.budget_ns(), SPIN_NS);
        spinning.parked(1_000_000);
        assert_eq!(spinning.budget_ns(), SPIN_NS / 2);
        spinning.caught();
        assert_eq!(spinning.budget_ns(), SPIN_NS);
    }
}
