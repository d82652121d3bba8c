//! All changes since a record, as one record.
//!
//! Removed orders come first, then orders that kept their place with a smaller size, then orders that were
//! added or moved to the end of a queue, in their order.

use super::book::{OrderBook, RemovedOrder};
use super::entry::OrderEntry;
use super::queue::QueuedOrder;
use crate::side::Side;
use crate::snapshot;

impl OrderBook {
    /// Appends the changes after `seq`; `false` if not all are known, or if they are longer than a snapshot.
    pub(super) fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool {
        let start = payload.len();
        if !self.losses_since(seq, payload) {
            return false;
        }
        let mut queued: Vec<&QueuedOrder> = Vec::new();
        for held in self.orders.near_changes_since(seq).filter(|held| held.changed > seq) {
            if held.queued > seq {
                queued.push(held);
            } else {
                OrderEntry::Change { id: held.id, price: held.price, size: held.size }.encode(payload);
            }
        }
        queued.sort_unstable_by_key(|held| held.priority);
        for QueuedOrder { side, id, price, size, born, .. } in queued.into_iter().copied() {
            if born <= seq {
                OrderEntry::Delete { id }.encode(payload);
            }
            OrderEntry::Add { side, id, price, size }.encode(payload);
        }
        snapshot::keep_if_worth_it(payload, start, self.snapshot_bytes())
    }

    /// Appends the removals after record `seq`. Returns `false` if not all of them are known.
    fn losses_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool {
        let cleared = |side: Side| self.cleared[side as usize] > seq;
        let removed = self.removals.since(seq);
        if removed.is_none() && !Side::BOTH.into_iter().all(cleared) {
            return false;
        }
        for side in Side::BOTH.into_iter().filter(|side| cleared(*side)) {
            OrderEntry::Clear { side }.encode(payload);
        }
        let unseen = |gone: &&RemovedOrder| gone.born > seq || cleared(gone.side);
        for gone in removed.into_iter().flatten().filter(|gone| !unseen(gone)) {
            OrderEntry::Delete { id: gone.id }.encode(payload);
        }
        true
    }

    pub(super) fn snapshot_bytes(&self) -> usize {
        snapshot::HEAD_BYTES + 24 * self.len()
    }
}
