//! A batch that was sent. It can be divided into parts, which are sent again.

use dunlin_topic::Frame;
use dunlin_wire::RUN_HEAD_BYTES;

/// A batch that was sent and has no response yet, or that the node refused.
#[derive(Debug)]
pub(super) struct SentBatch {
    pub(super) bytes: Vec<u8>,
    pub(super) first: u64,
    pub(super) count: u32,
    /// Whether the owner may have appended the batch, although no response says this.
    pub(super) outcome_unknown: bool,
    /// Whether the batch's records are independent of each other, so that the refusal of one does not affect the
    /// others.
    pub(super) splittable: bool,
    /// The flags with which the batch is sent at each attempt; 0 if the batch is splittable.
    pub(super) flags: u8,
    /// The sequence number that the log's last record must have, if the flags require this.
    pub(super) expect_seq: u64,
    /// How many records were pushed to the lane before the first record of this batch.
    pub(super) pushed_before: u64,
}

impl SentBatch {
    /// Removes one record. `record` is its index in the batch, counted from 1. Returns the part of the batch before
    /// this record, and the part after it. A part without records is `None`.
    pub(super) fn without(self, record: u32) -> [Option<SentBatch>; 2] {
        let [before, rest] = self.split(record - 1);
        let behind = rest.map(|rest| rest.split(1)).and_then(|[_, behind]| behind);
        [before, behind]
    }

    /// Splits the batch after its first `records` records. Returns both parts; a part without records is `None`.
    pub(super) fn split(self, records: u32) -> [Option<SentBatch>; 2] {
        let mut at = RUN_HEAD_BYTES;
        for _ in 0..records {
            at += Frame::split(&self.bytes[at..]).map_or(0, |(_, frame_bytes)| frame_bytes);
        }
        let mut behind = vec![0; RUN_HEAD_BYTES];
        behind.extend_from_slice(&self.bytes[at..]);
        let mut before = self.bytes;
        before.truncate(at);
        let part = |bytes, offset: u32, count| {
            let (first, pushed_before) =
                (self.first + u64::from(offset), self.pushed_before + u64::from(offset));
            (count > 0).then_some(SentBatch {
                bytes,
                first,
                count,
                pushed_before,
                outcome_unknown: false,
                splittable: true,
                flags: 0,
                expect_seq: 0,
            })
        };
        [part(before, 0, records), part(behind, records, self.count - records)]
    }
}
