//! Encodes and decodes the entries of a `book` record.
//!
//! ```text
//!  0    1      2          8               16              24
//!  +----+------+----------+---------------+---------------+
//!  | op | side | 0 … 0    | price         | size          |
//!  | u8 | u8   | 6 bytes  | i64           | i64           |
//!  +----+------+----------+---------------+---------------+
//!   1 set     the level's size is now this       price, size
//!   2 remove  the level is gone                  price; size 0
//!   3 clear   the whole side is gone             price 0, size 0
//! ```
//! A record has one or more consecutive entries, which take effect together. All integers are little-endian.

use crate::entry_error::EntryError;
use crate::side::Side;

/// Size of an entry, bytes.
pub const BOOK_ENTRY_BYTES: usize = 24;

pub(crate) const SET: u8 = 1;
pub(crate) const REMOVE: u8 = 2;
pub(crate) const CLEAR: u8 = 3;

/// One change of an order book that consists of price levels. Price and size are in the instrument's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookEntry {
    /// Sets a level's size.
    Set {
        /// Bid or ask.
        side: Side,
        /// Price of the level.
        price: i64,
        /// Total size at this price, above zero.
        size: i64,
    },
    /// Removes a level. The removal of a level that does not exist is ignored, because exchanges also send such
    /// removals.
    Remove {
        /// Bid or ask.
        side: Side,
        /// Price of the level.
        price: i64,
    },
    /// Removes all levels of a side.
    Clear {
        /// Bid or ask.
        side: Side,
    },
}

impl BookEntry {
    /// Appends the encoded entry to a record's payload.
    #[inline]
    pub fn encode(&self, payload: &mut Vec<u8>) {
        let (op, side, price, size) = match *self {
            BookEntry::Set { side, price, size } => (SET, side, price, size),
            BookEntry::Remove { side, price } => (REMOVE, side, price, 0),
            BookEntry::Clear { side } => (CLEAR, side, 0, 0),
        };
        let mut bytes = [0; BOOK_ENTRY_BYTES];
        bytes[0] = op;
        bytes[1] = side.code();
        bytes[8..16].copy_from_slice(&price.to_le_bytes());
        bytes[16..].copy_from_slice(&size.to_le_bytes());
        payload.extend_from_slice(&bytes);
    }

    /// Decodes one entry. Does not check whether the price and the size are valid; [`Scale`](crate::Scale) checks them.
    #[inline(always)]
    pub fn decode(bytes: &[u8; BOOK_ENTRY_BYTES]) -> Result<BookEntry, EntryError> {
        let [head, price, size] = words(bytes);
        let (price, size) = (price as i64, size as i64);
        let side = Side::from_code((head >> 8) as u8);
        match (head as u8, side) {
            _ if head >> 16 != 0 => Err(EntryError::NotZero { field: "bytes 2 to 7" }),
            (SET, Some(side)) => Ok(BookEntry::Set { side, price, size }),
            (REMOVE, Some(side)) if size == 0 => Ok(BookEntry::Remove { side, price }),
            (REMOVE, Some(_)) => Err(EntryError::NotZero { field: "size" }),
            (CLEAR, Some(side)) if price == 0 && size == 0 => Ok(BookEntry::Clear { side }),
            (CLEAR, Some(_)) => Err(EntryError::NotZero { field: "price or size" }),
            (SET | REMOVE | CLEAR, None) => Err(EntryError::UnknownSide { side: (head >> 8) as u8 }),
            (op, _) => Err(EntryError::UnknownOp { op }),
        }
    }

    /// Decodes the entries of a payload. If bytes are left over after the last whole entry, the last item is an error.
    pub fn decode_all(payload: &[u8]) -> impl Iterator<Item = Result<BookEntry, EntryError>> + '_ {
        let (entries, rest) = payload.as_chunks::<BOOK_ENTRY_BYTES>();
        let left = (!rest.is_empty()).then_some(Err(EntryError::TrailingBytes { bytes: rest.len() }));
        entries.iter().map(BookEntry::decode).chain(left)
    }
}

#[inline(always)]
fn words(bytes: &[u8; BOOK_ENTRY_BYTES]) -> [u64; 3] {
    let (words, _) = bytes.as_chunks::<8>();
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]), u64::from_le_bytes(words[2])]
}
