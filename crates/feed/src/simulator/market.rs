//! Simulates the order book of one instrument.
//!
//! Prices are counted in ticks from the base price. The *fair price* is a random walk, and the *middle* of the book
//! follows the fair price by at most one tick per update. Bids are at the middle or below, and asks above. After the
//! middle has moved, each of the next updates removes one misplaced level. Levels on the wrong side of the middle are
//! removed first, as if a trade had filled their orders. Levels that are too far from the middle follow. Only when no
//! misplaced level is left do updates make other changes. Each update that is not a reset therefore changes only one
//! level, and the book is never crossed.
//!
//! Invariant between updates, if the book may not be crossed: bids are within `middle - 2 × levels` … `middle`, and
//! asks are within `middle + 1` … `middle + 1 + 2 × levels`. One or two levels may be outside of these ranges; the next
//! updates remove them.

use super::SimulatedUpdate;
use super::side::SimulatedSide;
use crate::book::BookEntry;
use crate::instruments::{Instrument, Instruments};
use crate::random::{Random, below};
use crate::scale::UNITS_MAX;
use crate::side::Side;

/// Largest size of a simulated level.
const SIZE_MAX: u64 = 2500;
/// Of 100 ordinary updates, this many remove a level on average. The others set a level.
const REMOVALS: u64 = 20;
/// If a side has at most this many levels, ordinary updates remove none of them.
const LEVELS_KEPT: usize = 2;
/// If books may be crossed: the maximum distance, in ticks, at which a level is set on the wrong side of the middle.
const CROSSING_TICKS: u64 = 3;
/// If books may be crossed: on average, one in this many updates that set a level sets it on the wrong side of the
/// middle.
const CROSSING_ONE_IN: u64 = 64;
/// If books may be crossed: on average, one in this many updates may remove a level that is on the wrong side of the
/// middle.
const UNCROSSING_ONE_IN: u64 = 8;

/// The simulated order book of one instrument.
#[derive(Debug)]
pub(super) struct SimulatedMarket {
    base_price: i64,
    tick_size: i64,
    levels: i64,
    reset_ppm: u64,
    may_cross: bool,
    walk: Walk,
    middle: i64,
    bids: SimulatedSide,
    asks: SimulatedSide,
    random: Random,
}

/// The random walk of the fair price. With probability `chance` ÷ 2^32, an update moves the fair price by `step` up or
/// down.
#[derive(Debug)]
struct Walk {
    fair: i64,
    step: i64,
    chance: u64,
    min: i64,
    max: i64,
}

impl SimulatedMarket {
    pub(super) fn new(
        instrument: &Instrument,
        instruments: &Instruments,
        seed: u64,
        index: u64,
    ) -> SimulatedMarket {
        let levels = i64::from(instrument.levels_per_side);
        let span = 2 * levels as usize + 2 * CROSSING_TICKS as usize + 4;
        let mut market = SimulatedMarket {
            base_price: instrument.base_price,
            tick_size: instrument.tick_size,
            levels,
            reset_ppm: instruments.reset_probability_ppm.into(),
            may_cross: instruments.allow_crossed_books,
            walk: Walk::new(instrument),
            middle: 0,
            bids: SimulatedSide::new(span),
            asks: SimulatedSide::new(span),
            random: Random::new(seed, index),
        };
        market.seed();
        market
    }

    /// Makes the next update of the book, and appends the entries of its record to `payload`.
    #[inline(always)]
    pub(super) fn update(&mut self, payload: &mut Vec<u8>) -> SimulatedUpdate {
        let (walk_bits, change_bits) = (self.random.next(), self.random.next());
        self.walk.step(walk_bits);
        if below(1_000_000, walk_bits >> 40, 24) < self.reset_ppm {
            self.middle = self.walk.fair;
            self.seed();
            self.write_book(payload);
            return SimulatedUpdate::Reset;
        }
        self.follow_fair_price();
        match self.level_to_remove(change_bits) {
            Some((side, key)) => self.remove(side, key, payload),
            None => self.change(change_bits, payload),
        }
        SimulatedUpdate::Level
    }

    /// Appends to `payload` the entries of a record that contains the whole book and replaces all levels of any earlier
    /// book.
    pub(super) fn write_book(&self, payload: &mut Vec<u8>) {
        for side in [Side::Bid, Side::Ask] {
            BookEntry::Clear { side }.encode(payload);
        }
        for (side, side_book) in [(Side::Bid, &self.bids), (Side::Ask, &self.asks)] {
            for (key, size) in side_book.iter() {
                BookEntry::Set { side, price: self.price(side, key), size: size.into() }.encode(payload);
            }
        }
    }

    /// Fills both sides of a new book with levels at adjacent prices, beginning one tick from the middle. The sizes
    /// decrease with the distance from the middle.
    fn seed(&mut self) {
        let (levels, middle) = (self.levels, self.middle);
        for (side_book, touch) in [(&mut self.bids, middle - 1), (&mut self.asks, -middle - 1)] {
            side_book.clear();
            for at in 0..levels {
                side_book.set(touch - at, (500 + (levels - at) * 10) as u32);
            }
        }
    }

