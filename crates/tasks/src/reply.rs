//! Replies to commands.

use crate::error::TaskDecodeError;
use crate::layout::{choice, decode, encode, layout};

choice! {
    /// The reply to a [`TaskCommand`](crate::TaskCommand) that was applied.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum CommandReply {
        /// The command was applied.
        Done = 1,
        /// The tasks were accepted.
        Submitted { /// The tasks' ids, in the order of the command.
            tasks: Vec<SubmittedTask>, /// Delay that the submitter should add, ms; above 0 if many tasks wait.
            slow_down_ms: u32 } = 2,
        /// The worker was added.
        Joined { /// Id of the worker.
            worker: u64 } = 3,
        /// The leases of all workers that exist were renewed.
        Renewed { /// Ids of the workers that do not exist.
            gone: Vec<u64> } = 4,
        /// Tasks were changed.
        Changed { /// Number of changed tasks.
            tasks: u64, /// Whether more tasks remain to be changed.
            more: bool } = 5,
    }
}

layout! {
    /// The id of a submitted task, and whether the task had been submitted before.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SubmittedTask {
        /// Id of the task.
        pub task: u64,
        /// Whether the task had been submitted before, with the same idempotency key.
        pub known: bool,
    }
}

impl CommandReply {
    /// Appends the encoded reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a reply.
    pub fn decode(bytes: &[u8]) -> Result<CommandReply, TaskDecodeError> {
        decode(bytes)
    }
}
