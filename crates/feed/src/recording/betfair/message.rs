//! The parts of the messages of Betfair's stream that are needed for order books. Texts are borrowed from the line.
//!
//! Prices and sizes are not converted to floats, because a float cannot hold odds such as 1.01 exactly. The crate
//! serde_json with raw values reads 245 MB/s of these messages. The crate sonic-rs with lazy values reads only 175
//! MB/s, because most values are short.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// A message of the Betfair Exchange Stream.
#[derive(Debug, Deserialize)]
pub(super) struct BetfairMessage<'a> {
    #[serde(borrow, default)]
    pub op: Option<Cow<'a, str>>,
    #[serde(default)]
    pub pt: Option<u64>,
    #[serde(borrow, default)]
    pub mc: Option<Vec<MarketChange<'a>>>,
}

/// The changes of one market in a Betfair message.
#[derive(Debug, Deserialize)]
pub(super) struct MarketChange<'a> {
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// Whether this change is an image, which describes the whole market.
    #[serde(default)]
    pub img: Option<bool>,
    /// Whether the exchange has merged several changes into this one.
    #[serde(default)]
    pub con: Option<bool>,
    #[serde(borrow, default, rename = "marketDefinition")]
    pub definition: Option<MarketDefinition<'a>>,
    #[serde(borrow, default)]
    pub rc: Option<Vec<RunnerChange<'a>>>,
}

/// The part of a Betfair market's definition that is needed: its runners.
#[derive(Debug, Deserialize)]
pub(super) struct MarketDefinition<'a> {
    #[serde(borrow, default)]
    pub runners: Vec<Definition<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Definition<'a> {
    pub id: u64,
    #[serde(borrow, default)]
    pub hc: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
}

/// The changes of one runner's prices in a Betfair message.
#[derive(Debug, Deserialize)]
pub(super) struct RunnerChange<'a> {
    pub id: u64,
    #[serde(borrow, default)]
    pub hc: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub atb: Option<Vec<PriceSizePair<'a>>>,
    #[serde(borrow, default)]
    pub atl: Option<Vec<PriceSizePair<'a>>>,
    #[serde(default)]
    pub batb: Option<IgnoredAny>,
    #[serde(default)]
    pub batl: Option<IgnoredAny>,
}

/// A price and the new size at this price, as texts.
#[derive(Debug, Deserialize)]
pub(super) struct PriceSizePair<'a>(#[serde(borrow)] pub [&'a RawValue; 2]);
