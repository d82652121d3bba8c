//! Checks whether an order book can accept the entries of an append. Each entry is checked against the state that the
//! book would have after the earlier entries of the append.

use std::collections::HashMap;

use super::{OrderEntry, Orders};
use crate::entry_error::EntryError;
use crate::side::Side;

/// Checks the entries of an append one after another, and remembers how the entries that were already checked would
/// change the book.
pub(super) struct AppendCheck<'a> {
    orders: &'a Orders,
    /// The id of the order that the previous entry added or deleted; `None` if the previous entry did neither. The id
    /// comes with the order's side, or with `None` if the order was deleted. The next check moves this value to
    /// `before`, so that an append of one entry needs no map.
    last: Option<(u64, Option<Side>)>,
    /// The ids of the orders that earlier entries added or deleted. Each id comes with the order's side, or with `None`
    /// if the order no longer exists.
    before: HashMap<u64, Option<Side>>,
    cleared: [bool; 2],
    /// Number of orders that were in the book before the append and are not on a side that an earlier entry cleared.
    kept: usize,
    /// Number of orders that earlier entries added to each side, bids first. If an entry clears a side, counting begins
    /// again for this side.
    added: [usize; 2],
    sizes: i64,
}

impl<'a> AppendCheck<'a> {
    pub(super) fn new(orders: &'a Orders) -> AppendCheck<'a> {
        AppendCheck {
            orders,
            last: None,
            before: HashMap::new(),
            cleared: [false; 2],
            kept: orders.order_count(),
            added: [0; 2],
            sizes: 0,
        }
    }

    pub(super) fn check(&mut self, entry: &OrderEntry) -> Result<(), EntryError> {
        self.before.extend(self.last.take());
        match *entry {
            OrderEntry::Add { side, id, price, size } => {
                self.orders.check_units(price, size)?;
                if self.exists(id) {
                    return Err(EntryError::DuplicateOrder { id });
                }
                self.last = Some((id, Some(side)));
                self.added[side as usize] += 1;
                self.orders.check_room(self.kept + self.added[0] + self.added[1])?;
                self.check_total(size)
            }
            OrderEntry::Change { id, price, size } => {
                self.orders.check_units(price, size)?;
                self.check_exists(id)?;
                self.check_total(size)
            }
            OrderEntry::Delete { id } => {
                self.check_exists(id)?;
                self.last = Some((id, None));
                Ok(())
            }
            OrderEntry::Clear { side } => {
                if !std::mem::replace(&mut self.cleared[side as usize], true) {
                    let of_side = self.orders.book.orders.iter().filter(|(_, order)| order.side == side);
                    self.kept -= of_side.count();
                }
                self.added[side as usize] = 0;
                self.before.values_mut().filter(|of| **of == Some(side)).for_each(|of| *of = None);
                Ok(())
            }
        }
    }

    fn exists(&self, id: u64) -> bool {
        if !self.before.is_empty()
            && let Some(side) = self.before.get(&id)
        {
            return side.is_some();
        }
        let book = &self.orders.book;
        let cleared = |slot| self.cleared != [false; 2] && self.cleared[book.orders.at(slot).side as usize];
        book.find(id).is_some_and(|slot| !cleared(slot))
    }

    fn check_exists(&self, id: u64) -> Result<(), EntryError> {
        if self.exists(id) { Ok(()) } else { Err(EntryError::UnknownOrder { id }) }
    }

    /// Checks that the sum of the sizes of all orders does not overflow if `size` is added. Deletions in the same
    /// append are ignored, because they can only lower the sum.
    fn check_total(&mut self, size: i64) -> Result<(), EntryError> {
        self.sizes = self.sizes.saturating_add(size);
        self.orders.book.total().checked_add(self.sizes).ok_or(EntryError::TotalTooLarge)?;
        Ok(())
    }
}
