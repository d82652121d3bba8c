//! Plans one write: which bytes it contains, and which bytes belong to which channel. After the write, the channels'
//! cursors move according to the number of bytes that were sent.
//!
//! Small pieces are copied into one buffer. Larger pieces are not copied, but borrowed from the logs' segments.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dunlin::topic::frame::{BatchHeader, FLAG_BY_REF, padded};
use dunlin::topic::{Cursor, MemoryBudget, MemoryBudgetError, Position, RecordSpanContent, Snapshot};
use dunlin::wire::{SnapshotPart, batch_head};

use super::outbound::OutboundBuffer;
use super::subscription::SnapshotTransfer;
use super::translate::position_to_wire;
use crate::session::outbound::UnsentPart;
use crate::session::pieces::Pieces;

/// Maximum size of a batch, bytes. A larger record gets a batch of its own.
pub(super) const BATCH_BYTES_MAX: usize = 16 << 10;
/// How a channel's cursor moves when one message was sent, or when records are skipped.
#[derive(Debug, Clone)]
pub(super) struct CursorMove {
    pub(super) channel: u32,
    pub(super) records: u32,
    pub(super) advance_bytes: u32,
    /// The message's range of bytes within the write; empty for skipped records.
    pub(super) bytes: Range<usize>,
    /// Whether the client's next message of this channel refers to these records as its predecessors. `true` for
    /// records in the write, and for records that a test withholds on purpose. `false` for filtered and expired
    /// records, and for parts of a state.
    pub(super) is_reported: bool,
    /// If the message is a part of a state, the number of the state's bytes in it; otherwise `None`.
    pub(super) state: Option<usize>,
}

/// Buffers for planning a write. All sessions of a thread share them.
#[derive(Debug, Default)]
pub(crate) struct WriteScratch {
    /// Bytes that are copied instead of borrowed: headers of batches, and short sequences of records.
    pub(super) copied: Vec<u8>,
    /// The channels that were selected for the next write.
    pub(super) selected: Vec<u32>,
    /// The moves of the channels' cursors, one for each message in the next write.
    pub(super) moves: Vec<CursorMove>,
}

pub(super) struct WritePlan<'a, 's> {
    pieces: Pieces<'a, 's>,
    moves: &'s mut Vec<CursorMove>,
}

impl<'a, 's> WritePlan<'a, 's> {
    /// Starts a write that begins with `outbound`, the session's unsent output.
    pub(super) fn new(
        copied: &'s mut Vec<u8>,
        moves: &'s mut Vec<CursorMove>,
        outbound: &'a OutboundBuffer,
    ) -> WritePlan<'a, 's> {
        moves.clear();
        WritePlan { pieces: Pieces::new(copied, outbound), moves }
    }

    pub(super) fn bytes(&self) -> usize {
        self.pieces.bytes()
    }

    /// Adds batches of a channel's records to the write, until they reach `share` bytes or `credit` bytes. Returns the
    /// number of added bytes.
    pub(super) fn add_batches(
        &mut self,
        channel: u32,
        cursor: &'a Cursor,
        reported: Position,
        share: usize,
        credit: u64,
    ) -> usize {
        let began = self.bytes();
        let mut last = reported.seq;
        let mut next = cursor.next();
        for span in cursor.spans(BATCH_BYTES_MAX) {
            let sent = self.bytes() - began;
            if !self.pieces.has_room() || sent >= share || sent as u64 >= credit {
                break;
            }
            let head = |bytes| BatchHeader {
                topic_id: channel,
                epoch: next.epoch,
                prev_seq: last,
                first_seq: next.seq,
                count: span.count,
                bytes,
            };
            let start = self.bytes();
            match span.content {
                RecordSpanContent::Frames(frames) => {
                    self.pieces.put_copy(&batch_head(&head(frames.len() as u32)));
                    self.pieces.put(frames);
                }
                RecordSpanContent::ByRef { head: frame_head, payload } => {
                    self.put_by_ref(frame_head, payload, head);
                }
                RecordSpanContent::Skipped | RecordSpanContent::Lost => {}
            }
            next.seq += u64::from(span.count);
            let is_reported = self.bytes() > start || matches!(span.content, RecordSpanContent::Lost);
            if is_reported {
                last = next.seq - 1;
            }
            let (records, advance_bytes) = (span.count, span.advance_bytes);
            let bytes = start..self.bytes();
            self.moves.push(CursorMove { channel, records, advance_bytes, bytes, is_reported, state: None });
        }
        self.bytes() - began
    }

    /// Adds parts of a state to the write, until they reach `share` bytes. Returns the number of added bytes.
    pub(super) fn add_state(&mut self, channel: u32, sending: &'a SnapshotTransfer, share: usize) -> usize {
        let began = self.bytes();
        let Snapshot { position, checksum, bytes: whole, .. } = &sending.snapshot;
        let mut offset = sending.offset;
        while self.pieces.has_room() && self.bytes() - began < share {
            let bytes = &whole[offset..whole.len().min(offset + BATCH_BYTES_MAX)];
            let part = SnapshotPart {
                channel,
                position: position_to_wire(*position),
                checksum: *checksum,
                total: whole.len() as u64,
                offset: offset as u64,
                bytes,
            };
            let start = self.bytes();
            self.pieces.put_copy(&part.head());
            self.pieces.put(bytes);
            self.pieces.put_copy(&[0; 8][..padded(bytes.len()) - bytes.len()]);
            offset += bytes.len();
            let (message, state) = (start..self.bytes(), Some(bytes.len()));
            self.moves.push(CursorMove {
                channel,
                records: 0,
                advance_bytes: 0,
                bytes: message,
                is_reported: false,
                state,
            });
            if offset == whole.len() {
                break;
            }
        }
        self.bytes() - began
    }

    /// Adds a record whose payload is stored apart from its frame.
    fn put_by_ref(&mut self, frame_head: &[u8], payload: &'a Bytes, head: impl Fn(u32) -> BatchHeader) {
        let len = frame_head.len() + payload.len();
        self.pieces.put_copy(&batch_head(&head(padded(len) as u32)));
        self.pieces.put_copy(frame_head);
        self.pieces.last_copied(frame_head.len())[5] &= !FLAG_BY_REF;
        self.pieces.put_shared(payload);
        self.pieces.put_copy(&[0; 8][..padded(len) - len]);
    }

    pub(super) fn write<T>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        self.pieces.write(write)
    }

    /// Returns the unsent rest of the message that was cut because the socket has taken only `sent` bytes of the write.
    /// The result is empty if no message was cut.
    pub(super) fn unsent_rest(
        &self,
        sent: usize,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Vec<UnsentPart>, MemoryBudgetError> {
        let cut = self.moves.iter().find(|m| m.bytes.start < sent && sent < m.bytes.end);
        cut.map_or_else(|| Ok(Vec::new()), |cut| self.pieces.unsent_parts(sent..cut.bytes.end, budget))
    }
}
