//! Encodes and decodes the header of a log's files.
//!
//! ```text
//!  0              8         12            16         24         32      36         40
//!  +--------------+---------+-------------+----------+----------+-------+----------+-----------+
//!  | "DUNLINJ\n"  | version | header bytes| identity | previous | epoch | name len | first_seq |
//!  |              | u32     | u32 = 512   | u64      | u64      | u32   | u32      | u64       |
//!  +--------------+---------+-------------+----------+----------+-------+----------+-----------+
//!  48              56       60       64                                                       512
//!  +---------------+--------+--------+------------------------------------------------+--------+
//!  | first_time_ns | crc32c | 0      | the log's name                                 | 0…     |
//!  | u64           | u32    | u32    |                                                |        |
//!  +---------------+--------+--------+------------------------------------------------+--------+
//! ```
//! `identity` is a random number that is part of the file's name and of every checksum in the file. `previous` is the
//! identity of the file before this one; 0 in the log's first file. `crc32c` covers the rest of the header. The magic
//! bytes, the version and the checksum have the same offsets in every version.

use crc_fast::{CrcAlgorithm, Digest};

use super::{u32_at, u64_at};
use crate::JournalLimits;
use crate::position::Position;

/// Size of a file's header, bytes. The first block follows the header.
pub const FILE_HEADER_BYTES: usize = 512;
/// The version of the format that this build writes. This build cannot read newer versions.
pub const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"DUNLINJ\n";
const CRC_AT: usize = 56;
const NAME_AT: usize = 64;

/// The header of a log file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub identity: u64,
    /// The identity of the file before this one; 0 in the log's first file.
    pub previous: u64,
    /// The position of the file's first record.
    pub first: Position,
    pub first_time_ns: u64,
    pub name: String,
}

/// The reason why the header of a log file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("the file cannot be read: {0}")]
    Unreadable(String),
    #[error("the file is empty")]
    Empty,
    #[error("the file ends within its header")]
    Short,
    #[error("the file is not part of a log: it does not begin with DUNLINJ")]
    Magic,
    #[error(
        "a newer version of Dunlin wrote the file in format {0}; this build reads formats up to {FORMAT_VERSION}"
    )]
    Newer(u32),
    #[error("the file header's checksum is wrong")]
    Checksum,
    #[error("the fields of the file header contradict each other")]
    Contradicts,
}

impl FileHeader {
    /// Encodes the header. The length of the log's name must have been checked before.
    pub fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut out = [0; FILE_HEADER_BYTES];
        let name = &self.name.as_bytes()[..self.name.len().min(JournalLimits::NAME_BYTES_MAX)];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(FILE_HEADER_BYTES as u32).to_le_bytes());
        out[16..24].copy_from_slice(&self.identity.to_le_bytes());
        out[24..32].copy_from_slice(&self.previous.to_le_bytes());
        out[32..36].copy_from_slice(&self.first.epoch.to_le_bytes());
        out[36..40].copy_from_slice(&(name.len() as u32).to_le_bytes());
        out[40..48].copy_from_slice(&self.first.seq.to_le_bytes());
        out[48..56].copy_from_slice(&self.first_time_ns.to_le_bytes());
        out[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
        let crc = checksum(&out);
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn parse(bytes: &[u8]) -> Result<FileHeader, HeaderError> {
        if bytes.is_empty() {
            return Err(HeaderError::Empty);
        }
        if bytes.len() >= 8 && bytes[..8] != MAGIC {
            return Err(HeaderError::Magic);
        }
        let bytes: &[u8; FILE_HEADER_BYTES] = bytes.first_chunk().ok_or(HeaderError::Short)?;
        // Compares the checksum first: otherwise a flipped bit in the version could look like a newer version.
        if u32_at(bytes, CRC_AT) != checksum(bytes) {
            return Err(HeaderError::Checksum);
        }
        let version = u32_at(bytes, 8);
        if version > FORMAT_VERSION {
            return Err(HeaderError::Newer(version));
        }
        let name = bytes[NAME_AT..].get(..u32_at(bytes, 36) as usize).ok_or(HeaderError::Contradicts)?;
        let name = std::str::from_utf8(name).map_err(|_| HeaderError::Contradicts)?;
        Ok(FileHeader {
            identity: u64_at(bytes, 16),
            previous: u64_at(bytes, 24),
            first: Position::new(u32_at(bytes, 32), u64_at(bytes, 40)),
            first_time_ns: u64_at(bytes, 48),
            name: name.to_owned(),
        })
    }
}

fn checksum(header: &[u8; FILE_HEADER_BYTES]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&header[..CRC_AT]);
    digest.update(&header[CRC_AT + 4..]);
    digest.finalize() as u32
}
