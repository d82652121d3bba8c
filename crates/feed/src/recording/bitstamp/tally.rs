//! The counters of a Bitstamp recording.

/// Counters of the rows, orders and records of a Bitstamp recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BitstampTally {
    /// Number of orders in the opening book.
    pub opening: u64,
    /// Number of created orders, including those in the opening book.
    pub created: u64,
    /// Number of changes of orders.
    pub changed: u64,
    /// Number of deleted orders, not counting those that the recording program deleted at the end.
    pub deleted: u64,
    /// Number of `changed` and `deleted` rows that report a partial or complete fill.
    pub fills: u64,
    /// Number of closing rows, with which the recording program emptied the book at the end. They do not become
    /// records.
    pub closing: u64,
    /// Number of market orders. They never rest in the book, and do not become records.
    pub market_orders: u64,
    /// Number of orders that were created with size 0. They enter the book once they have a size.
    pub without_size: u64,
    /// Number of rows whose exchange time is earlier than that of the previous row.
    pub times_back: u64,
    /// Number of phantoms: orders in the opening book that the exchange had already removed.
    pub phantoms: u64,
    /// Number of phantoms that were deleted from the book by additional records.
    pub evicted: u64,
    /// Number of records.
    pub records: u64,
    /// Number of skipped rows.
    pub defects: u64,
    /// Number of rows that could not be read because the heading is invalid.
    pub unreadable: u64,
}

impl BitstampTally {
    pub(crate) fn rows(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("orders in the opening book", self.opening),
            ("orders created", self.created),
            ("orders changed", self.changed),
            ("orders deleted", self.deleted),
            ("fills among these", self.fills),
            ("closing rows, not passed on", self.closing),
            ("market orders, not passed on", self.market_orders),
            ("orders without size, not passed on", self.without_size),
            ("times going back", self.times_back),
            ("phantom orders", self.phantoms),
            ("phantom orders evicted", self.evicted),
            ("records", self.records),
            ("defects", self.defects),
            ("rows behind an unusable heading", self.unreadable),
        ]
    }
}
