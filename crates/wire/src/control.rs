//! Defines the messages with commands and queries for keys, leases and locks.
//!
//! The commands and queries are byte strings here. The crate `control` encodes them, and has a version number of its
//! own for this.

use crate::error::WireError;
use crate::layout::{Fields, Layout, choice, layout};

choice! {
    /// The content of a CONTROL message: a command, a linearizable query or a stale query.
    pub enum ControlKind {
        /// An encoded command.
        Command = 1,
        /// A linearizable query.
        Query = 2,
        /// A stale query, which the node answers from its own state.
        StaleQuery = 3,
    }
}

layout! {
    /// Message CONTROL: a command or a query for keys, leases and locks.
    pub struct Control<'a> {
        /// The request's number. The reply repeats it.
        pub request: u32,
        /// The kind of content in `bytes`.
        pub kind: ControlKind,
        /// The encoded command or query.
        pub bytes: U32PrefixedBytes<'a>,
    }
}

layout! {
    /// Message CONTROLLED: the reply to a CONTROL message, with the result of the command or query.
    pub struct ControlResult<'a> {
        /// The number of the request to which this is the reply.
        pub request: u32,
        /// The encoded result.
        pub bytes: U32PrefixedBytes<'a>,
    }
}

/// A byte string in a message, preceded by its length as a `u32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct U32PrefixedBytes<'a>(pub &'a [u8]);

impl<'a> Layout<'a> for U32PrefixedBytes<'a> {
    fn read(fields: &mut Fields<'a>) -> Result<U32PrefixedBytes<'a>, WireError> {
        let len = u32::read(fields)?;
        fields.take(len as usize).map(U32PrefixedBytes)
    }

    fn write(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).write(out);
        out.extend_from_slice(self.0);
    }
}
