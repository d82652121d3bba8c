//! Merges all changes after a record into one record.
//!
//! The merged record begins with the cleared sides and the removed orders. Orders that kept their place but have a
//! smaller size follow. Orders that were added, or moved to the end of a queue, come last, in the order of their
//! priority.

use super::book::{OrderBook, RemovedOrder};
use super::entry::OrderEntry;
use super::queue::QueuedOrder;
use crate::side::Side;
use crate::snapshot;

impl OrderBook {
    /// Appends to `payload` the entries for all changes since record `seq`. Returns `false` if the book does not
    /// remember all of these changes, or if a snapshot is preferred because it is shorter.
    pub(super) fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool {
        let start = payload.len();
        if !self.write_removals_since(seq, payload) {
            return false;
        }
        let mut queued: Vec<&QueuedOrder> = Vec::new();
        for order in self.orders.near_changes_since(seq).filter(|order| order.changed_seq > seq) {
            if order.queued_seq > seq {
                queued.push(order);
            } else {
                OrderEntry::Change { id: order.id, price: order.price, size: order.size }.encode(payload);
            }
        }
        queued.sort_unstable_by_key(|order| order.priority);
        for QueuedOrder { side, id, price, size, added_seq, .. } in queued.into_iter().copied() {
            if added_seq <= seq {
                OrderEntry::Delete { id }.encode(payload);
            }
            OrderEntry::Add { side, id, price, size }.encode(payload);
        }
        snapshot::keep_if_small(payload, start, self.snapshot_bytes())
    }

    /// Appends to `payload` the entries for all removals since record `seq`. Returns `false` if the book does not
    /// remember all of these removals.
    fn write_removals_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool {
        let cleared = |side: Side| self.cleared[side as usize] > seq;
        let removed = self.removals.since(seq);
        if removed.is_none() && !Side::BOTH.into_iter().all(cleared) {
            return false;
        }
        for side in Side::BOTH.into_iter().filter(|side| cleared(*side)) {
            OrderEntry::Clear { side }.encode(payload);
        }
        let unseen = |order: &&RemovedOrder| order.added_seq > seq || cleared(order.side);
        for order in removed.into_iter().flatten().filter(|order| !unseen(order)) {
            OrderEntry::Delete { id: order.id }.encode(payload);
        }
        true
    }

    pub(super) fn snapshot_bytes(&self) -> usize {
        snapshot::HEAD_BYTES + 24 * self.len()
    }
}
