//! Imports exchanges' recordings of order books into a node. The test applies the same records to a simple order book,
//! and every replica must equal this book. The command `cargo xtask data` downloads the recordings. Without them,
//! nothing is tested.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use dunlin::feed::recording::{Recording, RecordingFormat, RecordingItem, RecordingOptions};
use dunlin::feed::{BookEntry, OrderEntry, Orders, PriceLevels, Replica, Scale, Side};
use dunlin_client::topic::*;

use crate::running_node::RunningNode;

/// How many bytes of each file the test imports. The limit saves time.
const BYTES_MAX: usize = 4 << 20;
const SIDES: [Side; 2] = [Side::Bid, Side::Ask];

/// A simple order book, to which replicas are compared. It stores price levels by price, and orders by number.
#[derive(Default)]
struct SimpleBook {
    levels: BTreeMap<(u8, i64), i64>,
    orders: BTreeMap<u64, (u8, i64, i64)>,
    records: u64,
}

impl SimpleBook {
    fn apply(&mut self, kind: &str, payload: &[u8]) {
        self.records += 1;
        if kind == "book" {
            BookEntry::decode_all(payload).for_each(|entry| match entry.unwrap() {
                BookEntry::Set { side, price, size } => drop(self.levels.insert((side.code(), price), size)),
                BookEntry::Remove { side, price } => drop(self.levels.remove(&(side.code(), price))),
                BookEntry::Clear { side } => self.levels.retain(|(of, _), _| *of != side.code()),
            });
        } else {
            OrderEntry::decode_all(payload).for_each(|entry| match entry.unwrap() {
                OrderEntry::Add { side, id, price, size } => {
                    assert!(self.orders.insert(id, (side.code(), price, size)).is_none());
                }
                OrderEntry::Change { id, price, size } => {
                    let order = self.orders.get_mut(&id).unwrap();
                    (order.1, order.2) = (price, size);
                }
                OrderEntry::Delete { id } => assert!(self.orders.remove(&id).is_some()),
                OrderEntry::Clear { side } => self.orders.retain(|_, order| order.0 != side.code()),
            });
        }
    }

    fn levels(&self) -> BTreeMap<(u8, i64), i64> {
        let mut levels = self.levels.clone();
        for &(side, price, size) in self.orders.values() {
            *levels.entry((side, price)).or_default() += size;
        }
        levels
    }
}

fn levels_of(state: &dyn PriceLevels) -> BTreeMap<(u8, i64), i64> {
    let of = |side: Side| state.levels(side).map(move |level| ((side.code(), level.price), level.size));
    SIDES.into_iter().flat_map(of).collect()
}

/// A replica to compare with the simple order book. It applies new records when `read` is called.
trait Reader {
    fn read(&mut self);
    fn last_seq(&self, topic: &str) -> u64;
    fn levels(&self, topic: &str) -> BTreeMap<(u8, i64), i64>;
    fn fault_counts(&self) -> (u64, u64);
}

impl<F: Reducer + PriceLevels, S: Subscribe> Reader for Replica<F, S> {
    fn read(&mut self) {
        self.drain(dunlin::now_ns(), usize::MAX, |_| ()).unwrap();
    }

    fn last_seq(&self, topic: &str) -> u64 {
        self.states().find(|(log, ..)| log.topic == topic).map_or(0, |(_, at, _)| at.seq)
    }

    fn levels(&self, topic: &str) -> BTreeMap<(u8, i64), i64> {
        self.states()
            .find(|(log, ..)| log.topic == topic)
            .map_or_else(BTreeMap::new, |(.., state)| levels_of(state))
    }

    fn fault_counts(&self) -> (u64, u64) {
        (self.counts().divergent, self.counts().refused)
    }
}

