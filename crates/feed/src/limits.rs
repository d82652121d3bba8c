//! Limits on the size of the states in this crate.

/// Limits of one state, which is an order book or the last values of keys.
///
/// If the records of an append would exceed a limit, all of them are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedLimits {
    /// Maximum number of price levels on one side of a book.
    pub levels_max: u32,
    /// Maximum number of orders in an order book that consists of single orders.
    pub orders_max: u32,
    /// Maximum number of keys of a state that stores the last value of each key.
    pub keys_max: u32,
    /// Maximum size of a snapshot of last values, in bytes. The default is lower than the largest snapshot that clients
    /// accept by default.
    pub last_bytes_max: u32,
    /// Minimum number of recent removals that a state remembers, even if the state has fewer entries. The owner needs
    /// them to send a subscriber only the changes since the subscriber's position. A subscriber that needs older
    /// removals receives a snapshot instead.
    pub removals_min: u32,
    /// Maximum number of recent removals that a state remembers, even if the state has more entries. This limits the
    /// owner's work for a subscriber that requests changes.
    pub removals_max: u32,
}

impl Default for FeedLimits {
    fn default() -> FeedLimits {
        FeedLimits {
            levels_max: 1 << 20,
            orders_max: 1 << 22,
            keys_max: 1 << 20,
            last_bytes_max: 64 << 20,
            removals_min: 256,
            removals_max: 4_096,
        }
    }
}

impl FeedLimits {
    /// Returns the number of removals that a state with `entries` entries (levels, orders or keys) remembers.
    #[inline(always)]
    pub(crate) fn removals(&self, entries: usize) -> usize {
        entries.min(self.removals_max as usize).max(self.removals_min as usize)
    }
}
