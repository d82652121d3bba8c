//! Defines the replies to commands, and the form in which keys that were read are returned.

use crate::error::ControlDecodeError;
use crate::item::{Key, KeyItem};
use crate::layout::{choice, decode, encode, layout};

choice! {
    /// The reply to a [`ControlCommand`](crate::ControlCommand) that was applied rather than refused.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum ControlReply {
        /// The command changed keys in `revision`. If there was no key to change, `revision` is the last revision.
        Changed { /// The revision.
            revision: u64, /// Keys written or deleted.
            keys: u64 } = 1,
        /// A transaction ran.
        Transaction { /// The revision.
            revision: u64, /// Whether all comparisons held.
            succeeded: bool, /// The result of each operation.
            results: Vec<OperationOutcome> } = 2,
        /// A lease was granted.
        Granted { /// The lease.
            lease: u64, /// The lease's time to live, ms.
            ttl_ms: u64 } = 3,
        /// Leases were renewed. The listed leases were not, because they had already ended.
        KeptAlive { /// Leases that have ended.
            ended: Vec<u64> } = 4,
        /// The lease holds the lock.
        Held { /// The fencing token, which grows with each holder. Other services refuse older ones.
            token: u64 } = 5,
        /// The lease waits for the lock.
        Waiting { /// Number of leases that wait before this one.
            before: u64 } = 6,
        /// The command was applied and has no other result.
        Done = 7,
        /// The topic has an owner, which the reply names.
        Placed { /// The node.
            owner: u64, /// The node's fencing token.
            epoch: u32, /// Whether the topic was created.
            created: bool } = 20,
    }
}

choice! {
    /// The result of one operation of a transaction.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum OperationOutcome {
        /// Keys were written or deleted.
        Changed { /// Number of keys.
            keys: u64 } = 1,
        /// Keys were read.
        Found { /// The keys.
            found: FoundKeys } = 2,
    }
}

layout! {
    /// The keys that were found in a range, in the order of their bytes.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct FoundKeys {
        /// The keys with their items.
        pub items: Vec<FoundKey>,
        /// Whether the range has more keys than were returned.
        pub more: bool,
    }
}

layout! {
    /// A key with its value, its lease and its revisions.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FoundKey {
        /// The key.
        pub key: Key,
        /// The key's value, lease and revisions.
        pub item: KeyItem,
    }
}

impl ControlReply {
    /// Appends the encoded reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a reply.
    pub fn decode(bytes: &[u8]) -> Result<ControlReply, ControlDecodeError> {
        decode(bytes)
    }
}
