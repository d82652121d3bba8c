//! The order book of one runner: the prices at which levels exist, and the entries that the current message has added
//! so far.

use std::collections::BTreeSet;

use crate::book::BookEntry;
use crate::side::Side;

/// The order book of one runner in a Betfair recording.
#[derive(Debug, Default)]
pub(super) struct BetfairRunner {
    /// Whether the book had a record before. The first record clears the book, because the topic may already contain
    /// levels.
    has_record: bool,
    bids: BTreeSet<i64>,
    asks: BTreeSet<i64>,
    /// The payload of the record for the current message.
    payload: Vec<u8>,
}

impl BetfairRunner {
    pub(super) fn end_message(&mut self) {
        self.payload.clear();
    }

    pub(super) fn is_changed(&self) -> bool {
        !self.payload.is_empty()
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Clears both sides, and drops the entries that the current message has added before.
    pub(super) fn clear(&mut self) {
        self.has_record = true;
        self.payload.clear();
        for side in Side::BOTH {
            self.levels(side).clear();
            BookEntry::Clear { side }.encode(&mut self.payload);
        }
    }

    pub(super) fn set(&mut self, side: Side, price: i64, size: i64) {
        if !self.has_record {
            self.clear();
        }
        self.levels(side).insert(price);
        BookEntry::Set { side, price, size }.encode(&mut self.payload);
    }

    /// Removes a level. Returns whether the level existed.
    pub(super) fn remove(&mut self, side: Side, price: i64) -> bool {
        let existed = self.levels(side).remove(&price);
        if existed {
            BookEntry::Remove { side, price }.encode(&mut self.payload);
        }
        existed
    }

    fn levels(&mut self, side: Side) -> &mut BTreeSet<i64> {
        match side {
            Side::Bid => &mut self.bids,
            Side::Ask => &mut self.asks,
        }
    }
}
