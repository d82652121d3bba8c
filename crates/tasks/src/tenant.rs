//! Tenants: their shares, their quotas, their accounts.
//!
//! Shares are those of start-time fair queueing (Goyal, Vin and Cheng 1996): a tenant's tag is the virtual time up to which it was
//! served, each task moves it on by cost ÷ weight, the lowest tag is served next, and who comes back after a pause begins at the
//! virtual time of now. What a task costs is not known when it starts: the tenant is charged what its lane's tasks cost lately,
//! and the difference when it ends.

use std::sync::Arc;

use crate::layout::layout;
use crate::quota::{Amounts, Quota, Used};
use crate::rate::Rate;
use crate::retry::BUDGET_MAX;
use crate::task::List;

/// A tag's unit: a µs of a tenant of weight 1 moves its tag by so much.
const TAG_PER_US: u64 = 10_000;
/// The highest weight.
pub(crate) const WEIGHT_MAX: u32 = 10_000;
/// Retries that a tenant has for nothing, in millionths.
const BUDGET_START: u64 = 10 * BUDGET_MAX as u64;

layout! {
    /// A tenant.
    #[derive(Debug, Clone)]
    pub struct Tenant {
        pub name: Arc<[u8]>,
        pub weight: u32,
        pub queued_max: u64,
        pub retry_percent: u32,
        pub quotas: [Quota; 3],
        pub limits: Arc<Vec<Limited>>,
        /// Up to where it was served.
        pub tag: u64,
        pub used: [Used; 3],
        pub lanes: Vec<u32>,
        pub dead: List,
        /// Tasks that wait, for whatever.
        pub queued: u64,
        /// Of those, the ready ones.
        pub ready: u64,
        /// Retries it may still make, in millionths.
        pub budget: u64,
        pub account: Account,
        pub pace: Pace,
    }
}

layout! {
    /// A limit by a key, kept.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Limited {
        /// A label's key, or `tenant`, `queue` or `kind`.
        pub key: Arc<[u8]>,
        /// How many.
        pub running_max: u32,
        /// How often they start.
        pub rate: Option<Rate>,
    }
}

layout! {
    /// What a tenant has had since it was made.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Account {
        /// Tasks taken in.
        pub submitted: u64,
        /// Attempts begun.
        pub started: u64,
        /// Tasks done.
        pub completed: u64,
        /// Attempts that came to nothing, those whose worker died not among them.
        pub failed: u64,
        /// Attempts whose worker died.
        pub lost: u64,
        /// Tasks that became dead letters.
        pub dead: u64,
        /// Tasks cancelled.
        pub cancelled: u64,
        /// Time of a processor.
        pub cpu_us: u64,
        /// Time that tasks ran.
        pub run_us: u64,
        /// Bytes of memory, in MB × ms.
        pub memory_mb_ms: u64,
        /// What it was charged for: of each attempt the longer of its run and its processor time.
        pub cost_us: u64,
        /// What the tasks that were submitted are expected to cost, each as its lane's did when it came.
        pub asked_us: u64,
    }
}

layout! {
    /// How many tasks start in a second, by the last ten or so.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Pace {
        pub window_ms: u64,
        pub count: u64,
        pub per_1000_s: u64,
    }
}

impl Pace {
    const WINDOW_MS: u64 = 2_000;

    pub(crate) fn count(&mut self, now_ms: u64) {
        self.roll(now_ms);
        self.count += 1;
    }

    fn roll(&mut self, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.window_ms);
        if passed < Pace::WINDOW_MS {
            return;
        }
        let here = self.count.saturating_mul(1_000_000) / passed;
        let is_recent = self.per_1000_s > 0 && passed < 5 * Pace::WINDOW_MS;
        self.per_1000_s = if is_recent { (3 * self.per_1000_s + here) / 4 } else { here };
        (self.window_ms, self.count) = (now_ms, 0);
    }

    /// Starts in a thousand seconds, as far as is known.
    pub(crate) fn per_1000_s(&self, now_ms: u64) -> u64 {
        let mut pace = *self;
        pace.roll(now_ms);
        pace.per_1000_s
    }
}

impl Tenant {
    pub(crate) fn new(name: Arc<[u8]>) -> Tenant {
        Tenant {
            name,
            weight: 1,
            queued_max: 0,
            retry_percent: 0,
            quotas: [Quota::default(); 3],
            limits: Arc::default(),
            tag: 0,
            used: [Used::default(); 3],
            lanes: Vec::new(),
            dead: List::default(),
            queued: 0,
            ready: 0,
            budget: BUDGET_START,
            account: Account::default(),
            pace: Pace::default(),
        }
    }

    /// What a cost moves its tag by.
    pub(crate) fn share(&self, cost_us: u64) -> u64 {
        (cost_us.saturating_mul(TAG_PER_US) / u64::from(self.weight)).max(1)
    }

    /// The tier in which it may have so much more; none if its quotas do not allow it.
    pub(crate) fn tier(&self, need: &Amounts) -> Option<u8> {
        let mut parts = self.quotas.iter().zip(&self.used).zip(need);
        if !parts.clone().all(|((quota, used), &need)| used.allows(quota, need)) {
            return None;
        }
        if self.is_reserved(need) {
            return Some(0);
        }
        let is_over =
            parts.any(|((quota, used), &need)| quota.soft > 0 && used.now.saturating_add(need) > quota.soft);
        Some(if is_over { 2 } else { 1 })
    }

    /// Whether so much more is within what is kept free for it.
    fn is_reserved(&self, need: &Amounts) -> bool {
        let mut parts =
            self.quotas.iter().zip(&self.used).zip(need).filter(|((quota, _), _)| quota.reserved > 0);
        parts.clone().next().is_some()
            && parts.all(|((quota, used), &need)| used.now.saturating_add(need) <= quota.reserved)
    }

    /// What of its reserve it does not use.
    pub(crate) fn kept_free(&self) -> Amounts {
        std::array::from_fn(|at| self.quotas[at].reserved.saturating_sub(self.used[at].now))
    }

    /// A first start adds to what may be retried; a retry takes from it, and is not given if there is nothing.
    pub(crate) fn earn_retry(&mut self) {
        let more = u64::from(self.retry_percent) * u64::from(BUDGET_MAX) / 100;
        self.budget = self.budget.saturating_add(more).min(BUDGET_START.saturating_add(more * 1_000));
    }

    pub(crate) fn spend_retry(&mut self) -> bool {
        if self.retry_percent == 0 {
            return true;
        }
        let is_there = self.budget >= u64::from(BUDGET_MAX);
        self.budget -= if is_there { u64::from(BUDGET_MAX) } else { 0 };
        is_there
    }
}
