//! Implements openraft's interface for log storage.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_journal::Position;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use tokio::sync::oneshot;

use super::operation::LogOperation;
use super::room::DiskSpace;
use super::writer::{LogWriter, Purge, Write, WriterCommand};
use crate::frames::EncodedRecords;
use crate::type_config::{LogEntry, LogId, Types, Vote};

/// A Raft group's log on disk. Clones refer to the same log.
#[derive(Debug, Clone)]
pub(crate) struct RaftLog {
    log_index: Arc<Mutex<LogIndex>>,
    writer: Arc<LogWriter>,
    room: DiskSpace,
    /// Maximum size of the entries in one request to another node, bytes. A larger entry is sent alone.
    append_bytes_max: usize,
}

/// The part of the log that is in memory.
#[derive(Debug, Default)]
pub(super) struct LogIndex {
    /// The entries after the last purge; their indices are consecutive.
    pub(super) entries: VecDeque<StoredEntry>,
    pub(super) purged: Option<LogId>,
    pub(super) vote: Option<Vote>,
    /// The position of the journal's next record.
    pub(super) next: Position,
}

/// An entry of the Raft log, with its position in the journal.
#[derive(Debug)]
pub(super) struct StoredEntry {
    pub(super) entry: LogEntry,
    /// The position of the entry's record in the journal.
    pub(super) at: Position,
    /// Sum of the sizes of the commands in this entry and in all earlier entries, bytes. The sum starts at an arbitrary
    /// number, so only the difference between the sums of two entries has a meaning.
    bytes: u64,
}

impl StoredEntry {
    fn index(&self) -> u64 {
        self.entry.log_id.index
    }
}

impl LogIndex {
    pub(super) fn last(&self) -> Option<LogId> {
        self.entries.back().map(|stored| stored.entry.log_id).or(self.purged)
    }

    pub(super) fn push(&mut self, entry: LogEntry, at: Position) {
        let bytes = self.entries.back().map_or(0, |last| last.bytes) + bytes_of(&entry) as u64;
        self.entries.push_back(StoredEntry { entry, at, bytes });
    }

    pub(super) fn truncate(&mut self, last: Option<LogId>) {
        let next = last.map_or(0, |last| last.index + 1);
        let retained = self.entries.partition_point(|stored| stored.index() < next);
        self.entries.truncate(retained);
    }

    pub(super) fn purge(&mut self, last: LogId) {
        let purged_count = self.entries.partition_point(|stored| stored.index() <= last.index);
        self.entries.drain(..purged_count);
        self.purged = Some(last);
    }

    /// The entries in memory whose indices are within the range.
    fn between(&self, range: impl RangeBounds<u64>) -> impl Iterator<Item = &LogEntry> {
        let first = self.entries.front().map_or(0, StoredEntry::index);
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let at = |index: u64| (index.saturating_sub(first) as usize).min(self.entries.len());
        let (from, to) = (at(start), at(end));
        self.entries.range(from..to.max(from)).map(|stored| &stored.entry)
    }
}

impl RaftLog {
    pub(super) fn new(
        log_index: LogIndex,
        writer: LogWriter,
        room: DiskSpace,
        append_bytes_max: usize,
    ) -> RaftLog {
        RaftLog {
            log_index: Arc::new(Mutex::new(log_index)),
            writer: Arc::new(writer),
            room,
            append_bytes_max,
        }
    }

    pub(crate) fn room(&self) -> &DiskSpace {
        &self.room
    }

    /// The last entry that was purged: removed from the log, because a snapshot contains it.
    pub(crate) fn purged(&self) -> Option<LogId> {
        self.log_index().purged
    }

    /// Index of the log's last entry, even if this entry was purged.
    pub(crate) fn last(&self) -> Option<u64> {
        let log_index = self.log_index();
        log_index.entries.back().map(StoredEntry::index).or(log_index.purged.map(|purged| purged.index))
    }

    /// Size of the commands in the entries after `index`, bytes.
    pub(crate) fn bytes_after(&self, index: Option<u64>) -> u64 {
        let log_index = self.log_index();
        let Some(last) = log_index.entries.back() else { return 0 };
        let next = index.map_or(0, |index| index + 1);
        let at = log_index.entries.partition_point(|stored| stored.index() < next);
        let before = match at.checked_sub(1) {
            Some(before) => log_index.entries[before].bytes,
            None => log_index.entries[0].bytes - bytes_of(&log_index.entries[0].entry) as u64,
        };
        last.bytes - before
    }

