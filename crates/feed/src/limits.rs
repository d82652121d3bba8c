//! Every bound this crate keeps, in one place.

/// What one fold holds at most. At the limit an append is refused, and nothing of it is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Price levels on one side of a book.
    pub levels_max: u32,
    /// Orders in a book of orders.
    pub orders_max: u32,
    /// Keys of a state of last values.
    pub keys_max: u32,
    /// Bytes of a snapshot of last values: less than what clients take by default.
    pub last_bytes_max: u32,
    /// Removals remembered for readers that ask what changed, even where there are fewer entries. Who is further behind
    /// is given a snapshot.
    pub removals_min: u32,
    /// Removals remembered even where there are more entries: a bound to what such a question costs the log's owner.
    pub removals_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            levels_max: 1 << 20,
            orders_max: 1 << 22,
            keys_max: 1 << 20,
            last_bytes_max: 64 << 20,
            removals_min: 256,
            removals_max: 4_096,
        }
    }
}

impl Limits {
    /// How many removals a state of so many entries remembers.
    #[inline(always)]
    pub(crate) fn removals(&self, entries: usize) -> usize {
        entries.min(self.removals_max as usize).max(self.removals_min as usize)
    }
}
