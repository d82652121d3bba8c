//! What can be asked of any book.

use crate::scale::Scale;
use crate::side::Side;

/// All there is at one price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// The price, units.
    pub price: i64,
    /// The sum of sizes, units.
    pub size: i64,
}

/// How the best bid and the best ask stand to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// A side is empty.
    Open,
    /// The bid is below the ask, as it should be.
    Apart,
    /// They are the same price.
    Locked,
    /// The bid is above the ask.
    Crossed,
}

/// How often a book came to be locked or crossed by a record, since it was made or restored. It is then reported so until a
/// record sets it right; nothing is repaired in silence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crossings {
    /// From open or apart to locked.
    pub locked: u64,
    /// From anything else to crossed.
    pub crossed: u64,
}

impl Crossings {
    #[inline(always)]
    pub(crate) fn count(&mut self, before: Touch, now: Touch) {
        if before == now {
            return;
        }
        match now {
            Touch::Crossed => self.crossed += 1,
            Touch::Locked if before != Touch::Crossed => self.locked += 1,
            _ => {}
        }
    }
}

/// A book of price levels, whatever it is made of.
pub trait Levels {
    /// The instrument's units.
    fn scale(&self) -> &Scale;

    /// The best level of a side.
    fn best(&self, side: Side) -> Option<Level>;

    /// The level at a price.
    fn level(&self, side: Side, price: i64) -> Option<Level>;

    /// How many levels a side has.
    fn level_count(&self, side: Side) -> usize;

    /// All levels of a side, the best first.
    fn levels(&self, side: Side) -> Box<dyn Iterator<Item = Level> + '_>;

    /// Whether the book is locked or crossed.
    fn touch(&self) -> Touch;

    /// How often it came to be so.
    fn crossings(&self) -> Crossings;

    /// The best levels of a side: as many as asked for, or as the instrument's `depth` says.
    fn top(&self, side: Side, depth: Option<usize>) -> Vec<Level> {
        self.levels(side).take(depth.unwrap_or(self.scale().depth as usize)).collect()
    }

    /// All levels of a side, the best first, each with the sum of sizes up to and with it.
    fn cumulative(&self, side: Side) -> Box<dyn Iterator<Item = (Level, i128)> + '_> {
        let mut sum = 0;
        Box::new(self.levels(side).map(move |level| {
            sum += i128::from(level.size);
            (level, sum)
        }))
    }

    /// How much there is at this price and better ones.
    fn size_through(&self, side: Side, price: i64) -> i128 {
        let better_or_same = |level: &Level| match side {
            Side::Bid => level.price >= price,
            Side::Ask => level.price <= price,
        };
        self.levels(side).take_while(better_or_same).map(|level| i128::from(level.size)).sum()
    }
}

/// How two best prices stand, given as ladder keys; those of empty sides are below all others.
#[inline(always)]
pub(crate) fn touch(bid_key: i64, ask_key: i64) -> Touch {
    let (bid, ask) = (bid_key, !ask_key);
    match bid.cmp(&ask) {
        _ if bid_key == i64::MIN || ask_key == i64::MIN => Touch::Open,
        std::cmp::Ordering::Less => Touch::Apart,
        std::cmp::Ordering::Equal => Touch::Locked,
        std::cmp::Ordering::Greater => Touch::Crossed,
    }
}
