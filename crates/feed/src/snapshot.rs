//! Encodes and decodes the parts that the snapshots of several kinds of state have in common: the header, and the list
//! of entries of order books.
//!
//! ```text
//!  0      1         2          4           8           12          16
//!  +------+---------+----------+-----------+-----------+-----------+---------+
//!  | kind | version | 0        | count a   | count b   | 0         | entries |
//!  | u8   | u8      | u16      | u32       | u32       | u32       |         |
//!  +------+---------+----------+-----------+-----------+-----------+---------+
//!   1 book    a bids, b asks, each 16 bytes:  price i64, size i64
//!   2 orders  a bids, b asks, each 24 bytes:  id u64, price i64, size i64
//!   3 last    a keys, b 0:  key_len u32, value_len u32, key, value
//! ```
//! The same state always gives the same bytes: levels are sorted from the best to the worst, the orders of a level by
//! their place in the queue, and keys by their bytes. All integers are little-endian.

use dunlin_topic::ReducerError;

/// Size of the header in bytes.
pub(crate) const HEAD_BYTES: usize = 16;

const VERSION: u8 = 1;

/// A merged record with at most this many bytes is sent even if a snapshot would have fewer bytes.
const MERGED_BYTES_FREE: usize = 4 << 10;

/// Decides whether to send the merged record that begins at `start` in `payload`, instead of a snapshot of
/// `snapshot_bytes` bytes. Returns `false` if the snapshot is to be sent; the merged record is then removed from
/// `payload`.
pub(crate) fn keep_if_small(payload: &mut Vec<u8>, start: usize, snapshot_bytes: usize) -> bool {
    let is_small = payload.len() - start <= snapshot_bytes.max(MERGED_BYTES_FREE);
    if !is_small {
        payload.truncate(start);
    }
    is_small
}

/// The kind of the state in a snapshot: the first byte of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StateKind {
    Book = 1,
    Orders = 2,
    Last = 3,
}

/// The reason why a snapshot of a state cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The snapshot does not have the length that follows from the counts in its header.
    #[error("the snapshot has {bytes} bytes, but its header announces {wanted}")]
    Length {
        /// Length of the snapshot in bytes.
        bytes: usize,
        /// Length in bytes that follows from the header.
        wanted: usize,
    },
    /// The snapshot contains the state of another kind.
    #[error("the snapshot is of kind {kind}, not {wanted}")]
    Kind {
        /// The kind that the snapshot's header names, as its number.
        kind: u8,
        /// The expected kind, as its number.
        wanted: u8,
    },
    /// The snapshot has a version that this version of Dunlin cannot read.
    #[error("the snapshot has version {version}; this build reads version {VERSION}")]
    Version {
        /// The version in the snapshot's header.
        version: u8,
    },
    /// A reserved part of the header is not zero.
    #[error("a reserved part of the snapshot's header is not zero")]
    NotZero,
    /// The entries are not sorted, or an entry appears twice.
    #[error("entry {entry} of the snapshot is out of order")]
    Order {
        /// Number of the entry, from 1.
        entry: usize,
    },
    /// The state does not accept an entry.
    #[error("entry {entry} of the snapshot is invalid: {error}")]
    Entry {
        /// Number of the entry, from 1.
        entry: usize,
        /// The reason why the entry is refused.
        error: crate::EntryError,
    },
}

impl From<SnapshotError> for ReducerError {
    fn from(error: SnapshotError) -> ReducerError {
        ReducerError(error.to_string())
    }
}

pub(crate) fn write_head(out: &mut Vec<u8>, kind: StateKind, count_a: usize, count_b: usize) {
    out.extend_from_slice(&[kind as u8, VERSION, 0, 0]);
    out.extend_from_slice(&(count_a as u32).to_le_bytes());
    out.extend_from_slice(&(count_b as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
}

/// Reads the header of a snapshot. Returns its two counts and the bytes after the header.
pub(crate) fn read_head(bytes: &[u8], kind: StateKind) -> Result<(usize, usize, &[u8]), SnapshotError> {
    let too_short = || SnapshotError::Length { bytes: bytes.len(), wanted: HEAD_BYTES };
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or_else(too_short)?;
    if head[0] != kind as u8 {
        return Err(SnapshotError::Kind { kind: head[0], wanted: kind as u8 });
    }
    if head[1] != VERSION {
        return Err(SnapshotError::Version { version: head[1] });
    }
    if head[2..4] != [0; 2] || head[12..] != [0; 4] || (kind == StateKind::Last && head[8..12] != [0; 4]) {
        return Err(SnapshotError::NotZero);
    }
    let count = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    Ok((count(4), count(8), rest))
}

/// Reads a snapshot of an order book. Each entry consists of `N` words of 8 bytes. Returns the entries of the bids and
/// those of the asks.
pub(crate) fn read_entries<const N: usize>(
    bytes: &[u8],
    kind: StateKind,
) -> Result<[&[[[u8; 8]; N]]; 2], SnapshotError> {
    let (bid_count, ask_count, rest) = read_head(bytes, kind)?;
    let wanted = HEAD_BYTES + (bid_count + ask_count) * N * 8;
    if bytes.len() != wanted {
        return Err(SnapshotError::Length { bytes: bytes.len(), wanted });
    }
    let (words, _) = rest.as_chunks::<8>();
    let (bids, asks) = words.as_chunks::<N>().0.split_at(bid_count);
    Ok([bids, asks])
}
