//! What clients get done, counted while they do it: by that is seen whether something goes on.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::locks::LOCK_COUNT;

/// Of all clients together.
#[derive(Debug, Default)]
pub struct Going {
    changes: AtomicU64,
    /// Of each lock.
    hands: [AtomicU64; LOCK_COUNT as usize],
}

/// How much of it there was at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Changes of keys that were acknowledged.
    pub changes: u64,
    /// How often the lock that has changed hands the least has.
    pub hands: u64,
}

impl Going {
    /// A change was acknowledged.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// A lock has another holder.
    pub fn changed_hands(&self, lock: u64) {
        self.hands[lock as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What there was by now.
    pub fn counted(&self) -> Counted {
        let changes = self.changes.load(Ordering::Relaxed);
        let hands = self.hands.iter().map(|hands| hands.load(Ordering::Relaxed));
        Counted { changes, hands: hands.min().unwrap_or(0) }
    }
}
