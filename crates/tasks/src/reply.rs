//! What came of a command.

use crate::error::DecodeError;
use crate::layout::{choice, decode, encode, layout};

choice! {
    /// What came of a command.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Reply {
        /// It is so.
        Done = 1,
        /// The tasks are taken.
        Submitted { /// In the order in which they came.
            tasks: Vec<Taken>, /// More than two thirds of what may wait do: submit so much more slowly.
            slow_down_ms: u32 } = 2,
        /// A worker is known as this.
        Joined { /// Its id.
            worker: u64 } = 3,
        /// Those of the workers asked for that are no more.
        Beaten { /// Which.
            gone: Vec<u64> } = 4,
        /// So many tasks were changed.
        Changed { /// How many.
            tasks: u64, /// There are more.
            more: bool } = 5,
    }
}

layout! {
    /// A task that was submitted.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Taken {
        /// Its id.
        pub task: u64,
        /// It was here already, under the same idempotency key.
        pub known: bool,
    }
}

impl Reply {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Reply, DecodeError> {
        decode(bytes)
    }
}
