//! The header in front of each block: what one group commit wrote at once.
//!
//! ```text
//!  0        4       8      12      16          24      28        32            40           48
//!  +--------+-------+------+-------+-----------+-------+---------+-------------+------------+----------+------
//!  | crc32c | bytes | kind | epoch | first_seq | count | synced  | first_time  | last_time  | frames … | note
//!  | u32    | u32   | u32  | u32   | u64       | u32   | u32 (÷8)| u64 ns      | u64 ns     |          |
//!  +--------+-------+------+-------+-----------+-------+---------+-------------+------------+----------+------
//! ```
//! - `crc32c` is over the file's identity, the block's place in the file (both u64), and all that follows it. So a
//!   block is only valid in the file and at the place it was written to, whatever the disk held there before.
//! - `bytes` counts what follows the header: frames, each padded to 8, and the note.
//! - `kind` is in the lowest 8 bits; those above count the note's units of 8 bytes. The note is the writer's own: who
//!   published what of the block.
//! - `synced` is how far this file was known to be on the disk when the block was written: damage below it is
//!   damage, a bad block above it may be a tail that a crash tore.

use crc_fast::{CrcAlgorithm, Digest};

use super::{u32_at, u64_at};

/// Bytes of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 48;
/// Blocks start at multiples of this.
pub const BLOCK_ALIGN: usize = 8;
/// The smallest frame: its head and the append time.
const FRAME_BYTES_MIN: u64 = (dunlin_frame::HEAD_BYTES + dunlin_frame::META_BYTES_MIN) as u64;

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Frames of records.
    Records = 1,
    /// A mark: the log goes on in the file it names.
    Continued = 2,
    /// A mark: the log was closed, nothing is missing.
    End = 3,
    /// A mark: recovery cut what a crash had torn behind this place.
    Cut = 4,
    /// A mark: the log was opened for writing again.
    Begin = 5,
}

impl Kind {
    fn parse(value: u32) -> Option<Kind> {
        [Kind::Records, Kind::Continued, Kind::End, Kind::Cut, Kind::Begin]
            .into_iter()
            .find(|&kind| kind as u32 == value)
    }
}

/// Why there is no block at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nothing was ever written here.
    Zeros,
    /// The file ends before the header does, or before the block does.
    Short,
    /// The header contradicts itself.
    Header,
    /// The checksum does not fit.
    Checksum,
    /// The checksum fits, but the frames do not.
    Frames,
    /// A valid block, but not the one that had to follow.
    Order,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refused::Zeros => "zeros where a block should be",
            Refused::Short => "the file ends within a block",
            Refused::Header => "not a block header",
            Refused::Checksum => "the block's checksum does not fit",
            Refused::Frames => "the block's frames are not sound",
            Refused::Order => "a block that does not follow the one before it",
        })
    }
}

/// What a block says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub kind: Kind,
    /// Bytes that follow the header.
    pub bytes: u32,
    /// Bytes at their end that are the writer's note.
    pub note_bytes: u32,
    pub epoch: u32,
    /// Of a mark: the sequence that comes next.
    pub first_seq: u64,
    /// Records; 0 for marks.
    pub count: u32,
    /// How far the file was synced when this was written.
    pub synced: u64,
    pub first_time_ns: u64,
    pub last_time_ns: u64,
}

impl BlockHeader {
    /// Bytes with the header.
    pub fn whole_bytes(&self) -> u64 {
        BLOCK_HEADER_BYTES as u64 + u64::from(self.bytes)
    }

    /// The sequence that follows this block.
    pub fn next_seq(&self) -> u64 {
        self.first_seq.saturating_add(u64::from(self.count))
    }

    /// The header with its checksum, for the block that will stand at `at`.
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

    /// Reads the header at the start of `bytes`, where at most `left` bytes of the file remain; the checksum
    /// is for [`block_checksum`] to compare, once the body is there too.
    pub fn parse(bytes: &[u8], left: u64) -> Result<BlockHeader, Refused> {
        let head = bytes.get(..BLOCK_HEADER_BYTES).ok_or(Refused::Short)?;
        let kind = match Kind::parse(u32_at(head, 8) & 0xff) {
            Some(kind) => kind,
            None if head.iter().all(|&byte| byte == 0) => return Err(Refused::Zeros),
            None => return Err(Refused::Header),
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
        if header.whole_bytes() > left { Err(Refused::Short) } else { Ok(header) }
    }

    /// Whether what it says fits together.
    pub fn check(&self) -> Result<(), Refused> {
        let fits = match self.kind {
            Kind::Records => {
                let least = u64::from(self.count) * FRAME_BYTES_MIN + u64::from(self.note_bytes);
                self.count > 0 && u64::from(self.bytes) >= least
            }
            _ => {
                self.count == 0 && self.note_bytes == 0 && self.bytes as usize == super::mark::MARK_BODY_BYTES
            }
        };
        let sound = fits
            && (self.bytes as usize).is_multiple_of(BLOCK_ALIGN)
            && self.bytes <= crate::Limits::BLOCK_BYTES_MAX
            && self.first_time_ns <= self.last_time_ns
            && self.first_seq.checked_add(u64::from(self.count)).is_some();
        if sound { Ok(()) } else { Err(Refused::Header) }
    }
}

/// The checksum of a block: over where it stands, its header from byte 4 on, and its body.
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
