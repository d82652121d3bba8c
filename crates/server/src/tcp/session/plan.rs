//! One write: where its bytes lie, and what they mean for the channels they are of.
//!
//! Small pieces are copied together, larger ones are lent by the segments they lie in.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dunlin::topic::frame::{FLAG_BY_REF, RunHeader, padded};
use dunlin::topic::{Budget, BudgetSpent, Content, Cursor, Position, Snapshot};
use dunlin::wire::{SnapshotPart, run_head};

use super::outbound::{Outbound, Rest};
use super::subscription::Sending;
use super::translate::position_to_wire;

/// Pieces of one write.
const PIECES_MAX: usize = 64;
/// Bytes of one write, but for the last run's excess.
pub(super) const WRITE_BYTES_MAX: usize = 256 << 10;
/// Bytes of one run, or one larger record.
pub(super) const RUN_BYTES_MAX: usize = 16 << 10;
/// Smaller pieces are copied: to hand over a piece costs about as much as to copy this many bytes.
const LENT_BYTES_MIN: usize = 1 << 10;

/// What one message, or some records that are not sent, mean for a channel.
#[derive(Debug, Clone)]
pub(super) struct Move {
    pub(super) channel: u32,
    pub(super) records: u32,
    pub(super) advance_bytes: u32,
    /// Where in the write its message lies; empty for records that are not sent.
    pub(super) bytes: Range<usize>,
    /// What comes next goes on after it: it is sent, or lost on purpose.
    pub(super) is_told: bool,
    /// Bytes of a state, in the place of records.
    pub(super) state: Option<usize>,
}

