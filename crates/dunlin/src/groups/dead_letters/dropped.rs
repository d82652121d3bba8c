//! Counts the dead letters that groups could not store and have dropped, and collects reports about them for the
//! operator's log.
//!
//! Limit: at most [`REPORTS_MAX`] groups have a report. The dropped letters of further groups are only counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of reports that wait to be taken, one for each group.
const REPORTS_MAX: usize = 64;

/// A report about the dead letters that one group could not store and has dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedDeadLetters {
    /// The topic of the group.
    pub topic: String,
    /// The group's name.
    pub group: String,
    /// The number of dropped dead letters.
    pub count: u64,
    /// The reason why the last of these letters was dropped.
    pub why: String,
}

/// The count and the reports of the dead letters that all groups of a node have dropped.
#[derive(Debug, Default)]
pub(in crate::groups) struct DroppedLetters {
    count: AtomicU64,
    reports: Mutex<Vec<DroppedDeadLetters>>,
}

impl DroppedLetters {
    pub(in crate::groups) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(in crate::groups) fn add(&self, dropped: DroppedDeadLetters) {
        self.count.fetch_add(dropped.count, Ordering::Relaxed);
        let mut reports = self.reports();
        let same_group =
            |other: &DroppedDeadLetters| (&other.topic, &other.group) == (&dropped.topic, &dropped.group);
        match reports.iter().position(same_group) {
            Some(at) => {
                reports[at].count += dropped.count;
                reports[at].why = dropped.why;
            }
            None if reports.len() < REPORTS_MAX => reports.push(dropped),
            None => {}
        }
    }

    pub(in crate::groups) fn take(&self) -> Vec<DroppedDeadLetters> {
        std::mem::take(&mut *self.reports())
    }

    fn reports(&self) -> MutexGuard<'_, Vec<DroppedDeadLetters>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_dead_letters_are_counted_even_if_not_reported() {
        let letters = DroppedLetters::default();
        let dropped = |group: usize, why: &str| DroppedDeadLetters {
            topic: "jobs".to_owned(),
            group: group.to_string(),
            count: 2,
            why: why.to_owned(),
        };
        (0..=REPORTS_MAX).for_each(|group| letters.add(dropped(group, "first")));
        letters.add(dropped(0, "second"));
        let reports = letters.take();
        assert_eq!((letters.count(), reports.len()), (2 * REPORTS_MAX as u64 + 4, REPORTS_MAX));
        assert_eq!(reports[0], DroppedDeadLetters { count: 4, ..dropped(0, "second") });
        assert!(letters.take().is_empty());
    }
}
