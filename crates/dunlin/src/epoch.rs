//! Numbers for epochs that were never used before.
//!
//! An epoch is the time of its beginning in units of 100 ms since 2025-01-01, which lasts until 2038.
//! Within one node it is also higher than that of any topic deleted before. A node killed and started
//! anew within the same 100 ms would use an epoch twice, and readers would take its records for those of the
//! node before: so doors let nobody in before the first epoch's time has come ([`Epochs::wait_ns`]).

use std::sync::atomic::{AtomicU32, Ordering};

const BEGIN_NS: u64 = 1_735_689_600_000_000_000;
const UNIT_NS: u64 = 100_000_000;

/// Gives out the epochs of one node.
#[derive(Debug)]
pub(crate) struct Epochs {
    lowest: AtomicU32,
}

impl Epochs {
    /// For a node that starts now: later than any epoch of a node before it.
    pub(crate) fn new(now_ns: u64) -> Epochs {
        Epochs { lowest: AtomicU32::new(units(now_ns) + 1) }
    }

    /// How long it is until a node that starts then has higher epochs.
    pub(crate) fn wait_ns(&self, now_ns: u64) -> u64 {
        let first = u64::from(self.lowest.load(Ordering::Relaxed));
        // A clock that was set back since, or one before 2025, says nothing of when it will be.
        BEGIN_NS.saturating_add(first * UNIT_NS).saturating_sub(now_ns).min(UNIT_NS)
    }

    /// The epoch of a topic that is created now.
    pub(crate) fn next(&self, now_ns: u64) -> u32 {
        self.lowest.load(Ordering::Relaxed).max(units(now_ns))
    }

    /// A topic of this epoch was deleted.
    pub(crate) fn used(&self, epoch: u32) {
        self.lowest.fetch_max(epoch.saturating_add(1), Ordering::Relaxed);
    }
}

fn units(now_ns: u64) -> u32 {
    u32::try_from(now_ns.saturating_sub(BEGIN_NS) / UNIT_NS).unwrap_or(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_deleted_and_created_at_once_begins_a_higher_epoch() {
        let now_ns = BEGIN_NS + 77 * UNIT_NS;
        let epochs = Epochs::new(now_ns);
        let first = epochs.next(now_ns);
        epochs.used(first);
        assert!(epochs.next(now_ns) > first);
    }

    #[test]
    fn a_node_started_after_the_wait_has_higher_epochs() {
        for started_ns in [BEGIN_NS, BEGIN_NS + 77 * UNIT_NS + 1, BEGIN_NS + 78 * UNIT_NS - 1] {
            let first = Epochs::new(started_ns);
            let wait_ns = first.wait_ns(started_ns);
            assert!(wait_ns <= UNIT_NS);
            let open_ns = started_ns + wait_ns;
            assert_eq!(first.wait_ns(open_ns), 0);
            assert!(Epochs::new(open_ns).next(open_ns) > first.next(open_ns));
        }
    }

    #[test]
    fn a_clock_before_2025_still_gives_an_epoch() {
        assert_eq!(Epochs::new(0).next(0), 1);
    }
}
