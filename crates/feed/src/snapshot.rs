//! The head that all snapshots of folds begin with.
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
//! The same state always gives the same bytes: levels the best first, the orders of a level in their queue's order, keys
//! in the order of their bytes. All integers are little-endian.

use dunlin_topic::FoldError;

/// Bytes of the head.
pub(crate) const HEAD_BYTES: usize = 16;
/// The one version there is.
const VERSION: u8 = 1;

/// Below this a merged record is always worth it, whatever a snapshot takes.
const MERGED_BYTES_FREE: usize = 4 << 10;

/// Whether a merged record, which begins at `start`, is worth it beside a snapshot of so many bytes. If not, it is cut off.
pub(crate) fn keep_if_worth_it(payload: &mut Vec<u8>, start: usize, snapshot_bytes: usize) -> bool {
    let worth_it = payload.len() - start <= snapshot_bytes.max(MERGED_BYTES_FREE);
    if !worth_it {
        payload.truncate(start);
    }
    worth_it
}

/// What a snapshot is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Book = 1,
    Orders = 2,
    Last = 3,
}

/// Why a snapshot cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is shorter or longer than its head says.
    #[error("the snapshot has {bytes} bytes, {wanted} were announced")]
    Length {
        /// How many there are.
        bytes: usize,
        /// How many there should be.
        wanted: usize,
    },
    /// It is of another kind of state, or no snapshot.
    #[error("the snapshot is of kind {kind}, not {wanted}")]
    Kind {
        /// Its first byte.
        kind: u8,
        /// What that should be.
        wanted: u8,
    },
    /// A newer Dunlin wrote it.
    #[error("the snapshot has version {version}; this reads version {VERSION}")]
    Version {
        /// Its second byte.
        version: u8,
    },
    /// A part of its head that should be zero is not.
    #[error("the snapshot's head has something where nothing belongs")]
    NotZero,
    /// Its entries are not in their order, or one stands there twice.
    #[error("entry {entry} of the snapshot is out of order")]
    Order {
        /// Which, counted from 1.
        entry: usize,
    },
    /// An entry is not one that the state may hold.
    #[error("entry {entry} of the snapshot: {error}")]
    Entry {
        /// Which, counted from 1.
        entry: usize,
        /// What is wrong with it.
        error: crate::EntryError,
    },
}

impl From<SnapshotError> for FoldError {
    fn from(error: SnapshotError) -> FoldError {
        FoldError(error.to_string())
    }
}

/// Appends a head.
pub(crate) fn write_head(out: &mut Vec<u8>, kind: Kind, a: usize, b: usize) {
    out.extend_from_slice(&[kind as u8, VERSION, 0, 0]);
    out.extend_from_slice(&(a as u32).to_le_bytes());
    out.extend_from_slice(&(b as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
}

/// The two counts, and what follows the head.
pub(crate) fn read_head(bytes: &[u8], kind: Kind) -> Result<(usize, usize, &[u8]), SnapshotError> {
    let too_short = || SnapshotError::Length { bytes: bytes.len(), wanted: HEAD_BYTES };
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or_else(too_short)?;
    if head[0] != kind as u8 {
        return Err(SnapshotError::Kind { kind: head[0], wanted: kind as u8 });
    }
    if head[1] != VERSION {
        return Err(SnapshotError::Version { version: head[1] });
    }
    if head[2..4] != [0; 2] || head[12..] != [0; 4] || (kind == Kind::Last && head[8..12] != [0; 4]) {
        return Err(SnapshotError::NotZero);
    }
    let count = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    Ok((count(4), count(8), rest))
}

/// The entries of `N` words each that follow the head: those of bids, and those of asks.
pub(crate) fn read_entries<const N: usize>(
    bytes: &[u8],
    kind: Kind,
) -> Result<[&[[[u8; 8]; N]]; 2], SnapshotError> {
    let (a, b, rest) = read_head(bytes, kind)?;
    let wanted = HEAD_BYTES + (a + b) * N * 8;
    if bytes.len() != wanted {
        return Err(SnapshotError::Length { bytes: bytes.len(), wanted });
    }
    let (words, _) = rest.as_chunks::<8>();
    let (bids, asks) = words.as_chunks::<N>().0.split_at(a);
    Ok([bids, asks])
}
