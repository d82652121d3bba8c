//! How messages, entries of the journal and states become bytes.
//!
//! Integers and floats are little-endian and unaligned; bytes are a `u32` length and that many bytes; lists are a `u32`
//! count and that many items. Every whole begins with [`VERSION`].

use crate::world::Point;

/// The version of every encoding here.
pub const VERSION: u8 = 1;

/// Why bytes cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// They end too early, or announce more than there is.
    #[error("the bytes end before what they announce")]
    Short,
    /// They go on after their end.
    #[error("{0} bytes follow after the end")]
    Trailing(usize),
    /// Another Dunlin wrote them.
    #[error(
        "version {0} is not known here: this reads version {VERSION}; use the same version on both sides"
    )]
    Version(u8),
    /// A choice that is none.
    #[error("{what} {number} is not known")]
    Unknown {
        /// Of what.
        what: &'static str,
        /// Its number.
        number: u8,
    },
    /// A coordinate is not a number, or infinite.
    #[error("a coordinate is not finite")]
    NotFinite,
    /// More than there may be at once.
    #[error("{count} {what} at once are more than {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        max: usize,
    },
}

/// Bytes that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Behind the version.
    pub(crate) fn versioned(bytes: &'a [u8]) -> Result<Fields<'a>, DecodeError> {
        let mut fields = Fields { rest: bytes };
        match fields.u8()? {
            VERSION => Ok(fields),
            other => Err(DecodeError::Version(other)),
        }
    }

    pub(crate) fn plain(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], DecodeError> {
        let (here, after) = self.rest.split_at_checked(bytes).ok_or(DecodeError::Short)?;
        self.rest = after;
        Ok(here)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (here, after) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.rest = after;
        Ok(*here)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn f32(&mut self) -> Result<f32, DecodeError> {
        self.array().map(f32::from_le_bytes)
    }

    pub(crate) fn point<const D: usize>(&mut self) -> Result<Point<D>, DecodeError> {
        let mut point = [0.0; D];
        for along in &mut point {
            *along = self.f32()?;
        }
        Ok(point)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    /// How many items of so many bytes at least follow.
    pub(crate) fn count(&mut self, item_bytes: usize) -> Result<usize, DecodeError> {
        let count = self.u32()? as usize;
        if count.saturating_mul(item_bytes) > self.rest.len() { Err(DecodeError::Short) } else { Ok(count) }
    }

    /// Items of so many bytes at least.
    pub(crate) fn list<T>(
        &mut self,
        item_bytes: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        (0..self.count(item_bytes)?).map(|_| item(self)).collect()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.rest.len())) }
    }
}

/// Appends bytes and how many they are.
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
