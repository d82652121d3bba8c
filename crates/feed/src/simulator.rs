//! Simulates order books. The same seed and instruments give the same bytes on any machine.
//!
//! Invariants:
//! - Each instrument has its own stream of random numbers, so that its records do not depend on calls for other
//!   instruments.
//! - All decisions are calculated with integers. Only the volatility is calculated with floats, and only with
//!   operations whose rounding IEEE 754 defines.
//! - A book is never crossed or locked unless the instruments allow it.
//!
//! [`FeedSchedule`](crate::FeedSchedule) decides when a record is due. `docs/feeds.md` describes the algorithm; a test
//! compares a hash of its output with a fixed value.

mod market;
mod side;

use crate::instruments::Instruments;
use market::SimulatedMarket;

/// Simulates the order books of several instruments. A seed determines all results.
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

    /// Appends the payload of a `book` record that contains the instrument's whole present book and replaces any other
    /// book. A simulated topic starts with this record.
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
