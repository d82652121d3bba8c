//! When a task that failed is tried again.
//!
//! Delays follow from the task's id and the attempt: the same on every node, and different for tasks that failed together.

use crate::layout::{choice, layout};

/// Retries that a tenant's budget holds at most, and what each first start adds to it.
pub(crate) const BUDGET_MAX: u32 = 1_000_000;

layout! {
    /// How often, and after how long.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Retry {
        /// Attempts after the first.
        pub retries: u16,
        /// The time between two.
        pub backoff: Backoff,
    }
}

choice! {
    /// The time between two attempts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Backoff {
        /// Always the same.
        Fixed { /// It.
            delay_ms: u32 } = 1,
        /// Any time up to `base_ms` × 2 per attempt ("full jitter", Brooker 2015).
        Exponential { /// The most before the first retry.
            base_ms: u32, /// The most ever.
            cap_ms: u32 } = 2,
        /// From `base_ms` to three times the delay before ("decorrelated jitter", Brooker 2015).
        Decorrelated { /// The least.
            base_ms: u32, /// The most ever.
            cap_ms: u32 } = 3,
    }
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { retries: 3, backoff: Backoff::Exponential { base_ms: 100, cap_ms: 30_000 } }
    }
}

impl Retry {
    /// The delay before retry `attempt`, which is 1 for the first; `last_ms` is the delay before the one before, or 0.
    pub fn delay_ms(&self, task: u64, attempt: u32, last_ms: u32) -> u32 {
        let random = mix(task ^ u64::from(attempt).rotate_right(16));
        match self.backoff {
            Backoff::Fixed { delay_ms } => delay_ms,
            Backoff::Exponential { base_ms, cap_ms } => {
                let most = u64::from(base_ms) << attempt.saturating_sub(1).min(31);
                between(0, most.min(u64::from(cap_ms)), random)
            }
            Backoff::Decorrelated { base_ms, cap_ms } => {
                let most = (u64::from(last_ms.max(base_ms)) * 3).min(u64::from(cap_ms));
                between(u64::from(base_ms.min(cap_ms)), most, random)
            }
        }
    }

    /// The longest delay it knows: that of a retry for which there is no budget.
    pub fn longest_ms(&self) -> u32 {
        match self.backoff {
            Backoff::Fixed { delay_ms } => delay_ms,
            Backoff::Exponential { cap_ms, .. } | Backoff::Decorrelated { cap_ms, .. } => cap_ms,
        }
    }
}

fn between(least: u64, most: u64, random: u64) -> u32 {
    let span = most.saturating_sub(least) + 1;
    (least + ((u128::from(random) * u128::from(span)) >> 64) as u64) as u32
}

/// SplitMix64 (Steele, Lea, Flood 2014): equally likely bits from any number.
pub(crate) fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
