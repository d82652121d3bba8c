//! Remembers which records the connection itself published, because clients that set `"echo": false` do not receive
//! them.
//!
//! Limit: `own_ranges_max` ranges of sequence numbers for each log. If a client is so far behind that more ranges must
//! be kept, it is disconnected.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use dunlin::topic::Log;

/// If a log has more ranges than this, those that all channels have passed are dropped.
const RANGES_KEPT: usize = 64;

/// The records that the connection itself published, in each log that it also reads.
#[derive(Debug, Default)]
pub(super) struct OwnRecords(HashMap<usize, OwnLogRecords>);

/// The records of one log that the connection itself published, and the channels that read this log.
#[derive(Debug, Default)]
struct OwnLogRecords {
    ranges: SeqRanges,
    channels: BTreeSet<u32>,
}

/// Ranges of sequence numbers, in ascending order, each with its first and last number.
#[derive(Debug, Default)]
struct SeqRanges(VecDeque<(u64, u64)>);

impl OwnRecords {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins to remember the connection's own records in the log, because this channel must skip them.
    pub(super) fn add_channel(&mut self, log: &Arc<Log>, channel: u32) {
        self.0.entry(key(log)).or_default().channels.insert(channel);
    }

    pub(super) fn remove_channel(&mut self, log: &Arc<Log>, channel: u32) {
        if let Some(log_records) = self.0.get_mut(&key(log)) {
            log_records.channels.remove(&channel);
            if log_records.channels.is_empty() {
                self.0.remove(&key(log));
            }
        }
    }

    /// Adds records that the connection published. `next_of` returns the sequence number that a channel reads next.
    /// Returns the number of ranges that are kept for the log.
    pub(super) fn add(
        &mut self,
        log: &Arc<Log>,
        seqs: RangeInclusive<u64>,
        next_of: impl Fn(u32) -> Option<u64>,
    ) -> usize {
        let Some(OwnLogRecords { ranges, channels }) = self.0.get_mut(&key(log)) else { return 0 };
        let count = ranges.add(seqs);
        if count > RANGES_KEPT {
            ranges.remove_before(
                channels.iter().filter_map(|number| next_of(*number)).min().unwrap_or(u64::MAX),
            );
        }
        ranges.0.len()
    }

    /// Whether the connection itself published the record.
    pub(super) fn contains(&self, log: &Arc<Log>, seq: u64) -> bool {
        self.0.get(&key(log)).is_some_and(|log_records| log_records.ranges.contains(seq))
    }
}

/// The key of a log: its address in memory, which does not change while a channel reads the log.
fn key(log: &Arc<Log>) -> usize {
    Arc::as_ptr(log) as usize
}

impl SeqRanges {
    fn add(&mut self, seqs: RangeInclusive<u64>) -> usize {
        let (first, last) = seqs.into_inner();
        match self.0.back_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => self.0.push_back((first, last)),
        }
        self.0.len()
    }

    fn contains(&self, seq: u64) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= seq);
        after.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|(_, last)| seq <= *last)
    }

    fn remove_before(&mut self, next: u64) {
        while self.0.front().is_some_and(|(_, last)| *last < next) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_sequence_ranges_merge_and_old_ranges_are_dropped() {
        let mut own = SeqRanges::default();
        assert_eq!((own.add(3..=5), own.add(6..=6), own.add(9..=9)), (1, 1, 2));
        assert_eq!((2..=10).filter(|seq| own.contains(*seq)).collect::<Vec<_>>(), [3, 4, 5, 6, 9]);
        own.remove_before(7);
        assert_eq!(own.0.len(), 1);
        own.remove_before(10);
        assert!(own.0.is_empty());
    }
}
