//! Records that were appended to a durable log and are not on disk yet.

use std::borrow::Cow;

use crate::log::ProducerMark;
use crate::segment::{Commit, PinnedSegment};

/// Appended records that a [`Store`](crate::Store) has to write to disk next. They stay in memory until this value is
/// dropped.
#[derive(Debug)]
pub struct StagedRecords {
    pub(super) epoch: u32,
    pub(super) batches: Vec<StagedBatch>,
    pub(super) marks: Vec<StagedProducer>,
    pub(super) last_append_ns: u64,
    /// The number of bytes that were appended from the opening of the log up to the last of these records.
    pub(super) appended_bytes: u64,
}

/// Consecutive records of one segment that a store has to write to disk next.
#[derive(Debug)]
pub struct StagedBatch {
    pub(super) pinned: PinnedSegment,
    pub(super) from: Commit,
    pub(super) by_ref: bool,
}

/// Names the producer of consecutive records. A store writes this value to disk together with the records, so that a
/// restarted node recognizes a retry of these records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagedProducer {
    /// The producer, and the number that it gave to the first record.
    pub mark: ProducerMark,
    /// Sequence number of the first record.
    pub first_seq: u64,
    /// Number of records.
    pub count: u64,
}

impl StagedRecords {
    /// The epoch of the records.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The records in the order of their sequence numbers, one batch for each segment.
    pub fn batches(&self) -> &[StagedBatch] {
        &self.batches
    }

    /// The producers of those records that have one.
    pub fn marks(&self) -> &[StagedProducer] {
        &self.marks
    }

    /// Sequence number of the last record.
    pub fn last_seq(&self) -> u64 {
        self.batches.last().map_or(0, |batch| batch.first_seq() + u64::from(batch.count()) - 1)
    }

    /// Time at which the last record was appended, ns since the Unix epoch.
    pub fn last_append_ns(&self) -> u64 {
        self.last_append_ns
    }
}

impl StagedBatch {
    /// Sequence number of the first record.
    pub fn first_seq(&self) -> u64 {
        self.pinned.first_seq() + u64::from(self.from.count)
    }

    /// Number of records.
    pub fn count(&self) -> u32 {
        self.pinned.length().count - self.from.count
    }

    /// The bytes of the frames. They are borrowed, unless payloads are kept by reference: the frames are then copied.
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
