//! Errors of records: malformed entries, or entries that do not fit the state.

use dunlin_topic::ReducerError;

use crate::scale::ScaleError;
use crate::side::Side;

/// The reason why a state refuses a record's payload, or one entry of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The record has no entry.
    #[error("the record has no entry")]
    Empty,
    /// The payload does not end at the end of an entry.
    #[error("{bytes} bytes are left after the last whole entry")]
    TrailingBytes {
        /// Number of leftover bytes.
        bytes: usize,
    },
    /// The first byte is not an operation.
    #[error("operation {op} is not known")]
    UnknownOp {
        /// The byte.
        op: u8,
    },
    /// The second byte is not a side.
    #[error("side {side} is not known")]
    UnknownSide {
        /// The byte.
        side: u8,
    },
    /// A field that this operation does not use is not zero.
    #[error("{field} must be zero for this operation")]
    NotZero {
        /// Name of the field.
        field: &'static str,
    },
    /// The entry has a price or size that the instrument does not allow.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The side is at its limit of levels.
    #[error("the {side} side would have more than {levels_max} levels")]
    TooManyLevels {
        /// The side.
        side: Side,
        /// The limit.
        levels_max: u32,
    },
    /// An order with this id exists.
    #[error("order {id} already exists")]
    DuplicateOrder {
        /// Id of the order.
        id: u64,
    },
    /// No order has this id.
    #[error("order {id} is not known")]
    UnknownOrder {
        /// Id of the order.
        id: u64,
    },
    /// The book is at its limit of orders.
    #[error("the state would have more than {orders_max} orders")]
    TooManyOrders {
        /// The limit.
        orders_max: u32,
    },
    /// The sum of all sizes would overflow.
    #[error("the sum of all sizes would be above {}", i64::MAX)]
    TotalTooLarge,
    /// The values would make snapshots larger than subscribers accept.
    #[error("all keys and values together would have more than {bytes_max} bytes")]
    ValuesTooLarge {
        /// The limit.
        bytes_max: u32,
    },
    /// The state is at its limit of keys.
    #[error("the state would have more than {keys_max} keys")]
    TooManyKeys {
        /// The limit.
        keys_max: u32,
    },
}

impl EntryError {
    /// Converts to the reducer's error. Its text begins with the number of the entry and, unless the record is the
    /// first, the number of the record. Both count from 1. An error of the first entry of the first record names no
    /// numbers.
    #[cold]
    pub(crate) fn at(self, record: usize, entry: usize) -> ReducerError {
        let location = match (record, entry) {
            (1, 1) => String::new(),
            (1, _) => format!("entry {entry}: "),
            _ => format!("record {record}, entry {entry}: "),
        };
        ReducerError(format!("{location}{self}"))
    }
}

/// Calls a function for each entry of `N` bytes. If bytes are left over after the last entry, returns an error.
#[inline(always)]
pub(crate) fn for_each_entry<const N: usize>(
    record: usize,
    payload: &[u8],
    mut apply: impl FnMut(&[u8; N]) -> Result<(), EntryError>,
) -> Result<(), ReducerError> {
    let (entries, rest) = payload.as_chunks::<N>();
    for (index, entry) in entries.iter().enumerate() {
        if let Err(error) = apply(entry) {
            return Err(error.at(record, index + 1));
        }
    }
    match rest.len() {
        0 => Ok(()),
        bytes => Err(EntryError::TrailingBytes { bytes }.at(record, entries.len() + 1)),
    }
}
