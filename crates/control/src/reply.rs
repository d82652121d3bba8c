//! What came of a command, and what was read.

use crate::error::DecodeError;
use crate::item::{Item, Key};
use crate::layout::{choice, decode, encode, layout};

choice! {
    /// What came of a command.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Reply {
        /// So many keys were changed, by this revision; none, and the revision is the last there was.
        Changed { /// The revision.
            revision: u64, /// Keys written or deleted.
            keys: u64 } = 1,
        /// A transaction was made.
        Transaction { /// The revision.
            revision: u64, /// All that it compared was so.
            succeeded: bool, /// Of each operation.
            results: Vec<Outcome> } = 2,
        /// There is a lease now.
        Granted { /// It.
            lease: u64, /// Its time to live.
            ttl_ms: u64 } = 3,
        /// Those of the leases asked for that are no more.
        KeptAlive { /// Which.
            ended: Vec<u64> } = 4,
        /// The lock is held.
        Held { /// Grows from holder to holder: whoever is shown an older one refuses it.
            token: u64 } = 5,
        /// The lock is waited for.
        Waiting { /// How many come before.
            before: u64 } = 6,
        /// It is so.
        Done = 7,
        /// The topic has an owner.
        Placed { /// The node.
            owner: u64, /// Its fencing token.
            epoch: u32, /// There was none before.
            made: bool } = 20,
    }
}

choice! {
    /// What came of one operation of a transaction.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Outcome {
        /// So many keys were written or deleted.
        Changed { /// How many.
            keys: u64 } = 1,
        /// What it read.
        Found { /// What there is.
            found: Found } = 2,
    }
}

layout! {
    /// Keys of a range, in order.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Found {
        /// The keys and what they hold.
        pub items: Vec<Pair>,
        /// There are more after the last of them.
        pub more: bool,
    }
}

layout! {
    /// A key and what it holds.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Pair {
        /// The key.
        pub key: Key,
        /// What it holds.
        pub item: Item,
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
