//! The copy of a topic's state that a subscriber keeps. The state is an order book, orders, last values, or a region.

use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin::space::{AnyRegion, REGION};
use dunlin_client::Client;
use dunlin_feed::{
    BOOK, Book, BookEntry, LAST, LastValue, ORDERS, OrderEntry, Orders, PriceLevels, Scale, Side, ValueEntry,
};
use dunlin_topic::{Frame, FrozenState, Reducer, ReducerConfig, ReducerError};

use crate::outcome::CommandRefusal;

/// The state of a topic that has one of Dunlin's reducers.
#[derive(Debug)]
pub enum State {
    /// An order book that consists of price levels.
    Book(Book),
    /// An order book that consists of single orders.
    Orders(Orders),
    /// The last value of each key.
    Last(LastValue),
    /// A region of a world, and the configuration of the region's reducer.
    Region(Box<(AnyRegion, ReducerConfig)>),
}

impl State {
    /// Creates an empty state for a reducer with this configuration.
    pub fn of(config: &ReducerConfig) -> Result<State, CommandRefusal> {
        let refused = |error: dunlin_feed::OptionsError| CommandRefusal(error.to_string());
        let scale = || Scale::parse(&config.kind, &config.options).map_err(refused);
        match config.kind.as_str() {
            BOOK => Ok(State::Book(Book::new(scale()?))),
            ORDERS => Ok(State::Orders(Orders::new(scale()?))),
            LAST => Ok(State::Last(LastValue::default())),
            REGION => {
                let region = AnyRegion::of(&config.options).map_err(CommandRefusal)?;
                Ok(State::Region(Box::new((region, config.clone()))))
            }
            kind => Err(CommandRefusal(format!(
                "this version has no state of kind {kind:?}: use {BOOK}, {ORDERS} or {LAST}"
            ))),
        }
    }

    /// Creates an empty state for a topic of a node. If the topic's configuration is unknown, the state is of the kind
    /// `last`, which refuses the records of other kinds.
    pub fn of_topic(client: &Client, topic: &str) -> State {
        let described = client.describe_topic(topic).ok().and_then(|topic| topic.config.reducer);
        let config = described.unwrap_or_default();
        State::of(&config).unwrap_or_else(|_| State::Last(LastValue::default()))
    }

    /// Returns the configuration of the reducer that keeps this state.
    pub fn config(&self) -> ReducerConfig {
        let (kind, options) = match self {
            State::Book(book) => (BOOK, book.scale().options()),
            State::Orders(orders) => (ORDERS, orders.scale().options()),
            State::Last(_) => (LAST, BTreeMap::new()),
            State::Region(region) => return region.1.clone(),
        };
        ReducerConfig { kind: kind.to_owned(), options }
    }

    /// Returns the price levels if the state is an order book, otherwise `None`.
    pub fn levels(&self) -> Option<&dyn PriceLevels> {
        match self {
            State::Book(book) => Some(book),
            State::Orders(orders) => Some(orders),
            State::Last(_) | State::Region(_) => None,
        }
    }

    /// Returns the payload of a record that replaces any other state of the same kind by this state.
    pub fn encode_snapshot(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        match self {
            State::Region(region) => return region.0.whole(),
            State::Book(book) => {
                for side in Side::BOTH {
                    BookEntry::Clear { side }.encode(&mut payload);
                    for level in book.levels(side) {
                        BookEntry::Set { side, price: level.price, size: level.size }.encode(&mut payload);
                    }
                }
            }
            State::Orders(orders) => {
                for side in Side::BOTH {
                    OrderEntry::Clear { side }.encode(&mut payload);
                    for order in orders.levels(side).flat_map(|level| orders.queue(side, level.price)) {
                        let (id, price, size) = (order.id, order.price, order.size);
                        OrderEntry::Add { side, id, price, size }.encode(&mut payload);
                    }
                }
            }
            State::Last(last) => {
                ValueEntry::Clear.encode(&mut payload);
                last.iter().for_each(|(key, value)| ValueEntry::Set { key, value }.encode(&mut payload));
            }
        }
        payload
    }

    fn reducer(&self) -> &dyn Reducer {
        match self {
            State::Book(book) => book,
            State::Orders(orders) => orders,
            State::Last(last) => last,
            State::Region(region) => region.0.reducer(),
        }
    }

    fn reducer_mut(&mut self) -> &mut dyn Reducer {
        match self {
            State::Book(book) => book,
            State::Orders(orders) => orders,
            State::Last(last) => last,
            State::Region(region) => region.0.reducer_mut(),
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
