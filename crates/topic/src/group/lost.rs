//! Records that a group has lost and must still report to its members.

use std::collections::VecDeque;

/// A range of records of which a group has lost some or all. The group does not deliver a lost record again.
///
/// If `dropped` plus `unconfirmed` equals the number of records in the range, all records of the range are lost;
/// otherwise, only some are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostRecords {
    /// Sequence number of the first lost record, or of an earlier record.
    pub first: u64,
    /// Sequence number of the last lost record.
    pub last: u64,
    /// Number of records that the log dropped before any member received them.
    pub dropped: u64,
    /// Number of records that were delivered to a member and not confirmed when the member left. It is unknown whether
    /// the member has used them.
    pub unconfirmed: u64,
}

impl LostRecords {
    pub(super) fn dropped(first: u64, last: u64) -> LostRecords {
        LostRecords { first, last, dropped: last - first + 1, unconfirmed: 0 }
    }

    pub(super) fn unconfirmed(first: u64, last: u64) -> LostRecords {
        LostRecords { first, last, dropped: 0, unconfirmed: last - first + 1 }
    }

    /// Number of lost records.
    pub fn records(&self) -> u64 {
        self.dropped + self.unconfirmed
    }

    /// Whether all records of the range are lost.
    pub fn is_exact(&self) -> bool {
        self.records() == self.last - self.first + 1
    }

    /// Whether this range and the next one can be merged without a loss of information.
    fn can_merge_with(&self, next: &LostRecords) -> bool {
        let same_cause =
            (self.dropped == 0) == (next.dropped == 0) && (self.unconfirmed == 0) == (next.unconfirmed == 0);
        self.last + 1 == next.first && same_cause && self.is_exact() && next.is_exact()
    }

    fn merge(&mut self, other: &LostRecords) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.dropped += other.dropped;
        self.unconfirmed += other.unconfirmed;
    }
}

/// A limited number of lost ranges of a group, in the order of their losses. Each has the number of its loss: the
/// losses of a group are numbered.
#[derive(Debug, Default)]
pub(super) struct LostRanges {
    ranges: VecDeque<(u64, LostRecords)>,
}

impl LostRanges {
    /// Adds a range for the loss with this number. If the list is full, or if the merge loses no information, merges
    /// the range with the last range. The merged range keeps the lower of the two numbers.
    pub(super) fn push(&mut self, number: u64, lost: LostRecords, ranges_max: usize) {
        let full = self.ranges.len() >= ranges_max.max(1);
        match self.ranges.back_mut() {
            Some((oldest, last)) if full || last.can_merge_with(&lost) => {
                *oldest = number.min(*oldest);
                last.merge(&lost);
            }
            _ => self.ranges.push_back((number, lost)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<(u64, LostRecords)> {
        self.ranges.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_lost_records_with_the_same_cause_become_one_range() {
        let mut ranges = LostRanges::default();
        let all = [
            LostRecords::dropped(1, 3),
            LostRecords::dropped(4, 4),
            LostRecords::unconfirmed(5, 5),
            LostRecords::dropped(9, 9),
        ];
        all.into_iter().zip(0..).for_each(|(lost, number)| ranges.push(number, lost, 16));
        assert_eq!(ranges.pop(), Some((0, LostRecords::dropped(1, 4))));
        assert_eq!(ranges.pop(), Some((2, LostRecords::unconfirmed(5, 5))));
        assert_eq!(ranges.pop(), Some((3, LostRecords::dropped(9, 9))));
        assert_eq!(ranges.pop(), None);
    }

    #[test]
    fn merged_lost_ranges_keep_the_exact_count_of_lost_records() {
        let mut ranges = LostRanges::default();
        for n in 0..10 {
            ranges.push(n, LostRecords::dropped(10 * n + 1, 10 * n + 2), 2);
        }
        ranges.push(10, LostRecords::unconfirmed(5, 5), 2);
        assert_eq!(ranges.pop(), Some((0, LostRecords::dropped(1, 2))));
        let (number, rest) = ranges.pop().unwrap();
        assert_eq!(number, 1);
        assert_eq!(rest, LostRecords { first: 5, last: 92, dropped: 18, unconfirmed: 1 });
        assert!(!rest.is_exact());
        assert_eq!(ranges.pop(), None);
    }
}
