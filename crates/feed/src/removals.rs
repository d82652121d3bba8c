//! Recent removals, for subscribers that request changes.

use std::collections::VecDeque;

/// A bounded list of removals, each with the sequence number of its record, the newest at the back.
#[derive(Debug, Clone)]
pub(crate) struct Removals<T> {
    recent: VecDeque<(u64, T)>,
    /// Removals by records up to this sequence number may be discarded; all removals by later records are known.
    discarded_through: u64,
}

impl<T> Default for Removals<T> {
    fn default() -> Removals<T> {
        Removals { recent: VecDeque::new(), discarded_through: 0 }
    }
}

impl<T> Removals<T> {
    /// Adds a removal, and discards the oldest beyond `max`.
    #[inline]
    pub(crate) fn push(&mut self, seq: u64, removed: T, max: usize) {
        while self.recent.len() >= max.max(1) {
            if let Some((seq, _)) = self.recent.pop_front() {
                self.discarded_through = seq;
            }
        }
        self.recent.push_back((seq, removed));
    }

    /// Discards the removals of all records up to `seq`.
    pub(crate) fn discard_through(&mut self, seq: u64) {
        self.recent.clear();
        self.discarded_through = seq;
    }

    /// All removals of records after `seq`; `None` if some are discarded.
    pub(crate) fn since(&self, seq: u64) -> Option<impl Iterator<Item = &T>> {
        let first = self.recent.partition_point(|(removal_seq, _)| *removal_seq <= seq);
        (seq >= self.discarded_through).then(|| self.recent.range(first..).map(|(_, removed)| removed))
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.recent.capacity() * size_of::<(u64, T)>()) as u64
    }
}
