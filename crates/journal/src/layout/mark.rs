//! Encodes and decodes marks. A mark is a block without records that states how far the log has come.
//!
//! ```text
//!  0                 48            56             64             72            80           88
//!  +-----------------+-------------+--------------+--------------+-------------+------------+
//!  | block header    | file_blocks | file_records | oldest_epoch | oldest_seq  | next file  |
//!  | kind 2…5        | u64         | u64          | u64          | u64         | u64        |
//!  +-----------------+-------------+--------------+--------------+-------------+------------+
//! ```
//! In a `Continued` mark, `next file` is the identity of the next file; in other marks it is 0. `oldest_epoch` and
//! `oldest_seq` are the position at which the log's oldest file begins. They show whether the first files of the log
//! are missing.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader, BlockKind};
use super::u64_at;
use crate::position::Position;

/// Size of a mark without its block header, bytes.
pub(super) const MARK_BODY_BYTES: usize = 40;
pub(crate) const MARK_BYTES: usize = BLOCK_HEADER_BYTES + MARK_BODY_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub kind: BlockKind,
    /// Position of the record that would follow this mark in the file.
    pub next: Position,
    /// Number of blocks with records before this mark in the file.
    pub file_blocks: u64,
    /// Number of records before this mark in the file.
    pub file_records: u64,
    /// Position at which the log's oldest file begins.
    pub oldest: Position,
    /// Identity of the file in which the log continues; 0 if the log does not continue in another file.
    pub next_identity: u64,
    /// The append time of the last record before the mark, 0 for none.
    pub time_ns: u64,
    /// Number of bytes of the file that were known to be synced when the mark was written.
    pub synced: u64,
}

impl Mark {
    /// Encodes the mark for offset `at` of the file with this identity.
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

    /// Decodes the mark from a valid block; `None` if the block contains records.
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
