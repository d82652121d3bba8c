//! Open orders of a recording, and each row's effect on the book.

use std::collections::HashMap;

use super::phantoms::{Phantom, Phantoms};
use super::row::{BitstampRow, RowAction};
use super::tally::BitstampTally;
use super::{DefectKind, ORDERS_MAX};
use crate::orders::OrderEntry;
use crate::side::Side;

#[derive(Debug, Default)]
pub(super) struct OpenOrders {
    orders: HashMap<u64, RestingOrder>,
    phantoms: Phantoms,
}

/// An order that was created and not deleted.
#[derive(Debug, Clone, Copy)]
pub(super) struct RestingOrder {
    pub side: Side,
    /// Price at creation, or after an amendment.
    pub price: i64,
    pub size: i64,
    /// Whether this is a market order, which takes any price and never rests.
    pub market: bool,
}

impl RestingOrder {
    /// Whether the order is part of the book.
    pub(super) fn rests(&self) -> bool {
        !self.market && self.size > 0
    }
}

impl OpenOrders {
    /// Adds an order of the opening.
    pub(super) fn open(
        &mut self,
        row: &BitstampRow,
        tally: &mut BitstampTally,
    ) -> Result<Option<OrderEntry>, DefectKind> {
        let entry = self.create(row, tally)?;
        tally.opening += u64::from(entry.is_some());
        if entry.is_some() {
            self.phantoms.watch(row.id, row.side, row.price);
        }
        Ok(entry)
    }

    /// Applies an event; returns its change to the book.
    pub(super) fn event(
        &mut self,
        row: &BitstampRow,
        tally: &mut BitstampTally,
    ) -> Result<Option<OrderEntry>, DefectKind> {
        match row.action {
            RowAction::Created => {
                let entry = self.create(row, tally)?;
                if entry.is_some() {
                    self.phantoms.stands(row.exchange_ms, row.id, row.side, row.price);
                }
                Ok(entry)
            }
            RowAction::Changed => self.change(row, tally),
            RowAction::Deleted => self.delete(row, tally),
        }
    }

    /// Phantoms that are proven by now, with the current line's number.
    pub(super) fn prove(&mut self, line: u64, now_ms: u64) -> Vec<Phantom> {
        let orders = &self.orders;
        self.phantoms.prove(now_ms, line, orders)
    }

    /// Removes an order; later rows that name it are defects.
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
        Ok(order.rests().then_some(OrderEntry::Add { side, id, price, size }))
    }

    fn change(
        &mut self,
        row: &BitstampRow,
        tally: &mut BitstampTally,
    ) -> Result<Option<OrderEntry>, DefectKind> {
        let held = self.known(row, "changed")?;
        let (id, size) = (row.id, row.size);
        // The row has the price of the trade; without a trade, it has the order's new price.
        let amended = size == held.size && !held.market && !row.is_market_order();
        let order = RestingOrder { price: if amended { row.price } else { held.price }, size, ..held };
        self.note_trade(row, size < held.size, tally);
        tally.changed += 1;
        self.orders.insert(id, order);
        Ok(match (held.rests(), order.rests()) {
            (true, true) => Some(OrderEntry::Change { id, price: order.price, size }),
            (true, false) => Some(OrderEntry::Delete { id }),
            (false, true) => Some(OrderEntry::Add { side: held.side, id, price: order.price, size }),
            (false, false) => None,
        })
    }

    fn delete(
        &mut self,
        row: &BitstampRow,
        tally: &mut BitstampTally,
    ) -> Result<Option<OrderEntry>, DefectKind> {
        let held = self.known(row, "deleted")?;
        self.note_trade(row, row.size == 0 && held.size > 0, tally);
        tally.deleted += 1;
        self.orders.remove(&row.id);
        Ok(held.rests().then_some(OrderEntry::Delete { id: row.id }))
    }

    /// Returns the order that a row names. From now on, the order is not a possible phantom.
    fn known(&mut self, row: &BitstampRow, action: &'static str) -> Result<RestingOrder, DefectKind> {
        let id = row.id;
        let held = *self.orders.get(&id).ok_or(DefectKind::UnknownOrder { id, action })?;
        if held.side != row.side {
            return Err(DefectKind::OtherSide { id, held: held.side, found: row.side });
        }
        self.phantoms.forget(id, held.side, held.price);
        Ok(held)
    }

    fn note_trade(&mut self, row: &BitstampRow, traded: bool, tally: &mut BitstampTally) {
        if traded {
            tally.fills += 1;
            self.phantoms.trade(row.exchange_ms, row.price);
        }
    }
}
