//! Encodes and decodes the header of a block. A block contains the records of one commit.
//!
//! ```text
//!  0        4       8      12      16          24      28        32            40           48
//!  +--------+-------+------+-------+-----------+-------+---------+-------------+------------+----------+------
//!  | crc32c | bytes | kind | epoch | first_seq | count | synced  | first_time  | last_time  | frames … | note
//!  | u32    | u32   | u32  | u32   | u64       | u32   | u32 (÷8)| u64 ns      | u64 ns     |          |
//!  +--------+-------+------+-------+-----------+-------+---------+-------------+------------+----------+------
//! ```
//! - `crc32c` covers the file's identity, the block's offset in the file (both u64), and all bytes of the block after
//!   this field. A block that is copied to another file or offset is therefore invalid.
//! - `bytes` counts everything after the header: frames, each padded to 8, and the note.
//! - The lowest 8 bits of `kind` are the block's kind, and the higher bits are the length of the note in units of 8
//!   bytes. The note contains data of the log's user: a topic stores in it which producer published which records.
//! - `synced` says how many bytes of the file were known to be synced when the block was written. An invalid block
//!   among these bytes is damage. An invalid block after them may be a write that a crash interrupted.

use crc_fast::{CrcAlgorithm, Digest};

use super::{u32_at, u64_at};

/// Size of a block's header, bytes.
pub const BLOCK_HEADER_BYTES: usize = 48;
/// Every block starts at a multiple of this many bytes.
pub const BLOCK_ALIGN: usize = 8;
/// Size of the smallest frame, bytes: a frame's head and the append time.
const FRAME_BYTES_MIN: u64 = (dunlin_frame::HEAD_BYTES + dunlin_frame::META_BYTES_MIN) as u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum BlockKind {
    /// The block contains records.
    Records = 1,
    /// A mark at the end of a file: the log continues in another file, which the mark names.
    Continued = 2,
    /// A mark at the end of the log: the log was closed, and no record is missing.
    End = 3,
    /// A mark in place of an incomplete write, which was removed after a crash.
    Cut = 4,
    /// A mark after an `End` or `Cut` mark: the log was opened for writing again.
    Begin = 5,
}

impl BlockKind {
    fn parse(value: u32) -> Option<BlockKind> {
        [BlockKind::Records, BlockKind::Continued, BlockKind::End, BlockKind::Cut, BlockKind::Begin]
            .into_iter()
            .find(|&kind| kind as u32 == value)
    }
}

/// The reason why there is no valid block at an offset of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockDefect {
    /// There are only zeros: no block was written here.
    Zeros,
    /// The file ends within the block or its header.
    Short,
    /// The header's fields contradict each other.
    Header,
    /// The stored checksum differs from the checksum of the block's bytes.
    Checksum,
    /// The checksum is right, but the block's frames are invalid.
    Frames,
    /// The block is valid, but its epoch or first sequence number does not follow the previous block.
    Order,
}

impl std::fmt::Display for BlockDefect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BlockDefect::Zeros => "zeros where a block should be",
            BlockDefect::Short => "the file ends within a block",
            BlockDefect::Header => "not a block header",
            BlockDefect::Checksum => "the block's checksum is wrong",
            BlockDefect::Frames => "the block's frames are invalid",
            BlockDefect::Order => "a block that does not follow the one before it",
        })
    }
}

/// The header of a block in a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub kind: BlockKind,
    /// Number of bytes that follow the header.
    pub bytes: u32,
    /// Size of the writer's note at the end of the block, bytes.
    pub note_bytes: u32,
    pub epoch: u32,
    /// Sequence number of the first record in the block. In a mark, the sequence number that the next record gets.
    pub first_seq: u64,
    /// Number of records; 0 for marks.
    pub count: u32,
    /// Number of bytes of the file that were known to be synced when this block was written.
    pub synced: u64,
    pub first_time_ns: u64,
    pub last_time_ns: u64,
}

impl BlockHeader {
    /// The size of the block with its header, bytes.
    pub fn whole_bytes(&self) -> u64 {
        BLOCK_HEADER_BYTES as u64 + u64::from(self.bytes)
    }

