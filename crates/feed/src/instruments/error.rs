//! Why a file of instruments is refused. The texts begin as MDD-Sim's do, so that scripts that look for those find them.

use std::fmt;

use super::{INSTRUMENTS_MAX, Notation, VOLATILITY_MAX};
use crate::scale::UNITS_MAX;

/// Why a file of instruments is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InstrumentsError {
    /// The text is not JSON or TOML, or has a field that is not known.
    #[error("{notation} parse failure: {why}")]
    Parse {
        /// What it was read as.
        notation: Notation,
        /// Where and what, from the parser.
        why: String,
    },
    /// The list of instruments is empty or not there.
    #[error("config must contain at least one instrument")]
    NoInstrument,
    /// More than [`INSTRUMENTS_MAX`].
    #[error("config has {instruments} instruments, {} are allowed", INSTRUMENTS_MAX)]
    TooMany {
        /// How many there are, or were to be.
        instruments: usize,
    },
    /// An instrument without a name.
    #[error("instrument_id cannot be empty")]
    EmptyId,
    /// A name that cannot be part of a topic's.
    #[error("instrument_id {id:?} cannot be part of a topic's name: {why}")]
    BadId {
        /// As it was given.
        id: String,
        /// The rule it breaks.
        why: String,
    },
    /// Two instruments of one name.
    #[error("duplicate instrument_id: {id}")]
    Duplicate {
        /// The name.
        id: String,
    },
    /// A number below one.
    #[error("{field} must be > 0{}", For(id))]
    NotPositive {
        /// The field's name.
        field: &'static str,
        /// Of which instrument.
        id: Option<String>,
    },
    /// A number below zero.
    #[error("{field} must be >= 0{}", For(id))]
    Negative {
        /// The field's name.
        field: &'static str,
        /// Of which instrument.
        id: Option<String>,
    },
    /// A number above its limit.
    #[error("{field} must be <= {max}{}, not {value}", For(id))]
    TooLarge {
        /// The field's name.
        field: &'static str,
        /// As it was given.
        value: i64,
        /// The limit.
        max: i64,
        /// Of which instrument.
        id: Option<String>,
    },
    /// A volatility that is no number, or below zero.
    #[error("volatility must be finite and >= 0 for {id}")]
    Volatility {
        /// Of which instrument.
        id: String,
    },
    /// A volatility in other units, most likely.
    #[error("volatility must be <= {} (ticks an update) for {id}, not {volatility}", VOLATILITY_MAX)]
    TooVolatile {
        /// Of which instrument.
        id: String,
        /// As it was given.
        volatility: f64,
    },
    /// The book would reach below 1 or above [`UNITS_MAX`].
    #[error(
        "base_price {base_price} leaves no room for levels_per_side * tick_size = {reach} on either side \
         within 1 to {} for {id}",
        UNITS_MAX
    )]
    OutOfPrices {
        /// Of which instrument.
        id: String,
        /// As it was given.
        base_price: i64,
        /// How far the book reaches.
        reach: i64,
    },
}

/// ` for X`, where the instrument is known.
struct For<'a>(&'a Option<String>);

impl fmt::Display for For<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|id| write!(f, " for {id}"))
    }
}
