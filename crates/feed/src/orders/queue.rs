//! Orders and their queues.

use crate::side::Side;

/// The value of a link that leads to no order.
pub(super) const NONE: u32 = u32::MAX;

/// An order with the records that changed it, in one cache line.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueuedOrder {
    pub(super) id: u64,
    pub(super) price: i64,
    pub(super) size: i64,
    /// The priority in the queue: a number that grows with each order that enters a queue.
    pub(super) priority: u64,
    /// The sequence number of the record that added the order.
    pub(super) added_seq: u64,
    /// The sequence number of the record with which the order took its place in the queue.
    pub(super) queued_seq: u64,
    /// The sequence number of the record that changed the order last.
    pub(super) changed_seq: u64,
    pub(super) side: Side,
}

/// Neighbours of an order in its queue. Also holds the id, because checksums hash neighbouring ids.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    pub(super) id: u64,
    pub(super) ahead: u32,
    pub(super) behind: u32,
}

impl Links {
    pub(super) const UNUSED: Links = Links { id: 0, ahead: NONE, behind: NONE };
}

/// All orders at one price.
#[derive(Debug, Clone, Copy)]
pub(super) struct PriceQueue {
    /// Sum of the orders' sizes.
    pub(super) size: i64,
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Default for PriceQueue {
    fn default() -> PriceQueue {
        PriceQueue { size: 0, first: NONE, last: NONE }
    }
}

const _: () = assert!(size_of::<Option<QueuedOrder>>() == 64);
