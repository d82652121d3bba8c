//! The interface between a durable log and its disk. Implementations are in other crates.
//!
//! A [`Store`] takes records from the log ([`Log::stage`](crate::Log::stage)), and reports how far they are written and
//! synced. Subscribers receive a record once it is synced. If a record is no longer in memory, the log loads it from
//! the store.
//!
//! Invariant: sequence numbers of a durable log continue across epochs, so that a sequence number alone identifies a
//! record. An epoch ends where the next epoch begins.

use std::sync::Arc;

use crate::checked_batch::CheckedBatch;
use crate::event::Position;
use crate::memory::{MemoryBudget, MemoryBudgetError};
use crate::segment::{Buffer, Segment};

/// The interface through which a durable log writes records to its disk and reads them back.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Notifies the store that there are records to stage, or that a publisher waits for room
    /// ([`Log::requested_bytes`](crate::Log::requested_bytes)). Between two calls of [`Log::stage`](crate::Log::stage)
    /// or [`Log::grant`](crate::Log::grant), this method is called at most once for each of these reasons. The call
    /// does not block.
    fn notify_staged(&self);

    /// On the caller's thread, stages and stores the log's new records. This saves two thread switches for a caller
    /// that waits for its own records. The method may also return before the records are stored, or do nothing.
    fn store_staged(&self) {}

    /// The number of bytes for which the disk has room at present. After it was opened, a log calls this method once,
    /// before its first append. The log holds its lock, so the method must not block. If there is not enough room, the
    /// publisher waits until the store grants more.
    fn free_room(&self) -> u64 {
        u64::MAX
    }

    /// Loads records from disk, including the record at `at`. Subscribers call this method without a lock. If the
    /// method returns [`DiskContent::Later`], the store must call [`Log::retry_reads`](crate::Log::retry_reads) when
    /// the read may be repeated.
    fn load(&self, at: Position) -> DiskContent;

    /// Number of bytes that the log takes on disk.
    fn bytes(&self) -> u64;

    /// A position from which a search finds all records that were appended at `ns` or later: every record on disk
    /// before this position is older. `None` if all records on disk are older.
    fn seek_time(&self, ns: u64) -> Option<Position>;
}

/// The result of a read from disk: records, a range of lost records, or the advice to repeat the read later.
#[derive(Debug)]
pub enum DiskContent {
    /// The records that were loaded.
    Segment(LoadedSegment),
    /// The wanted record and those after it, up to `through`, are lost.
    Lost {
        /// Sequence number of the last lost record.
        through: u64,
    },
    /// The records cannot be read at present, because the process lacks a resource such as file descriptors or memory.
    Later,
}

/// The error for a record that cannot be read at present: the process lacks a resource, or the record's buffer was just
/// freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the record cannot be read at present; retry later")]
pub struct ReadDeferred;

/// Records that were read from disk. A clone refers to the same memory.
#[derive(Debug, Clone)]
pub struct LoadedSegment(Arc<Segment>);

impl LoadedSegment {
    /// Copies the records to memory. The first of them has the sequence number `first_seq`.
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

    /// Sequence number of the first record.
    pub fn first_seq(&self) -> u64 {
        self.0.first_seq
    }

    /// Sequence number directly after the last record.
    pub fn end_seq(&self) -> u64 {
        self.0.first_seq + u64::from(self.0.commit().count)
    }

    /// The memory that the records take, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.buffer_bytes()
    }

    /// Frees the memory. Returns `false`, and frees nothing, while a read is in progress. Once the memory is freed,
    /// cursors that have read these records look up their positions again.
    pub fn retire(&self) -> bool {
        self.0.retire(&mut Vec::new())
    }

    pub(crate) fn into_segment(self) -> Arc<Segment> {
        self.0
    }
}

/// The start of an epoch of a log: the epoch's number, and the sequence number of its first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch's number.
    pub epoch: u32,
    /// Sequence number of the epoch's first record. The record itself may not exist yet.
    pub first_seq: u64,
    /// Whether records were lost before this epoch, so that the end of the previous epoch is unknown.
    pub after_loss: bool,
}

/// The content that a durable log has on disk when it is opened: its epochs, and its first and last record.
#[derive(Debug, Clone)]
pub struct RecoveredLog {
    /// The known epochs in ascending order, at least one. The last one is the present epoch.
    pub epochs: Vec<EpochStart>,
    /// Sequence number of the oldest record on disk; equal to `next_seq` if there is none.
    pub oldest_seq: u64,
    /// Sequence number of the next record.
    pub next_seq: u64,
    /// Time at which the last record was appended, ns since the Unix epoch.
    pub last_append_ns: u64,
    /// Number of bytes that may be appended before the store grants more. At its first append, the log checks whether
    /// the disk still has room for this many bytes.
    pub granted_bytes: u64,
}

impl RecoveredLog {
    /// A log without records, in epoch `epoch`.
    pub fn nothing(epoch: u32, granted_bytes: u64) -> RecoveredLog {
        let epochs = vec![EpochStart { epoch, first_seq: 1, after_loss: false }];
        RecoveredLog { epochs, oldest_seq: 1, next_seq: 1, last_append_ns: 0, granted_bytes }
    }
}
