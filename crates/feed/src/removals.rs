//! Remembers which entries were recently removed from a state, for subscribers that request changes.

use std::collections::VecDeque;

/// A bounded list of removals, the newest at the back. With each removed entry is the sequence number of the record
/// that removed the entry.
#[derive(Debug, Clone)]
pub(crate) struct Removals<T> {
    recent: VecDeque<(u64, T)>,
    /// The list has all removals by records after this sequence number. Earlier removals may be missing.
    discarded_through: u64,
}

impl<T> Default for Removals<T> {
    fn default() -> Removals<T> {
        Removals { recent: VecDeque::new(), discarded_through: 0 }
    }
}

impl<T> Removals<T> {
    /// Adds a removal. If the list already has `max` removals or more, first discards the oldest ones.
    #[inline]
    pub(crate) fn push(&mut self, seq: u64, removed: T, max: usize) {
        while self.recent.len() >= max.max(1) {
            if let Some((seq, _)) = self.recent.pop_front() {
                self.discarded_through = seq;
            }
        }
        self.recent.push_back((seq, removed));
    }

    /// Discards all removals in the list. The caller guarantees that no record after `seq` made any of them.
    pub(crate) fn discard_through(&mut self, seq: u64) {
        self.recent.clear();
        self.discarded_through = seq;
    }

    /// The entries that records after `seq` removed; `None` if some of them are no longer in the list.
    pub(crate) fn since(&self, seq: u64) -> Option<impl Iterator<Item = &T>> {
        let first = self.recent.partition_point(|(removal_seq, _)| *removal_seq <= seq);
        (seq >= self.discarded_through).then(|| self.recent.range(first..).map(|(_, removed)| removed))
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.recent.capacity() * size_of::<(u64, T)>()) as u64
    }
}
