//! What a durable topic asks of the disk. The disk itself is somebody else's: this crate has none.
//!
//! A log hands its [`Store`] what was appended and not stored yet ([`Log::stage`](crate::Log::stage)), and is told how
//! far it was written and synced. Readers see a record when it is synced. What memory no longer holds the log
//! asks for, a segment at a time.
//!
//! Invariant: sequences of a durable log go on from one epoch to the next, so a number alone tells where a record
//! lies; an epoch ends where the next one begins.

use std::sync::Arc;

use crate::checked_run::CheckedRun;
use crate::event::Position;
use crate::memory::{Budget, BudgetSpent};
use crate::segment::{Buffer, Segment};

/// The disk of one log.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Records wait to be stored, or a publisher waits for room ([`Log::wanted_bytes`](crate::Log::wanted_bytes)). Called by
    /// publishers, once between two calls of [`Log::stage`](crate::Log::stage) or [`Log::grant`](crate::Log::grant); it does not wait.
    fn appended(&self);

    /// Whoever calls it waits for its records to be stored, and may store what is staged itself: that spares two
    /// hops between threads. It may return before they are.
    fn help(&self) {}

    /// Records from the disk, the one at this position among them. Called by readers, without a lock.
    fn load(&self, at: Position) -> Loaded;

    /// Bytes it takes on disk.
    fn bytes(&self) -> u64;

    /// A record before which nothing on disk was appended at this time or later; `None` when all were appended
    /// before it.
    fn seek_time(&self, ns: u64) -> Option<Position>;
}

/// What the disk has at a position.
#[derive(Debug)]
pub enum Loaded {
    /// These records.
    Segment(LoadedSegment),
    /// Nothing that can be read through this sequence.
    Lost {
        /// The last number that is missing.
        through: u64,
    },
}

/// Records that were read from disk. Clones are one.
#[derive(Debug, Clone)]
pub struct LoadedSegment(Arc<Segment>);

impl LoadedSegment {
    /// Copies the records, the first of which has the number `first_seq`.
    pub fn new(
        budget: &Arc<Budget>,
        first_seq: u64,
        run: CheckedRun<'_>,
    ) -> Result<LoadedSegment, BudgetSpent> {
        let bytes = run.bytes();
        let mut writer = Segment::create(Buffer::new(budget, bytes.len())?, first_seq);
        writer.push(bytes.len(), run.count(), |out| out.copy_from_slice(bytes));
        let segment = Arc::clone(writer.segment());
        writer.seal();
        Ok(LoadedSegment(segment))
    }

    /// The number of its first record.
    pub fn first_seq(&self) -> u64 {
        self.0.first_seq
    }

    /// The number after its last record's.
    pub fn end_seq(&self) -> u64 {
        self.0.first_seq + u64::from(self.0.commit().count)
    }

    /// Memory it takes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes_held()
    }

    /// Gives the memory back, whoever stands in it; `false` while somebody reads there. A cursor that comes back
    /// asks the log for its place again.
    pub fn retire(&self) -> bool {
        self.0.retire(&mut Vec::new())
    }

    pub(crate) fn into_segment(self) -> Arc<Segment> {
        self.0
    }
}

/// Where an epoch of a log begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: u32,
    /// Its first record's number, whether there is one or not yet.
    pub first_seq: u64,
    /// How far the epoch before it went is not known: more was lost than can be told.
    pub after_loss: bool,
}

/// What a durable log goes on from.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// The epochs there is something to tell of, ascending; the last one is in force. Not empty.
    pub epochs: Vec<EpochStart>,
    /// The oldest record on disk; equal to `next_seq` when there is none.
    pub oldest_seq: u64,
    /// The next record's number.
    pub next_seq: u64,
    /// When the last record was appended, ns since the Unix epoch.
    pub last_append_ns: u64,
    /// Bytes that may be appended before the disk grants more.
    pub granted_bytes: u64,
}

impl Recovered {
    /// A log without records.
    pub fn nothing(epoch: u32, granted_bytes: u64) -> Recovered {
        let epochs = vec![EpochStart { epoch, first_seq: 1, after_loss: false }];
        Recovered { epochs, oldest_seq: 1, next_seq: 1, last_append_ns: 0, granted_bytes }
    }
}
