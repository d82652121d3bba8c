//! What a tenant may use of something at once.
//!
//! `reserved` is kept free for it, `soft` is given up to before anybody gets more, `hard` is the most; with `burst` it may have that
//! much more, for as long as it saved up by using less than `hard`: a full burst for a minute.

use crate::layout::layout;

/// How long a full burst lasts.
pub(crate) const BURST_MS: u64 = 60_000;

layout! {
    /// Numbers of one resource; 0 is none, of `soft` and `hard` no limit.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Quota {
        /// Kept free.
        pub reserved: u64,
        /// Beyond it others come first.
        pub soft: u64,
        /// Beyond it nothing starts, but for a burst.
        pub hard: u64,
        /// Beyond `hard`, for a while.
        pub burst: u64,
    }
}

impl Quota {
    /// At most so much.
    pub fn at_most(hard: u64) -> Quota {
        Quota { hard, ..Quota::default() }
    }

    /// `reserved` ≤ `soft` ≤ `hard`, as far as there are such.
    pub(crate) fn is_ordered(&self) -> bool {
        let soft = if self.soft == 0 { self.hard } else { self.soft };
        (self.soft == 0 || self.reserved <= self.soft)
            && (self.hard == 0 || self.reserved <= self.hard && soft <= self.hard)
            && (self.hard > 0 || self.burst == 0)
    }

    /// The most that may ever be used; none if there is no limit.
    pub fn most(&self) -> Option<u64> {
        (self.hard > 0).then(|| self.hard.saturating_add(self.burst))
    }
}

/// A task's needs, or a tenant's use: tasks, thousandths of a processor, bytes of memory.
pub(crate) type Amounts = [u64; 3];

layout! {
    /// What a tenant uses of one resource, and what it has saved up.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Used {
        /// Now.
        pub now: u64,
        /// How much × ms beyond `hard` are left.
        pub saved: u64,
        /// When that was counted.
        pub at_ms: u64,
    }
}

impl Used {
    /// Counts what was saved or spent until now; before each change of `now`.
    pub(crate) fn settle(&mut self, quota: &Quota, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.at_ms);
        self.at_ms = now_ms;
        if quota.burst == 0 {
            self.saved = 0;
        } else if self.now > quota.hard {
            self.saved = self.saved.saturating_sub((self.now - quota.hard).saturating_mul(passed));
        } else {
            let more = (quota.hard - self.now).saturating_mul(passed);
            self.saved = self.saved.saturating_add(more).min(quota.burst.saturating_mul(BURST_MS));
        }
    }

    /// Whether so much more may be used; `self` is settled or a burst that has just ended is taken for one that goes on.
    pub(crate) fn allows(&self, quota: &Quota, need: u64) -> bool {
        let after = self.now.saturating_add(need);
        need == 0
            || quota.hard == 0
            || after <= quota.hard
            || self.saved > 0 && after <= quota.hard.saturating_add(quota.burst)
    }
}
