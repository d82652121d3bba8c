//! Encodes and decodes the header before each batch of frames:
//!
//! ```text
//!  0          4       8          16          24      28      32
//!  +----------+-------+----------+-----------+-------+-------+----------
//!  | topic_id | epoch | prev_seq | first_seq | count | bytes | frames …
//!  | u32      | u32   | u64      | u64       | u32   | u32   |
//!  +----------+-------+----------+-----------+-------+-------+----------
//! ```
//! Integers are little-endian. `bytes` is the size of the padded frames that follow, without this header.

use crate::error::FrameError;
use crate::frame::{FRAME_ALIGN, HEAD_BYTES, META_BYTES_MIN};

/// Size of a batch header, bytes.
pub const BATCH_HEADER_BYTES: usize = 32;

/// The header of a batch of consecutive records: their log, epoch, sequence numbers and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BatchHeader {
    /// The number by which this connection refers to the log.
    pub topic_id: u32,
    /// The log's epoch.
    pub epoch: u32,
    /// Sequence number that a subscriber has reached if it has missed no record before this batch; 0 at the start of an
    /// epoch.
    pub prev_seq: u64,
    /// Sequence number of the first record; each further record adds 1.
    pub first_seq: u64,
    /// Number of records in the batch.
    pub count: u32,
    /// Size of the frames that follow the header, bytes.
    pub bytes: u32,
}

impl BatchHeader {
    /// Sequence number of the last record.
    pub fn last_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count) - 1
    }

    /// Encodes the header.
    pub fn to_bytes(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut out = [0; BATCH_HEADER_BYTES];
        out[0..4].copy_from_slice(&self.topic_id.to_le_bytes());
        out[4..8].copy_from_slice(&self.epoch.to_le_bytes());
        out[8..16].copy_from_slice(&self.prev_seq.to_le_bytes());
        out[16..24].copy_from_slice(&self.first_seq.to_le_bytes());
        out[24..28].copy_from_slice(&self.count.to_le_bytes());
        out[28..32].copy_from_slice(&self.bytes.to_le_bytes());
        out
    }

    /// Decodes and checks a header.
    ///
    /// # Errors
    /// Returns [`FrameError::Truncated`] if the input is shorter than a header. Returns [`FrameError::Batch`] if the
    /// batch is empty, if its size in bytes is impossible for its number of records, if a sequence number overflows, or
    /// if `prev_seq` is not before `first_seq`.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, FrameError> {
        let have = bytes.len();
        let b: &[u8; BATCH_HEADER_BYTES] =
            bytes.first_chunk().ok_or(FrameError::Truncated { need: BATCH_HEADER_BYTES, have })?;
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let batch = BatchHeader {
            topic_id: u32_at(0),
            epoch: u32_at(4),
            prev_seq: u64_at(8),
            first_seq: u64_at(16),
            count: u32_at(24),
            bytes: u32_at(28),
        };
        if batch.count == 0 {
            return Err(FrameError::Batch("the batch has no records"));
        }
        if (batch.bytes as usize) < batch.count as usize * (HEAD_BYTES + META_BYTES_MIN)
            || !(batch.bytes as usize).is_multiple_of(FRAME_ALIGN)
        {
            return Err(FrameError::Batch("the bytes do not match the record count"));
        }
        if batch.first_seq.checked_add(u64::from(batch.count)).is_none() {
            return Err(FrameError::Batch("the sequence number overflows"));
        }
        if batch.prev_seq >= batch.first_seq && batch.first_seq != 0 {
            return Err(FrameError::Batch("prev_seq is not before first_seq"));
        }
        Ok(batch)
    }
}
