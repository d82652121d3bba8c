//! The types into which an instrument file is parsed, before its validation.
//!
//! The names of fields may be in snake_case or camelCase. Whole numbers may be strings, because proto3 JSON writes
//! 64-bit numbers as strings.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// The content of an instrument file before its validation.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawInstruments {
    pub instruments: Vec<RawInstrument>,
    #[serde(alias = "defaultUpdatesPerSec", deserialize_with = "integer")]
    pub default_updates_per_sec: i64,
    #[serde(alias = "resetProbabilityPpm", deserialize_with = "integer")]
    pub reset_probability_ppm: i64,
    #[serde(alias = "allowCrossedBooks")]
    pub allow_crossed_books: bool,
}

/// One instrument of an instrument file before its validation.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawInstrument {
    #[serde(alias = "instrumentId")]
    pub instrument_id: String,
    pub symbol: String,
    #[serde(alias = "publishDepth", deserialize_with = "integer")]
    pub publish_depth: i64,
    #[serde(alias = "tickSize", deserialize_with = "integer")]
    pub tick_size: i64,
    #[serde(alias = "basePrice", deserialize_with = "integer")]
    pub base_price: i64,
    #[serde(alias = "levelsPerSide", deserialize_with = "integer")]
    pub levels_per_side: i64,
    #[serde(alias = "updatesPerSec", deserialize_with = "integer")]
    pub updates_per_sec: i64,
    #[serde(deserialize_with = "float")]
    pub volatility: f64,
}

fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    deserializer.deserialize_any(IntegerVisitor)
}

fn float<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    deserializer.deserialize_any(FloatVisitor)
}

struct IntegerVisitor;

impl Visitor<'_> for IntegerVisitor {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<i64, E> {
        value.try_into().map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<i64, E> {
        value.parse().map_err(|_| E::invalid_value(Unexpected::Str(value), &self))
    }
}

struct FloatVisitor;

impl Visitor<'_> for FloatVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<f64, E> {
        value.parse().map_err(|_| E::invalid_value(Unexpected::Str(value), &self))
    }
}