    /// The sequence number of the record that follows this block.
    pub fn next_seq(&self) -> u64 {
        self.first_seq.saturating_add(u64::from(self.count))
    }

    /// Encodes the header and its checksum, for a block with content `body` at offset `at` of the file with this
    /// identity.
    pub fn encode(&self, identity: u64, at: u64, body: &[&[u8]]) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        out[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        let kind = self.kind as u32 | (self.note_bytes / BLOCK_ALIGN as u32) << 8;
        out[8..12].copy_from_slice(&kind.to_le_bytes());
        out[12..16].copy_from_slice(&self.epoch.to_le_bytes());
        out[16..24].copy_from_slice(&self.first_seq.to_le_bytes());
        out[24..28].copy_from_slice(&self.count.to_le_bytes());
        out[28..32].copy_from_slice(&((self.synced / BLOCK_ALIGN as u64) as u32).to_le_bytes());
        out[32..40].copy_from_slice(&self.first_time_ns.to_le_bytes());
        out[40..48].copy_from_slice(&self.last_time_ns.to_le_bytes());
        let crc = block_checksum(identity, at, &out, body);
        out[0..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header at the start of `bytes`. `left` is the number of bytes from there to the end of the file. The
    /// checksum is not checked: compare it with [`block_checksum`] when the block's content is available.
    pub fn parse(bytes: &[u8], left: u64) -> Result<BlockHeader, BlockDefect> {
        let head = bytes.get(..BLOCK_HEADER_BYTES).ok_or(BlockDefect::Short)?;
        let kind = match BlockKind::parse(u32_at(head, 8) & 0xff) {
            Some(kind) => kind,
            None if head.iter().all(|&byte| byte == 0) => return Err(BlockDefect::Zeros),
            None => return Err(BlockDefect::Header),
        };
        let header = BlockHeader {
            kind,
            bytes: u32_at(head, 4),
            note_bytes: (u32_at(head, 8) >> 8) * BLOCK_ALIGN as u32,
            epoch: u32_at(head, 12),
            first_seq: u64_at(head, 16),
            count: u32_at(head, 24),
            synced: u64::from(u32_at(head, 28)) * BLOCK_ALIGN as u64,
            first_time_ns: u64_at(head, 32),
            last_time_ns: u64_at(head, 40),
        };
        header.check()?;
        if header.whole_bytes() > left { Err(BlockDefect::Short) } else { Ok(header) }
    }

    pub fn check(&self) -> Result<(), BlockDefect> {
        let fits = match self.kind {
            BlockKind::Records => {
                let bytes_min = u64::from(self.count) * FRAME_BYTES_MIN + u64::from(self.note_bytes);
                self.count > 0 && u64::from(self.bytes) >= bytes_min
            }
            _ => {
                self.count == 0 && self.note_bytes == 0 && self.bytes as usize == super::mark::MARK_BODY_BYTES
            }
        };
        let is_valid = fits
            && (self.bytes as usize).is_multiple_of(BLOCK_ALIGN)
            && self.bytes <= crate::JournalLimits::BLOCK_BYTES_MAX
            && self.first_time_ns <= self.last_time_ns
            && self.first_seq.checked_add(u64::from(self.count)).is_some();
        if is_valid { Ok(()) } else { Err(BlockDefect::Header) }
    }
}

/// The checksum of a block. It covers the identity of the block's file, the block's offset, its header from byte 4 on,
/// and its content.
pub(crate) fn block_checksum(
    identity: u64,
    at: u64,
    header: &[u8; BLOCK_HEADER_BYTES],
    body: &[&[u8]],
) -> u32 {
    let mut first = [0; 16 + BLOCK_HEADER_BYTES - 4];
    first[..8].copy_from_slice(&identity.to_le_bytes());
    first[8..16].copy_from_slice(&at.to_le_bytes());
    first[16..].copy_from_slice(&header[4..]);
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&first);
    for part in body {
        digest.update(part);
    }
    digest.finalize() as u32
}
