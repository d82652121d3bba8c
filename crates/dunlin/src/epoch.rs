//! Assigns to topics epoch numbers that were never used before.
//!
//! The number of an epoch is the time at which it began, in units of 100 ms since 2025-01-01; the numbers last until
//! 2038. One case differs: if a topic is deleted and created again within the same 100 ms, the new epoch's number is 1
//! above the last one, and so above the clock's number. Other topics must not get such numbers: after a restart, the
//! node could assign lower numbers, and subscribers would discard the new records as old. If a node restarted within
//! the same 100 ms, it could use an epoch twice. Listeners therefore accept no connection before the first epoch's time
//! ([`Epochs::wait_ns`]).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const BEGIN_NS: u64 = 1_735_689_600_000_000_000;
const UNIT_NS: u64 = 100_000_000;

/// Assigns the epochs of one node.
#[derive(Debug)]
pub(crate) struct Epochs {
    lowest: u32,
    deleted: Mutex<DeletedNames>,
}

/// The names of deleted topics whose last epoch has not passed yet by the clock.
#[derive(Debug, Default)]
struct DeletedNames {
    /// By the topic's name, the lowest epoch that a new topic of this name may have.
    next: HashMap<String, u32>,
    /// The epoch, by the clock, at which past entries were last removed.
    pruned_at: u32,
}

impl Epochs {
    /// Creates the source of a node's epochs. These epochs are later than the epochs of every node that was started
    /// before `now_ns`.
    pub(crate) fn new(now_ns: u64) -> Epochs {
        Epochs { lowest: units_since_begin(now_ns) + 1, deleted: Mutex::default() }
    }

    /// How long this node has to wait, in ns. A node that is started after this wait begins only epochs above this
    /// node's first epoch.
    pub(crate) fn wait_ns(&self, now_ns: u64) -> u64 {
        let first = u64::from(self.lowest);
        // If the clock was set back or shows a time before 2025, the difference may be huge. The wait is therefore
        // limited to 100 ms.
        BEGIN_NS.saturating_add(first * UNIT_NS).saturating_sub(now_ns).min(UNIT_NS)
    }

    /// The time from `now_ns` until the clock reaches `epoch`, a result of [`next`](Epochs::next), in ns; at most 100
    /// ms.
    pub(crate) fn ahead_ns(epoch: u32, now_ns: u64) -> u64 {
        BEGIN_NS.saturating_add(u64::from(epoch) * UNIT_NS).saturating_sub(now_ns).min(UNIT_NS)
    }

    /// The epoch of a topic that is created with this name at this time.
    pub(crate) fn next(&self, name: &str, now_ns: u64) -> u32 {
        let after_last = self.deleted().next.get(name).copied().unwrap_or(0);
        self.clock_epoch(now_ns).max(after_last)
    }

    /// Returns the epoch of a topic that has no records at this node. `agreed` is the epoch on which the cluster has
    /// agreed for the topic. If the cluster agreed on `agreed` before this node's start, the node may have lost records
    /// of this epoch or of later epochs. In this case, the result is a new epoch.
    pub(crate) fn epoch_after_start(&self, name: &str, agreed: u32, now_ns: u64) -> u32 {
        if agreed < self.lowest { self.next(name, now_ns).max(agreed.saturating_add(1)) } else { agreed }
    }

    pub(crate) fn record_deleted(&self, name: &str, epoch: u32, now_ns: u64) {
        let now = self.clock_epoch(now_ns);
        let mut deleted = self.deleted();
        if deleted.pruned_at != now {
            deleted.pruned_at = now;
            deleted.next.retain(|_, next| *next > now);
        }
        if epoch >= now {
            deleted.next.insert(name.to_owned(), epoch.saturating_add(1));
        }
    }

    fn clock_epoch(&self, now_ns: u64) -> u32 {
        self.lowest.max(units_since_begin(now_ns))
    }

    fn deleted(&self) -> MutexGuard<'_, DeletedNames> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn units_since_begin(now_ns: u64) -> u32 {
    u32::try_from(now_ns.saturating_sub(BEGIN_NS) / UNIT_NS).unwrap_or(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recreated_topic_begins_a_higher_epoch() {
        let now_ns = BEGIN_NS + 77 * UNIT_NS;
        let epochs = Epochs::new(now_ns);
        let first = epochs.next("a", now_ns);
        epochs.record_deleted("a", first, now_ns);
        let second = epochs.next("a", now_ns);
        assert!(second > first);
        epochs.record_deleted("a", second, now_ns + UNIT_NS);
        assert!(epochs.next("a", now_ns + UNIT_NS) > second);
    }

    #[test]
    fn node_start_begins_a_new_epoch_of_a_known_topic() {
        let now_ns = BEGIN_NS + 77 * UNIT_NS;
        let epochs = Epochs::new(now_ns);
        assert_eq!(epochs.epoch_after_start("a", 70, now_ns), 78);
        assert_eq!(epochs.epoch_after_start("a", 70, now_ns + 10 * UNIT_NS), 87);
        assert_eq!(
            epochs.epoch_after_start("a", 78, now_ns + 10 * UNIT_NS),
            78,
            "an epoch agreed on since the start"
        );
    }

    #[test]
    fn restart_raises_epochs_even_after_many_inboxes_were_deleted() {
        let now_ns = BEGIN_NS + 77 * UNIT_NS;
        let epochs = Epochs::new(now_ns);
        for inbox in 0..1000 {
            let name = format!("_INBOX.{inbox}");
            epochs.record_deleted(&name, epochs.next(&name, now_ns), now_ns);
        }
        let later_ns = now_ns + 2 * UNIT_NS;
        assert!(
            epochs.next("a", now_ns) < Epochs::new(later_ns).next("a", later_ns),
            "a node started later is ahead"
        );
        epochs.record_deleted("b", 1, later_ns);
        assert!(epochs.deleted().next.is_empty(), "past entries are removed");
    }

    #[test]
    fn node_waits_at_start_so_that_a_restart_uses_higher_epochs() {
        for started_ns in [BEGIN_NS, BEGIN_NS + 77 * UNIT_NS + 1, BEGIN_NS + 78 * UNIT_NS - 1] {
            let first = Epochs::new(started_ns);
            let wait_ns = first.wait_ns(started_ns);
            assert!(wait_ns <= UNIT_NS);
            let open_ns = started_ns + wait_ns;
            assert_eq!(first.wait_ns(open_ns), 0);
            assert!(Epochs::new(open_ns).next("a", open_ns) > first.next("a", open_ns));
        }
    }

    #[test]
    fn first_epoch_is_1_if_the_clock_is_before_2025() {
        assert_eq!(Epochs::new(0).next("a", 0), 1);
    }
}
