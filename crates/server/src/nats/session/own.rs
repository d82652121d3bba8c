//! Remembers which records the connection itself published, because clients that set `"echo": false` do not receive
//! them.
//!
//! The position of a record that was forwarded to the topic's owner is known once the owner has responded. The record
//! itself may arrive here before the response. Until the response, channels deliver no record that may be the forwarded
//! one. Channels of reliable topics do not wait, because the owner may wait for them before it appends the record.
//! Channels that read a private mirror do not wait either.
//!
//! Limit: `own_ranges_max` ranges of sequence numbers for each log. If a client is so far behind that more ranges must
//! be kept, it is disconnected.

use std::collections::{BTreeSet, HashMap, VecDeque};

use dunlin::topic::{Log, Position};

/// If a log has more ranges than this, those that all channels have passed are dropped.
const RANGES_KEPT: usize = 64;

/// The records that the connection itself published, in each log that it also reads. The key is the log's number, which
/// the private mirrors of a log share.
#[derive(Debug, Default)]
pub(super) struct OwnRecords(HashMap<u64, OwnLogRecords>);

/// The records of one log that the connection itself published, and the channels that read this log.
#[derive(Debug, Default)]
struct OwnLogRecords {
    ranges: SeqRanges,
    channels: BTreeSet<u32>,
    /// Number of batches that were forwarded to the log's owner and have no outcome yet.
    forwarded: usize,
    /// Position of the last record in the newest forwarded batch that the owner has appended. All batches without an
    /// outcome come after this position.
    known_through: Position,
    /// Channels that wait for the outcome of a forwarded batch.
    held: BTreeSet<u32>,
}

/// Ranges of records, in ascending order, each with its first position and its last sequence number.
#[derive(Debug, Default)]
struct SeqRanges(VecDeque<(Position, u64)>);

impl OwnRecords {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins to remember the connection's own records in the log, because this channel must skip them. `forwarded` is
    /// the number of the log's batches that were forwarded and have no outcome yet.
    pub(super) fn add_channel(&mut self, log: &Log, channel: u32, forwarded: usize) {
        let log_records = self.0.entry(log.number()).or_default();
        log_records.forwarded = forwarded;
        log_records.channels.insert(channel);
    }

    pub(super) fn remove_channel(&mut self, log: &Log, channel: u32) {
        if let Some(log_records) = self.0.get_mut(&log.number()) {
            log_records.channels.remove(&channel);
            log_records.held.remove(&channel);
            if log_records.channels.is_empty() {
                self.0.remove(&log.number());
            }
        }
    }

    /// Adds `count` records that the connection published, the last of them at `last`. `next_of` returns the position
    /// that a channel reads next. Returns the number of ranges that are kept for the log.
    pub(super) fn add(
        &mut self,
        log: &Log,
        last: Position,
        count: usize,
        next_of: impl Fn(u32) -> Option<Position>,
    ) -> usize {
        let Some(OwnLogRecords { ranges, channels, .. }) = self.0.get_mut(&log.number()) else { return 0 };
        let first = Position { seq: last.seq + 1 - count as u64, ..last };
        if ranges.add(first, last.seq) > RANGES_KEPT
            && let Some(next) = channels.iter().filter_map(|number| next_of(*number)).min()
        {
            ranges.remove_before(next);
        }
        ranges.0.len()
    }

    /// Counts a batch that was forwarded to the log's owner. Returns false if no channel must skip the connection's own
    /// records in the log.
    pub(super) fn begin_forwarding(&mut self, log: &Log) -> bool {
        let Some(log_records) = self.0.get_mut(&log.number()) else { return false };
        log_records.forwarded += 1;
        true
    }

    /// Counts the outcome of the log's oldest forwarded batch. `last` is the batch's last record; `None` if the batch
    /// was refused, or if its outcome is unknown. Returns the channels that have waited for an outcome.
    pub(super) fn end_forwarding(&mut self, log: &Log, last: Option<Position>) -> BTreeSet<u32> {
        let Some(log_records) = self.0.get_mut(&log.number()) else { return BTreeSet::new() };
        log_records.forwarded = log_records.forwarded.saturating_sub(1);
        log_records.known_through = log_records.known_through.max(last.unwrap_or_default());
        std::mem::take(&mut log_records.held)
    }

    /// Up to this position, the session knows for each record of the log whether the connection itself published the
    /// record. `None` if the session knows this for all records.
    pub(super) fn known_through(&self, log: &Log) -> Option<Position> {
        let log_records = self.0.get(&log.number()).filter(|log_records| log_records.forwarded > 0)?;
        Some(log_records.known_through)
    }

    /// Lets the channel wait for the outcome of a forwarded batch of this log.
    pub(super) fn hold(&mut self, log: &Log, channel: u32) {
        if let Some(log_records) = self.0.get_mut(&log.number()) {
            log_records.held.insert(channel);
        }
    }

    /// The channels that wait for the outcomes of forwarded batches.
    pub(super) fn held_channels(&self) -> impl Iterator<Item = &u32> {
        self.0.values().flat_map(|log_records| &log_records.held)
    }

    /// Whether the connection itself published the record.
    pub(super) fn contains(&self, log: &Log, at: Position) -> bool {
        self.0.get(&log.number()).is_some_and(|log_records| log_records.ranges.contains(at))
    }
}

impl SeqRanges {
    /// Adds a range. The ranges may be added in another order than that of their positions. Returns the number of
    /// ranges.
    fn add(&mut self, first: Position, last_seq: u64) -> usize {
        let at = self.0.partition_point(|(start, _)| *start < first);
        match at.checked_sub(1).and_then(|before| self.0.get_mut(before)) {
            Some((start, end)) if start.epoch == first.epoch && *end + 1 == first.seq => *end = last_seq,
            _ => self.0.insert(at, (first, last_seq)),
        }
        self.0.len()
    }

    fn contains(&self, at: Position) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= at);
        let range = after.checked_sub(1).and_then(|before| self.0.get(before));
        range.is_some_and(|(first, last_seq)| first.epoch == at.epoch && at.seq <= *last_seq)
    }

    fn remove_before(&mut self, next: Position) {
        while self.0.front().is_some_and(|(first, last_seq)| Position { seq: *last_seq, ..*first } < next) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u32, seq: u64) -> Position {
        Position { epoch, seq }
    }

    #[test]
    fn adjacent_sequence_ranges_merge_and_old_ranges_are_dropped() {
        let mut own = SeqRanges::default();
        assert_eq!((own.add(at(1, 9), 9), own.add(at(1, 3), 5), own.add(at(1, 6), 6)), (1, 2, 2));
        assert_eq!((2..=10).filter(|seq| own.contains(at(1, *seq))).collect::<Vec<_>>(), [3, 4, 5, 6, 9]);
        own.remove_before(at(1, 7));
        assert_eq!(own.0.len(), 1);
        own.remove_before(at(1, 10));
        assert!(own.0.is_empty());
    }

    #[test]
    fn sequence_ranges_of_different_epochs_are_kept_apart() {
        let mut own = SeqRanges::default();
        assert_eq!((own.add(at(1, 1), 5), own.add(at(2, 6), 6)), (1, 2));
        assert!(own.contains(at(1, 5)) && own.contains(at(2, 6)));
        assert!(!own.contains(at(2, 5)) && !own.contains(at(1, 6)));
    }
}
