//! Defines the limits of a [`ControlState`](crate::ControlState).

use crate::layout::layout;

layout! {
    /// Limits on keys, leases and locks. They are part of the state and of its snapshots, and therefore equal on every
    /// node.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ControlStateLimits {
        /// Maximum size of a key, and of a lock's name, bytes.
        pub key_bytes_max: u32,
        /// Maximum size of a value, bytes.
        pub value_bytes_max: u32,
        /// Maximum number of comparisons and operations together in one transaction. It is also the maximum number of
        /// leases that one command renews.
        pub operations_max: u32,
        /// Maximum number of keys that one range returns or deletes.
        pub range_keys_max: u32,
        /// Maximum number of bytes that one range returns. The first key is returned even if it is larger.
        pub range_bytes_max: u64,
        /// Maximum number of leases at one time.
        pub leases_max: u64,
        /// Longest time to live of a lease, ms.
        pub lease_ttl_ms_max: u64,
        /// Maximum number of leases that may wait for one lock.
        pub waiters_max: u32,
        /// Maximum size of all clients' keys with their values and overhead, bytes. The cluster's own keys have a
        /// separate limit of the same size. A command that would exceed the limit is refused.
        pub state_bytes_max: u64,
    }
}

impl ControlStateLimits {
    /// Maximum number of bytes that all transactions of one entry of the cluster's log may read together. This bounds
    /// memory: the responses to all these transactions exist at the same time, and the responses for another node are
    /// sent in one message. A transaction that could exceed this limit is refused.
    pub const ENTRY_READ_BYTES_MAX: u64 = 32 << 20;
}

impl Default for ControlStateLimits {
    fn default() -> ControlStateLimits {
        ControlStateLimits {
            key_bytes_max: 4 << 10,
            value_bytes_max: 1 << 20,
            operations_max: 1024,
            range_keys_max: 10_000,
            range_bytes_max: 4 << 20,
            leases_max: 1_000_000,
            lease_ttl_ms_max: 366 * 24 * 3_600_000,
            waiters_max: 10_000,
            state_bytes_max: 8 << 30,
        }
    }
}
