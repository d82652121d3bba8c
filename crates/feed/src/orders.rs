//! An order book that consists of single orders (L3). Each order has a place in the queue of its price. The price
//! levels follow from the orders.
//!
//! Invariants:
//! - A level's size is the sum of its orders' sizes, and a level without orders does not exist. A [`Book`](crate::Book)
//!   that receives these sums has the same levels.
//! - The orders of a queue are sorted by their priority numbers, the lowest first. An order receives its number when it
//!   enters the queue.
//! - The sum of the sizes of all orders fits into an `i64`, so the sum of a level cannot overflow.
//!
//! A book has at most [`FeedLimits::orders_max`] orders. The book remembers as many removals as it has orders, but at
//! least [`FeedLimits::removals_min`] and at most [`FeedLimits::removals_max`].

mod book;
mod changes;
mod check;
mod entry;
mod frozen;
mod id_index;
mod queue;

use std::sync::Arc;

use dunlin_topic::{Frame, FrozenState, Reducer, ReducerError};

use crate::entry_error::{EntryError, for_each_entry};
use crate::ladder;
use crate::limits::FeedLimits;
use crate::scale::Scale;
use crate::side::Side;
use crate::snapshot::{self, SnapshotError, StateKind};
use crate::view::{BidAskRelation, Crossings, PriceLevel, PriceLevels};

pub use book::{Order, QueuePosition};
pub use entry::{ORDER_ENTRY_BYTES, OrderEntry};

use queue::PriceQueue;

/// An order book of single orders: all orders of both sides, each with its place in the queue of its price.
#[derive(Debug)]
pub struct Orders {
    scale: Scale,
    limits: FeedLimits,
    book: book::OrderBook,
    touch: BidAskRelation,
    crossings: Crossings,
}

impl Orders {
    /// Creates an empty book whose prices and sizes have this scale, with the default limits.
    pub fn new(scale: Scale) -> Orders {
        Orders::with_limits(scale, FeedLimits::default())
    }

    /// Creates an empty book whose prices and sizes have this scale, with the given limits.
    pub fn with_limits(scale: Scale, limits: FeedLimits) -> Orders {
        let book = book::OrderBook::new(limits);
        Orders { scale, limits, book, touch: BidAskRelation::Open, crossings: Crossings::default() }
    }

    /// Applies the payload of record `seq`. After an error, the content of the book is undefined until a snapshot is
    /// restored.
    pub fn apply_payload(&mut self, seq: u64, payload: &[u8]) -> Result<(), ReducerError> {
        for_each_entry(1, payload, |entry| self.apply_entry(seq, &OrderEntry::decode(entry)?))?;
        let touch = self.book.touch();
        self.crossings.count(self.touch, touch);
        self.touch = touch;
        Ok(())
    }

    #[inline(always)]
    fn apply_entry(&mut self, seq: u64, entry: &OrderEntry) -> Result<(), EntryError> {
        match *entry {
            OrderEntry::Add { side, id, price, size } => {
                self.check_units(price, size)?;
                self.book.add(seq, Order { id, side, price, size })
            }
            OrderEntry::Change { id, price, size } => {
                self.check_units(price, size)?;
                self.book.change(seq, id, price, size)
            }
            OrderEntry::Delete { id } => self.book.delete(seq, id),
            OrderEntry::Clear { side } => {
                self.book.clear(seq, side);
                Ok(())
            }
        }
    }

    fn check_units(&self, price: i64, size: i64) -> Result<(), EntryError> {
        self.scale.check_price(price)?;
        self.scale.check_size(size)?;
        Ok(())
    }

    /// Number of orders.
    pub fn order_count(&self) -> usize {
        self.book.len()
    }

    /// Returns the order with this id.
    pub fn order(&self, id: u64) -> Option<Order> {
        self.book.order(id)
    }

    /// Returns an order's place in its queue. The call takes time in proportion to the number of orders ahead.
    pub fn queue_position(&self, id: u64) -> Option<QueuePosition> {
        self.book.queue_position(id)
    }

