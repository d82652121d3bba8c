//! The errors with which a state refuses a record, because the entries in the record's payload are malformed or do not
//! fit the state.

use dunlin_topic::ReducerError;

use crate::scale::ScaleError;
use crate::side::Side;

/// The reason why a state refuses the payload of a record, or one entry in the payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The payload contains no entry.
    #[error("the record has no entry")]
    Empty,
    /// Bytes are left over after the last whole entry of the payload.
    #[error("{bytes} bytes are left after the last whole entry")]
    TrailingBytes {
        /// Number of leftover bytes.
        bytes: usize,
    },
    /// The first byte of the entry is not a known operation.
    #[error("operation {op} is not known")]
    UnknownOp {
        /// The first byte of the entry.
        op: u8,
    },
    /// The second byte of the entry is not a known side.
    #[error("side {side} is not known")]
    UnknownSide {
        /// The second byte of the entry.
        side: u8,
    },
    /// A field is not zero, although the entry's operation does not use this field.
    #[error("{field} must be zero for this operation")]
    NotZero {
        /// Name of the field.
        field: &'static str,
    },
    /// The price or the size of the entry is not valid for the instrument.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The side of the book would have more levels than allowed.
    #[error("the {side} side would have more than {levels_max} levels")]
    TooManyLevels {
        /// The side of the book.
        side: Side,
        /// Maximum number of levels.
        levels_max: u32,
    },
    /// The entry adds an order whose id already exists in the book.
    #[error("order {id} already exists")]
    DuplicateOrder {
        /// Id of the order.
        id: u64,
    },
    /// The entry changes or deletes an order that the book does not have.
    #[error("order {id} is not known")]
    UnknownOrder {
        /// Id of the order.
        id: u64,
    },
    /// The book would have more orders than allowed.
    #[error("the state would have more than {orders_max} orders")]
    TooManyOrders {
        /// Maximum number of orders.
        orders_max: u32,
    },
    /// The sum of the sizes of all orders would overflow an `i64`.
    #[error("the sum of all sizes would be above {}", i64::MAX)]
    TotalTooLarge,
    /// All keys and values together would be larger than allowed. The limit keeps snapshots small enough for
    /// subscribers.
    #[error("all keys and values together would have more than {bytes_max} bytes")]
    ValuesTooLarge {
        /// Maximum size of all keys and values together, in bytes.
        bytes_max: u32,
    },
    /// The state would have more keys than allowed.
    #[error("the state would have more than {keys_max} keys")]
    TooManyKeys {
        /// Maximum number of keys.
        keys_max: u32,
    },
}

impl EntryError {
    /// Converts the error to a [`ReducerError`]. `record` and `entry` are the numbers of the refused record and entry,
    /// from 1. The text names neither number for entry 1 of record 1, only the entry for later entries of record 1, and
    /// both numbers for later records.
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

/// Calls `apply` for each entry of `N` bytes in the payload. Returns the first error of `apply`, or an error if bytes
/// are left over after the last whole entry. `record` is the record's number, for the text of the error.
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