/// Returns three replicas in process and three over TCP: in each case a plain one, a conflated one, and one for which
/// the node leaves out every 50th record.
fn readers<F: Reducer + PriceLevels>(
    running: &RunningNode,
    new: fn() -> F,
) -> Vec<(&'static str, Box<dyn Reader>)> {
    let following =
        SubscribeOptions { start: Start::Snapshot, on_gap: OnGap::Snapshot, ..SubscribeOptions::default() };
    let conflated = SubscribeOptions { conflate: true, ..following.clone() };
    let losing = SubscribeOptions { test_loss_every: NonZeroU32::new(50), ..following.clone() };
    let client = running.client();
    let mut readers: Vec<(&str, Box<dyn Reader>)> = Vec::new();
    for (name, options) in [("plain", following), ("conflated", conflated), ("losing", losing)] {
        let inside = running.node.subscribe("md.>", &options).unwrap();
        readers.push((name, Box::new(Replica::new(inside, move |_| new()))));
        let outside = client.subscribe("md.>", options).unwrap();
        readers.push((name, Box::new(Replica::new(outside, move |_| new()))));
    }
    readers
}

/// Imports a recording. The replicas apply the new records after every `every` records, and are compared with the
/// simple order book less often.
fn import<F: Reducer + PriceLevels>(name: &str, layout: RecordingFormat, new: fn() -> F, every: u64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name);
    let Ok(bytes) = std::fs::read(&path) else {
        eprintln!("{} is not there: not tested (`cargo xtask data` fetches it)", path.display());
        return;
    };
    let running = RunningNode::start();
    let mut readers = readers(&running, new);
    let mut books: Vec<(String, String, Publisher, SimpleBook)> = Vec::new();
    let mut count = 0;
    let mut sink = |item: RecordingItem<'_>| match item {
        RecordingItem::Book { recorded, .. } => {
            let reducer = ReducerConfig { kind: recorded.kind.to_owned(), options: recorded.scale.options() };
            let config = TopicConfig { reducer: Some(reducer), ..TopicConfig::default() };
            running.node.create_topic(&recorded.topic, config, false).unwrap();
            let publisher = running.node.publisher(&recorded.topic).unwrap();
            books.push((recorded.topic.clone(), recorded.kind.to_owned(), publisher, SimpleBook::default()));
        }
        RecordingItem::Record { book, payload, .. } => {
            let (_, kind, publisher, simple_book) = &mut books[book];
            publisher.publish(payload).unwrap();
            simple_book.apply(kind, payload);
            count += 1;
            if count % every == 0 {
                readers.iter_mut().for_each(|(_, reader)| reader.read());
            }
            if count % (every * 20) == 0 {
                compare(&books, &mut readers);
            }
        }
        _ => {}
    };
    let mut recording = Recording::new(layout, &RecordingOptions::default());
    recording.push(&bytes[..bytes.len().min(BYTES_MAX)], &mut sink);
    recording.end(&mut sink);
    compare(&books, &mut readers);
    assert!(count > 10_000, "{count}");
}

/// Waits until all replicas have applied all records, and then compares all their levels.
fn compare(
    books: &[(String, String, Publisher, SimpleBook)],
    readers: &mut [(&'static str, Box<dyn Reader>)],
) {
    for (name, reader) in readers {
        dunlin_wait::until(format_args!("{name} comes to the end"), || {
            reader.read();
            books.iter().all(|(topic, .., simple_book)| reader.last_seq(topic) >= simple_book.records)
        });
        for (topic, .., simple_book) in books {
            assert_eq!(reader.levels(topic), simple_book.levels(), "{name}: {topic}");
        }
        assert_eq!(reader.fault_counts(), (0, 0), "{name}");
    }
}

#[test]
fn imported_betfair_market_is_equal_in_every_replica() {
    let book = || dunlin::feed::Book::new(Scale::default());
    import("1.200806927", RecordingFormat::Betfair, book, 211);
}

#[test]
fn imported_bitstamp_orders_are_equal_in_every_replica() {
    import("orders.csv", RecordingFormat::Bitstamp, || Orders::new(Scale::default()), 4_001);
}
