//! How often tasks start that have the same value under a key: a bucket of tokens, filled as time passes.
//!
//! ```text
//!   count tokens in per_ms ──►  ┌───────┐
//!                               │ ● ● ● │ burst of them at most; none is added to a full one
//!                               └───┬───┘
//!        a task is made ready ──────┤ only where a token lies there that no other ready task counts on
//!        it starts ─────────────────▼ and takes it
//! ```
//! So in any time `t` no more than `burst + t × count / per_ms` start, however long workers were away, and a lane holds nothing that may not start.
//! The bucket is kept as what is missing from it, in ms × `count`: whole numbers, so that nothing is rounded and every node has the same.

use crate::layout::layout;

layout! {
    /// So many starts in so long.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Rate {
        /// Starts, 1 at least.
        pub count: u32,
        /// In how long, in ms; 1 at least.
        pub per_ms: u32,
        /// After a pause so many at once; 1 at least.
        pub burst: u32,
    }
}

impl Rate {
    /// So many in a second, evenly: one by one.
    pub fn per_second(count: u32) -> Rate {
        Rate { count, per_ms: 1_000, burst: 1 }
    }

    pub(crate) fn is_one(&self) -> bool {
        self.count > 0 && self.per_ms > 0 && self.burst > 0
    }

    /// All that can be missing from a bucket.
    fn most(&self) -> u64 {
        u64::from(self.burst) * u64::from(self.per_ms)
    }
}

layout! {
    /// What is missing from a bucket.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Bucket {
        /// In ms × `count`: a token is `per_ms` of them.
        pub missing: u64,
        /// When that was counted.
        pub at_ms: u64,
    }
}

impl Bucket {
    pub(crate) fn missing(&self, rate: &Rate, now_ms: u64) -> u64 {
        let filled = now_ms.saturating_sub(self.at_ms).saturating_mul(u64::from(rate.count));
        self.missing.saturating_sub(filled)
    }

    /// Whole tokens that are there.
    pub(crate) fn tokens(&self, rate: &Rate, now_ms: u64) -> u64 {
        rate.most().saturating_sub(self.missing(rate, now_ms)) / u64::from(rate.per_ms)
    }

    /// One is taken.
    pub(crate) fn spend(&mut self, rate: &Rate, now_ms: u64) {
        *self = Bucket {
            missing: self.missing(rate, now_ms).saturating_add(u64::from(rate.per_ms)),
            at_ms: now_ms,
        };
    }

    /// When so many will have been there, if those that come until then are kept.
    pub(crate) fn due_ms(&self, rate: &Rate, tokens: u64) -> u64 {
        let wanted = tokens.saturating_mul(u64::from(rate.per_ms)).saturating_add(self.missing);
        let passing = wanted.saturating_sub(rate.most()).div_ceil(u64::from(rate.count));
        self.at_ms.saturating_add(passing)
    }

    /// When it is full.
    pub(crate) fn full_ms(&self, rate: &Rate) -> u64 {
        self.at_ms.saturating_add(self.missing.div_ceil(u64::from(rate.count)))
    }

    /// The same tokens missing where another rate holds from now on.
    pub(crate) fn at_rate(&self, before: &Rate, rate: &Rate, now_ms: u64) -> Bucket {
        let tokens = u128::from(self.missing(before, now_ms)) * u128::from(rate.per_ms);
        let missing = tokens.div_ceil(u128::from(before.per_ms)).min(u128::from(rate.most()));
        Bucket { missing: missing as u64, at_ms: now_ms }
    }

    /// From a snapshot: whether it can be one of this rate.
    pub(crate) fn is_of(&self, rate: &Rate, now_ms: u64) -> bool {
        (1..=rate.most()).contains(&self.missing) && self.at_ms <= now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_gives_a_burst_and_then_one_token_when_due() {
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
        // A third of a second each, and nothing is lost by rounding: the thousandth comes when it is due.
        for start in 1..=1_000_u64 {
            let due_ms = bucket.due_ms(&rate, 1);
            assert_eq!((due_ms, bucket.tokens(&rate, due_ms)), ((start * 1_000).div_ceil(3), 1));
            bucket.spend(&rate, due_ms);
        }
    }

    #[test]
    fn new_rate_keeps_the_missing_tokens_within_its_burst() {
        let (slow, fast) = (Rate { count: 1, per_ms: 60_000, burst: 10 }, Rate::per_second(5));
        let mut bucket = Bucket::default();
        (0..4).for_each(|_| bucket.spend(&slow, 0));
        assert_eq!(bucket.at_rate(&slow, &Rate { burst: 5, ..slow }, 0).tokens(&slow, 0), 6);
        let at_fast = bucket.at_rate(&slow, &fast, 7);
        assert_eq!(
            (at_fast.tokens(&fast, 7), at_fast.due_ms(&fast, 1)),
            (0, 207),
            "no more than all is missing"
        );
        let most = Rate { count: u32::MAX, per_ms: u32::MAX, burst: u32::MAX };
        let mut bucket = Bucket { missing: most.most(), at_ms: u64::MAX };
        assert!(bucket.is_of(&most, u64::MAX) && bucket.tokens(&most, u64::MAX) == 0);
        assert_eq!(bucket.due_ms(&most, u64::MAX), u64::MAX);
        bucket.at_ms = 0;
        bucket.spend(&most, u64::MAX);
    }
}
