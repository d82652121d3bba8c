//! Errors of decoding, and the reasons why commands are refused.

use crate::layout::{choice, decode, encode};

/// The reason why bytes are not a command, reply or snapshot of the key-value state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlDecodeError {
    /// The bytes end too early.
    #[error("the bytes end too early")]
    Short,
    /// Bytes follow after the end of the encoding.
    #[error("{0} unexpected bytes follow after the end")]
    Trailing(usize),
    /// The version of the encoding is unknown.
    #[error("version {0} of the encoding is unknown; this version of Dunlin writes version {version}", version = crate::VERSION)]
    Version(u8),
    /// A number does not name a variant of the enum.
    #[error("{number} is not a known {what}")]
    Unknown {
        /// Name of the enum.
        what: &'static str,
        /// The number that was read.
        number: u8,
    },
    /// A list in a client's command has too many items.
    #[error("a list of {count} items is longer than the limit of {count_max}")]
    TooMany {
        /// Number of items in the list.
        count: usize,
        /// Maximum number of items.
        count_max: usize,
    },
    /// The entries in a block of a snapshot are out of order.
    #[error("{0} are out of order")]
    Order(&'static str),
}

choice! {
    /// The reason why a command about keys, leases or locks was refused. A refused command changes nothing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum ControlRefusal {
        /// A key, or a lock's name, is empty.
        #[error("a key needs at least one byte")]
        EmptyKey = 1,
        /// A key is longer than `key_bytes_max`.
        #[error("a key of {bytes} bytes is longer than key_bytes_max = {bytes_max}")]
        KeyTooLong { /// The key's length.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 2,
        /// A value is longer than `value_bytes_max`.
        #[error("a value of {bytes} bytes is longer than value_bytes_max = {bytes_max}")]
        ValueTooLong { /// The value's length.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 3,
        /// The key is reserved for the system.
        #[error("keys that begin with `$` are reserved for the system")]
        Reserved = 4,
        /// There are more comparisons and operations than `operations_max`.
        #[error("{count} comparisons and operations are more than operations_max = {count_max}")]
        TooManyOperations { /// The number of operations.
            count: u64, /// The limit.
            count_max: u64 } = 5,
        /// The key was last written by another revision than the command expects.
        #[error("the key has revision {modified}, not the expected revision (0 means that the key does not exist)")]
        Mismatch { /// The revision that last wrote it; 0 if it does not exist.
            modified: u64 } = 6,
        /// The lease does not exist, or has ended.
        #[error("there is no lease {lease}, or it has ended")]
        NoLease { /// The lease.
            lease: u64 } = 7,
        /// There are `leases_max` leases already.
        #[error("too many leases exist: the limit leases_max = {count_max} is reached")]
        TooManyLeases { /// The limit.
            count_max: u64 } = 8,
        /// The time to live is 0, or more than `lease_ttl_ms_max`.
        #[error("the time to live of a lease must be 1 to lease_ttl_ms_max = {ttl_ms_max} ms")]
        LeaseTtl { /// The limit.
            ttl_ms_max: u64 } = 9,
        /// Another lease holds the lock, and the command asked not to wait.
        #[error("the lock is held under lease {holder}, with token {token}")]
        Held { /// The holder's lease.
            holder: u64, /// The holder's token.
            token: u64 } = 10,
        /// The lease does not hold the lock.
        #[error("the lock is not held under lease {lease}")]
        NotHeld { /// The lease.
            lease: u64 } = 11,
        /// As many leases wait for the lock as `waiters_max` allows.
        #[error("too many leases wait for the lock: the limit waiters_max = {count_max} is reached")]
        TooManyWaiters { /// The limit.
            count_max: u64 } = 12,
        /// The command would enlarge the keys beyond `state_bytes_max`, which a node's configuration calls
        /// `kv.bytes_max`.
        #[error("keys and values would take {bytes} bytes, more than kv.bytes_max = {bytes_max}: delete keys, or raise kv.bytes_max")]
        NoRoom { /// The bytes with the command.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 13,
        /// The end of a range is not after its start.
        #[error("the range ends before it begins")]
        EmptyRange = 14,
        /// The command begins an epoch that is not later than the present one.
        #[error("epoch {epoch} is not later than the present epoch {current}")]
        OldEpoch { /// The epoch of the command.
            epoch: u32, /// The present epoch.
            current: u32 } = 15,
        /// The user already has as many leases as one user may have at present.
        #[error("the user has {count_max} leases, the present limit for each user (a third of the leases that are free): end some leases")]
        TooManyLeasesOfUser { /// The limit.
            count_max: u64 } = 16,
        /// The command would enlarge the tenant's keys beyond the tenant's share of `state_bytes_max`.
        #[error(
            "the tenant's keys and values would take {bytes} bytes; the present limit for each tenant is \
             {bytes_max} bytes: delete keys, or raise kv.bytes_max. A tenant may take at most three times as \
             many bytes as remain free"
        )]
        NoShare { /// The tenant's bytes with the command.
            bytes: u64, /// The tenant's limit.
            bytes_max: u64 } = 17,
        /// The tenant's users already have as many leases as one tenant may have at present.
        #[error("the tenant's users have {count_max} leases, the present limit for each tenant (three times the number of free leases): end some leases")]
        TooManyLeasesOfTenant { /// The limit.
            count_max: u64 } = 18,
        /// Together, the transactions of one entry of the cluster's log would read more bytes than
        /// [`ENTRY_READ_BYTES_MAX`](crate::ControlStateLimits::ENTRY_READ_BYTES_MAX).
        #[error("concurrent transactions together read more than entry_read_bytes_max = {bytes_max} bytes: retry")]
        TooManyReads { /// The limit.
            bytes_max: u64 } = 19,
        /// There is no such topic.
        #[error("the topic does not exist")]
        NoTopic = 20,
        /// Another topic already owns some of the subjects that match the new topic's pattern.
        #[error("another topic owns some of these subjects")]
        PatternOverlaps = 21,
        /// The topic cannot be moved, because its records are on the owner's disk.
        #[error("the topic's records are on the disk of node {owner}: the topic cannot be moved")]
        Immovable { /// The owner.
            owner: u64 } = 22,
        /// The node is not a member at present.
        #[error("node {node} is not a member at present: `dunlin cluster status` lists the members")]
        NoNode { /// The node.
            node: u64 } = 23,
        /// No node is a member at present.
        #[error("the cluster has no member at present")]
        NoNodes = 24,
    }
}

impl ControlRefusal {
    /// Appends the encoded refusal.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a refusal.
    pub fn decode(bytes: &[u8]) -> Result<ControlRefusal, ControlDecodeError> {
        decode(bytes)
    }
}
