//! Recent removals, for subscribers that request changes.

use std::collections::VecDeque;

/// A bounded list of removals with their records, the newest at the back.
#[derive(Debug, Clone)]
pub(crate) struct Removals<T> {
    lately: VecDeque<(u64, T)>,
    /// Removals by records up to this one may be forgotten; all removals by later records are known.
    forgotten: u64,
}

impl<T> Default for Removals<T> {
    fn default() -> Removals<T> {
        Removals { lately: VecDeque::new(), forgotten: 0 }
    }
}

impl<T> Removals<T> {
    /// Adds a removal, and forgets the oldest beyond `max`.
    #[inline]
    pub(crate) fn push(&mut self, seq: u64, removed: T, max: usize) {
        while self.lately.len() >= max.max(1) {
            if let Some((seq, _)) = self.lately.pop_front() {
                self.forgotten = seq;
            }
        }
        self.lately.push_back((seq, removed));
    }

    /// Forgets the removals of all records up to `seq`.
    pub(crate) fn restart(&mut self, seq: u64) {
        self.lately.clear();
        self.forgotten = seq;
    }

    /// All removals of records after `seq`; `None` if some are forgotten.
    pub(crate) fn since(&self, seq: u64) -> Option<impl Iterator<Item = &T>> {
        let first = self.lately.partition_point(|(removed, _)| *removed <= seq);
        (seq >= self.forgotten).then(|| self.lately.range(first..).map(|(_, removed)| removed))
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.lately.capacity() * size_of::<(u64, T)>()) as u64
    }
}
