//! Encoding of messages, journal entries and states.
//!
//! Integers and floats are little-endian and unaligned. A byte string is encoded as a `u32` length and the bytes, a
//! list as a `u32` count and the items. Messages, reports, snapshots and the states of entities begin with [`VERSION`].

use crate::world::Point;

/// The version with which the encodings of this crate begin.
pub const VERSION: u8 = 1;

/// The reason why bytes of a world's message or state cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceDecodeError {
    /// The bytes end too early, or a length is greater than the remaining bytes.
    #[error("the bytes end too early")]
    Short,
    /// Bytes follow after the end.
    #[error("{0} unexpected bytes follow after the end")]
    Trailing(usize),
    /// The version is unknown.
    #[error(
        "encoding version {0} is not known: this build reads version {VERSION}; use the same version on both sides"
    )]
    Version(u8),
    /// An enum has an unknown value.
    #[error("{what} {number} is not known")]
    Unknown {
        /// Name of the enum.
        what: &'static str,
        /// The unknown number.
        number: u8,
    },
    /// A coordinate is NaN or infinite.
    #[error("a coordinate is not finite")]
    NotFinite,
    /// A count exceeds its limit.
    #[error("{count} {what} at once exceed the limit of {max}")]
    TooMany {
        /// The name of the counted items.
        what: &'static str,
        /// The count.
        count: usize,
        /// The limit.
        max: usize,
    },
}

/// Bytes that are still to be decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Reads the version, and returns the remaining bytes as fields.
    pub(crate) fn versioned(bytes: &'a [u8]) -> Result<Fields<'a>, SpaceDecodeError> {
        let mut fields = Fields { rest: bytes };
        match fields.u8()? {
            VERSION => Ok(fields),
            other => Err(SpaceDecodeError::Version(other)),
        }
    }

    pub(crate) fn plain(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], SpaceDecodeError> {
        let (taken, after) = self.rest.split_at_checked(bytes).ok_or(SpaceDecodeError::Short)?;
        self.rest = after;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SpaceDecodeError> {
        let (taken, after) = self.rest.split_first_chunk::<N>().ok_or(SpaceDecodeError::Short)?;
        self.rest = after;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, SpaceDecodeError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, SpaceDecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, SpaceDecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn f32(&mut self) -> Result<f32, SpaceDecodeError> {
        self.array().map(f32::from_le_bytes)
    }

    pub(crate) fn point<const D: usize>(&mut self) -> Result<Point<D>, SpaceDecodeError> {
        let mut point = [0.0; D];
        for along in &mut point {
            *along = self.f32()?;
        }
        Ok(point)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], SpaceDecodeError> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    /// Reads a count of items that have at least `item_bytes` bytes each.
    pub(crate) fn count(&mut self, item_bytes: usize) -> Result<usize, SpaceDecodeError> {
        let count = self.u32()? as usize;
        if count.saturating_mul(item_bytes) > self.rest.len() {
            Err(SpaceDecodeError::Short)
        } else {
            Ok(count)
        }
    }

    /// Reads a list of items that have at least `item_bytes` bytes each.
    pub(crate) fn list<T>(
        &mut self,
        item_bytes: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, SpaceDecodeError>,
    ) -> Result<Vec<T>, SpaceDecodeError> {
        (0..self.count(item_bytes)?).map(|_| item(self)).collect()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn end(&self) -> Result<(), SpaceDecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(SpaceDecodeError::Trailing(self.rest.len())) }
    }
}

/// Appends a byte string: its length, then its bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_point<const D: usize>(out: &mut Vec<u8>, point: &Point<D>) {
    point.iter().for_each(|along| out.extend_from_slice(&along.to_le_bytes()));
}
