//! Keys and values, leases and locks: commands and questions on their way to what the cluster agrees on.
//!
//! What they are is not read here: they pass as the bytes of that crate, which carry a version of their own.

use crate::error::WireError;
use crate::layout::{Fields, Layout, choice, layout};

choice! {
    /// What the bytes are.
    pub enum ControlKind {
        /// A command.
        Command = 1,
        /// A question, whose answer is as fresh as all that was answered to anybody before.
        Question = 2,
        /// A question that is answered as the node has it.
        StaleQuestion = 3,
    }
}

layout! {
    /// A command or a question.
    pub struct Control<'a> {
        /// Its number, under which it is answered.
        pub request: u32,
        /// Which it is.
        pub kind: ControlKind,
        /// Its bytes.
        pub bytes: Long<'a>,
    }
}

layout! {
    /// What came of it.
    pub struct Controlled<'a> {
        /// The request's number.
        pub request: u32,
        /// The answer's bytes.
        pub bytes: Long<'a>,
    }
}

/// Bytes behind a `u32` length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Long<'a>(pub &'a [u8]);

impl<'a> Layout<'a> for Long<'a> {
    fn read(fields: &mut Fields<'a>) -> Result<Long<'a>, WireError> {
        let len = u32::read(fields)?;
        fields.take(len as usize).map(Long)
    }

    fn write(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).write(out);
        out.extend_from_slice(self.0);
    }
}
