//! Orders, their queues and levels. All numbers have been checked to be in range.

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
    /// Number of orders ahead at the same price.
    pub orders_ahead: usize,
    /// Sum of the sizes of these orders, units.
    pub size_ahead: i64,
}

/// An order that was removed.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemovedOrder {
    pub(super) id: u64,
    pub(super) side: Side,
    /// The sequence number of the record that added the order. A subscriber that never saw the order need not receive
    /// its removal.
    pub(super) born: u64,
}

#[derive(Debug)]
pub(super) struct OrderBook {
    pub(super) orders: Slab<QueuedOrder>,
    /// For each order, its neighbours in its queue. The index is the order's place.
    links: Vec<Links>,
    index: IdIndex,
    /// The price levels of the bids, then those of the asks.
    ladders: [Ladder<PriceQueue>; 2],
    pub(super) removals: Removals<RemovedOrder>,
    limits: FeedLimits,
    /// For each side, the sequence number of the record that cleared it last.
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

    /// Sum of all sizes.
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
        self.index.find(id, |place| self.links[place as usize].id == id)
    }

    pub(super) fn order(&self, id: u64) -> Option<Order> {
        self.find(id).map(|place| self.order_at(place))
    }

    fn order_at(&self, place: u32) -> Order {
        let QueuedOrder { id, side, price, size, .. } = *self.orders.at(place);
        Order { id, side, price, size }
    }

    pub(super) fn queue(&self, side: Side, key: i64) -> impl Iterator<Item = Order> + '_ {
        let mut next = self.ladder(side).get(key).map_or(NONE, |queue| queue.first);
        std::iter::from_fn(move || {
            let place = next;
            next = self.links.get(place as usize)?.behind;
            Some(self.order_at(place))
        })
    }

    pub(super) fn queue_position(&self, id: u64) -> Option<QueuePosition> {
        let mut position = QueuePosition { orders_ahead: 0, size_ahead: 0 };
        let mut place = self.links[self.find(id)? as usize].ahead;
        while place != NONE {
            position.orders_ahead += 1;
            position.size_ahead += self.orders.at(place).size;
            place = self.links[place as usize].ahead;
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
        let held = QueuedOrder { id, price, size, priority, born: seq, queued: seq, changed: seq, side };
        let place = self.orders.insert(seq, held);
        if place as usize >= self.links.len() {
            self.links.resize(self.orders.places(), Links::UNUSED);
        }
        self.index.insert(id, place);
        self.checksum = self.checksum.wrapping_add(checksum::order(side, id, price, size));
        self.enqueue(seq, place, order);
        Ok(())
    }

    #[inline]
    pub(super) fn change(&mut self, seq: u64, id: u64, price: i64, size: i64) -> Result<(), EntryError> {
        let place = self.find(id).ok_or(EntryError::UnknownOrder { id })?;
        let before = self.order_at(place);
        self.total = (self.total - before.size).checked_add(size).ok_or(EntryError::TotalTooLarge)?;
        let side = before.side;
        self.checksum = self
            .checksum
            .wrapping_sub(checksum::order(side, id, before.price, before.size))
            .wrapping_add(checksum::order(side, id, price, size));
        let keeps_place = price == before.price && size <= before.size;
        if keeps_place {
            self.ladders[side as usize].touch(ladder::key(side, price), seq).size -= before.size - size;
        } else {
            self.dequeue(seq, place, before);
            self.enqueue(seq, place, Order { id, side, price, size });
        }
        let held = self.orders.at_mut(place, seq);
        (held.price, held.size, held.changed) = (price, size, seq);
        if !keeps_place {
            self.priority += 1;
            (held.priority, held.queued) = (self.priority, seq);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn delete(&mut self, seq: u64, id: u64) -> Result<(), EntryError> {
        let links = &self.links;
        let place = self.index.remove(id, |place| links[place as usize].id == id);
        let place = place.ok_or(EntryError::UnknownOrder { id })?;
        let QueuedOrder { side, price, size, born, .. } = self.orders.remove(place);
        self.dequeue(seq, place, Order { id, side, price, size });
        self.total -= size;
        self.checksum = self.checksum.wrapping_sub(checksum::order(side, id, price, size));
        let max = self.limits.removals(self.orders.len());
        self.removals.push(seq, RemovedOrder { id, side, born }, max);
        Ok(())
    }

    pub(super) fn clear(&mut self, seq: u64, side: Side) {
        let of_side = self.orders.iter().filter(|(_, held)| held.side == side);
        let ids: Vec<u64> = of_side.map(|(_, held)| held.id).collect();
        for id in ids {
            // This cannot fail: every id was found just before.
            let _ = self.delete(seq, id);
        }
        self.cleared[side as usize] = seq;
    }

    /// Forgets the changes up to `seq`.
    pub(super) fn forget_changes(&mut self, seq: u64) {
        self.removals.restart(seq);
        self.cleared = [seq, seq];
    }

    /// Puts an order behind all others of its price.
    #[inline(always)]
    fn enqueue(&mut self, seq: u64, place: u32, order: Order) {
        let Order { id, side, price, size } = order;
        let queue = self.ladders[side as usize].touch(ladder::key(side, price), seq);
        queue.size += size;
        let ahead = std::mem::replace(&mut queue.last, place);
        if ahead == NONE {
            queue.first = place;
        } else {
            let links = &mut self.links[ahead as usize];
            links.behind = place;
            self.checksum = self.checksum.wrapping_add(checksum::neighbours(links.id, id));
        }
        self.links[place as usize] = Links { id, ahead, behind: NONE };
    }

    /// Takes an order out of its queue.
    #[inline(always)]
    fn dequeue(&mut self, seq: u64, place: u32, order: Order) {
        let Order { side, price, size, .. } = order;
        let Links { ahead, behind, .. } = self.links[place as usize];
        let (ladder, key) = (&mut self.ladders[side as usize], ladder::key(side, price));
        if ahead == NONE && behind == NONE {
            ladder.remove(key);
            return;
        }
        let queue = ladder.touch(key, seq);
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
