//! Order books that move, made up: the same seed and the same instruments give the same bytes on any machine.
//!
//! Invariants:
//! - Each instrument has a random stream of its own, so its records do not depend on when the others are asked for theirs.
//! - Only integers decide. The one place where a float comes in is the volatility, and only through operations that IEEE
//!   754 rounds exactly.
//! - A book is never crossed or locked unless the instruments allow it.
//!
//! When a record is due is [`Schedule`](crate::Schedule)'s business. The algorithm is described in `docs/feeds.md`; a
//! golden hash in the tests keeps it as it is.

mod half;
mod market;

use crate::instruments::Instruments;
use market::Market;

/// Simulated books of a list of instruments.
#[derive(Debug)]
pub struct Simulator {
    markets: Vec<Market>,
}

/// What a simulated record does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// It changes one level: one entry.
    Level,
    /// It clears the book and seeds it anew: many entries, which take effect together.
    Reset,
}

impl Simulator {
    /// Freshly seeded books.
    pub fn new(instruments: &Instruments, seed: u64) -> Simulator {
        let market = |(index, instrument)| Market::new(instrument, instruments, seed, index as u64);
        Simulator { markets: instruments.list().iter().enumerate().map(market).collect() }
    }

    /// Appends the payload of a `book` record that makes any book this instrument's book as it is now. The first record
    /// of a simulated topic is this one.
    ///
    /// # Panics
    /// When there is no such instrument.
    pub fn whole_book(&self, instrument: usize, payload: &mut Vec<u8>) {
        self.markets[instrument].write_whole(payload);
    }

    /// Appends the payload of the instrument's next `book` record.
    ///
    /// # Panics
    /// When there is no such instrument.
    #[inline]
    pub fn update(&mut self, instrument: usize, payload: &mut Vec<u8>) -> Update {
        self.markets[instrument].update(payload)
    }
}
