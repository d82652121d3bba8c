//! Reads the instruments of a market data simulator from files in JSON or TOML.
//!
//! `docs/feeds.md` describes the format of the files. Files for MDD-Sim, another market data simulator, are also
//! accepted. They are proto3 JSON: names are in camelCase, and whole numbers may be strings. The parser refuses unknown
//! fields, which are mostly typing errors. The parser also refuses values with which no order book can be simulated.
//!
//! Invariants of [`Instruments`]: at least one instrument; distinct ids that are valid subjects; every price
//! that a simulated book can reach is within 1 … [`UNITS_MAX`].

mod error;
mod raw;
mod text;

use std::collections::HashSet;
use std::fmt;

use dunlin_topic::Subject;
use serde::{Deserialize, Serialize};

use crate::scale::{Scale, UNITS_MAX};

pub use error::InstrumentsError;
use raw::{RawInstrument, RawInstruments};
pub use text::{InstrumentsText, SCENARIOS};

/// Maximum number of instruments in a file.
pub const INSTRUMENTS_MAX: usize = 100_000;
/// Maximum number of levels on a side of a simulated book.
pub const LEVELS_PER_SIDE_MAX: u32 = 100_000;
/// Maximum number of updates a second. The limit applies to each instrument, and to all instruments together.
pub const UPDATES_PER_SEC_MAX: u32 = 100_000_000;
/// Maximum volatility. The volatility is the standard deviation of the price's move at one update, in ticks.
pub const VOLATILITY_MAX: f64 = 1000.0;

/// Minimum number of levels on a side of a simulated book. A lower number in a file is replaced by this minimum.
const LEVELS_PER_SIDE_MIN: u32 = 4;
const UPDATES_PER_SEC_DEFAULT: u32 = 100;
const VOLATILITY_DEFAULT: f64 = 0.05;
const PPM: i64 = 1_000_000;

/// The instruments of a simulator, validated and with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Instruments {
    list: Vec<Instrument>,
    /// Probability, in millionths, that an update resets the book instead of changing one level.
    pub reset_probability_ppm: u32,
    /// Whether the best bid of a simulated book may at times be above the best ask.
    pub allow_crossed_books: bool,
}

/// The settings of one simulated instrument: its name, prices, and rate of updates.
#[derive(Debug, Clone, PartialEq)]
pub struct Instrument {
    /// Id of the instrument. It is a valid subject, because the instrument's topic is `md.<id>`.
    pub id: String,
    /// Display name.
    pub symbol: String,
    /// Number of levels that a view shows by default.
    pub publish_depth: u32,
    /// Distance between two adjacent prices, in units of the last decimal of a price.
    pub tick_size: i64,
    /// Price around which a new book is built, in units.
    pub base_price: i64,
    /// Number of levels on each side of a new book.
    pub levels_per_side: u32,
    /// Number of updates a second.
    pub updates_per_sec: u32,
    /// Standard deviation of the move that the fair price makes at one update, in ticks. The fair price is a random
    /// walk that the book's prices follow.
    pub volatility: f64,
}

/// The format of an instrument file: JSON or TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notation {
    /// The file is written in JSON.
    Json,
    /// The file is written in TOML.
    Toml,
}

impl Instrument {
    /// Name of the topic to which the instrument's records are published.
    pub fn topic(&self) -> String {
        topic_name(&self.id)
    }

    /// The scale of the prices and sizes in the instrument's topic, for the topic's `book` reducer. These prices and
    /// sizes have no decimals.
    pub fn scale(&self) -> Scale {
        let on_grid = self.base_price % self.tick_size == 0;
        let tick = if on_grid { self.tick_size } else { 1 };
        Scale { tick, price_min: 1, depth: self.publish_depth, ..Scale::default() }
    }
}

fn topic_name(id: &str) -> String {
    format!("md.{id}")
}

impl Notation {
    /// Derives the format from a file's name: TOML for a name that ends in `.toml`, otherwise JSON.
    pub fn of_file(name: &str) -> Notation {
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        if ending.eq_ignore_ascii_case("toml") { Notation::Toml } else { Notation::Json }
    }
}

impl fmt::Display for Notation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Notation::Json => "json",
            Notation::Toml => "toml",
        })
    }
}

impl Instruments {
    /// Parses and validates the content of an instrument file.
    pub fn parse(text: &str, notation: Notation) -> Result<Instruments, InstrumentsError> {
        let failed = |why: String| InstrumentsError::Parse { notation, why };
        let raw: RawInstruments = match notation {
            Notation::Json => serde_json::from_str(text).map_err(|error| failed(error.to_string()))?,
            Notation::Toml => toml::from_str(text).map_err(|error| failed(error.to_string()))?,
        };
        Instruments::validate(raw)
    }

    /// The instruments in the order of the file. The first instrument has number 0.
    pub fn list(&self) -> &[Instrument] {
        &self.list
    }

    /// Returns the same instruments, each with `updates_per_sec` updates a second.
    pub fn at_rate(&self, updates_per_sec: u32) -> Result<Instruments, InstrumentsError> {
        let rate =
            check_range("updates_per_sec", updates_per_sec.into(), 1, UPDATES_PER_SEC_MAX.into(), None)?;
        let mut instruments = self.clone();
        instruments.list.iter_mut().for_each(|instrument| instrument.updates_per_sec = rate as u32);
        instruments.check_list()?;
        Ok(instruments)
    }