    /// Moves the middle by one tick towards the fair price. Does nothing while levels are still misplaced since the
    /// previous move.
    #[inline(always)]
    fn follow_fair_price(&mut self) {
        let distance = self.walk.fair - self.middle;
        if distance != 0
            && self.misplaced_level(Side::Bid).is_none()
            && self.misplaced_level(Side::Ask).is_none()
        {
            self.middle += distance.signum();
        }
    }

    /// Returns a misplaced level that this update has to remove, if there is one. Without such a level, the caller
    /// makes an ordinary update.
    #[inline(always)]
    fn level_to_remove(&self, bits: u64) -> Option<(Side, i64)> {
        if self.may_cross && below(UNCROSSING_ONE_IN, bits >> 48, 16) != 0 {
            return None;
        }
        let level = |side| self.misplaced_level(side).map(|key| (side, key));
        level(Side::Bid).or_else(|| level(Side::Ask))
    }

    /// Returns a misplaced level of the side: one on the wrong side of the middle, or too far from the middle. Returns
    /// `None` if the side has no such level.
    #[inline(always)]
    fn misplaced_level(&self, side: Side) -> Option<i64> {
        let (side_book, limit) = (self.side_book(side), self.limit(side));
        let crossing = side_book.best().filter(|best| *best > limit);
        crossing.or_else(|| side_book.worst().filter(|worst| *worst < limit - 2 * self.levels))
    }

    /// Makes an ordinary update, which random bits determine: bit 0 selects the side, bits 8 to 23 whether a level is
    /// removed, bits 24 to 47 the level, and bits 48 to 63 the size.
    #[inline(always)]
    fn change(&mut self, bits: u64, payload: &mut Vec<u8>) {
        let side = if bits & 1 == 0 { Side::Bid } else { Side::Ask };
        let offset = below(self.levels as u64, (bits >> 24) & 0xff_ffff, 24) as i64;
        let key = self.limit(side) - offset;
        let side_book = self.side_book(side);
        if side_book.levels() > LEVELS_KEPT
            && below(100, (bits >> 8) & 0xffff, 16) < REMOVALS
            && let Some(key) = side_book.near(key)
        {
            return self.remove(side, key, payload);
        }
        let beyond = if self.may_cross { self.crossing_ticks() } else { 0 };
        let key = if beyond > 0 { self.limit(side) + beyond } else { key };
        let size = 1 + below(SIZE_MAX, bits >> 48, 16);
        self.side_book_mut(side).set(key, size as u32);
        BookEntry::Set { side, price: self.price(side, key), size: size as i64 }.encode(payload);
    }

    /// Returns by how many ticks a level is set on the wrong side of the middle; mostly 0.
    fn crossing_ticks(&mut self) -> i64 {
        let bits = self.random.next();
        let crosses = below(CROSSING_ONE_IN, bits >> 48, 16) == 0;
        if crosses { 1 + below(CROSSING_TICKS, bits & 0xffff, 16) as i64 } else { 0 }
    }

    #[inline(always)]
    fn remove(&mut self, side: Side, key: i64, payload: &mut Vec<u8>) {
        self.side_book_mut(side).remove(key);
        BookEntry::Remove { side, price: self.price(side, key) }.encode(payload);
    }

    /// Returns the best key at which a level of this side is still correctly placed. Levels with better keys are on the
    /// wrong side of the middle.
    #[inline(always)]
    fn limit(&self, side: Side) -> i64 {
        match side {
            Side::Bid => self.middle,
            Side::Ask => -(self.middle + 1),
        }
    }

    #[inline(always)]
    fn price(&self, side: Side, key: i64) -> i64 {
        let ticks = match side {
            Side::Bid => key,
            Side::Ask => -key,
        };
        self.base_price + ticks * self.tick_size
    }

    fn side_book(&self, side: Side) -> &SimulatedSide {
        match side {
            Side::Bid => &self.bids,
            Side::Ask => &self.asks,
        }
    }

    fn side_book_mut(&mut self, side: Side) -> &mut SimulatedSide {
        match side {
            Side::Bid => &mut self.bids,
            Side::Ask => &mut self.asks,
        }
    }
}

impl Walk {
    /// Creates the walk of an instrument. A step has the probability `volatility² ÷ step²`, so that the variance of the
    /// move at one update is `volatility²`.
    fn new(instrument: &Instrument) -> Walk {
        let step = instrument.volatility.ceil().max(1.0);
        let step_ratio = instrument.volatility / step;
        let chance = (step_ratio * step_ratio * (1_u64 << 32) as f64) as u64;
        let levels = i64::from(instrument.levels_per_side);
        let (base_price, tick_size) = (instrument.base_price, instrument.tick_size);
        Walk {
            fair: 0,
            step: step as i64,
            chance,
            min: levels - (base_price - 1) / tick_size,
            max: (UNITS_MAX - base_price) / tick_size - levels,
        }
    }

    /// Moves the fair price according to random bits: bits 0 to 31 decide whether the fair price moves, and bit 32 in
    /// which direction. The fair price stays between `min` and `max`.
    #[inline(always)]
    fn step(&mut self, bits: u64) {
        if bits & 0xffff_ffff < self.chance {
            let step = if bits & (1 << 32) == 0 { self.step } else { -self.step };
            self.fair = (self.fair + step).clamp(self.min, self.max);
        }
    }
}