    /// Index of the last entry that may be purged if more than `bytes` bytes of commands must stay. These are the bytes
    /// of the entries after the purged ones, up to the entry `index`.
    pub(crate) fn last_before(&self, index: u64, bytes: u64) -> Option<u64> {
        let log_index = self.log_index();
        let end = log_index.entries.partition_point(|stored| stored.index() <= index);
        let total = log_index.entries.get(end.checked_sub(1)?)?.bytes;
        let kept_from = log_index.entries.partition_point(|stored| stored.bytes + bytes < total);
        kept_from.min(end).checked_sub(1).map(|at| log_index.entries[at].index())
    }

    fn log_index(&self) -> MutexGuard<'_, LogIndex> {
        self.log_index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes operations to the writer thread. The log stays locked meanwhile, so that the journal gets the operations
    /// in the order in which they change the log.
    fn write(
        &self,
        log_index: &mut LogIndex,
        operations: Vec<LogOperation>,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) {
        let entries_from = match operations.first() {
            Some(LogOperation::Append(first)) => Some(first.log_id.index),
            _ => None,
        };
        log_index.next.seq += operations.len() as u64;
        let (frames, done) = (EncodedRecords::default(), Box::new(done));
        self.writer.send(WriterCommand::Write(Write { operations, frames, entries_from, done }));
    }

    /// Writes an operation, and waits until the operation is on disk.
    async fn write_and_wait(
        &self,
        operation: LogOperation,
        change: impl FnOnce(&mut LogIndex),
    ) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut log_index = self.log_index();
            self.write(&mut log_index, vec![operation], |written| drop(sender.send(written)));
            change(&mut log_index);
        }
        receiver.await.unwrap_or_else(|_| Err(io::Error::other("the log is closed")))
    }
}

impl RaftLogReader<Types> for RaftLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<LogEntry>> {
        Ok(self.log_index().between(range).cloned().collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.log_index().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<LogEntry>> {
        let mut bytes_left = Some(self.append_bytes_max);
        let mut is_first = true;
        let fits = |entry: &&LogEntry| {
            bytes_left = bytes_left.and_then(|bytes_left| bytes_left.checked_sub(bytes_of(entry)));
            std::mem::take(&mut is_first) || bytes_left.is_some()
        };
        Ok(self.log_index().between(start..end).take_while(fits).cloned().collect())
    }
}

fn bytes_of(entry: &LogEntry) -> usize {
    match &entry.payload {
        openraft::EntryPayload::Normal(proposal) => proposal.0.len().max(1),
        _ => 1,
    }
}

impl RaftLogStorage<Types> for RaftLog {
    type LogReader = RaftLog;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let log_index = self.log_index();
        Ok(LogState { last_purged_log_id: log_index.purged, last_log_id: log_index.last() })
    }

    async fn get_log_reader(&mut self) -> RaftLog {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let vote = *vote;
        self.write_and_wait(LogOperation::Vote(vote), |log_index| log_index.vote = Some(vote)).await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry> + Send,
        I::IntoIter: Send,
    {
        // These clones are cheap, because they share the content of the entries.
        let entries: Vec<LogEntry> = entries.into_iter().collect();
        let operations = entries.iter().cloned().map(LogOperation::Append).collect();
        let mut log_index = self.log_index();
        let first = log_index.next;
        self.write(&mut log_index, operations, |written| callback.io_completed(written));
        for (entry, seq) in entries.into_iter().zip(first.seq..) {
            log_index.push(entry, Position::new(first.epoch, seq));
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.write_and_wait(LogOperation::Truncate(last), |log_index| log_index.truncate(last)).await
    }

    /// Removes entries up to and including `last`. Also writes the vote again: the last copy of the vote may be in one
    /// of the files that are removed.
    async fn purge(&mut self, last: LogId) -> io::Result<()> {
        let mut log_index = self.log_index();
        log_index.purge(last);
        let (vote, next) = (log_index.vote.map(LogOperation::Vote), log_index.next);
        let operations: Vec<LogOperation> = [LogOperation::Purge(last)].into_iter().chain(vote).collect();
        let frames = encode_records(&mut log_index, &operations)?;
        let needed = log_index.entries.front().map_or(next, |stored| stored.at);
        // Only whole files can be removed from the journal. Beginning a new file lets the present one be removed.
        let begins_file = self.room.needs_purge();
        if begins_file {
            self.room.purge_started();
        }
        self.writer.send(WriterCommand::Purge(Purge { frames, upto: last.index, needed, begins_file }));
        Ok(())
    }
}

/// Encodes operations as the journal's next records.
fn encode_records(log_index: &mut LogIndex, operations: &[LogOperation]) -> io::Result<EncodedRecords> {
    let mut frames = EncodedRecords::default();
    operations.iter().try_for_each(|operation| frames.push(operation))?;
    log_index.next.seq += u64::from(frames.count);
    Ok(frames)
}

#[cfg(test)]
mod tests;
