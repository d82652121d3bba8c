//! What was appended and is not stored: on its way to the disk.

use std::borrow::Cow;

use crate::log::ProducerMark;
use crate::segment::{Commit, Pinned};

/// Appended records that a [`Store`](crate::Store) is to store, in order. Their bytes stay where they are until this
/// is dropped.
#[derive(Debug)]
pub struct Staged {
    pub(super) epoch: u32,
    pub(super) runs: Vec<StagedRun>,
    pub(super) marks: Vec<StagedMark>,
    pub(super) last_append_ns: u64,
    /// Bytes appended through here since the log was opened.
    pub(super) appended_bytes: u64,
}

/// Consecutive records of one segment.
#[derive(Debug)]
pub struct StagedRun {
    pub(super) pinned: Pinned,
    pub(super) from: Commit,
    pub(super) by_ref: bool,
}

/// Records of a producer with an identity: what a retry after a restart is found out by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagedMark {
    /// Who, and its number for the first record.
    pub mark: ProducerMark,
    /// The log's number for the first record.
    pub first_seq: u64,
    /// How many; both numbers rise by one.
    pub count: u64,
}

impl Staged {
    /// The epoch of all of them.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The records, in order.
    pub fn runs(&self) -> &[StagedRun] {
        &self.runs
    }

    /// Who published what of them, where it said who it is.
    pub fn marks(&self) -> &[StagedMark] {
        &self.marks
    }

    /// The last record's number.
    pub fn last_seq(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.first_seq() + u64::from(run.count()) - 1)
    }

    /// When the last of them was appended.
    pub fn last_append_ns(&self) -> u64 {
        self.last_append_ns
    }
}

impl StagedRun {
    /// The first record's number.
    pub fn first_seq(&self) -> u64 {
        self.pinned.first_seq() + u64::from(self.from.count)
    }

    /// How many records.
    pub fn count(&self) -> u32 {
        self.pinned.seen().count - self.from.count
    }

    /// Their frames; copied only where payloads lie elsewhere.
    pub fn frames(&self) -> Cow<'_, [u8]> {
        if !self.by_ref {
            return Cow::Borrowed(self.pinned.bytes(self.from.bytes));
        }
        let mut frames = Vec::new();
        for lying in self.pinned.frames(self.from.bytes) {
            match lying.by_ref {
                None => frames.extend_from_slice(lying.bytes),
                Some(_) => lying.frame.append_to(&mut frames),
            }
        }
        Cow::Owned(frames)
    }

    /// When the first of them was appended.
    pub fn first_append_ns(&self) -> u64 {
        self.pinned.frames(self.from.bytes).next().map_or(0, |lying| lying.frame.append_time_ns())
    }
}
