//! Encoding of commands, replies, events and snapshots.
//!
//! Integers are little-endian and unaligned. A byte string is encoded as a `u32` length and the bytes, a list as a
//! `u32` count and the items. An optional item begins with a `bool` byte, an enum with the byte of its variant. Fields
//! are encoded in the order of their declaration, so reordering fields in the source changes the encoding. The crate
//! `control` encodes by the same rules, but counts its own versions.
//!
//! Bytes that older versions wrote stay readable. Fields that were added to a struct later (`later { … }`) come after
//! the struct's bytes, in an [`ExtendedEncoding`]. Later fields are written only if they are used. Another part of the
//! encoding, such as the number of a command, shows whether they are present. Old bytes therefore keep their meaning,
//! and older versions refuse bytes with later fields.

use std::sync::Arc;

use crate::error::TaskDecodeError;

/// Bytes that are still to be decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], TaskDecodeError> {
        let (taken, after) = self.rest.split_at_checked(bytes).ok_or(TaskDecodeError::Short)?;
        self.rest = after;
        Ok(taken)
    }

    /// Reads the number of items in a list. Refuses a number above the number of remaining bytes, because each item
    /// takes at least one byte.
    pub(crate) fn count(&mut self) -> Result<usize, TaskDecodeError> {
        let count = u32::read(self)? as usize;
        if count > self.rest.len() { Err(TaskDecodeError::Short) } else { Ok(count) }
    }
}

/// Decodes the version and one whole `T`.
pub(crate) fn decode<'a, T: Layout<'a>>(bytes: &'a [u8]) -> Result<T, TaskDecodeError> {
    let mut fields = Fields { rest: bytes };
    let version = u8::read(&mut fields)?;
    if version != crate::VERSION {
        return Err(TaskDecodeError::Version(version));
    }
    let read = T::read(&mut fields)?;
    if fields.rest.is_empty() { Ok(read) } else { Err(TaskDecodeError::Trailing(fields.rest.len())) }
}

/// Encodes the version and one whole `T`.
pub(crate) fn encode<'a, T: Layout<'a>>(value: &T, out: &mut Vec<u8>) {
    out.push(crate::VERSION);
    value.write(out);
}

/// Copies bytes into a shared value. Empty bytes, the most frequent case, need no allocation.
pub(crate) fn shared(bytes: &[u8]) -> Arc<[u8]> {
    if bytes.is_empty() { Arc::default() } else { bytes.into() }
}

/// A value that can be encoded and decoded.
pub(crate) trait Layout<'a>: Sized {
    fn read(fields: &mut Fields<'a>) -> Result<Self, TaskDecodeError>;
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl<'a> Layout<'a> for $int {
            #[inline]
            fn read(fields: &mut Fields<'a>) -> Result<$int, TaskDecodeError> {
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
integers!(u8 u16 u32 u64 i64);

impl<'a> Layout<'a> for bool {
    fn read(fields: &mut Fields<'a>) -> Result<bool, TaskDecodeError> {
        match u8::read(fields)? {
            0 => Ok(false),
            1 => Ok(true),
            number => Err(TaskDecodeError::Unknown { what: "yes or no", number }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl<'a, A: Layout<'a>, B: Layout<'a>> Layout<'a> for (A, B) {
    fn read(fields: &mut Fields<'a>) -> Result<(A, B), TaskDecodeError> {
        Ok((A::read(fields)?, B::read(fields)?))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }
}

impl<'a> Layout<'a> for String {
    fn read(fields: &mut Fields<'a>) -> Result<String, TaskDecodeError> {
        let text = std::str::from_utf8(<&[u8]>::read(fields)?);
        text.map(str::to_owned).map_err(|_| TaskDecodeError::Inconsistent("bytes and text"))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.as_bytes().write(out);
    }
}

impl<'a> Layout<'a> for &'a [u8] {
    fn read(fields: &mut Fields<'a>) -> Result<&'a [u8], TaskDecodeError> {
        let len = u32::read(fields)?;
        fields.take(len as usize)
    }

    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u32).write(out);
        out.extend_from_slice(self);
    }
}

impl<'a> Layout<'a> for Arc<[u8]> {
    fn read(fields: &mut Fields<'a>) -> Result<Arc<[u8]>, TaskDecodeError> {
        <&[u8]>::read(fields).map(shared)
    }

    fn write(&self, out: &mut Vec<u8>) {
        (&**self).write(out);
    }
}

impl<'a, T: Layout<'a>> Layout<'a> for Arc<T> {
    fn read(fields: &mut Fields<'a>) -> Result<Arc<T>, TaskDecodeError> {
        T::read(fields).map(Arc::new)
    }

    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }
}

impl<'a, T: Layout<'a>, const N: usize> Layout<'a> for [T; N] {
    fn read(fields: &mut Fields<'a>) -> Result<[T; N], TaskDecodeError> {
        let read: Vec<T> = (0..N).map(|_| T::read(fields)).collect::<Result<_, _>>()?;
        read.try_into().map_err(|_| TaskDecodeError::Short)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.write(out));
    }
}

impl<'a, T: Layout<'a>> Layout<'a> for Vec<T> {
    fn read(fields: &mut Fields<'a>) -> Result<Vec<T>, TaskDecodeError> {
        let count = fields.count()?;
        (0..count).map(|_| T::read(fields)).collect()
    }

    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u32).write(out);
        self.iter().for_each(|item| item.write(out));
    }
}

