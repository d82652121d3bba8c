//! Why bytes are none of ours, and why a command is refused.

use crate::layout::{choice, decode, encode};

/// Why bytes mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// They end too early.
    #[error("the bytes end before what they announce")]
    Short,
    /// More than one whole.
    #[error("{0} bytes are left over")]
    Trailing(usize),
    /// Of another version.
    #[error("version {0} of the encoding is not known here; this build writes version {version}", version = crate::VERSION)]
    Version(u8),
    /// A choice that is none.
    #[error("{number} is no {what}")]
    Unknown {
        /// Of what.
        what: &'static str,
        /// The number.
        number: u8,
    },
    /// They are not in the order that the encoding has.
    #[error("{0} are out of order")]
    Order(&'static str),
}

choice! {
    /// Why a command is refused. It has changed nothing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum Refusal {
        /// A key, or a lock's name, has no bytes.
        #[error("a key needs at least one byte")]
        EmptyKey = 1,
        /// A key is longer than `key_bytes_max`.
        #[error("a key of {bytes} bytes is longer than key_bytes_max = {bytes_max}")]
        KeyTooLong { /// Its bytes.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 2,
        /// A value is longer than `value_bytes_max`.
        #[error("a value of {bytes} bytes is longer than value_bytes_max = {bytes_max}")]
        ValueTooLong { /// Its bytes.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 3,
        /// The key is the system's.
        #[error("keys that begin with `$` are the system's")]
        Reserved = 4,
        /// More than `operations_max`.
        #[error("{count} comparisons and operations are more than operations_max = {count_max}")]
        TooManyOperations { /// How many.
            count: u64, /// The limit.
            count_max: u64 } = 5,
        /// The key is not as was expected.
        #[error("the key stands at revision {modified}, not at the one expected (0: there is no such key)")]
        Mismatch { /// The revision that last wrote it; 0 where there is none.
            modified: u64 } = 6,
        /// There is no such lease, or no more.
        #[error("there is no lease {lease}, or it has ended")]
        NoLease { /// Which.
            lease: u64 } = 7,
        /// As many leases as may be.
        #[error("there are leases_max = {count_max} leases")]
        TooManyLeases { /// The limit.
            count_max: u64 } = 8,
        /// A time to live of nothing, or beyond `lease_ttl_ms_max`.
        #[error("a lease lives from 1 to lease_ttl_ms_max = {ttl_ms_max} ms")]
        LeaseTtl { /// The limit.
            ttl_ms_max: u64 } = 9,
        /// The lock is another's, and waiting was not asked for.
        #[error("the lock is held under lease {holder}, with token {token}")]
        Held { /// The holder's lease.
            holder: u64, /// The holder's token.
            token: u64 } = 10,
        /// The lease does not hold the lock.
        #[error("the lock is not held under lease {lease}")]
        NotHeld { /// The lease.
            lease: u64 } = 11,
        /// As many wait for the lock as may.
        #[error("waiters_max = {count_max} wait for the lock")]
        TooManyWaiters { /// The limit.
            count_max: u64 } = 12,
        /// Keys have grown to `state_bytes_max`, which nodes set as `kv.bytes_max`.
        #[error("keys and values would take {bytes} bytes, more than kv.bytes_max = {bytes_max}: delete keys, or raise kv.bytes_max")]
        NoRoom { /// What it would have.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 13,
        /// The end of a range is not after its start.
        #[error("the range ends before it begins")]
        EmptyRange = 14,
        /// The epoch is not later than the one there is.
        #[error("epoch {epoch} does not follow epoch {current}")]
        OldEpoch { /// Which.
            epoch: u32, /// The one there is.
            current: u32 } = 15,
        /// As many leases as one user may have.
        #[error("the user has {count_max} leases, as many as a third of those that are free: end some")]
        TooManyLeasesOfUser { /// The limit.
            count_max: u64 } = 16,
        /// A tenant has as much as one may have of what there is.
        #[error("the tenant's keys and values would take {bytes} bytes, more than {bytes_max}, three times what is free of kv.bytes_max: delete keys, or raise kv.bytes_max")]
        NoShare { /// What they would take.
            bytes: u64, /// What they may.
            bytes_max: u64 } = 17,
        /// There is no such topic.
        #[error("there is no such topic")]
        NoTopic = 20,
        /// Another topic owns some of the subjects.
        #[error("another topic owns some of these subjects")]
        PatternOverlaps = 21,
        /// The topic's records are on its owner's disk.
        #[error("the topic's records are on the disk of node {owner}: it cannot be moved")]
        Immovable { /// The owner.
            owner: u64 } = 22,
        /// The node does not take part.
        #[error("node {node} takes no part at present: `dunlin cluster status` shows which nodes do")]
        NoNode { /// Which.
            node: u64 } = 23,
        /// No node takes part.
        #[error("no node takes part at present")]
        NoNodes = 24,
    }
}

impl Refusal {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Refusal, DecodeError> {
        decode(bytes)
    }
}
