//! Holds the state of a state topic, for each kind of state that Dunlin supports.

use std::sync::Arc;

use dunlin_feed::{BOOK, Book, LAST, LastValue, ORDERS, Orders, PriceLevels, Scale};
use dunlin_space::{AnyRegion, REGION};
use dunlin_topic::{Frame, FrozenState, Reducer, ReducerConfig, ReducerError};

use crate::entities::RegionSnapshot;
use crate::failure::Failure;

/// The state of a state topic: an order book, orders, last values, or a region.
#[derive(Debug)]
pub enum State {
    Book(Book),
    Orders(Orders),
    Last(LastValue),
    Region(Box<AnyRegion>),
}

impl State {
    /// Returns an empty state for a topic with this reducer configuration.
    pub fn of(config: &ReducerConfig) -> Result<State, Failure> {
        let value_error = |error: dunlin_feed::OptionsError| Failure::Value(error.to_string());
        let scale = || Scale::parse(&config.kind, &config.options).map_err(value_error);
        match config.kind.as_str() {
            BOOK => Ok(State::Book(Book::new(scale()?))),
            ORDERS => Ok(State::Orders(Orders::new(scale()?))),
            LAST => Ok(State::Last(LastValue::default())),
            REGION => Ok(State::Region(Box::new(AnyRegion::of(&config.options).map_err(Failure::Value)?))),
            kind => Err(Failure::Value(format!(
                "this version of the client does not know states of kind {kind:?}"
            ))),
        }
    }

    pub fn levels(&self) -> Option<&dyn PriceLevels> {
        match self {
            State::Book(book) => Some(book),
            State::Orders(orders) => Some(orders),
            State::Last(_) | State::Region(_) => None,
        }
    }

    /// The last value of each key; `None` if the state is of another kind.
    pub fn values(&self) -> Option<&LastValue> {
        if let State::Last(last) = self { Some(last) } else { None }
    }

    /// The current entities of a region; `None` if the state is of another kind.
    pub fn entities(&self) -> Option<RegionSnapshot> {
        if let State::Region(region) = self { Some(RegionSnapshot::of(region)) } else { None }
    }

    fn reducer(&self) -> &dyn Reducer {
        match self {
            State::Book(book) => book,
            State::Orders(orders) => orders,
            State::Last(last) => last,
            State::Region(region) => match &**region {
                AnyRegion::Plane(reducer) => reducer,
                AnyRegion::Space(reducer) => reducer,
            },
        }
    }

    fn reducer_mut(&mut self) -> &mut dyn Reducer {
        match self {
            State::Book(book) => book,
            State::Orders(orders) => orders,
            State::Last(last) => last,
            State::Region(region) => match &mut **region {
                AnyRegion::Plane(reducer) => reducer,
                AnyRegion::Space(reducer) => reducer,
            },
        }
    }
}

impl Reducer for State {
    fn check(&self, frames: &mut dyn Iterator<Item = Frame<'_>>) -> Result<(), ReducerError> {
        self.reducer().check(frames)
    }

    fn apply(&mut self, seq: u64, frame: &Frame<'_>) -> Result<(), ReducerError> {
        self.reducer_mut().apply(seq, frame)
    }

    fn freeze(&mut self) -> Arc<dyn FrozenState> {
        self.reducer_mut().freeze()
    }

    fn restore(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), ReducerError> {
        self.reducer_mut().restore(seq, snapshot)
    }

    fn checksum(&self) -> u64 {
        self.reducer().checksum()
    }

    fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool {
        self.reducer().changes_since(seq, payload)
    }

    fn snapshot_bytes(&self) -> usize {
        self.reducer().snapshot_bytes()
    }

    fn bytes(&self) -> u64 {
        self.reducer().bytes()
    }

    fn entries(&self) -> u64 {
        self.reducer().entries()
    }
}
