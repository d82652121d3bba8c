//! Encodes and decodes the entries of a `last` record that has no key of its own.
//!
//! ```text
//!  0    1          4          8            12
//!  +----+----------+----------+------------+---------+-----------+
//!  | op | 0 … 0    | key_len  | value_len  | key     | value     |
//!  | u8 | 3 bytes  | u32      | u32        | bytes   | bytes     |
//!  +----+----------+----------+------------+---------+-----------+
//!   1 set     the key's value is now this
//!   2 remove  the key is gone; value_len 0
//!   3 clear   all keys are gone; key_len 0, value_len 0
//! ```
//! A record has one or more consecutive entries without padding, which take effect together. All integers are
//! little-endian.

use crate::entry_error::EntryError;

/// Number of bytes of an entry before its key.
pub const VALUE_HEAD_BYTES: usize = 12;

const SET: u8 = 1;
const REMOVE: u8 = 2;
const CLEAR: u8 = 3;

/// One change of a state that stores the last value of each key: set a key, remove it, or remove all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueEntry<'a> {
    /// Sets a key's value.
    Set {
        /// The key.
        key: &'a [u8],
        /// The value; it may be empty.
        value: &'a [u8],
    },
    /// Removes a key. If the key does not exist, the entry changes nothing.
    Remove {
        /// The key.
        key: &'a [u8],
    },
    /// Removes all keys.
    Clear,
}

impl<'a> ValueEntry<'a> {
    /// Appends the encoded entry to a record's payload. The lengths of the key and the value fit into their fields,
    /// because both come from records.
    pub fn encode(&self, payload: &mut Vec<u8>) {
        let (op, key, value): (u8, &[u8], &[u8]) = match *self {
            ValueEntry::Set { key, value } => (SET, key, value),
            ValueEntry::Remove { key } => (REMOVE, key, &[]),
            ValueEntry::Clear => (CLEAR, &[], &[]),
        };
        payload.extend_from_slice(&[op, 0, 0, 0]);
        payload.extend_from_slice(&(key.len() as u32).to_le_bytes());
        payload.extend_from_slice(&(value.len() as u32).to_le_bytes());
        payload.extend_from_slice(key);
        payload.extend_from_slice(value);
    }

    /// Decodes the first entry in `bytes`. Returns the entry and the bytes after it.
    pub fn decode(bytes: &'a [u8]) -> Result<(ValueEntry<'a>, &'a [u8]), EntryError> {
        let trailing = || EntryError::TrailingBytes { bytes: bytes.len() };
        let (head, rest) = bytes.split_first_chunk::<VALUE_HEAD_BYTES>().ok_or_else(trailing)?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (key, rest) = rest.split_at_checked(word(4) as usize).ok_or_else(trailing)?;
        let (value, rest) = rest.split_at_checked(word(8) as usize).ok_or_else(trailing)?;
        let entry = match head[0] {
            _ if head[1..4] != [0; 3] => return Err(EntryError::NotZero { field: "bytes 1 to 3" }),
            SET => ValueEntry::Set { key, value },
            REMOVE if value.is_empty() => ValueEntry::Remove { key },
            REMOVE => return Err(EntryError::NotZero { field: "value_len" }),
            CLEAR if key.is_empty() && value.is_empty() => ValueEntry::Clear,
            CLEAR => return Err(EntryError::NotZero { field: "key_len or value_len" }),
            op => return Err(EntryError::UnknownOp { op }),
        };
        Ok((entry, rest))
    }

    /// Decodes the entries of a payload. An error ends the iteration.
    pub fn decode_all(payload: &'a [u8]) -> impl Iterator<Item = Result<ValueEntry<'a>, EntryError>> {
        let mut rest = payload;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let decoded = ValueEntry::decode(rest);
            rest = decoded.as_ref().map_or(&[], |(_, rest)| rest);
            Some(decoded.map(|(entry, _)| entry))
        })
    }
}
