//! The orders of an order book, linked to the queues of their prices.

use crate::side::Side;

/// The value of a link if there is no neighbour.
pub(super) const NONE: u32 = u32::MAX;

/// An order, with the sequence numbers of the records that changed it. It fits into one cache line.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueuedOrder {
    pub(super) id: u64,
    pub(super) price: i64,
    pub(super) size: i64,
    /// The order's priority number, which is higher than that of every order that entered a queue before.
    pub(super) priority: u64,
    /// The sequence number of the record that added the order.
    pub(super) added_seq: u64,
    /// The sequence number of the record that put the order at its present place in the queue.
    pub(super) queued_seq: u64,
    /// The sequence number of the last record that changed the order.
    pub(super) changed_seq: u64,
    pub(super) side: Side,
}

/// The neighbours of an order in its queue. The order's own id is stored here too, because checksums hash the ids of
/// neighbours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    pub(super) id: u64,
    pub(super) ahead: u32,
    pub(super) behind: u32,
}

impl Links {
    pub(super) const UNUSED: Links = Links { id: 0, ahead: NONE, behind: NONE };
}

/// The queue of all orders at one price.
#[derive(Debug, Clone, Copy)]
pub(super) struct PriceQueue {
    /// Total size of the orders in the queue.
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
