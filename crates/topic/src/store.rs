//! The interface between a durable log and its disk. Implementations are in other crates.
//!
//! A [`Store`] takes staged records ([`Log::stage`](crate::Log::stage)) and reports how far they are written and
//! synced. Subscribers see a record once it is synced. If a record is no longer in memory, the log loads it from the
//! store.
//!
//! Invariant: sequence numbers of a durable log continue across epochs, so that a sequence number alone identifies a
//! record. An epoch ends where the next epoch begins.

use std::sync::Arc;

use crate::checked_batch::CheckedBatch;
use crate::event::Position;
use crate::memory::{MemoryBudget, MemoryBudgetError};
use crate::segment::{Buffer, Segment};

/// The interface through which a durable log writes to and reads from its disk.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Notifies the store that records are staged, or that a publisher waits for room
    /// ([`Log::requested_bytes`](crate::Log::requested_bytes)). Publishers call this method once between two calls of
    /// [`Log::stage`](crate::Log::stage) or [`Log::grant`](crate::Log::grant). The call does not block.
    fn notify_staged(&self);

    /// Lets a caller that waits for its own records store the staged records itself, which saves two thread switches.
    /// The method may return before the records are stored.
    fn store_staged(&self) {}

    /// The number of bytes for which the disk has room at present. The log calls this method once, under the log's
    /// lock, before the first append since the log was opened. The method must not block. If the result is too small,
    /// the publisher waits for room as with [`notify_staged`](Store::notify_staged).
    fn free_room(&self) -> u64 {
        u64::MAX
    }

    /// Loads records from disk, including the record at `at`. Subscribers call this method without a lock. After a call
    /// that returns [`DiskContent::Later`], the store calls [`Log::retry_reads`](crate::Log::retry_reads).
    fn load(&self, at: Position) -> DiskContent;

    /// Bytes on disk.
    fn bytes(&self) -> u64;

    /// A position at which a search for records appended at `ns` or later can start: all records on disk before this
    /// position are older. `None` if all records are older.
    fn seek_time(&self, ns: u64) -> Option<Position>;
}

/// The result of a read from disk: records, a range of lost records, or a request to repeat the read later.
#[derive(Debug)]
pub enum DiskContent {
    /// The loaded records.
    Segment(LoadedSegment),
    /// There is no readable record up to `through`.
    Lost {
        /// Sequence of the last missing record.
        through: u64,
    },
    /// The records cannot be read at present, because the process lacks a resource, such as file descriptors or memory.
    Later,
}

/// The error for a record that cannot be read at present: the process lacks a resource, or the record's buffer was just
/// freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the record cannot be read at present; retry later")]
pub struct ReadDeferred;

/// Records that were read from disk. Clones share the records.
#[derive(Debug, Clone)]
pub struct LoadedSegment(Arc<Segment>);

impl LoadedSegment {
    /// Copies the records; the first one has sequence `first_seq`.
    pub fn new(
        budget: &Arc<MemoryBudget>,
        first_seq: u64,
        batch: CheckedBatch<'_>,
    ) -> Result<LoadedSegment, MemoryBudgetError> {
        let bytes = batch.bytes();
        let mut writer = Segment::create(Buffer::new(budget, bytes.len())?, first_seq);
        writer.push(bytes.len(), batch.count(), |out| out.copy_from_slice(bytes));
        let segment = Arc::clone(writer.segment());
        writer.seal();
        Ok(LoadedSegment(segment))
    }

    /// Sequence of the first record.
    pub fn first_seq(&self) -> u64 {
        self.0.first_seq
    }

    /// Sequence after the last record.
    pub fn end_seq(&self) -> u64 {
        self.0.first_seq + u64::from(self.0.commit().count)
    }

    /// The memory that the records use, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.buffer_bytes()
    }

    /// Frees the memory. Returns `false` while a read is in progress. Cursors that read these records then look up
    /// their positions again.
    pub fn retire(&self) -> bool {
        self.0.retire(&mut Vec::new())
    }

    pub(crate) fn into_segment(self) -> Arc<Segment> {
        self.0
    }
}

/// An epoch of a log, with the sequence number of its first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: u32,
    /// Sequence number of the epoch's first record, even if this record does not exist yet.
    pub first_seq: u64,
    /// Whether records were lost before this epoch, so that the end of the previous epoch is unknown.
    pub after_loss: bool,
}

/// The content of a durable log when it was opened: its epochs, its first record and its last record.
#[derive(Debug, Clone)]
pub struct RecoveredLog {
    /// The known epochs, ascending, at least one. The last one is the current epoch.
    pub epochs: Vec<EpochStart>,
    /// The oldest record on disk; equal to `next_seq` if there is none.
    pub oldest_seq: u64,
    /// Sequence of the next record.
    pub next_seq: u64,
    /// Time at which the last record was appended, ns since the Unix epoch.
    pub last_append_ns: u64,
    /// Bytes that may be appended before the store grants more. The log asks again before the first append whether the
    /// disk still has room for them.
    pub granted_bytes: u64,
}

impl RecoveredLog {
    /// The content of a log that has no records yet and is in epoch `epoch`.
    pub fn nothing(epoch: u32, granted_bytes: u64) -> RecoveredLog {
        let epochs = vec![EpochStart { epoch, first_seq: 1, after_loss: false }];
        RecoveredLog { epochs, oldest_seq: 1, next_seq: 1, last_append_ns: 0, granted_bytes }
    }
}
