//! The orders of an order book, their queues, and the price levels that follow from them. Callers have checked that all
//! prices and sizes are in range.

use super::frozen::FrozenOrders;
use super::id_index::IdIndex;
use super::queue::{Links, NONE, PriceQueue, QueuedOrder};
use crate::checksum;
use crate::entry_error::EntryError;
use crate::ladder::{self, Ladder};
use crate::limits::FeedLimits;
use crate::removals::Removals;
use crate::side::Side;
use crate::slab::Slab;
use crate::view::{self, BidAskRelation};

/// An order in an order book: its side, price and remaining size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Id of the order.
    pub id: u64,
    /// Bid or ask.
    pub side: Side,
    /// Price, units.
    pub price: i64,
    /// Remaining size, units.
    pub size: i64,
}

/// The orders that trade before a given order at the same price: their number and their total size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePosition {
    /// Number of the orders ahead.
    pub orders_ahead: usize,
    /// Total size of the orders ahead, units.
    pub size_ahead: i64,
}

/// An order that was removed from the book.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemovedOrder {
    pub(super) id: u64,
    pub(super) side: Side,
    /// The sequence number of the record that added the order. A subscriber that has not received this record does not
    /// need the removal either.
    pub(super) added_seq: u64,
}

/// The orders of both sides of an order book, by id and by price.
#[derive(Debug)]
pub(super) struct OrderBook {
    pub(super) orders: Slab<QueuedOrder>,
    /// The neighbours of each order in its queue. The index into this list is the slot of the order.
    links: Vec<Links>,
    index: IdIndex,
    /// The price levels of both sides, bids first.
    ladders: [Ladder<PriceQueue>; 2],
    pub(super) removals: Removals<RemovedOrder>,
    limits: FeedLimits,
    /// For each side, bids first: the sequence number of the last record that cleared the side.
    pub(super) cleared: [u64; 2],
    total: i64,
    priority: u64,
    checksum: u64,
}

impl OrderBook {
    pub(super) fn new(limits: FeedLimits) -> OrderBook {
        OrderBook {
            orders: Slab::default(),
            links: Vec::new(),
            index: IdIndex::default(),
            ladders: Default::default(),
            removals: Removals::default(),
            limits,
            cleared: [0, 0],
            total: 0,
            priority: 0,
            checksum: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.orders.len()
    }

    pub(super) fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Sum of the sizes of all orders.
    pub(super) fn total(&self) -> i64 {
        self.total
    }

    pub(super) fn ladder(&self, side: Side) -> &Ladder<PriceQueue> {
        &self.ladders[side as usize]
    }

    #[inline(always)]
    pub(super) fn touch(&self) -> BidAskRelation {
        let [bids, asks] = &self.ladders;
        view::touch(bids.best_key(), asks.best_key())
    }

    #[inline(always)]
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        self.index.find(id, |slot| self.links[slot as usize].id == id)
    }

    pub(super) fn order(&self, id: u64) -> Option<Order> {
        self.find(id).map(|slot| self.order_at(slot))
    }

    fn order_at(&self, slot: u32) -> Order {
        let QueuedOrder { id, side, price, size, .. } = *self.orders.at(slot);
        Order { id, side, price, size }
    }

