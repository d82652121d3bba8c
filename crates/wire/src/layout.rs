//! Encodes and decodes the fields of messages.
//!
//! Integers are little-endian and unaligned. Text and bytes begin with a `u16` length, and lists with a `u32` count. A
//! value of an enum is one `u8`. The fields of a struct that [`layout!`] declares are encoded in the order of their
//! declaration.

use crate::code::ErrorCode;
use crate::error::WireError;
use crate::header::MessageKind;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) kind: MessageKind,
    pub(crate) rest: &'a [u8],
    /// The protocol version. It is here for messages whose layout differs between versions.
    #[allow(dead_code)] // No layout depends on the version yet.
    pub(crate) version: u8,
}

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], WireError> {
        let short = WireError::Short { kind: self.kind, missing: bytes.saturating_sub(self.rest.len()) };
        let (taken, after) = self.rest.split_at_checked(bytes).ok_or(short)?;
        self.rest = after;
        Ok(taken)
    }

    pub(crate) fn invalid_value(&self, what: &'static str) -> WireError {
        WireError::Value { kind: self.kind, what }
    }

    /// Checks that only padding follows the fields.
    pub(crate) fn end(self) -> Result<(), WireError> {
        if self.rest.len() < crate::header::MESSAGE_ALIGN && self.rest.iter().all(|&b| b == 0) {
            return Ok(());
        }
        Err(WireError::Trailing { kind: self.kind, bytes: self.rest.len() })
    }
}

pub(crate) trait Layout<'a>: Sized {
    fn read(fields: &mut Fields<'a>) -> Result<Self, WireError>;
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl<'a> Layout<'a> for $int {
            fn read(fields: &mut Fields<'a>) -> Result<$int, WireError> {
                let mut bytes = [0; size_of::<$int>()];
                bytes.copy_from_slice(fields.take(size_of::<$int>())?);
                Ok(<$int>::from_le_bytes(bytes))
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
integers!(u8 u16 u32 u64);

impl<'a> Layout<'a> for bool {
    fn read(fields: &mut Fields<'a>) -> Result<bool, WireError> {
        match u8::read(fields)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(fields.invalid_value("yes or no")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl<'a> Layout<'a> for &'a [u8] {
    fn read(fields: &mut Fields<'a>) -> Result<&'a [u8], WireError> {
        let len = u16::read(fields)?;
        fields.take(usize::from(len))
    }

    /// Writes at most `u16::MAX` bytes and drops the rest, because senders have checked the length before.
    fn write(&self, out: &mut Vec<u8>) {
        let truncated = &self[..self.len().min(usize::from(u16::MAX))];
        (truncated.len() as u16).write(out);
        out.extend_from_slice(truncated);
    }
}

impl<'a> Layout<'a> for &'a str {
    fn read(fields: &mut Fields<'a>) -> Result<&'a str, WireError> {
        let bytes = <&[u8]>::read(fields)?;
        std::str::from_utf8(bytes).map_err(|_| fields.invalid_value("text"))
    }

    /// Writes at most `u16::MAX` bytes of the text, and cuts no character in two.
    fn write(&self, out: &mut Vec<u8>) {
        (&self.as_bytes()[..self.floor_char_boundary(usize::from(u16::MAX))]).write(out);
    }
}

/// A text at the end of a message. If an older sender leaves it out, it counts as empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OptionalText<'a>(pub &'a str);

impl<'a> Layout<'a> for OptionalText<'a> {
    fn read(fields: &mut Fields<'a>) -> Result<OptionalText<'a>, WireError> {
        // If the remaining bytes are too few for a length, they are padding, because the sender has left out the text.
        match fields.rest.len() < size_of::<u16>() {
            true => Ok(OptionalText("")),
            false => <&str>::read(fields).map(OptionalText),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

impl<'a> Layout<'a> for Option<u64> {
    fn read(fields: &mut Fields<'a>) -> Result<Option<u64>, WireError> {
        let is_present = bool::read(fields)?;
        let value = u64::read(fields)?;
        Ok(is_present.then_some(value))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        self.unwrap_or(0).write(out);
    }
}

impl<'a> Layout<'a> for [u64; 3] {
    fn read(fields: &mut Fields<'a>) -> Result<[u64; 3], WireError> {
        Ok([u64::read(fields)?, u64::read(fields)?, u64::read(fields)?])
    }

    fn write(&self, out: &mut Vec<u8>) {
        for number in self {
            number.write(out);
        }
    }
}

impl<'a> Layout<'a> for ErrorCode {
    fn read(fields: &mut Fields<'a>) -> Result<ErrorCode, WireError> {
        Ok(ErrorCode::from_number(u16::read(fields)?))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.number().write(out);
    }
}

/// Declares a struct and its encoding: the fields one after another.
macro_rules! layout {
    ($(#[$doc:meta])* pub struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_doc:meta])* pub $field:ident : $ty:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl<'a> crate::layout::Layout<'a> for $name $(<$life>)? {
            fn read(fields: &mut crate::layout::Fields<'a>) -> Result<Self, crate::error::WireError> {
                $(let $field = crate::layout::Layout::read(fields)?;)*
                Ok($name { $($field,)* })
            }

            fn write(&self, out: &mut Vec<u8>) {
                $(crate::layout::Layout::write(&self.$field, out);)*
            }
        }
    };
}
pub(crate) use layout;

/// Declares an enum and its encoding: one byte.
macro_rules! choice {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl<'a> crate::layout::Layout<'a> for $name {
            fn read(fields: &mut crate::layout::Fields<'a>) -> Result<Self, crate::error::WireError> {
                match u8::read(fields)? {
                    $($number => Ok($name::$variant),)*
                    _ => Err(fields.invalid_value(stringify!($name))),
                }
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }
        }
    };
}
pub(crate) use choice;
