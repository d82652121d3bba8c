//! Computes random waits between attempts ("full jitter"), for example to connect. Each wait is a random time between 0
//! and a limit, which doubles with each attempt. If thousands of clients lose their node at the same moment, their
//! attempts are thus spread over time.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The generator of a client's waits between attempts.
#[derive(Debug, Clone)]
pub(crate) struct RandomBackoff {
    base_ms: u64,
    max_ms: u64,
    attempt: u32,
    random: u64,
}

impl RandomBackoff {
    pub(crate) fn new(base_ms: u64, max_ms: u64, seed: u64) -> RandomBackoff {
        RandomBackoff { base_ms, max_ms, attempt: 0, random: seed | 1 }
    }

    pub(crate) fn next_wait(&mut self) -> Duration {
        let span_ms = self.base_ms.saturating_mul(1 << self.attempt.min(20)).clamp(1, self.max_ms.max(1));
        self.attempt = self.attempt.saturating_add(1);
        Duration::from_micros(self.next_random() % (span_ms * 1_000))
    }

    /// The number of waits since the last call of [`reset`](Self::reset).
    pub(crate) fn attempts(&self) -> u32 {
        self.attempt
    }

    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }

    /// Returns the next number of a xorshift generator. The numbers must differ between clients, but need not be
    /// unpredictable.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Returns a number that differs between processes and between calls.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_random_wait_doubles_up_to_a_limit() {
        let mut longest = [Duration::ZERO; 10];
        let mut shortest = [Duration::MAX; 10];
        for seed in 1..2000 {
            let mut backoff = RandomBackoff::new(50, 2_000, u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
            for at in 0..10 {
                let wait = backoff.next_wait();
                longest[at] = longest[at].max(wait);
                shortest[at] = shortest[at].min(wait);
            }
        }
        for (at, span_ms) in [50u64, 100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000].into_iter().enumerate()
        {
            assert!(longest[at] <= Duration::from_millis(span_ms), "{at}: {longest:?}");
            assert!(longest[at] >= Duration::from_millis(span_ms * 9 / 10), "{at}: {longest:?}");
            assert!(shortest[at] <= Duration::from_millis(span_ms / 10), "{at}: {shortest:?}");
        }
    }

    #[test]
    fn backoff_is_short_again_after_a_reset() {
        let mut backoff = RandomBackoff::new(50, 2_000, 7);
        for _ in 0..9 {
            let _ = backoff.next_wait();
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_millis(50));
    }
}
