//! Simulated order books: the same seed and instruments give the same bytes on any machine.
//!
//! Invariants:
//! - Each instrument has its own random stream, so that its records do not depend on requests for other
//!   instruments.
//! - All decisions use integers. Only the volatility uses floats, with operations that IEEE 754 rounds exactly.
//! - A book is never crossed or locked unless the instruments allow it.
//!
//! [`FeedSchedule`](crate::FeedSchedule) decides when a record is due. `docs/feeds.md` describes the algorithm; a test
//! compares a hash of its output with a fixed value.

mod market;
mod side;

use crate::instruments::Instruments;
use market::SimulatedMarket;

/// Simulates the order books of several instruments, reproducibly from a seed.
#[derive(Debug)]
pub struct Simulator {
    markets: Vec<SimulatedMarket>,
}

/// A simulated change of an order book: of one price level, or a reset of the whole book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimulatedUpdate {
    /// Changes one level, with one entry.
    Level,
    /// Clears and reseeds the book, with many entries that take effect together.
    Reset,
}

impl Simulator {
    /// Creates newly seeded books.
    pub fn new(instruments: &Instruments, seed: u64) -> Simulator {
        let market = |(index, instrument)| SimulatedMarket::new(instrument, instruments, seed, index as u64);
        Simulator { markets: instruments.list().iter().enumerate().map(market).collect() }
    }

    /// Appends the payload of a `book` record that replaces any book by the instrument's current one. A
    /// simulated topic starts with this record.
    ///
    /// # Panics
    /// If there is no such instrument.
    pub fn whole_book(&self, instrument: usize, payload: &mut Vec<u8>) {
        self.markets[instrument].write_book(payload);
    }

    /// Appends the payload of the instrument's next `book` record.
    ///
    /// # Panics
    /// If there is no such instrument.
    #[inline]
    pub fn update(&mut self, instrument: usize, payload: &mut Vec<u8>) -> SimulatedUpdate {
        self.markets[instrument].update(payload)
    }
}