    pub(super) fn queue(&self, side: Side, key: i64) -> impl Iterator<Item = Order> + '_ {
        let mut next = self.ladder(side).get(key).map_or(NONE, |queue| queue.first);
        std::iter::from_fn(move || {
            let slot = next;
            next = self.links.get(slot as usize)?.behind;
            Some(self.order_at(slot))
        })
    }

    pub(super) fn queue_position(&self, id: u64) -> Option<QueuePosition> {
        let mut position = QueuePosition { orders_ahead: 0, size_ahead: 0 };
        let mut slot = self.links[self.find(id)? as usize].ahead;
        while slot != NONE {
            position.orders_ahead += 1;
            position.size_ahead += self.orders.at(slot).size;
            slot = self.links[slot as usize].ahead;
        }
        Some(position)
    }

    #[inline]
    pub(super) fn add(&mut self, seq: u64, order: Order) -> Result<(), EntryError> {
        let Order { id, side, price, size } = order;
        if self.find(id).is_some() {
            return Err(EntryError::DuplicateOrder { id });
        }
        self.total = self.total.checked_add(size).ok_or(EntryError::TotalTooLarge)?;
        self.priority += 1;
        let priority = self.priority;
        let queued = QueuedOrder {
            id,
            price,
            size,
            priority,
            added_seq: seq,
            queued_seq: seq,
            changed_seq: seq,
            side,
        };
        let slot = self.orders.insert(seq, queued);
        if slot as usize >= self.links.len() {
            self.links.resize(self.orders.slot_count(), Links::UNUSED);
        }
        self.index.insert(id, slot);
        self.checksum = self.checksum.wrapping_add(checksum::order(side, id, price, size));
        self.enqueue(seq, slot, order);
        Ok(())
    }

    #[inline]
    pub(super) fn change(&mut self, seq: u64, id: u64, price: i64, size: i64) -> Result<(), EntryError> {
        let slot = self.find(id).ok_or(EntryError::UnknownOrder { id })?;
        let before = self.order_at(slot);
        self.total = (self.total - before.size).checked_add(size).ok_or(EntryError::TotalTooLarge)?;
        let side = before.side;
        self.checksum = self
            .checksum
            .wrapping_sub(checksum::order(side, id, before.price, before.size))
            .wrapping_add(checksum::order(side, id, price, size));
        let keeps_position = price == before.price && size <= before.size;
        if keeps_position {
            self.ladders[side as usize].get_or_insert(ladder::key(side, price), seq).size -=
                before.size - size;
        } else {
            self.dequeue(seq, slot, before);
            self.enqueue(seq, slot, Order { id, side, price, size });
        }
        let queued = self.orders.at_mut(slot, seq);
        (queued.price, queued.size, queued.changed_seq) = (price, size, seq);
        if !keeps_position {
            self.priority += 1;
            (queued.priority, queued.queued_seq) = (self.priority, seq);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn delete(&mut self, seq: u64, id: u64) -> Result<(), EntryError> {
        let links = &self.links;
        let slot = self.index.remove(id, |slot| links[slot as usize].id == id);
        let slot = slot.ok_or(EntryError::UnknownOrder { id })?;
        let QueuedOrder { side, price, size, added_seq, .. } = self.orders.remove(slot);
        self.dequeue(seq, slot, Order { id, side, price, size });
        self.total -= size;
        self.checksum = self.checksum.wrapping_sub(checksum::order(side, id, price, size));
        let max = self.limits.removals(self.orders.len());
        self.removals.push(seq, RemovedOrder { id, side, added_seq }, max);
        Ok(())
    }

    pub(super) fn clear(&mut self, seq: u64, side: Side) {
        let of_side = self.orders.iter().filter(|(_, order)| order.side == side);
        let ids: Vec<u64> = of_side.map(|(_, order)| order.id).collect();
        for id in ids {
            // The deletion cannot fail, because every id in the list is in the book.
            let _ = self.delete(seq, id);
        }
        self.cleared[side as usize] = seq;
    }

    /// Forgets all changes by records up to `seq`. Afterwards, the book can list only the changes by later records.
    pub(super) fn discard_changes(&mut self, seq: u64) {
        self.removals.discard_through(seq);
        self.cleared = [seq, seq];
    }

    /// Appends an order to the queue of the orders at its price.
    #[inline(always)]
    fn enqueue(&mut self, seq: u64, slot: u32, order: Order) {
        let Order { id, side, price, size } = order;
        let queue = self.ladders[side as usize].get_or_insert(ladder::key(side, price), seq);
        queue.size += size;
        let ahead = std::mem::replace(&mut queue.last, slot);
        if ahead == NONE {
            queue.first = slot;
        } else {
            let links = &mut self.links[ahead as usize];
            links.behind = slot;
            self.checksum = self.checksum.wrapping_add(checksum::neighbours(links.id, id));
        }
        self.links[slot as usize] = Links { id, ahead, behind: NONE };
    }

    /// Takes an order out of its queue.
    #[inline(always)]
    fn dequeue(&mut self, seq: u64, slot: u32, order: Order) {
        let Order { side, price, size, .. } = order;
        let Links { ahead, behind, .. } = self.links[slot as usize];
        let (ladder, key) = (&mut self.ladders[side as usize], ladder::key(side, price));
        if ahead == NONE && behind == NONE {
            ladder.remove(key);
            return;
        }
        let queue = ladder.get_or_insert(key, seq);
        queue.size -= size;
        if ahead == NONE {
            queue.first = behind;
        }
        if behind == NONE {
            queue.last = ahead;
        }
        self.unlink(order.id, ahead, behind);
    }

    fn unlink(&mut self, id: u64, ahead: u32, behind: u32) {
        let mut sum = self.checksum;
        let mut ids = [None, None];
        if ahead != NONE {
            let links = &mut self.links[ahead as usize];
            links.behind = behind;
            ids[0] = Some(links.id);
            sum = sum.wrapping_sub(checksum::neighbours(links.id, id));
        }
        if behind != NONE {
            let links = &mut self.links[behind as usize];
            links.ahead = ahead;
            ids[1] = Some(links.id);
            sum = sum.wrapping_sub(checksum::neighbours(id, links.id));
        }
        if let [Some(ahead), Some(behind)] = ids {
            sum = sum.wrapping_add(checksum::neighbours(ahead, behind));
        }
        self.checksum = sum;
    }

    pub(super) fn freeze(&mut self) -> FrozenOrders {
        FrozenOrders::new(self.orders.freeze())
    }

    pub(super) fn bytes(&self) -> u64 {
        let links = (self.links.capacity() * size_of::<Links>()) as u64;
        let ladders = self.ladders.iter().map(Ladder::bytes).sum::<u64>();
        self.orders.bytes() + links + self.index.bytes() + ladders + self.removals.bytes()
    }
}
