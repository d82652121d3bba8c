//! Views of order books.

use crate::scale::Scale;
use crate::side::Side;

/// A price in an order book, and the total size of the orders at that price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriceLevel {
    /// Price, units.
    pub price: i64,
    /// Sum of sizes, units.
    pub size: i64,
}

/// The relation of the best bid to the best ask: below, equal or above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BidAskRelation {
    /// A side of the book is empty.
    Open,
    /// The bid is below the ask, the normal case.
    Apart,
    /// The best bid and the best ask have the same price.
    Locked,
    /// The best bid is above the best ask.
    Crossed,
}

/// How many times the best bid of an order book has equalled or exceeded its best ask.
/// A locked or crossed book is reported until a record changes it; it is never repaired silently.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crossings {
    /// Number of changes from open or apart to locked.
    pub locked: u64,
    /// Number of changes from any other relation to crossed.
    pub crossed: u64,
}

impl Crossings {
    #[inline(always)]
    pub(crate) fn count(&mut self, before: BidAskRelation, now: BidAskRelation) {
        if before == now {
            return;
        }
        match now {
            BidAskRelation::Crossed => self.crossed += 1,
            BidAskRelation::Locked if before != BidAskRelation::Crossed => self.locked += 1,
            _ => {}
        }
    }
}

/// Reads the price levels of an order book, whether the book stores price levels or single orders.
pub trait PriceLevels {
    /// Units of the instrument.
    fn scale(&self) -> &Scale;

    /// Best level of a side.
    fn best(&self, side: Side) -> Option<PriceLevel>;

    /// The level at a price.
    fn level(&self, side: Side, price: i64) -> Option<PriceLevel>;

    /// Number of levels of a side.
    fn level_count(&self, side: Side) -> usize;

    /// All levels of a side, the best first.
    fn levels(&self, side: Side) -> Box<dyn Iterator<Item = PriceLevel> + '_>;

    /// The relation of the best bid to the best ask.
    fn touch(&self) -> BidAskRelation;

    /// How many times the book was locked or crossed.
    fn crossings(&self) -> Crossings;

    /// The best levels of a side: `depth` levels, or the instrument's default.
    fn top(&self, side: Side, depth: Option<usize>) -> Vec<PriceLevel> {
        self.levels(side).take(depth.unwrap_or(self.scale().depth as usize)).collect()
    }

    /// All levels of a side, the best first, with the cumulative size.
    fn cumulative(&self, side: Side) -> Box<dyn Iterator<Item = (PriceLevel, i128)> + '_> {
        let mut sum = 0;
        Box::new(self.levels(side).map(move |level| {
            sum += i128::from(level.size);
            (level, sum)
        }))
    }

    /// Total size at this price and better ones.
    fn size_through(&self, side: Side, price: i64) -> i128 {
        let better_or_same = |level: &PriceLevel| match side {
            Side::Bid => level.price >= price,
            Side::Ask => level.price <= price,
        };
        self.levels(side).take_while(better_or_same).map(|level| i128::from(level.size)).sum()
    }
}

/// Relation of two best prices, as ladder keys; the key of an empty side is below all others.
#[inline(always)]
pub(crate) fn touch(bid_key: i64, ask_key: i64) -> BidAskRelation {
    let (bid, ask) = (bid_key, !ask_key);
    match bid.cmp(&ask) {
        _ if bid_key == i64::MIN || ask_key == i64::MIN => BidAskRelation::Open,
        std::cmp::Ordering::Less => BidAskRelation::Apart,
        std::cmp::Ordering::Equal => BidAskRelation::Locked,
        std::cmp::Ordering::Greater => BidAskRelation::Crossed,
    }
}
