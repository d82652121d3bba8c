//! Copies of received records for Python, up to several thousand in one group.
//!
//! The records are copied once, so that references from Python do not keep the receive buffer alive. A group has three
//! buffers:
//!
//! ```text
//! heads     for each record: its fields, and where its payload and metadata begin; a final entry has the sizes of both
//! payloads  all payloads, without separators
//! metas     the metadata of all records, as encoded in their frames, without separators
//! ```

use std::sync::Arc;

use dunlin_frame::Frame;
use dunlin_topic::{LogName, Position};

use crate::column::{StableBytes, bytes_of};

/// The numeric fields of one record: sequence numbers, epoch, times, the index of its log, and where its payload and
/// metadata begin.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RecordFields {
    pub seq: u64,
    pub prev_seq: u64,
    pub append_ns: i64,
    /// The event time; 0 if the publisher gave none.
    pub event_ns: i64,
    pub payload_at: u64,
    pub meta_at: u32,
    pub epoch: u32,
    pub log: u32,
    pub flags: u32,
}

/// Received records that were copied together, out of the receive buffer.
#[derive(Default)]
pub struct RecordGroup {
    heads: Vec<RecordFields>,
    payloads: Vec<u8>,
    metas: Vec<u8>,
    logs: Vec<Arc<LogName>>,
}

impl RecordGroup {
    pub fn with_capacity(records: usize) -> RecordGroup {
        RecordGroup { heads: Vec::with_capacity(records + 1), ..RecordGroup::default() }
    }

    /// Adds a record. Must not be called after [`finish`](RecordGroup::finish).
    #[inline]
    pub fn push(&mut self, position: Position, prev_seq: u64, frame: &Frame<'_>, log: &Arc<LogName>) {
        let log = self.log_number(log);
        self.heads.push(RecordFields {
            seq: position.seq,
            prev_seq,
            append_ns: frame.append_time_ns() as i64,
            event_ns: frame.event_time_ns().unwrap_or(0) as i64,
            payload_at: self.payloads.len() as u64,
            meta_at: self.metas.len() as u32,
            epoch: position.epoch,
            log,
            flags: frame.flags().into(),
        });
        self.payloads.extend_from_slice(frame.payload());
        self.metas.extend_from_slice(frame.meta_bytes());
    }

    #[inline]
    fn log_number(&mut self, log: &Arc<LogName>) -> u32 {
        match self.logs.last() {
            Some(last) if Arc::ptr_eq(last, log) => (self.logs.len() - 1) as u32,
            _ => self.log_number_among_all(log),
        }
    }

    #[cold]
    fn log_number_among_all(&mut self, log: &Arc<LogName>) -> u32 {
        // Searches from the end, because the record most often belongs to one of the logs that were added last.
        let found = self.logs.iter().rposition(|other| Arc::ptr_eq(other, log));
        found.unwrap_or_else(|| {
            self.logs.push(Arc::clone(log));
            self.logs.len() - 1
        }) as u32
    }

    /// Completes the group with an entry that contains the ends of the last record's payload and metadata.
    pub fn finish(&mut self) {
        let (payload_at, meta_at) = (self.payloads.len() as u64, self.metas.len() as u32);
        self.heads.push(RecordFields { payload_at, meta_at, ..RecordFields::default() });
    }

    /// The number of records that were added. Must not be called after [`finish`](RecordGroup::finish), which adds an
    /// entry that is no record.
    pub fn pushed(&self) -> usize {
        self.heads.len()
    }

    /// The total size of all payloads and all metadata in bytes.
    pub fn bytes(&self) -> usize {
        self.payloads.len() + self.metas.len()
    }

    pub fn len(&self) -> usize {
        self.heads.len() - 1
    }

    pub fn head(&self, index: usize) -> &RecordFields {
        &self.heads[index]
    }

    pub fn log(&self, index: usize) -> &Arc<LogName> {
        &self.logs[self.heads[index].log as usize]
    }

    pub fn logs(&self) -> &[Arc<LogName>] {
        &self.logs
    }

    /// Copies the records from index `first` on into a new group.
    pub fn from(&self, first: usize) -> RecordGroup {
        let mut rest = RecordGroup::with_capacity(self.len() - first);
        for index in first..self.len() {
            let head = self.head(index);
            rest.push(self.position(index), head.prev_seq, &self.frame(index), self.log(index));
        }
        rest.finish();
        rest
    }

    pub fn position(&self, index: usize) -> Position {
        let RecordFields { epoch, seq, .. } = self.heads[index];
        Position { epoch, seq }
    }

    pub fn payload(&self, index: usize) -> &[u8] {
        &self.payloads[self.payload_range(index)]
    }

    pub fn payload_range(&self, index: usize) -> std::ops::Range<usize> {
        self.heads[index].payload_at as usize..self.heads[index + 1].payload_at as usize
    }

    pub fn frame(&self, index: usize) -> Frame<'_> {
        let (head, next) = (&self.heads[index], &self.heads[index + 1]);
        let meta = &self.metas[head.meta_at as usize..next.meta_at as usize];
        Frame::from_parts(meta, self.payload(index), head.flags as u8)
    }

    pub fn subject(&self, index: usize) -> String {
        let mut subject = self.log(index).subject_prefix.clone();
        subject.push_str(self.frame(index).subject_tail());
        subject
    }

    /// The size in bytes that all payloads have; `None` if they have different sizes.
    pub fn payload_bytes_each(&self) -> Option<usize> {
        let each = self.payload_range(0).len();
        (0..self.len()).all(|index| self.payload_range(index).len() == each).then_some(each)
    }
}

/// The payloads of a group of records, as bytes that Python reads through a column without a copy.
pub struct Payloads(pub Arc<RecordGroup>);

impl StableBytes for Payloads {
    fn bytes(&self) -> &[u8] {
        &self.0.payloads
    }
}

/// The [`RecordFields`] of a group of records, as bytes that Python reads through columns without a copy.
pub struct RecordFieldsBytes(pub Arc<RecordGroup>);

impl StableBytes for RecordFieldsBytes {
    fn bytes(&self) -> &[u8] {
        bytes_of(&self.0.heads)
    }
}
