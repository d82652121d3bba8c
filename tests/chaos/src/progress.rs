//! Counts the successful operations of all clients during a run. The run compares these counts over time, to check that
//! the clients make progress.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::locks::LOCK_COUNT;

/// The progress of all clients: how many changes of keys were acknowledged, and how often locks changed their holders.
#[derive(Debug, Default)]
pub struct ClientProgress {
    changes: AtomicU64,
    /// For each lock, how often it has changed its holder.
    holder_changes: [AtomicU64; LOCK_COUNT as usize],
}

/// The counts of a [`ClientProgress`] at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressCounts {
    /// The number of acknowledged changes of keys.
    pub changes: u64,
    /// How often each lock has changed its holder at least.
    pub holder_changes: u64,
}

impl ClientProgress {
    /// Counts an acknowledged change of a key.
    pub fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a new holder of a lock.
    pub fn count_holder_change(&self, lock: u64) {
        self.holder_changes[lock as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current counts.
    pub fn counts(&self) -> ProgressCounts {
        let changes = self.changes.load(Ordering::Relaxed);
        let holder_changes =
            self.holder_changes.iter().map(|holder_changes| holder_changes.load(Ordering::Relaxed));
        ProgressCounts { changes, holder_changes: holder_changes.min().unwrap_or(0) }
    }
}
