//! Decodes records and states of state topics into readable text, such as `set bid 50000.10 x 1200` instead of bytes.
//!
//! The configuration of a topic is read from the node only once: before the topic's first record that may contain
//! entries is decoded. If the configuration is unknown, or the bytes are not entries, the bytes themselves are shown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_client::Client;
use dunlin_feed::{BOOK, BookEntry, LAST, ORDERS, OrderEntry, PriceLevels, Scale, Side, ValueEntry};
use dunlin_topic::{Record, Reducer, ReducerConfig, Snapshot};
use serde_json::{Map, Value, json};

use super::json::put_bytes;
use super::text::escaped;
use crate::state::State;

/// The maximum number of entries that are shown for each record. Further entries are only counted.
const ENTRIES_SHOWN_MAX: usize = 8;

/// Decodes the records of state topics into readable entries, according to each topic's reducer.
#[derive(Default)]
pub struct Interpreters {
    /// A client of the node from which the topics' configurations are read; `None` for records from files.
    node: Option<Client>,
    known: Mutex<HashMap<String, Option<Arc<TopicFormat>>>>,
}

/// How the entries of a topic's records are decoded.
#[derive(Debug)]
struct TopicFormat {
    reducer: ReducerConfig,
    scale: Scale,
}

/// One decoded entry of a record. It changes a price level, an order or a value.
#[derive(Debug, Clone, Copy)]
enum Entry<'a> {
    Level(BookEntry),
    Order(OrderEntry),
    Value(ValueEntry<'a>),
}

impl Interpreters {
    pub fn of(node: &Client) -> Interpreters {
        Interpreters { node: Some(node.clone()), known: Mutex::default() }
    }

    /// Sets the reducer of a topic whose records come from files, so that no node can be asked for the reducer.
    pub fn set_reducer(&self, topic: &str, reducer: ReducerConfig) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(topic.to_owned(), TopicFormat::of(reducer).map(Arc::new));
    }

    /// Returns the entries of the record as text; `None` if the record has no entries.
    pub fn text(&self, record: &Record<'_>) -> Option<String> {
        let (kind, entries) = self.entries(record)?;
        let more = entries.len().saturating_sub(ENTRIES_SHOWN_MAX);
        let mut words: Vec<String> =
            entries.iter().take(ENTRIES_SHOWN_MAX).map(|entry| kind.text(entry)).collect();
        words.extend((more > 0).then(|| format!("and {more} more")));
        Some(words.join(", "))
    }

    /// Returns the entries of the record as JSON objects; `None` if the record has no entries.
    pub fn object(&self, record: &Record<'_>) -> Option<Value> {
        let (_, entries) = self.entries(record)?;
        Some(entries.iter().map(Entry::object).collect())
    }

    /// Returns a sentence about the state, and a line for each of its entries; `None` if the state cannot be decoded.
    pub fn state_text(&self, snapshot: &Snapshot) -> Option<(String, Vec<String>)> {
        let (kind, state) = self.state(snapshot)?;
        let sentence = match state.levels() {
            Some(book) => kind.sentence(book),
            None => match state.entries() {
                1 => "1 value".to_owned(),
                entries => format!("{entries} values"),
            },
        };
        let payload = state.encode_snapshot();
        let entries = kind.read(&payload)?;
        let lines = entries.iter().filter(|entry| !entry.is_clear()).map(|entry| kind.text(entry));
        Some((sentence, lines.collect()))
    }

    /// Returns the state's kind, and its entries as JSON objects; `None` if the state cannot be decoded.
    pub fn state_object(&self, snapshot: &Snapshot) -> Option<(String, Value)> {
        let (kind, state) = self.state(snapshot)?;
        let payload = state.encode_snapshot();
        let entries = kind.read(&payload)?;
        let entries = entries.iter().filter(|entry| !entry.is_clear()).map(Entry::object).collect();
        Some((kind.reducer.kind.clone(), entries))
    }

    fn entries<'r>(&self, record: &Record<'r>) -> Option<(Arc<TopicFormat>, Vec<Entry<'r>>)> {
        // An entry begins with the number of its operation, from 1 to 4. A payload that is text does not begin with
        // such a byte.
        let payload = record.frame.payload();
        if !payload.first().is_some_and(|first| (1..=4).contains(first)) || record.frame.key().is_some() {
            return None;
        }
        let kind = self.kind(&record.log.topic)?;
        let entries = kind.read(payload)?;
        Some((kind, entries))
    }

    fn state(&self, snapshot: &Snapshot) -> Option<(Arc<TopicFormat>, State)> {
        let kind = self.kind(&snapshot.log.topic)?;
        let mut state = State::of(&kind.reducer).ok()?;
        state.restore(snapshot.position.seq, &snapshot.bytes).ok()?;
        Some((kind, state))
    }

    fn kind(&self, topic: &str) -> Option<Arc<TopicFormat>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = known.get(topic) {
            return kind.clone();
        }
        // If the request fails, nothing is stored, so the next record repeats the request.
        let reducer = self.node.as_ref()?.describe_topic(topic).ok()?.config.reducer;
        let kind = reducer.and_then(TopicFormat::of).map(Arc::new);
        known.insert(topic.to_owned(), kind.clone());
        kind
    }
}

