//! Simple models of the reducers. The tests compare the reducers, which are optimised for speed, with these models.

use std::collections::BTreeMap;

use dunlin_feed::{BookEntry, Order, OrderEntry, PriceLevel, Side};

/// A model of an order book of price levels: the size at each price, for both sides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BookModel([BTreeMap<i64, i64>; 2]);

impl BookModel {
    pub fn apply(&mut self, entry: &BookEntry) {
        match *entry {
            BookEntry::Set { side, price, size } => {
                self.0[side as usize].insert(price, size);
            }
            BookEntry::Remove { side, price } => {
                self.0[side as usize].remove(&price);
            }
            BookEntry::Clear { side } => self.0[side as usize].clear(),
        }
    }

    pub fn levels(&self, side: Side) -> Vec<PriceLevel> {
        let levels = self.0[side as usize].iter().map(|(&price, &size)| PriceLevel { price, size });
        match side {
            Side::Bid => levels.rev().collect(),
            Side::Ask => levels.collect(),
        }
    }
}

/// A model of an order book of single orders: a list of all orders, in the order in which they entered their queues.
#[derive(Debug, Clone, Default)]
pub struct OrdersModel(Vec<Order>);

impl OrdersModel {
    pub fn apply(&mut self, entry: &OrderEntry) {
        match *entry {
            OrderEntry::Add { side, id, price, size } => self.0.push(Order { id, side, price, size }),
            OrderEntry::Change { id, price, size } => {
                let at = self.at(id);
                let before = self.0[at];
                if price == before.price && size <= before.size {
                    self.0[at].size = size;
                } else {
                    self.0.remove(at);
                    self.0.push(Order { price, size, ..before });
                }
            }
            OrderEntry::Delete { id } => {
                let at = self.at(id);
                self.0.remove(at);
            }
            OrderEntry::Clear { side } => self.0.retain(|order| order.side != side),
        }
    }

    fn at(&self, id: u64) -> usize {
        self.0.iter().position(|order| order.id == id).unwrap()
    }

    pub fn all(&self) -> &[Order] {
        &self.0
    }

    pub fn queue(&self, side: Side, price: i64) -> Vec<Order> {
        self.0.iter().filter(|order| order.side == side && order.price == price).copied().collect()
    }

    /// Returns the price levels that result from the orders.
    pub fn book(&self) -> BookModel {
        let mut sums: BTreeMap<(Side, i64), i64> = BTreeMap::new();
        for order in &self.0 {
            *sums.entry((order.side, order.price)).or_default() += order.size;
        }
        let mut book = BookModel::default();
        for ((side, price), size) in sums {
            book.apply(&BookEntry::Set { side, price, size });
        }
        book
    }
}
