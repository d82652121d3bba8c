//! Rates, which limit how often tasks with the same value of a key, such as the same queue, may start.
//!
//! ```text
//!   count tokens in per_ms ──►  ┌───────┐
//!                               │ ● ● ● │ at most `burst` tokens
//!                               └───┬───┘
//!        a task is made ready ──────┤ only if there is a token that no other ready task reserves
//!        it starts ─────────────────▼ and takes this token
//! ```
//! In any time `t`, at most `burst + t × count / per_ms` tasks start, even after a long time without workers. A task in
//! a lane has reserved a token, so it may start at any time. The state does not store the tokens in the bucket, but
//! what the bucket lacks, in ms × `count`. This number is always whole, so no rounding can make nodes differ.

use crate::layout::layout;

layout! {
    /// A limit on how many tasks may start: a number for each period, and a burst.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Rate {
        /// Number of starts; at least 1.
        pub count: u32,
        /// Period of `count` starts, ms; at least 1.
        pub per_ms: u32,
        /// Number of tasks that may start without delay after a pause; at least 1.
        pub burst: u32,
    }
}

impl Rate {
    /// Creates a rate of `count` starts a second, evenly, without bursts.
    pub fn per_second(count: u32) -> Rate {
        Rate { count, per_ms: 1_000, burst: 1 }
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.count > 0 && self.per_ms > 0 && self.burst > 0
    }

    /// The amount that is missing from an empty bucket, in ms × `count`.
    fn most(&self) -> u64 {
        u64::from(self.burst) * u64::from(self.per_ms)
    }
}

layout! {
    /// A token bucket that limits how often tasks start.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Bucket {
        /// The amount that the bucket lacks until it is full, in ms × `count`. In this unit, one token is `per_ms`.
        pub missing: u64,
        /// Time of the last update.
        pub at_ms: u64,
    }
}

impl Bucket {
    pub(crate) fn missing(&self, rate: &Rate, now_ms: u64) -> u64 {
        let filled = now_ms.saturating_sub(self.at_ms).saturating_mul(u64::from(rate.count));
        self.missing.saturating_sub(filled)
    }

    /// Whole tokens in the bucket.
    pub(crate) fn tokens(&self, rate: &Rate, now_ms: u64) -> u64 {
        rate.most().saturating_sub(self.missing(rate, now_ms)) / u64::from(rate.per_ms)
    }

    /// Takes a token.
    pub(crate) fn spend(&mut self, rate: &Rate, now_ms: u64) {
        *self = Bucket {
            missing: self.missing(rate, now_ms).saturating_add(u64::from(rate.per_ms)),
            at_ms: now_ms,
        };
    }

    /// Time at which the bucket will contain `tokens` tokens, provided that no token is taken until then.
    pub(crate) fn due_ms(&self, rate: &Rate, tokens: u64) -> u64 {
        let wanted = tokens.saturating_mul(u64::from(rate.per_ms)).saturating_add(self.missing);
        let wait_ms = wanted.saturating_sub(rate.most()).div_ceil(u64::from(rate.count));
        self.at_ms.saturating_add(wait_ms)
    }

    /// Time at which the bucket is full.
    pub(crate) fn full_ms(&self, rate: &Rate) -> u64 {
        self.at_ms.saturating_add(self.missing.div_ceil(u64::from(rate.count)))
    }

    /// Converts the bucket to another rate. The number of missing tokens stays the same.
    pub(crate) fn at_rate(&self, before: &Rate, rate: &Rate, now_ms: u64) -> Bucket {
        let tokens = u128::from(self.missing(before, now_ms)) * u128::from(rate.per_ms);
        let missing = tokens.div_ceil(u128::from(before.per_ms)).min(u128::from(rate.most()));
        Bucket { missing: missing as u64, at_ms: now_ms }
    }

    /// Whether a bucket from a snapshot is valid for this rate.
    pub(crate) fn is_valid_for(&self, rate: &Rate, now_ms: u64) -> bool {
        (1..=rate.most()).contains(&self.missing) && self.at_ms <= now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_bucket_gives_a_burst_and_then_one_token_per_interval() {
        let rate = Rate { count: 3, per_ms: 1_000, burst: 2 };
        let mut bucket = Bucket::default();
        assert_eq!((bucket.tokens(&rate, 0), bucket.full_ms(&rate)), (2, 0));
        bucket.spend(&rate, 0);
        bucket.spend(&rate, 0);
        assert_eq!((bucket.tokens(&rate, 333), bucket.tokens(&rate, 334)), (0, 1));
        assert_eq!(
            (bucket.due_ms(&rate, 1), bucket.due_ms(&rate, 2), bucket.full_ms(&rate)),
            (334, 667, 667)
        );
        // Each token takes a third of a second, and no time is lost by rounding.
        for start in 1..=1_000_u64 {
            let due_ms = bucket.due_ms(&rate, 1);
            assert_eq!((due_ms, bucket.tokens(&rate, due_ms)), ((start * 1_000).div_ceil(3), 1));
            bucket.spend(&rate, due_ms);
        }
    }

    #[test]
    fn rate_change_does_not_refill_used_tokens() {
        let (slow, fast) = (Rate { count: 1, per_ms: 60_000, burst: 10 }, Rate::per_second(5));
        let mut bucket = Bucket::default();
        (0..4).for_each(|_| bucket.spend(&slow, 0));
        assert_eq!(bucket.at_rate(&slow, &Rate { burst: 5, ..slow }, 0).tokens(&slow, 0), 6);
        let at_fast = bucket.at_rate(&slow, &fast, 7);
        assert_eq!(
            (at_fast.tokens(&fast, 7), at_fast.due_ms(&fast, 1)),
            (0, 207),
            "at most the whole bucket is missing"
        );
        let most = Rate { count: u32::MAX, per_ms: u32::MAX, burst: u32::MAX };
        let mut bucket = Bucket { missing: most.most(), at_ms: u64::MAX };
        assert!(bucket.is_valid_for(&most, u64::MAX) && bucket.tokens(&most, u64::MAX) == 0);
        assert_eq!(bucket.due_ms(&most, u64::MAX), u64::MAX);
        bucket.at_ms = 0;
        bucket.spend(&most, u64::MAX);
    }
}
