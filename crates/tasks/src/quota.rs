//! Quotas: bounds on how much of a resource a tenant uses at the same time.
//!
//! A quota has four amounts. `reserved` is kept free for the tenant. A tenant that uses less than its `soft` amount
//! comes before tenants that use more than their own `soft` amounts. `hard` is the maximum. `burst` is the amount by
//! which the tenant may exceed `hard` for a limited time. The tenant saves up this time while it uses less than `hard`,
//! up to a minute.

use crate::layout::layout;

/// How long a full burst lasts, ms.
pub(crate) const BURST_MS: u64 = 60_000;
/// The largest amount that a reserved quota keeps free. A million tenants together then reserve less than 2^63.
const RESERVED_MAX: u64 = 1 << 43;

layout! {
    /// A tenant's quota of one resource: the reserved amount, the soft and hard limits, and the burst. For `reserved`
    /// and `burst`, 0 means no amount. For `soft` and `hard`, 0 means no limit.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Quota {
        /// Amount that is kept free.
        pub reserved: u64,
        /// Amount beyond which other tenants come first.
        pub soft: u64,
        /// Amount beyond which no task starts, except for a burst.
        pub hard: u64,
        /// Additional amount beyond `hard` that may be used for a limited time.
        pub burst: u64,
    }
}

impl Quota {
    /// Creates a quota whose maximum is `hard`.
    pub fn at_most(hard: u64) -> Quota {
        Quota { hard, ..Quota::default() }
    }

    /// Whether `reserved` ≤ `soft` ≤ `hard`, for the parts that are set.
    pub(crate) fn is_ordered(&self) -> bool {
        let soft = if self.soft == 0 { self.hard } else { self.soft };
        (self.soft == 0 || self.reserved <= self.soft)
            && (self.hard == 0 || self.reserved <= self.hard && soft <= self.hard)
            && (self.hard > 0 || self.burst == 0)
    }

    /// The reserved amount, limited to [`RESERVED_MAX`], including the part that the tenant already uses.
    pub(crate) fn reserved_amount(&self) -> u64 {
        self.reserved.min(RESERVED_MAX)
    }

    /// The highest amount that may ever be used; `None` without a limit.
    pub fn most(&self) -> Option<u64> {
        (self.hard > 0).then(|| self.hard.saturating_add(self.burst))
    }
}

/// Needs of a task, or use of a tenant: tasks, thousandths of a processor, bytes of memory.
pub(crate) type Amounts = [u64; 3];

layout! {
    /// The amount of a resource that a tenant uses, and the burst that it has saved.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ResourceUse {
        /// Present use.
        pub now: u64,
        /// Saved burst: how much the tenant may use beyond `hard`, as amount × ms.
        pub saved: u64,
        /// Time of the last update.
        pub at_ms: u64,
    }
}

impl ResourceUse {
    /// Updates the saved burst up to now. Must be called before each change of `now`.
    pub(crate) fn settle(&mut self, quota: &Quota, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.at_ms);
        self.at_ms = now_ms;
        if quota.burst == 0 {
            self.saved = 0;
        } else if self.now > quota.hard {
            self.saved = self.saved.saturating_sub((self.now - quota.hard).saturating_mul(elapsed_ms));
        } else {
            let unused = (quota.hard - self.now).saturating_mul(elapsed_ms);
            self.saved = self.saved.saturating_add(unused).min(quota.burst.saturating_mul(BURST_MS));
        }
    }

    /// Whether the tenant may use `need` more. The saved burst counts as it was at the last
    /// [`settle`](ResourceUse::settle), even if the tenant has used it up since.
    pub(crate) fn allows(&self, quota: &Quota, need: u64) -> bool {
        let after = self.now.saturating_add(need);
        need == 0
            || quota.hard == 0
            || after <= quota.hard
            || self.saved > 0 && after <= quota.hard.saturating_add(quota.burst)
    }
}
