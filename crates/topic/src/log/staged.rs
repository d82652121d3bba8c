//! Records that were appended to a durable log and are not on disk yet.

use std::borrow::Cow;

use crate::log::ProducerMark;
use crate::segment::{Commit, PinnedSegment};

/// Appended records that a [`Store`](crate::Store) writes to disk next. Dropping this value releases the records'
/// bytes.
#[derive(Debug)]
pub struct StagedRecords {
    pub(super) epoch: u32,
    pub(super) batches: Vec<StagedBatch>,
    pub(super) marks: Vec<StagedProducer>,
    pub(super) last_append_ns: u64,
    /// The total number of bytes that were appended since the log was opened, up to the last of these records.
    pub(super) appended_bytes: u64,
}

/// Consecutive records of one segment, which a store writes to disk next.
#[derive(Debug)]
pub struct StagedBatch {
    pub(super) pinned: PinnedSegment,
    pub(super) from: Commit,
    pub(super) by_ref: bool,
}

/// The producer of records that the store writes to disk next. The producer is stored with the records, so that a
/// restarted node recognizes retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagedProducer {
    /// The producer, and the producer's number for the first record.
    pub mark: ProducerMark,
    /// Sequence of the first record.
    pub first_seq: u64,
    /// Number of records.
    pub count: u64,
}

impl StagedRecords {
    /// The epoch of the records.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The records, in order.
    pub fn batches(&self) -> &[StagedBatch] {
        &self.batches
    }

    /// The producers of the records that were published with a producer identity.
    pub fn marks(&self) -> &[StagedProducer] {
        &self.marks
    }

    /// Sequence of the last record.
    pub fn last_seq(&self) -> u64 {
        self.batches.last().map_or(0, |batch| batch.first_seq() + u64::from(batch.count()) - 1)
    }

    /// Time at which the last record was appended, ns since the Unix epoch.
    pub fn last_append_ns(&self) -> u64 {
        self.last_append_ns
    }
}

impl StagedBatch {
    /// Sequence of the first record.
    pub fn first_seq(&self) -> u64 {
        self.pinned.first_seq() + u64::from(self.from.count)
    }

    /// Number of records.
    pub fn count(&self) -> u32 {
        self.pinned.length().count - self.from.count
    }

    /// The frames. The frames are copied only if some payloads are kept by reference.
    pub fn frames(&self) -> Cow<'_, [u8]> {
        if !self.by_ref {
            return Cow::Borrowed(self.pinned.bytes(self.from.bytes));
        }
        let mut frames = Vec::new();
        for entry in self.pinned.frames(self.from.bytes) {
            match entry.by_ref {
                None => frames.extend_from_slice(entry.bytes),
                Some(_) => entry.frame.append_to(&mut frames),
            }
        }
        Cow::Owned(frames)
    }

    /// Time at which the first record was appended, ns since the Unix epoch.
    pub fn first_append_ns(&self) -> u64 {
        self.pinned.frames(self.from.bytes).next().map_or(0, |entry| entry.frame.append_time_ns())
    }
}