    /// Returns the same general settings, but with `count` copies of the first instrument, named `<id>-001` and so on.
    /// The base price of each copy is 100 higher than that of the previous copy.
    pub fn copies_of_first(&self, count: usize) -> Result<Instruments, InstrumentsError> {
        let first = &self.list[0];
        let copy = |at: usize| {
            let base_price = first.base_price.saturating_add(100_i64.saturating_mul(at as i64));
            let id = format!("{}-{:03}", first.id, at + 1);
            Instrument { symbol: id.clone(), id, base_price, ..first.clone() }
        };
        let instruments =
            Instruments { list: (0..count.min(INSTRUMENTS_MAX + 1)).map(copy).collect(), ..self.clone() };
        instruments.check_list()?;
        instruments.list.iter().try_for_each(check_prices)?;
        Ok(instruments)
    }

    fn validate(raw: RawInstruments) -> Result<Instruments, InstrumentsError> {
        let default_rate = match raw.default_updates_per_sec {
            0 => UPDATES_PER_SEC_DEFAULT,
            rate => check_range("default_updates_per_sec", rate, 1, UPDATES_PER_SEC_MAX.into(), None)? as u32,
        };
        let reset = check_range("reset_probability_ppm", raw.reset_probability_ppm, 0, PPM, None)?;
        let list =
            raw.instruments.into_iter().map(|instrument| validate_instrument(instrument, default_rate));
        let instruments = Instruments {
            list: list.collect::<Result<_, _>>()?,
            reset_probability_ppm: reset as u32,
            allow_crossed_books: raw.allow_crossed_books,
        };
        instruments.check_list()?;
        Ok(instruments)
    }

    fn check_list(&self) -> Result<(), InstrumentsError> {
        match self.list.len() {
            0 => return Err(InstrumentsError::NoInstrument),
            1..=INSTRUMENTS_MAX => {}
            instruments => return Err(InstrumentsError::TooMany { instruments }),
        }
        let mut ids = HashSet::new();
        if let Some(twice) = self.list.iter().find(|instrument| !ids.insert(instrument.id.as_str())) {
            return Err(InstrumentsError::Duplicate { id: twice.id.clone() });
        }
        let rate = self.list.iter().map(|instrument| i64::from(instrument.updates_per_sec)).sum();
        check_range("updates_per_sec of all instruments", rate, 1, UPDATES_PER_SEC_MAX.into(), None)?;
        Ok(())
    }
}

fn validate_instrument(raw: RawInstrument, default_rate: u32) -> Result<Instrument, InstrumentsError> {
    let id = raw.instrument_id;
    if id.is_empty() {
        return Err(InstrumentsError::EmptyId);
    }
    if let Err(error) = Subject::parse(&topic_name(&id)) {
        return Err(InstrumentsError::BadId { why: error.to_string(), id });
    }
    let positive = |field, value, max| check_range(field, value, 1, max, Some(&id));
    let publish_depth = positive("publish_depth", raw.publish_depth, LEVELS_PER_SIDE_MAX.into())?;
    let levels = match raw.levels_per_side {
        0 => (2 * publish_depth).min(LEVELS_PER_SIDE_MAX.into()),
        levels => positive("levels_per_side", levels, LEVELS_PER_SIDE_MAX.into())?,
    };
    let rate = match raw.updates_per_sec {
        0 => default_rate,
        rate => positive("updates_per_sec", rate, UPDATES_PER_SEC_MAX.into())? as u32,
    };
    let instrument = Instrument {
        symbol: if raw.symbol.is_empty() { id.clone() } else { raw.symbol },
        publish_depth: publish_depth as u32,
        tick_size: positive("tick_size", raw.tick_size, UNITS_MAX)?,
        base_price: positive("base_price", raw.base_price, UNITS_MAX)?,
        levels_per_side: (levels as u32).max(LEVELS_PER_SIDE_MIN),
        updates_per_sec: rate,
        volatility: volatility(raw.volatility, &id)?,
        id,
    };
    check_prices(&instrument)?;
    Ok(instrument)
}

fn volatility(value: f64, id: &str) -> Result<f64, InstrumentsError> {
    if !value.is_finite() || value < 0.0 {
        return Err(InstrumentsError::Volatility { id: id.to_owned() });
    }
    if value > VOLATILITY_MAX {
        return Err(InstrumentsError::TooVolatile { id: id.to_owned(), volatility: value });
    }
    Ok(if value == 0.0 { VOLATILITY_DEFAULT } else { value })
}

/// Checks that all prices of a new book of this instrument are valid.
fn check_prices(instrument: &Instrument) -> Result<(), InstrumentsError> {
    let reach = i64::from(instrument.levels_per_side).saturating_mul(instrument.tick_size);
    if instrument.base_price <= reach || instrument.base_price > UNITS_MAX.saturating_sub(reach) {
        return Err(InstrumentsError::OutOfPrices {
            id: instrument.id.clone(),
            base_price: instrument.base_price,
            reach,
        });
    }
    Ok(())
}

fn check_range(
    field: &'static str,
    value: i64,
    min: i64,
    max: i64,
    id: Option<&str>,
) -> Result<i64, InstrumentsError> {
    let id = || id.map(str::to_owned);
    match value {
        _ if value < min && min == 1 => Err(InstrumentsError::NotPositive { field, id: id() }),
        _ if value < min => Err(InstrumentsError::Negative { field, id: id() }),
        _ if value > max => Err(InstrumentsError::TooLarge { field, value, max, id: id() }),
        _ => Ok(value),
    }
}