/// What one write consists of.
pub(super) struct Plan<'a, 's> {
    gathered: &'s mut Vec<u8>,
    moves: &'s mut Vec<Move>,
    pieces: [Piece<'a>; PIECES_MAX],
    count: usize,
    bytes: usize,
}

#[derive(Clone)]
enum Piece<'a> {
    Gathered(Range<usize>),
    Lent(&'a [u8]),
    Shared(&'a Bytes),
}

impl Piece<'_> {
    const NONE: Piece<'static> = Piece::Lent(&[]);
}

impl<'a, 's> Plan<'a, 's> {
    /// Begins with what waits to be sent besides records.
    pub(super) fn new(
        gathered: &'s mut Vec<u8>,
        moves: &'s mut Vec<Move>,
        outbound: &'a Outbound,
    ) -> Plan<'a, 's> {
        gathered.clear();
        moves.clear();
        let mut plan = Plan { gathered, moves, pieces: [Piece::NONE; PIECES_MAX], count: 0, bytes: 0 };
        for rest in &outbound.rest {
            plan.put(rest.bytes());
        }
        plan.put(outbound.control());
        plan
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn has_room(&self) -> bool {
        self.bytes < WRITE_BYTES_MAX && self.count + 3 <= PIECES_MAX
    }

    /// Adds runs of the channel until `share` bytes are in, or `credit` is used up; how many bytes it
    /// was.
    pub(super) fn add_runs(
        &mut self,
        channel: u32,
        cursor: &'a Cursor,
        told: Position,
        share: usize,
        credit: u64,
    ) -> usize {
        let began = self.bytes;
        let mut last = told.seq;
        let mut next = cursor.next();
        for span in cursor.spans(RUN_BYTES_MAX) {
            let sent = self.bytes - began;
            if !self.has_room() || sent >= share || sent as u64 >= credit {
                break;
            }
            let head = |bytes| RunHeader {
                topic_id: channel,
                epoch: next.epoch,
                prev_seq: last,
                first_seq: next.seq,
                count: span.count,
                bytes,
            };
            let start = self.bytes;
            match span.content {
                Content::Frames(frames) => {
                    self.gather(&run_head(&head(frames.len() as u32)));
                    self.put(frames);
                }
                Content::ByRef { head: frame_head, payload } => {
                    self.put_by_ref(frame_head, payload, head);
                }
                Content::Skipped | Content::Lost => {}
            }
            next.seq += u64::from(span.count);
            let is_told = self.bytes > start || matches!(span.content, Content::Lost);
            if is_told {
                last = next.seq - 1;
            }
            let (records, advance_bytes) = (span.count, span.advance_bytes);
            let bytes = start..self.bytes;
            self.moves.push(Move { channel, records, advance_bytes, bytes, is_told, state: None });
        }
        self.bytes - began
    }

    /// Adds parts of a state until `share` bytes are in; how many bytes it was.
    pub(super) fn add_state(&mut self, channel: u32, sending: &'a Sending, share: usize) -> usize {
        let began = self.bytes;
        let Snapshot { position, checksum, bytes: whole, .. } = &sending.snapshot;
        let mut offset = sending.offset;
        while self.has_room() && self.bytes - began < share {
            let bytes = &whole[offset..whole.len().min(offset + RUN_BYTES_MAX)];
            let part = SnapshotPart {
                channel,
                position: position_to_wire(*position),
                checksum: *checksum,
                total: whole.len() as u64,
                offset: offset as u64,
                bytes,
            };
            let start = self.bytes;
            self.gather(&part.head());
            self.put(bytes);
            self.gather(&[0; 8][..padded(bytes.len()) - bytes.len()]);
            offset += bytes.len();
            let (message, state) = (start..self.bytes, Some(bytes.len()));
            self.moves.push(Move {
                channel,
                records: 0,
                advance_bytes: 0,
                bytes: message,
                is_told: false,
                state,
            });
            if offset == whole.len() {
                break;
            }
        }
        self.bytes - began
    }

    /// One record, whose payload lies apart.
    fn put_by_ref(&mut self, frame_head: &[u8], payload: &'a Bytes, head: impl Fn(u32) -> RunHeader) {
        let len = frame_head.len() + payload.len();
        self.gather(&run_head(&head(padded(len) as u32)));
        let flags_at = self.gathered.len() + 5;
        self.gather(frame_head);
        self.gathered[flags_at] &= !FLAG_BY_REF;
        if payload.len() < LENT_BYTES_MIN {
            self.gather(payload);
        } else {
            self.add(Piece::Shared(payload), payload.len());
        }
        self.gather(&[0; 8][..padded(len) - len]);
    }

    fn put(&mut self, bytes: &'a [u8]) {
        if bytes.len() < LENT_BYTES_MIN {
            self.gather(bytes)
        } else {
            self.add(Piece::Lent(bytes), bytes.len())
        }
    }

    fn gather(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = self.gathered.len();
        self.gathered.extend_from_slice(bytes);
        let end = self.gathered.len();
        if let Some(Piece::Gathered(last)) = self.pieces[..self.count].last_mut() {
            last.end = end;
            self.bytes += bytes.len();
        } else {
            self.add(Piece::Gathered(start..end), bytes.len());
        }
    }

    fn add(&mut self, piece: Piece<'a>, bytes: usize) {
        self.pieces[self.count] = piece;
        self.count += 1;
        self.bytes += bytes;
    }

    /// Hands the pieces to `write`.
    pub(super) fn write<T>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        for (slice, piece) in slices.iter_mut().zip(&self.pieces[..self.count]) {
            *slice = IoSlice::new(self.bytes_of(piece));
        }
        write(&slices[..self.count])
    }

    fn bytes_of<'p>(&'p self, piece: &'p Piece<'a>) -> &'p [u8] {
        match piece {
            Piece::Gathered(range) => &self.gathered[range.clone()],
            Piece::Lent(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
        }
    }

    /// What the socket did not take of the message that it took the first `sent` bytes up to.
    pub(super) fn rest_of_cut(&self, sent: usize, budget: &Arc<Budget>) -> Result<Vec<Rest>, BudgetSpent> {
        let cut = self.moves.iter().find(|m| m.bytes.start < sent && sent < m.bytes.end);
        let Some(cut) = cut else { return Ok(Vec::new()) };
        let wanted = sent..cut.bytes.end;
        let mut rests = Vec::new();
        let mut at = 0;
        for piece in &self.pieces[..self.count] {
            let bytes = self.bytes_of(piece);
            let from = wanted.start.clamp(at, at + bytes.len()) - at;
            let to = wanted.end.clamp(at, at + bytes.len()) - at;
            at += bytes.len();
            if from == to {
                continue;
            }
            rests.push(match piece {
                Piece::Shared(bytes) => Rest::Shared(bytes.slice(from..to)),
                _ => Rest::copy(&bytes[from..to], budget)?,
            });
        }
        Ok(rests)
    }
}
