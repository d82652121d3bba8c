//! Read access to the price levels of order books.

use crate::scale::Scale;
use crate::side::Side;

/// A price in an order book, and the total size of the orders at that price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriceLevel {
    /// Price, units.
    pub price: i64,
    /// Total size of the orders, units.
    pub size: i64,
}

/// The relation of the best bid to the best ask, such as below or above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BidAskRelation {
    /// At least one side of the book is empty, so that a best price is missing.
    Open,
    /// The best bid is below the best ask, which is the normal case.
    Apart,
    /// The best bid and the best ask have the same price.
    Locked,
    /// The best bid is above the best ask.
    Crossed,
}

/// How many times an order book became locked (best bid equal to best ask), and how many times it became crossed (best
/// bid above best ask). A book stays locked or crossed until a record changes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crossings {
    /// How many times the book became locked. The change from crossed to locked is not counted.
    pub locked: u64,
    /// How many times the book became crossed.
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
    /// The units and limits of the instrument's prices and sizes.
    fn scale(&self) -> &Scale;

    /// The best level of a side; `None` if the side is empty.
    fn best(&self, side: Side) -> Option<PriceLevel>;

    /// The level at a price; `None` if there is none.
    fn level(&self, side: Side, price: i64) -> Option<PriceLevel>;

    /// Number of levels of a side.
    fn level_count(&self, side: Side) -> usize;

    /// All levels of a side, the best first.
    fn levels(&self, side: Side) -> Box<dyn Iterator<Item = PriceLevel> + '_>;

    /// The relation of the best bid to the best ask.
    fn touch(&self) -> BidAskRelation;

    /// How many times the book became locked or crossed.
    fn crossings(&self) -> Crossings;

    /// The best levels of a side, at most `depth`. Without `depth`, the instrument's default applies.
    fn top(&self, side: Side, depth: Option<usize>) -> Vec<PriceLevel> {
        self.levels(side).take(depth.unwrap_or(self.scale().depth as usize)).collect()
    }

    /// All levels of a side, the best first. With each level comes the total size of this level and all better levels.
    fn cumulative(&self, side: Side) -> Box<dyn Iterator<Item = (PriceLevel, i128)> + '_> {
        let mut sum = 0;
        Box::new(self.levels(side).map(move |level| {
            sum += i128::from(level.size);
            (level, sum)
        }))
    }

    /// Total size of all levels at this price or a better one.
    fn size_through(&self, side: Side, price: i64) -> i128 {
        let better_or_same = |level: &PriceLevel| match side {
            Side::Bid => level.price >= price,
            Side::Ask => level.price <= price,
        };
        self.levels(side).take_while(better_or_same).map(|level| i128::from(level.size)).sum()
    }
}

/// Returns the relation of the best bid to the best ask. Both are given as keys of the ladder; the key of an empty side
/// is below all valid keys.
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
