//! A mark: a block without records that states the log's position.
//!
//! ```text
//!  0                 48            56             64             72            80           88
//!  +-----------------+-------------+--------------+--------------+-------------+------------+
//!  | block header    | file_blocks | file_records | oldest_epoch | oldest_seq  | next file  |
//!  | kind 2…5        | u64         | u64          | u64          | u64         | u64        |
//!  +-----------------+-------------+--------------+--------------+-------------+------------+
//! ```
//! `next file` is the identity of the next file in a `Continued` mark, otherwise 0. `oldest` is the start of the
//! log's oldest file, so that missing first files are noticed.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader, BlockKind};
use super::u64_at;
use crate::position::Position;

/// Bytes of a mark after its block header.
pub(super) const MARK_BODY_BYTES: usize = 40;
pub(crate) const MARK_BYTES: usize = BLOCK_HEADER_BYTES + MARK_BODY_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub kind: BlockKind,
    /// Position of the next record of this file.
    pub next: Position,
    /// Number of blocks of records that precede this mark in the file.
    pub file_blocks: u64,
    /// Number of records that precede this mark in the file.
    pub file_records: u64,
    /// Start of the log's oldest file.
    pub oldest: Position,
    /// Identity of the next file, if the log continues there.
    pub next_identity: u64,
    /// The append time of the last record before the mark, 0 for none.
    pub time_ns: u64,
    /// The synced length of the file when the mark was written.
    pub synced: u64,
}

impl Mark {
    /// Encodes the mark for offset `at`.
    pub fn encode(&self, identity: u64, at: u64) -> [u8; MARK_BYTES] {
        let mut out = [0; MARK_BYTES];
        let body = &mut out[BLOCK_HEADER_BYTES..];
        let words = [
            self.file_blocks,
            self.file_records,
            u64::from(self.oldest.epoch),
            self.oldest.seq,
            self.next_identity,
        ];
        for (word, chunk) in words.iter().zip(body.chunks_exact_mut(8)) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let header = BlockHeader {
            kind: self.kind,
            bytes: MARK_BODY_BYTES as u32,
            note_bytes: 0,
            epoch: self.next.epoch,
            first_seq: self.next.seq,
            count: 0,
            synced: self.synced,
            first_time_ns: self.time_ns,
            last_time_ns: self.time_ns,
        };
        let header = header.encode(identity, at, &[body]);
        out[..BLOCK_HEADER_BYTES].copy_from_slice(&header);
        out
    }

    /// Decodes the mark of a valid block; `None` for records.
    pub fn of(header: &BlockHeader, body: &[u8]) -> Option<Mark> {
        if header.kind == BlockKind::Records {
            return None;
        }
        Some(Mark {
            kind: header.kind,
            next: Position::new(header.epoch, header.first_seq),
            file_blocks: u64_at(body, 0),
            file_records: u64_at(body, 8),
            oldest: Position::new(u64_at(body, 16) as u32, u64_at(body, 24)),
            next_identity: u64_at(body, 32),
            time_ns: header.last_time_ns,
            synced: header.synced,
        })
    }
}
