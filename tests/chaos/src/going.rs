//! Counts what clients achieve during a run, to see whether it makes progress.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::locks::LOCK_COUNT;

/// The counts of all clients.
#[derive(Debug, Default)]
pub struct ClientProgress {
    changes: AtomicU64,
    /// Changes of holder, for each lock.
    hands: [AtomicU64; LOCK_COUNT as usize],
}

/// The counts at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressCounts {
    /// Acknowledged changes of keys.
    pub changes: u64,
    /// The lowest number of holder changes of a lock.
    pub hands: u64,
}

impl ClientProgress {
    /// Counts an acknowledged change.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a new holder of a lock.
    pub fn changed_hands(&self, lock: u64) {
        self.hands[lock as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The current counts.
    pub fn counted(&self) -> ProgressCounts {
        let changes = self.changes.load(Ordering::Relaxed);
        let hands = self.hands.iter().map(|hands| hands.load(Ordering::Relaxed));
        ProgressCounts { changes, hands: hands.min().unwrap_or(0) }
    }
}
