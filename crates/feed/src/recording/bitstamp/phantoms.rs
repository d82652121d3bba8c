//! Finds phantoms: orders that are in the opening book of a recording although the exchange had already removed them.
//!
//! A recording program that first requests all orders and then subscribes to events misses the events in between. If an
//! order was deleted in between, the order stays in the recorded book for ever, as a phantom. The exchange matches
//! orders by price, so later events can prove that an order is a phantom:
//!
//! - **Traded through.** There was a trade at a worse price than that of the suspected order, although the exchange
//!   would have filled the suspected order first if this order still existed.
//! - **Stood across.** An order on the other side rests at a price at which it would have matched the suspected order.
//!
//! A trade is a proof only if no event names the suspected order within [`GRACE_MS`]. A resting order is a proof only
//! if, in addition, it still rests at the end of this time. The rows of one match may therefore come in any sequence,
//! and an order that is just being matched does not make another order a phantom. A phantom whose price the market
//! never reaches cannot be detected.
//!
//! At most [`EVIDENCE_MAX`] trades and resting orders are kept as evidence. Further evidence is dropped, because later
//! trades give the same evidence again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;

use super::open_orders::RestingOrder;
use super::row::{PRICE_DECIMALS, SIZE_DECIMALS};
use crate::decimal;
use crate::side::Side;

/// How long, in ms, an order of the opening book remains a suspect after evidence against it was found. If no event
/// names the order during this time, the order is a phantom.
pub const GRACE_MS: u64 = 1000;
const EVIDENCE_MAX: usize = 1 << 16;

/// An order in the opening book of a Bitstamp recording that provably no longer existed at the exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phantom {
    /// Id of the order.
    pub id: u64,
    /// Bid or ask.
    pub side: Side,
    /// Price of the order, units.
    pub price: i64,
    /// Size of the order, units.
    pub size: i64,
    /// The proof that the order is a phantom.
    pub proof: PhantomProof,
    /// Exchange time of the proof, in ms: when the trade took place, or when the resting order entered the book.
    pub evidence_ms: u64,
    /// Number of the line at which the proof was complete.
    pub line: u64,
}

/// The proof that an order in the opening book of a recording no longer existed at the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhantomProof {
    /// A trade took place at a worse price than that of the phantom, although the exchange would have filled the
    /// phantom first.
    Trade {
        /// Price of the trade, units.
        price: i64,
    },
    /// An order rested on the other side, at a price at which it would have matched the phantom.
    Rest {
        /// Id of the resting order.
        order: u64,
        /// Price of the resting order, units.
        price: i64,
    },
}

impl fmt::Display for Phantom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Phantom { id, side, evidence_ms, line, .. } = self;
        let (price, size) = (price_text(self.price), decimal::text(self.size, SIZE_DECIMALS));
        write!(
            f,
            "line {line}: phantom order {id}, {side} {size} at {price} in the opening book: at {evidence_ms} ms "
        )?;
        match self.proof {
            PhantomProof::Trade { price } => write!(f, "a trade at {} went past it", price_text(price)),
            PhantomProof::Rest { order, price } => {
                write!(f, "order {order} stood across it at {}", price_text(price))
            }
        }
    }
}

fn price_text(price: i64) -> String {
    decimal::text(price, PRICE_DECIMALS)
}

/// The orders of the opening book that no event has named yet, and the evidence against them.
#[derive(Debug, Default)]
pub(super) struct Phantoms {
    /// Bids of the opening book, by price and id.
    bids: BTreeSet<(i64, u64)>,
    /// Asks of the opening book, by price and id.
    asks: BTreeSet<(i64, u64)>,
    evidence: VecDeque<(u64, PhantomProof)>,
}

impl Phantoms {
    pub(super) fn add_opening_order(&mut self, id: u64, side: Side, price: i64) {
        self.side_orders(side).insert((price, id));
    }

    /// Removes an order from the suspected orders, because an event has named the order.
    pub(super) fn remove(&mut self, id: u64, side: Side, price: i64) {
        self.side_orders(side).remove(&(price, id));
    }

    /// Adds a trade to the evidence, if an order of the opening book has a better price than that of the trade.
    pub(super) fn add_trade(&mut self, at_ms: u64, price: i64) {
        if self.is_any_beyond(price - 1, price + 1) {
            self.add_evidence(at_ms, PhantomProof::Trade { price });
        }
    }

    /// Adds an order that has entered the book to the evidence, if it would have matched an order of the opening book.
    pub(super) fn add_resting_order(&mut self, at_ms: u64, order: u64, side: Side, price: i64) {
        let crosses = match side {
            Side::Bid => self.asks.first().is_some_and(|(ask, _)| *ask <= price),
            Side::Ask => self.bids.last().is_some_and(|(bid, _)| *bid >= price),
        };
        if crosses {
            self.add_evidence(at_ms, PhantomProof::Rest { order, price });
        }
    }

    /// Returns the orders that are now proven to be phantoms, and stops suspecting them. Only evidence that is at least
    /// [`GRACE_MS`] old is used as a proof. `open_orders` has all open orders, by id.
    pub(super) fn take_proven_phantoms(
        &mut self,
        now_ms: u64,
        line: u64,
        open_orders: &HashMap<u64, RestingOrder>,
    ) -> Vec<Phantom> {
        let mut found = Vec::new();
        while let Some((evidence_ms, proof)) = self.evidence.front().copied()
            && now_ms >= evidence_ms.saturating_add(GRACE_MS)
        {
            self.evidence.pop_front();
            for (side, price, id) in self.phantoms_refuted_by(proof, open_orders) {
                self.remove(id, side, price);
                let size = open_orders.get(&id).map_or(0, |order| order.size);
                found.push(Phantom { id, side, price, size, proof, evidence_ms, line });
            }
        }
        found
    }

    fn phantoms_refuted_by(
        &self,
        proof: PhantomProof,
        open_orders: &HashMap<u64, RestingOrder>,
    ) -> Vec<(Side, i64, u64)> {
        let (bids_from, asks_to) = match proof {
            PhantomProof::Trade { price } => (Some(price.saturating_add(1)), Some(price.saturating_sub(1))),
            PhantomProof::Rest { order, price } => match open_orders.get(&order) {
                Some(order) if order.is_in_book() && order.side == Side::Ask => (Some(price), None),
                Some(order) if order.is_in_book() => (None, Some(price)),
                _ => (None, None),
            },
        };
        let bids = bids_from.into_iter().flat_map(|from| self.bids.range((from, 0)..));
        let asks = asks_to.into_iter().flat_map(|to| self.asks.range(..=(to, u64::MAX)));
        let on = |side| move |&(price, id): &(i64, u64)| (side, price, id);
        bids.map(on(Side::Bid)).chain(asks.map(on(Side::Ask))).collect()
    }

    /// Whether an ask of the opening book is at `ask` or lower, or a bid of the opening book at `bid` or higher.
    fn is_any_beyond(&self, ask: i64, bid: i64) -> bool {
        self.asks.first().is_some_and(|(price, _)| *price <= ask)
            || self.bids.last().is_some_and(|(price, _)| *price >= bid)
    }

    fn add_evidence(&mut self, at_ms: u64, proof: PhantomProof) {
        if self.evidence.len() < EVIDENCE_MAX {
            self.evidence.push_back((at_ms, proof));
        }
    }

    fn side_orders(&mut self, side: Side) -> &mut BTreeSet<(i64, u64)> {
        match side {
            Side::Bid => &mut self.bids,
            Side::Ask => &mut self.asks,
        }
    }
}
