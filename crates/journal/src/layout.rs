//! Encodes and decodes the parts of a log's files: a file has a header, followed by blocks and marks.
//!
//! ```text
//!  file   +-------------+-------+-------+-----+------+- - - - - - - - -+
//!         | file header | block | block | ... | mark | 0 … (room ahead)|
//!         | 512 bytes   |       |       |     |      |                 |
//!         +-------------+-------+-------+-----+------+- - - - - - - - -+
//! ```
//! All integers are little-endian, and every header, block and mark starts at a multiple of 8. Every checksum
//! is CRC-32C.

mod block;
mod file_header;
mod file_name;
mod mark;

pub use block::{BLOCK_ALIGN, BLOCK_HEADER_BYTES};
pub(crate) use block::{BlockDefect, BlockHeader, BlockKind, block_checksum};
pub use file_header::{FILE_HEADER_BYTES, FORMAT_VERSION};
pub(crate) use file_header::{FileHeader, HeaderError};
pub(crate) use file_name::{FileName, SnapshotName, TEMPORARY_SUFFIX};
pub(crate) use mark::{MARK_BYTES, Mark};

/// Reads a little-endian integer at offset `at`. If `bytes` has fewer than 8 bytes there, returns 0.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// Reads a little-endian integer at offset `at`. If `bytes` has fewer than 4 bytes there, returns 0.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}
