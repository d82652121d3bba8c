//! The open orders of a Bitstamp recording. Each row of the recording changes these orders, and may give an entry that
//! makes the same change to the order book.

use std::collections::HashMap;

use super::phantoms::{Phantom, Phantoms};
use super::row::{BitstampRow, RowAction};
use super::tally::BitstampTally;
use super::{DefectKind, ORDERS_MAX};
use crate::orders::OrderEntry;
use crate::side::Side;

/// The open orders of a Bitstamp recording, and the orders among them that may be phantoms, which the exchange had
/// already removed.
#[derive(Debug, Default)]
pub(super) struct OpenOrders {
    orders: HashMap<u64, RestingOrder>,
    phantoms: Phantoms,
}

/// An order that was created and has not been deleted.
#[derive(Debug, Clone, Copy)]
pub(super) struct RestingOrder {
    pub side: Side,
    /// The order's own price: the price at which it was created, or the last price to which it was changed.
    pub price: i64,
    pub size: i64,
    /// Whether this is a market order, which trades at any price and is never in the book.
    pub market: bool,
}

impl RestingOrder {
    /// Whether the order is in the book. A market order, or an order with size 0, is not in the book.
    pub(super) fn is_in_book(&self) -> bool {
        !self.market && self.size > 0
    }
}

impl OpenOrders {
    pub(super) fn add_opening_order(
        &mut self,
        row: &BitstampRow,
        tally: &mut BitstampTally,
    ) -> Result<Option<OrderEntry>, DefectKind> {
        let entry = self.create(row, tally)?;
        tally.opening += u64::from(entry.is_some());
        if entry.is_some() {
            self.phantoms.add_opening_order(row.id, row.side, row.price);
        }
        Ok(entry)
    }

    /// Applies a row. Returns the entry that makes the same change to the order book; `None` if the book does not
    /// change.
    pub(super) fn apply_row(
        &mut self,
        row: &BitstampRow,
        tally: &mut BitstampTally,
    ) -> Result<Option<OrderEntry>, DefectKind> {
        match row.action {
            RowAction::Created => {
                let entry = self.create(row, tally)?;
                if entry.is_some() {
                    self.phantoms.add_resting_order(row.exchange_ms, row.id, row.side, row.price);
                }
                Ok(entry)
            }
            RowAction::Changed => self.change(row, tally),
            RowAction::Deleted => self.delete(row, tally),
        }
    }

    /// Returns the phantoms that are proven at the exchange time `now_ms`. `line` is the number of the current line.
    pub(super) fn take_proven_phantoms(&mut self, line: u64, now_ms: u64) -> Vec<Phantom> {
        let orders = &self.orders;
        self.phantoms.take_proven_phantoms(now_ms, line, orders)
    }

    /// Removes an order. Later rows that name the order are reported as defects.
    pub(super) fn evict(&mut self, id: u64) {
        self.orders.remove(&id);
    }

    fn create(
        &mut self,
        row: &BitstampRow,
        tally: &mut BitstampTally,
    ) -> Result<Option<OrderEntry>, DefectKind> {
        let BitstampRow { id, side, price, size, .. } = *row;
        if self.orders.contains_key(&id) {
            return Err(DefectKind::CreatedTwice { id });
        }
        if self.orders.len() >= ORDERS_MAX {
            return Err(DefectKind::TooManyOrders { id });
        }
        let order = RestingOrder { side, price, size, market: row.is_market_order() };
        tally.created += 1;
        tally.market_orders += u64::from(order.market);
        tally.without_size += u64::from(!order.market && size == 0);
        self.orders.insert(id, order);
        Ok(order.is_in_book().then_some(OrderEntry::Add { side, id, price, size }))
    }

    fn change(
        &mut self,
        row: &BitstampRow,
        tally: &mut BitstampTally,
    ) -> Result<Option<OrderEntry>, DefectKind> {
        let before = self.find_order(row, "changes")?;
        let (id, size) = (row.id, row.size);
        // If the size has changed, the row has the price of the trade that changed the size. Otherwise, the row has the
        // order's new price.
        let amended = size == before.size && !before.market && !row.is_market_order();
        let order = RestingOrder { price: if amended { row.price } else { before.price }, size, ..before };
        self.record_trade(row, size < before.size, tally);
        tally.changed += 1;
        self.orders.insert(id, order);
        Ok(match (before.is_in_book(), order.is_in_book()) {
            (true, true) => Some(OrderEntry::Change { id, price: order.price, size }),
            (true, false) => Some(OrderEntry::Delete { id }),
            (false, true) => Some(OrderEntry::Add { side: before.side, id, price: order.price, size }),
            (false, false) => None,
        })
    }

    fn delete(
        &mut self,
        row: &BitstampRow,
        tally: &mut BitstampTally,
    ) -> Result<Option<OrderEntry>, DefectKind> {
        let before = self.find_order(row, "deletes")?;
        self.record_trade(row, row.size == 0 && before.size > 0, tally);
        tally.deleted += 1;
        self.orders.remove(&row.id);
        Ok(before.is_in_book().then_some(OrderEntry::Delete { id: row.id }))
    }

    /// Returns the order that a row names. From now on, the order is not suspected to be a phantom, because the
    /// exchange still knows the order.
    fn find_order(&mut self, row: &BitstampRow, action: &'static str) -> Result<RestingOrder, DefectKind> {
        let id = row.id;
        let order = *self.orders.get(&id).ok_or(DefectKind::UnknownOrder { id, action })?;
        if order.side != row.side {
            return Err(DefectKind::OtherSide { id, created: order.side, found: row.side });
        }
        self.phantoms.remove(id, order.side, order.price);
        Ok(order)
    }

    fn record_trade(&mut self, row: &BitstampRow, traded: bool, tally: &mut BitstampTally) {
        if traded {
            tally.fills += 1;
            self.phantoms.add_trade(row.exchange_ms, row.price);
        }
    }
}