impl<'a, T: Layout<'a>> Layout<'a> for Option<T> {
    fn read(fields: &mut Fields<'a>) -> Result<Option<T>, TaskDecodeError> {
        bool::read(fields)?.then(|| T::read(fields)).transpose()
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        self.iter().for_each(|item| item.write(out));
    }
}

/// A type to which later versions added fields. The added fields are encoded outside the type's own bytes.
pub(crate) trait Later<'a>: Layout<'a> {
    /// Whether any of the later fields is used.
    fn has_later_fields(&self) -> bool;
    fn read_more(&mut self, fields: &mut Fields<'a>) -> Result<(), TaskDecodeError>;
    fn write_more(&self, out: &mut Vec<u8>);
}

/// A value, encoded together with the fields that later versions added to the value's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedEncoding<T>(pub T);

impl<'a, T: Later<'a>> Layout<'a> for ExtendedEncoding<T> {
    fn read(fields: &mut Fields<'a>) -> Result<ExtendedEncoding<T>, TaskDecodeError> {
        let mut read = T::read(fields)?;
        read.read_more(fields)?;
        Ok(ExtendedEncoding(read))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.0.write_more(out);
    }
}

/// Declares a struct whose fields are encoded in order.
macro_rules! layout {
    ($(#[$meta:meta])* pub struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_meta:meta])* pub $field:ident : $ty:ty,)*
    } later {
        $($(#[$later_meta:meta])* pub $later:ident : $later_ty:ty,)*
    }) => {
        $(#[$meta])*
        pub struct $name $(<$life>)? {
            $($(#[$field_meta])* pub $field: $ty,)*
            $($(#[$later_meta])* pub $later: $later_ty,)*
        }

        impl<'a> crate::layout::Layout<'a> for $name $(<$life>)? {
            #[inline]
            fn read(fields: &mut crate::layout::Fields<'a>) -> Result<Self, crate::error::TaskDecodeError> {
                $(let $field = crate::layout::Layout::read(fields)?;)*
                Ok($name { $($field,)* $($later: Default::default(),)* })
            }

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                $(crate::layout::Layout::write(&self.$field, out);)*
            }
        }

        impl<'a> crate::layout::Later<'a> for $name $(<$life>)? {
            fn has_later_fields(&self) -> bool {
                false $(|| self.$later != <$later_ty>::default())*
            }

            fn read_more(&mut self, fields: &mut crate::layout::Fields<'a>) -> Result<(), crate::error::TaskDecodeError> {
                $(self.$later = crate::layout::Layout::read(fields)?;)*
                Ok(())
            }

            fn write_more(&self, out: &mut Vec<u8>) {
                $(crate::layout::Layout::write(&self.$later, out);)*
            }
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_meta:meta])* pub $field:ident : $ty:ty,)*
    }) => {
        $(#[$meta])*
        pub struct $name $(<$life>)? {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl<'a> crate::layout::Layout<'a> for $name $(<$life>)? {
            #[inline]
            fn read(fields: &mut crate::layout::Fields<'a>) -> Result<Self, crate::error::TaskDecodeError> {
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

/// Declares an enum. It is encoded as one byte for the variant, followed by the variant's fields.
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
            fn read(fields: &mut crate::layout::Fields<'a>) -> Result<Self, crate::error::TaskDecodeError> {
                Ok(match u8::read(fields)? {
                    $($number => {
                        $($(let $field = crate::layout::Layout::read(fields)?;)*)?
                        $name::$variant $({ $($field,)* })?
                    })*
                    number => {
                        return Err(crate::error::TaskDecodeError::Unknown { what: stringify!($name), number });
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