    /// The orders at a price, in the order in which they trade.
    pub fn queue(&self, side: Side, price: i64) -> impl Iterator<Item = Order> + '_ {
        self.book.queue(side, ladder::key(side, price))
    }

    fn read(&mut self, seq: u64, bytes: &[u8]) -> Result<(), SnapshotError> {
        let halves = snapshot::read_entries::<3>(bytes, StateKind::Orders)?;
        let mut before = 0;
        for (side, orders) in Side::BOTH.into_iter().zip(halves) {
            let mut end = before + orders.len();
            self.check_room(end).map_err(|error| SnapshotError::Entry { entry: end, error })?;
            before = end;
            // The prices are read from the worst to the best, because a page of the ladder is cheapest to change at its
            // better end.
            for queue in orders.chunk_by(|[_, price, _], [_, next, _]| price == next).rev() {
                end -= queue.len();
                self.read_queue(seq, side, queue, end + 1)?;
            }
        }
        Ok(())
    }

    fn read_queue(
        &mut self,
        seq: u64,
        side: Side,
        queue: &[[[u8; 8]; 3]],
        first: usize,
    ) -> Result<(), SnapshotError> {
        let best_before = self.book.ladder(side).best_key();
        for (index, words) in queue.iter().enumerate() {
            let [id, price, size] = words.map(u64::from_le_bytes);
            let (price, size, entry) = (price as i64, size as i64, first + index);
            if ladder::key(side, price) <= best_before {
                return Err(SnapshotError::Order { entry });
            }
            self.apply_entry(seq, &OrderEntry::Add { side, id, price, size })
                .map_err(|error| SnapshotError::Entry { entry, error })?;
        }
        Ok(())
    }

    fn check_room(&self, orders: usize) -> Result<(), EntryError> {
        let orders_max = self.limits.orders_max;
        if orders > orders_max as usize { Err(EntryError::TooManyOrders { orders_max }) } else { Ok(()) }
    }
}

impl Reducer for Orders {
    fn check(&self, frames: &mut dyn Iterator<Item = Frame<'_>>) -> Result<(), ReducerError> {
        let mut append = check::AppendCheck::new(self);
        for (record, frame) in (1..).zip(frames) {
            if frame.payload().is_empty() {
                return Err(EntryError::Empty.at(record, 1));
            }
            for_each_entry(record, frame.payload(), |entry| append.check(&OrderEntry::decode(entry)?))?;
        }
        Ok(())
    }

    fn apply(&mut self, seq: u64, frame: &Frame<'_>) -> Result<(), ReducerError> {
        self.apply_payload(seq, frame.payload())
    }

    fn freeze(&mut self) -> Arc<dyn FrozenState> {
        Arc::new(self.book.freeze())
    }

    fn restore(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), ReducerError> {
        *self = Orders::with_limits(self.scale, self.limits);
        let read = self.read(seq, snapshot);
        if read.is_err() {
            *self = Orders::with_limits(self.scale, self.limits);
        }
        self.book.discard_changes(seq);
        self.touch = self.book.touch();
        Ok(read?)
    }

    fn checksum(&self) -> u64 {
        self.book.checksum()
    }

    fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool {
        self.book.changes_since(seq, payload)
    }

    fn snapshot_bytes(&self) -> usize {
        self.book.snapshot_bytes()
    }

    fn bytes(&self) -> u64 {
        size_of::<Orders>() as u64 + self.book.bytes()
    }

    fn entries(&self) -> u64 {
        self.book.len() as u64
    }
}

impl PriceLevels for Orders {
    fn scale(&self) -> &Scale {
        &self.scale
    }

    fn best(&self, side: Side) -> Option<PriceLevel> {
        self.levels(side).next()
    }

    fn level(&self, side: Side, price: i64) -> Option<PriceLevel> {
        let size = self.book.ladder(side).get(ladder::key(side, price))?.size;
        Some(PriceLevel { price, size })
    }

    fn level_count(&self, side: Side) -> usize {
        self.book.ladder(side).len()
    }

    fn levels(&self, side: Side) -> Box<dyn Iterator<Item = PriceLevel> + '_> {
        let level = move |(key, queue): (i64, &PriceQueue)| PriceLevel {
            price: ladder::key(side, key),
            size: queue.size,
        };
        Box::new(self.book.ladder(side).iter().map(level))
    }

    fn touch(&self) -> BidAskRelation {
        self.touch
    }

    fn crossings(&self) -> Crossings {
        self.crossings
    }
}
