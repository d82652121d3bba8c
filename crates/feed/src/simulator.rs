//! Simulates order books. The same seed and instruments give the same records, byte by byte, on any machine.
//!
//! Invariants:
//! - Each instrument has its own stream of random numbers. Its records therefore do not depend on how many records of
//!   other instruments were made before.
//! - All decisions are calculated with integers. Only the volatility is calculated with floats, and only with
//!   operations whose rounding IEEE 754 defines.
//! - A book is never crossed (best bid above best ask) or locked (both equal) unless
//!   [`Instruments::allow_crossed_books`](crate::Instruments::allow_crossed_books) is set.
//!
//! [`FeedSchedule`](crate::FeedSchedule) decides when a record is due. `docs/feeds.md` describes the algorithm. A test
//! compares a hash of the simulated records with a fixed value.

mod market;
mod side;

use crate::instruments::Instruments;
use market::SimulatedMarket;

/// Simulates the order books of several instruments. The instruments and the seed determine all results.
#[derive(Debug)]
pub struct Simulator {
    markets: Vec<SimulatedMarket>,
}

/// The kind of a simulated update: a change of one price level, or a reset of the whole book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimulatedUpdate {
    /// The update changes one level and has one entry.
    Level,
    /// The update replaces the whole book. It has many entries, which take effect together.
    Reset,
}

impl Simulator {
    /// Creates a simulator with a new book for each instrument.
    pub fn new(instruments: &Instruments, seed: u64) -> Simulator {
        let market = |(index, instrument)| SimulatedMarket::new(instrument, instruments, seed, index as u64);
        Simulator { markets: instruments.list().iter().enumerate().map(market).collect() }
    }

    /// Appends to `payload` the entries of a `book` record that contains the whole present book of the instrument with
    /// number `instrument`. A simulated topic starts with such a record, because the record replaces all levels that
    /// the topic may already have.
    ///
    /// # Panics
    /// If there is no such instrument.
    pub fn whole_book(&self, instrument: usize, payload: &mut Vec<u8>) {
        self.markets[instrument].write_book(payload);
    }

    /// Simulates the next update of the instrument with number `instrument`, and appends the entries of its `book`
    /// record to `payload`.
    ///
    /// # Panics
    /// If there is no such instrument.
    #[inline]
    pub fn update(&mut self, instrument: usize, payload: &mut Vec<u8>) -> SimulatedUpdate {
        self.markets[instrument].update(payload)
    }
}
