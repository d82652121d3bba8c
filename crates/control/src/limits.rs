//! How much a [`State`](crate::State) takes.

use crate::layout::layout;

layout! {
    /// The same on every node: they stand in the state, and in its snapshots.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits {
        /// Of a key, or a lock's name.
        pub key_bytes_max: u32,
        /// Of a value.
        pub value_bytes_max: u32,
        /// Comparisons and operations of one transaction, and leases kept alive by one command.
        pub operations_max: u32,
        /// Keys that one range gives or deletes; more is asked for from where it ended.
        pub range_keys_max: u32,
        /// Bytes of keys and values that one range gives; at least one key is given.
        pub range_bytes_max: u64,
        /// Leases at once.
        pub leases_max: u64,
        /// The longest time to live.
        pub lease_ttl_ms_max: u64,
        /// Those who wait for one lock.
        pub waiters_max: u32,
        /// Clients' keys, values and what they take besides, and as much again for the cluster's own. What grows beyond is refused; what shrinks is not.
        pub state_bytes_max: u64,
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
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
