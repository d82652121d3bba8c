//! Errors in instrument files. MDD-Sim, another market data simulator, also reports some of these errors. The text of
//! such an error begins with the same words as MDD-Sim's text, so that a script can search for these words.

use std::fmt;

use super::{INSTRUMENTS_MAX, Notation, VOLATILITY_MAX};
use crate::scale::UNITS_MAX;

/// The reason why an instrument file is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InstrumentsError {
    /// The text is not valid JSON or TOML, or has an unknown field.
    #[error("{notation} parse failure: {why}")]
    Parse {
        /// The format that was expected.
        notation: Notation,
        /// The message of the parser, with the location.
        why: String,
    },
    /// The list of instruments is missing or empty.
    #[error("config must contain at least one instrument")]
    NoInstrument,
    /// There are more than [`INSTRUMENTS_MAX`] instruments.
    #[error("the configuration has {instruments} instruments, but at most {} are allowed", INSTRUMENTS_MAX)]
    TooMany {
        /// Number of instruments.
        instruments: usize,
    },
    /// An instrument has no id.
    #[error("instrument_id cannot be empty")]
    EmptyId,
    /// An id cannot be part of a topic's name.
    #[error("instrument_id {id:?} cannot be part of a topic's name: {why}")]
    BadId {
        /// The id.
        id: String,
        /// The rule that is broken.
        why: String,
    },
    /// Two instruments have the same id.
    #[error("duplicate instrument_id: {id}")]
    Duplicate {
        /// The id.
        id: String,
    },
    /// The value of a field is below one.
    #[error("{field} must be > 0{}", For(id))]
    NotPositive {
        /// Name of the field.
        field: &'static str,
        /// Id of the instrument; `None` if the field belongs to no instrument.
        id: Option<String>,
    },
    /// The value of a field is below zero.
    #[error("{field} must be >= 0{}", For(id))]
    Negative {
        /// Name of the field.
        field: &'static str,
        /// Id of the instrument; `None` if the field belongs to no instrument.
        id: Option<String>,
    },
    /// The value of a field is above its maximum.
    #[error("{field} must be <= {max}{}, not {value}", For(id))]
    TooLarge {
        /// Name of the field.
        field: &'static str,
        /// The value.
        value: i64,
        /// The maximum.
        max: i64,
        /// Id of the instrument; `None` if the field belongs to no instrument.
        id: Option<String>,
    },
    /// The volatility is infinite, not a number, or below zero.
    #[error("volatility must be finite and >= 0 for {id}")]
    Volatility {
        /// Id of the instrument.
        id: String,
    },
    /// The volatility is too high. The file probably states the volatility in another unit than ticks per update.
    #[error("volatility must be <= {} (ticks per update) for {id}, not {volatility}", VOLATILITY_MAX)]
    TooVolatile {
        /// Id of the instrument.
        id: String,
        /// The volatility, in ticks per update.
        volatility: f64,
    },
    /// The instrument's book could have prices below 1 or above [`UNITS_MAX`].
    #[error(
        "instrument {id}: the book reaches {reach} (levels_per_side * tick_size) below and above base_price \
         {base_price}, but its prices must be 1 to {}",
        UNITS_MAX
    )]
    OutOfPrices {
        /// Id of the instrument.
        id: String,
        /// The base price of the instrument.
        base_price: i64,
        /// Distance from the base price to the farthest price that the book can have.
        reach: i64,
    },
}

/// Formats ` for ID` if the id of the instrument is known, otherwise nothing.
struct For<'a>(&'a Option<String>);

impl fmt::Display for For<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|id| write!(f, " for {id}"))
    }
}
