//! Why a record's bytes are not entries, or its entries do not fit the state.

use dunlin_topic::FoldError;

use crate::scale::ScaleError;
use crate::side::Side;

/// What is wrong with one entry, or with a payload as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The record holds no entry.
    #[error("there is no entry in it")]
    Empty,
    /// The payload does not end where an entry ends.
    #[error("{bytes} bytes are left after the last whole entry")]
    TrailingBytes {
        /// How many.
        bytes: usize,
    },
    /// The first byte is no operation.
    #[error("operation {op} is not known")]
    UnknownOp {
        /// The byte.
        op: u8,
    },
    /// The second byte is no side.
    #[error("side {side} is not known")]
    UnknownSide {
        /// The byte.
        side: u8,
    },
    /// A field that this operation does not use is not zero.
    #[error("{field} must be zero here")]
    NotZero {
        /// Its name.
        field: &'static str,
    },
    /// A price or size is not one of the instrument's.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The side has as many levels as it may.
    #[error("the {side} side would have more than {levels_max} levels")]
    TooManyLevels {
        /// Which.
        side: Side,
        /// The limit.
        levels_max: u32,
    },
    /// There is such an order already.
    #[error("order {id} is there already")]
    DuplicateOrder {
        /// Its number.
        id: u64,
    },
    /// There is no such order.
    #[error("order {id} is not known")]
    UnknownOrder {
        /// Its number.
        id: u64,
    },
    /// The book has as many orders as it may.
    #[error("there would be more than {orders_max} orders")]
    TooManyOrders {
        /// The limit.
        orders_max: u32,
    },
    /// All sizes together could no longer be counted.
    #[error("all sizes together would be above {}", i64::MAX)]
    TotalTooLarge,
    /// The values would take more than readers are given.
    #[error("all keys and values together would have more than {bytes_max} bytes")]
    ValuesTooLarge {
        /// The limit.
        bytes_max: u32,
    },
    /// There are as many keys as there may be.
    #[error("there would be more than {keys_max} keys")]
    TooManyKeys {
        /// The limit.
        keys_max: u32,
    },
}

impl EntryError {
    /// The fold's answer: which entry of which record of the append, counted from 1 where there is more than one.
    #[cold]
    pub(crate) fn at(self, record: usize, entry: usize) -> FoldError {
        let place = match (record, entry) {
            (1, 1) => String::new(),
            (1, _) => format!("entry {entry}: "),
            _ => format!("record {record}, entry {entry}: "),
        };
        FoldError(format!("{place}{self}"))
    }
}

/// Hands on the entries of a record's payload, `N` bytes each. What is left over at the end is an error, found last.
#[inline(always)]
pub(crate) fn for_each_entry<const N: usize>(
    record: usize,
    payload: &[u8],
    mut take: impl FnMut(&[u8; N]) -> Result<(), EntryError>,
) -> Result<(), FoldError> {
    let (entries, rest) = payload.as_chunks::<N>();
    for (index, entry) in entries.iter().enumerate() {
        if let Err(error) = take(entry) {
            return Err(error.at(record, index + 1));
        }
    }
    match rest.len() {
        0 => Ok(()),
        bytes => Err(EntryError::TrailingBytes { bytes }.at(record, entries.len() + 1)),
    }
}
