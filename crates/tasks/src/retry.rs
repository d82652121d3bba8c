//! Retry policies, which decide whether and when a failed task is tried again.
//!
//! A delay is computed from the task's id and the number of the attempt. Every node therefore computes the same delay,
//! but tasks that failed at the same time get different delays.

use crate::layout::{choice, layout};

/// The part of a tenant's retry budget that one retry takes. Budgets count millionths of a retry.
pub(crate) const RETRY_COST: u32 = 1_000_000;

layout! {
    /// The policy for retrying a failed task: the number of attempts, and the pauses between them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct RetryPolicy {
        /// Maximum number of attempts after the first.
        pub retries: u16,
        /// Delays between attempts.
        pub backoff: Backoff,
    }
}

choice! {
    /// The delay before the next attempt of a failed task: constant, or random within bounds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Backoff {
        /// A constant delay.
        Fixed { /// The delay, ms.
            delay_ms: u32 } = 1,
        /// A random delay from 0 to an upper bound, which is `base_ms` and doubles with each further attempt ("full
        /// jitter", Brooker 2015).
        Exponential { /// Upper bound before the first retry, ms.
            base_ms: u32, /// Upper bound of all delays, ms.
            cap_ms: u32 } = 2,
        /// A random delay from `base_ms` to three times the previous delay ("decorrelated jitter", Brooker 2015).
        Decorrelated { /// Shortest delay, ms.
            base_ms: u32, /// Longest delay, ms.
            cap_ms: u32 } = 3,
    }
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy { retries: 3, backoff: Backoff::Exponential { base_ms: 100, cap_ms: 30_000 } }
    }
}

impl RetryPolicy {
    /// Delay before a retry, ms. `attempt` is 1 for the first retry; `last_ms` is the previous delay, or 0 if there was
    /// none.
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

    /// Longest possible delay, ms. A retry waits this long if the tenant's retry budget is too small.
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

/// SplitMix64 (Steele, Lea, Flood 2014): evenly distributed bits from any number.
pub(crate) fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