impl std::fmt::Debug for Interpreters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Interpreters")
    }
}

impl TopicFormat {
    fn of(reducer: ReducerConfig) -> Option<TopicFormat> {
        let scale = match reducer.kind.as_str() {
            BOOK | ORDERS => Scale::parse(&reducer.kind, &reducer.options).ok()?,
            LAST => Scale::default(),
            _ => return None,
        };
        Some(TopicFormat { reducer, scale })
    }

    /// Decodes all entries of a payload. Returns `None` if some bytes of the payload are not an entry.
    fn read<'a>(&self, payload: &'a [u8]) -> Option<Vec<Entry<'a>>> {
        match self.reducer.kind.as_str() {
            BOOK => BookEntry::decode_all(payload).map(|entry| entry.ok().map(Entry::Level)).collect(),
            ORDERS => OrderEntry::decode_all(payload).map(|entry| entry.ok().map(Entry::Order)).collect(),
            _ => ValueEntry::decode_all(payload).map(|entry| entry.ok().map(Entry::Value)).collect(),
        }
    }

    fn text(&self, entry: &Entry<'_>) -> String {
        let (price, size) = (|units| self.scale.price_text(units), |units| self.scale.size_text(units));
        match *entry {
            Entry::Level(BookEntry::Set { side, price: at, size: of }) => {
                format!("set {side} {} x {}", price(at), size(of))
            }
            Entry::Level(BookEntry::Remove { side, price: at }) => format!("remove {side} {}", price(at)),
            Entry::Order(OrderEntry::Add { side, id, price: at, size: of }) => {
                format!("add {side} {id} {} x {}", price(at), size(of))
            }
            Entry::Order(OrderEntry::Change { id, price: at, size: of }) => {
                format!("change {id} {} x {}", price(at), size(of))
            }
            Entry::Order(OrderEntry::Delete { id }) => format!("delete {id}"),
            Entry::Level(BookEntry::Clear { side }) | Entry::Order(OrderEntry::Clear { side }) => {
                format!("clear {side}s")
            }
            Entry::Value(ValueEntry::Set { key, value }) => {
                format!("set {} {}", escaped(key), escaped(value))
            }
            Entry::Value(ValueEntry::Remove { key }) => format!("remove {}", escaped(key)),
            Entry::Value(ValueEntry::Clear) => "clear".to_owned(),
        }
    }

    fn sentence(&self, book: &dyn PriceLevels) -> String {
        let best = |side| {
            let level = book.best(side)?;
            Some(format!("{} x {}", self.scale.price_text(level.price), self.scale.size_text(level.size)))
        };
        let side = |side| match best(side) {
            Some(best) => match book.level_count(side) {
                1 => format!("1 {side} level from {best}"),
                levels => format!("{levels} {side} levels from {best}"),
            },
            None => format!("no {side}s"),
        };
        format!("{}, {}", side(Side::Bid), side(Side::Ask))
    }
}

impl Entry<'_> {
    fn is_clear(&self) -> bool {
        matches!(
            self,
            Entry::Level(BookEntry::Clear { .. })
                | Entry::Order(OrderEntry::Clear { .. })
                | Entry::Value(ValueEntry::Clear)
        )
    }

    /// Returns the entry as a JSON object. Prices and sizes are whole numbers in the topic's units. Ids are text,
    /// because many JSON readers cannot represent such large numbers exactly.
    fn object(&self) -> Value {
        let side_of = |side: Side| side.to_string();
        match *self {
            Entry::Level(BookEntry::Set { side, price, size }) => {
                json!({ "op": "set", "side": side_of(side), "price": price, "size": size })
            }
            Entry::Level(BookEntry::Remove { side, price }) => {
                json!({ "op": "remove", "side": side_of(side), "price": price })
            }
            Entry::Order(OrderEntry::Add { side, id, price, size }) => {
                json!({ "op": "add", "side": side_of(side), "id": id.to_string(), "price": price, "size": size })
            }
            Entry::Order(OrderEntry::Change { id, price, size }) => {
                json!({ "op": "change", "id": id.to_string(), "price": price, "size": size })
            }
            Entry::Order(OrderEntry::Delete { id }) => json!({ "op": "delete", "id": id.to_string() }),
            Entry::Level(BookEntry::Clear { side }) | Entry::Order(OrderEntry::Clear { side }) => {
                json!({ "op": "clear", "side": side_of(side) })
            }
            Entry::Value(ValueEntry::Set { key, value }) => keyed("set", key, Some(value)),
            Entry::Value(ValueEntry::Remove { key }) => keyed("remove", key, None),
            Entry::Value(ValueEntry::Clear) => json!({ "op": "clear" }),
        }
    }
}

fn keyed(op: &str, key: &[u8], value: Option<&[u8]>) -> Value {
    let mut object = Map::new();
    object.insert("op".into(), op.into());
    put_bytes(&mut object, "key", key);
    if let Some(value) = value {
        put_bytes(&mut object, "value", value);
    }
    object.into()
}
