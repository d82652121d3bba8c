//! Tenants, with their shares, quotas and totals.
//!
//! Shares follow start-time fair queueing (Goyal, Vin and Cheng 1996). A tenant's tag is the virtual time up to which
//! the tenant was served. Each task of a tenant moves the tenant's tag by the task's cost ÷ the tenant's weight. The
//! tenant with the lowest tag is next. A tenant that returns after a pause starts at the present virtual time. The cost
//! of a task is not known when the task starts. At the start, the tenant is charged the recent cost of tasks in the
//! same lane. At the end, it is charged the difference from the real cost.

use std::sync::Arc;

use crate::layout::layout;
use crate::quota::{Amounts, Quota, ResourceUse};
use crate::rate::Rate;
use crate::retry::RETRY_COST;
use crate::task::TaskList;

/// Amount by which one µs of cost moves the tag of a tenant with weight 1.
const TAG_PER_US: u64 = 10_000;
/// The highest weight.
pub(crate) const WEIGHT_MAX: u32 = 10_000;
/// Retry budget of a new tenant, in millionths of a retry.
const BUDGET_START: u64 = 10 * RETRY_COST as u64;

layout! {
    /// The stored state of a tenant: its settings, its tasks and the resources that they use.
    #[derive(Debug, Clone)]
    pub struct Tenant {
        pub name: Arc<[u8]>,
        pub weight: u32,
        pub queued_max: u64,
        pub retry_percent: u32,
        pub quotas: [Quota; 3],
        pub limits: Arc<Vec<StoredKeyLimit>>,
        /// Virtual time up to which the tenant was served.
        pub tag: u64,
        pub used: [ResourceUse; 3],
        pub lanes: Vec<u32>,
        pub dead: TaskList,
        /// Number of waiting tasks, ready or not.
        pub queued: u64,
        /// Number of waiting tasks that are ready.
        pub ready: u64,
        /// Remaining retries, in millionths.
        pub budget: u64,
        pub account: TenantTotals,
        pub start_rate: StartRate,
    }
}

layout! {
    /// The stored form of a tenant's limit for tasks with equal values of a key.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StoredKeyLimit {
        /// Key of a label, or `tenant`, `queue` or `kind`.
        pub key: Arc<[u8]>,
        /// Maximum number of tasks that run at the same time.
        pub running_max: u32,
        /// Highest rate of starts.
        pub rate: Option<Rate>,
    }
}

layout! {
    /// The numbers of a tenant's tasks and attempts since the tenant's creation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct TenantTotals {
        /// Number of submitted tasks.
        pub submitted: u64,
        /// Number of started attempts.
        pub started: u64,
        /// Number of completed tasks.
        pub completed: u64,
        /// Number of failed attempts, not counting attempts whose worker died.
        pub failed: u64,
        /// Number of attempts whose worker died.
        pub lost: u64,
        /// Number of tasks that became dead letters.
        pub dead: u64,
        /// Number of cancelled tasks.
        pub cancelled: u64,
        /// Processor time, µs.
        pub cpu_us: u64,
        /// Run time of tasks, µs.
        pub run_us: u64,
        /// Memory over time, MB × ms.
        pub memory_mb_ms: u64,
        /// Charged time, µs: for each attempt the longer of run time and processor time.
        pub cost_us: u64,
        /// Expected cost of all submitted tasks, µs: for each task, the recent cost in its lane at the time of
        /// submission.
        pub expected_us: u64,
    }
}

layout! {
    /// The rate at which a tenant's tasks have started recently.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct StartRate {
        pub window_ms: u64,
        pub count: u64,
        pub per_1000_s: u64,
    }
}

impl StartRate {
    const WINDOW_MS: u64 = 2_000;

    pub(crate) fn count(&mut self, now_ms: u64) {
        self.update(now_ms);
        self.count += 1;
    }

    fn update(&mut self, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.window_ms);
        if elapsed_ms < StartRate::WINDOW_MS {
            return;
        }
        let rate = self.count.saturating_mul(1_000_000) / elapsed_ms;
        let is_recent = self.per_1000_s > 0 && elapsed_ms < 5 * StartRate::WINDOW_MS;
        self.per_1000_s = if is_recent { (3 * self.per_1000_s + rate) / 4 } else { rate };
        (self.window_ms, self.count) = (now_ms, 0);
    }

    /// Number of starts in a thousand seconds, estimated from recent starts.
    pub(crate) fn per_1000_s(&self, now_ms: u64) -> u64 {
        let mut start_rate = *self;
        start_rate.update(now_ms);
        start_rate.per_1000_s
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
            used: [ResourceUse::default(); 3],
            lanes: Vec::new(),
            dead: TaskList::default(),
            queued: 0,
            ready: 0,
            budget: BUDGET_START,
            account: TenantTotals::default(),
            start_rate: StartRate::default(),
        }
    }

    /// Amount by which this cost moves the tenant's tag.
    pub(crate) fn share(&self, cost_us: u64) -> u64 {
        (cost_us.saturating_mul(TAG_PER_US) / u64::from(self.weight)).max(1)
    }

    /// The tier to which the tenant would belong if it used `need` in addition to its present use. `None` if the
    /// tenant's quotas do not allow this use.
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

    /// Whether the tenant's use plus `need` is within the tenant's reserved quota.
    fn is_reserved(&self, need: &Amounts) -> bool {
        let mut parts =
            self.quotas.iter().zip(&self.used).zip(need).filter(|((quota, _), _)| quota.reserved > 0);
        parts.clone().next().is_some()
            && parts.all(|((quota, used), &need)| used.now.saturating_add(need) <= quota.reserved)
    }

    /// The part of the tenant's reserved quota that the tenant does not use.
    pub(crate) fn unused_reserve(&self) -> Amounts {
        std::array::from_fn(|at| self.quotas[at].reserved_amount().saturating_sub(self.used[at].now))
    }

    /// Adds to the retry budget when a task starts for the first time; each retry takes from the budget.
    pub(crate) fn add_retry_budget(&mut self) {
        let more = u64::from(self.retry_percent) * u64::from(RETRY_COST) / 100;
        self.budget = self.budget.saturating_add(more).min(BUDGET_START.saturating_add(more * 1_000));
    }

    pub(crate) fn spend_retry(&mut self) -> bool {
        if self.retry_percent == 0 {
            return true;
        }
        let has_budget = self.budget >= u64::from(RETRY_COST);
        self.budget -= if has_budget { u64::from(RETRY_COST) } else { 0 };
        has_budget
    }
}
