//! Encodes commands, replies, changes and snapshots in binary form, and decodes them.
//!
//! Integers are little-endian and unaligned. A byte string is encoded as a `u32` length and the bytes, a list as a
//! `u32` count and the items. An optional item begins with a `bool` byte, an enum with the byte of its variant. Fields
//! follow in the order of their declaration, so reordering fields in the source changes the encoding.

use std::sync::Arc;

use crate::error::ControlDecodeError;
use crate::item::Key;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
    /// Maximum number of items in each list.
    items_max: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Fields<'a> {
        Fields { rest, items_max: usize::MAX }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], ControlDecodeError> {
        let (here, after) = self.rest.split_at_checked(bytes).ok_or(ControlDecodeError::Short)?;
        self.rest = after;
        Ok(here)
    }

    /// Reads the number of items in a list. Refuses a number that is higher than the number of remaining bytes, because
    /// each item takes at least one byte.
    pub(crate) fn count(&mut self) -> Result<usize, ControlDecodeError> {
        let count = u32::read(self)? as usize;
        match self.items_max {
            _ if count > self.rest.len() => Err(ControlDecodeError::Short),
            count_max if count > count_max => Err(ControlDecodeError::TooMany { count, count_max }),
            _ => Ok(count),
        }
    }
}

/// Decodes the version of the encoding and a `T`, which must fill `bytes` completely.
pub(crate) fn decode<'a, T: Layout<'a>>(bytes: &'a [u8]) -> Result<T, ControlDecodeError> {
    decode_with_lists_up_to(usize::MAX, bytes)
}

/// Like [`decode`], but refuses a list of more than `items_max` items before allocating memory for them.
pub(crate) fn decode_with_lists_up_to<'a, T: Layout<'a>>(
    items_max: usize,
    bytes: &'a [u8],
) -> Result<T, ControlDecodeError> {
    let mut fields = Fields { rest: bytes, items_max };
    let version = u8::read(&mut fields)?;
    if version != crate::VERSION {
        return Err(ControlDecodeError::Version(version));
    }
    let read = T::read(&mut fields)?;
    if fields.rest.is_empty() { Ok(read) } else { Err(ControlDecodeError::Trailing(fields.rest.len())) }
}

/// Appends the version of the encoding and the encoded `whole`.
pub(crate) fn encode<'a, T: Layout<'a>>(whole: &T, out: &mut Vec<u8>) {
    out.push(crate::VERSION);
    whole.write(out);
}

pub(crate) trait Layout<'a>: Sized {
    fn read(fields: &mut Fields<'a>) -> Result<Self, ControlDecodeError>;
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl<'a> Layout<'a> for $int {
            #[inline]
            fn read(fields: &mut Fields<'a>) -> Result<$int, ControlDecodeError> {
                let mut bytes = [0; size_of::<$int>()];
                bytes.copy_from_slice(fields.take(size_of::<$int>())?);
                Ok(<$int>::from_le_bytes(bytes))
            }

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
integers!(u8 u32 u64);

impl<'a> Layout<'a> for bool {
    fn read(fields: &mut Fields<'a>) -> Result<bool, ControlDecodeError> {
        match u8::read(fields)? {
            0 => Ok(false),
            1 => Ok(true),
            number => Err(ControlDecodeError::Unknown { what: "yes or no", number }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl<'a> Layout<'a> for &'a [u8] {
    fn read(fields: &mut Fields<'a>) -> Result<&'a [u8], ControlDecodeError> {
        let len = u32::read(fields)?;
        fields.take(len as usize)
    }

    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u32).write(out);
        out.extend_from_slice(self);
    }
}

impl<'a> Layout<'a> for Arc<[u8]> {
    fn read(fields: &mut Fields<'a>) -> Result<Arc<[u8]>, ControlDecodeError> {
        <&[u8]>::read(fields).map(Arc::from)
    }

    fn write(&self, out: &mut Vec<u8>) {
        (&**self).write(out);
    }
}

impl<'a> Layout<'a> for Key {
    fn read(fields: &mut Fields<'a>) -> Result<Key, ControlDecodeError> {
        <&[u8]>::read(fields).map(Key::from_slice)
    }

    fn write(&self, out: &mut Vec<u8>) {
        (&**self).write(out);
    }
}

impl<'a, T: Layout<'a>> Layout<'a> for Vec<T> {
    fn read(fields: &mut Fields<'a>) -> Result<Vec<T>, ControlDecodeError> {
        let count = fields.count()?;
        (0..count).map(|_| T::read(fields)).collect()
    }

    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u32).write(out);
        self.iter().for_each(|item| item.write(out));
    }
}

impl<'a, T: Layout<'a>> Layout<'a> for Option<T> {
    fn read(fields: &mut Fields<'a>) -> Result<Option<T>, ControlDecodeError> {
        bool::read(fields)?.then(|| T::read(fields)).transpose()
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        self.iter().for_each(|item| item.write(out));
    }
}

/// Declares a struct and its encoding, field by field.
macro_rules! layout {
    ($(#[$meta:meta])* pub struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_meta:meta])* pub $field:ident : $ty:ty,)*
    }) => {
        $(#[$meta])*
        pub struct $name $(<$life>)? {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl<'a> crate::layout::Layout<'a> for $name $(<$life>)? {
            #[inline]
            fn read(fields: &mut crate::layout::Fields<'a>) -> Result<Self, crate::error::ControlDecodeError> {
                $(let $field = crate::layout::Layout::read(fields)?;)*
                Ok($name { $($field,)* })
            }

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                $(crate::layout::Layout::write(&self.$field, out);)*
            }
        }
    };
}
pub(crate) use layout;

/// Declares an enum and its encoding: the number of the variant, then the variant's fields.
macro_rules! choice {
    ($(#[$meta:meta])* pub enum $name:ident $(<$life:lifetime>)? {
        $($(#[$variant_meta:meta])* $variant:ident
            $({ $($(#[$field_meta:meta])* $field:ident : $ty:ty),* $(,)? })? = $number:literal,)*
    }) => {
        $(#[$meta])*
        pub enum $name $(<$life>)? {
            $($(#[$variant_meta])* $variant $({ $($(#[$field_meta])* $field: $ty,)* })?,)*
        }

        impl<'a> crate::layout::Layout<'a> for $name $(<$life>)? {
            fn read(fields: &mut crate::layout::Fields<'a>) -> Result<Self, crate::error::ControlDecodeError> {
                Ok(match u8::read(fields)? {
                    $($number => {
                        $($(let $field = crate::layout::Layout::read(fields)?;)*)?
                        $name::$variant $({ $($field,)* })?
                    })*
                    number => {
                        return Err(crate::error::ControlDecodeError::Unknown { what: stringify!($name), number });
                    }
                })
            }

            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant $({ $($field,)* })? => {
                        out.push($number);
                        $($(crate::layout::Layout::write($field, out);)*)?
                    })*
                }
            }
        }
    };
}
pub(crate) use choice;
