//! Encodes and decodes the entries of an `orders` record.
//!
//! ```text
//!  0    1      2          8          16              24              32
//!  +----+------+----------+----------+---------------+---------------+
//!  | op | side | 0 … 0    | order id | price         | size          |
//!  | u8 | u8   | 6 bytes  | u64      | i64           | i64           |
//!  +----+------+----------+----------+---------------+---------------+
//!   1 add     behind all others of its price     side, id, price, size
//!   2 change  price and size are now these       id, price, size; side 0
//!   3 delete  the order is gone                  id; side 0, price 0, size 0
//!   4 clear   all orders of a side are gone      side; id 0, price 0, size 0
//! ```
//! A record has one or more consecutive entries, which take effect together. All integers are little-endian.

use crate::entry_error::EntryError;
use crate::side::Side;

/// Size of an entry, bytes.
pub const ORDER_ENTRY_BYTES: usize = 32;

const ADD: u8 = 1;
const CHANGE: u8 = 2;
const DELETE: u8 = 3;
const CLEAR: u8 = 4;

/// One change of an order book that consists of single orders. Price and size are in the instrument's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderEntry {
    /// Adds an order at the end of the queue of its side and price.
    Add {
        /// Bid or ask.
        side: Side,
        /// Id of the order, which no other order in the book has.
        id: u64,
        /// Price of the order.
        price: i64,
        /// Size of the order, above zero.
        size: i64,
    },
    /// Changes the price and the size of an order. The order keeps its place if the price stays the same and the size
    /// does not grow. Otherwise, the order moves to the end of the queue of its price.
    Change {
        /// Id of the order.
        id: u64,
        /// New price.
        price: i64,
        /// New size, above zero.
        size: i64,
    },
    /// Removes an order.
    Delete {
        /// Id of the order.
        id: u64,
    },
    /// Removes all orders of a side.
    Clear {
        /// Bid or ask.
        side: Side,
    },
}

impl OrderEntry {
    /// Appends the encoded entry to a record's payload.
    #[inline]
    pub fn encode(&self, payload: &mut Vec<u8>) {
        let (op, side, id, price, size) = match *self {
            OrderEntry::Add { side, id, price, size } => (ADD, side.code(), id, price, size),
            OrderEntry::Change { id, price, size } => (CHANGE, 0, id, price, size),
            OrderEntry::Delete { id } => (DELETE, 0, id, 0, 0),
            OrderEntry::Clear { side } => (CLEAR, side.code(), 0, 0, 0),
        };
        let mut bytes = [0; ORDER_ENTRY_BYTES];
        bytes[0] = op;
        bytes[1] = side;
        bytes[8..16].copy_from_slice(&id.to_le_bytes());
        bytes[16..24].copy_from_slice(&price.to_le_bytes());
        bytes[24..].copy_from_slice(&size.to_le_bytes());
        payload.extend_from_slice(&bytes);
    }

    /// Decodes one entry. Does not check whether the price and the size are valid; [`Scale`](crate::Scale) checks them.
    #[inline(always)]
    pub fn decode(bytes: &[u8; ORDER_ENTRY_BYTES]) -> Result<OrderEntry, EntryError> {
        let [head, id, price, size] = words(bytes);
        let (op, code) = (head as u8, (head >> 8) as u8);
        let zero = |wrong: bool, field| if wrong { Err(EntryError::NotZero { field }) } else { Ok(()) };
        let side = || Side::from_code(code).ok_or(EntryError::UnknownSide { side: code });
        zero(head >> 16 != 0, "bytes 2 to 7")?;
        match op {
            ADD => Ok(OrderEntry::Add { side: side()?, id, price: price as i64, size: size as i64 }),
            CHANGE => {
                zero(code != 0, "side")?;
                Ok(OrderEntry::Change { id, price: price as i64, size: size as i64 })
            }
            DELETE => {
                zero(code != 0 || price != 0 || size != 0, "side, price or size")?;
                Ok(OrderEntry::Delete { id })
            }
            CLEAR => {
                zero(id != 0 || price != 0 || size != 0, "id, price or size")?;
                Ok(OrderEntry::Clear { side: side()? })
            }
            op => Err(EntryError::UnknownOp { op }),
        }
    }

    /// Decodes the entries of a payload. If bytes are left over after the last whole entry, the last item is an error.
    pub fn decode_all(payload: &[u8]) -> impl Iterator<Item = Result<OrderEntry, EntryError>> + '_ {
        let (entries, rest) = payload.as_chunks::<ORDER_ENTRY_BYTES>();
        let left = (!rest.is_empty()).then_some(Err(EntryError::TrailingBytes { bytes: rest.len() }));
        entries.iter().map(OrderEntry::decode).chain(left)
    }
}

#[inline(always)]
fn words(bytes: &[u8; ORDER_ENTRY_BYTES]) -> [u64; 4] {
    let (words, _) = bytes.as_chunks::<8>();
    [0, 1, 2, 3].map(|at| u64::from_le_bytes(words[at]))
}
