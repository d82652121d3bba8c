//! Bounds of this crate's states.

/// Limits of one state of a feed: of an order book, or of a table of last values.
///
/// An append that exceeds a limit is refused as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedLimits {
    /// Maximum number of price levels on one side of a book.
    pub levels_max: u32,
    /// Maximum number of orders in a book of orders.
    pub orders_max: u32,
    /// Maximum number of keys of a state that stores the last value of each key.
    pub keys_max: u32,
    /// Maximum size of a snapshot of last values, bytes; less than clients accept by default.
    pub last_bytes_max: u32,
    /// Minimum number of removals that a state remembers, even if it has fewer entries. Subscribers that request
    /// changes need them; a subscriber that is further behind receives a snapshot.
    pub removals_min: u32,
    /// Maximum number of removals that a state remembers, even if it has more entries. This limit bounds the owner's
    /// work when a subscriber requests changes.
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
    /// Returns the number of removals that a state with `entries` entries remembers.
    #[inline(always)]
    pub(crate) fn removals(&self, entries: usize) -> usize {
        entries.min(self.removals_max as usize).max(self.removals_min as usize)
    }
}
