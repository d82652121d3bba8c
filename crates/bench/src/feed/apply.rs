//! Measures how long it takes to apply a real recording to order books.
//!
//! First, the recording is converted to records; this step is not timed. Then all records are applied to new books;
//! this step is timed. An event is one entry of a record: the new size of a price level, or a change of an order. At
//! the end, the books are compared with plain maps to which the same entries were applied.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use dunlin_feed::recording::{Recording, RecordingFormat, RecordingItem, RecordingOptions};
use dunlin_feed::{
    BOOK_ENTRY_BYTES, Book, BookEntry, ORDER_ENTRY_BYTES, OrderEntry, Orders, PriceLevels, Scale, Side,
};

use crate::clock::monotonic_ns;
use crate::point::{MissingPrerequisite, RunSample};

/// For each measurement: the kind of book (`l2`: price levels, `l3`: orders), and the name of the recording.
pub const RECORDINGS: [(&str, &str); 5] = [
    ("l2", "SELF-1.181223994"),
    ("l2", "PRO-1.170258213"),
    ("l2", "SELF-1.181223995"),
    ("l2", "1.200806927"),
    ("l3", "orders.csv"),
];

/// The directory that contains the recordings, unless `DUNLIN_DATA` names another one.
const DATA: &str = "data";
const PIECE: usize = 1 << 20;

/// The records of a market recording. The recording is converted to records in advance, so that only applying the
/// records is timed.
#[derive(Debug)]
pub struct RecordedUpdates {
    /// The scale of each book: its number of decimals, and its range of prices.
    pub scales: Vec<Scale>,
    /// For each record: the index of its book, and the range of its payload in `bytes`.
    pub records: Vec<(usize, Range<usize>)>,
    /// The payloads of all records, one after another.
    pub bytes: Vec<u8>,
}

/// Applies the recording to order books once, and returns the figures.
pub fn measure(recording: &str) -> Result<RunSample> {
    let records = read(recording)?;
    let by_order = recording == "orders.csv";
    let (elapsed_ns, events) = if by_order {
        orders(&records).context("cannot measure the reducer `orders`")?
    } else {
        levels(&records).context("cannot measure the reducer `book`")?
    };
    Ok(RunSample::new()
        .with("event_ns", elapsed_ns as f64 / events as f64)
        .with("events_per_s", events as f64 * 1e9 / elapsed_ns.max(1) as f64)
        .with("events", events as f64)
        .with("records", records.records.len() as f64))
}

/// Reads a recording and converts it to records. Fails if the recording is missing.
pub fn read(recording: &str) -> Result<RecordedUpdates> {
    let folder = std::env::var_os("DUNLIN_DATA").map_or_else(|| PathBuf::from(DATA), PathBuf::from);
    let path = folder.join(recording);
    let content = std::fs::read(&path).map_err(|error| {
        MissingPrerequisite(format!("{}: {error}; `cargo xtask data` fetches the recordings", path.display()))
    })?;
    let layout = RecordingFormat::of(&content)
        .with_context(|| format!("{} is not a recording of Betfair or Bitstamp", path.display()))?;
    let mut reader = Recording::new(layout, &RecordingOptions::default());
    let (mut records, mut bytes) = (Vec::new(), Vec::new());
    let mut sink = |item: RecordingItem<'_>| {
        if let RecordingItem::Record { book, payload, .. } = item {
            records.push((book, bytes.len()..bytes.len() + payload.len()));
            bytes.extend_from_slice(payload);
        }
    };
    content.chunks(PIECE).for_each(|piece| reader.push(piece, &mut sink));
    reader.end(&mut sink);
    let scales = reader.books().iter().map(|book| book.scale).collect();
    Ok(RecordedUpdates { scales, records, bytes })
}

fn levels(records: &RecordedUpdates) -> Result<(u64, u64)> {
    let mut books: Vec<Book> = records.scales.iter().map(|scale| Book::new(*scale)).collect();
    let start_ns = monotonic_ns();
    for (seq, (book, payload)) in (1..).zip(&records.records) {
        books[*book].apply_payload(seq, &records.bytes[payload.clone()])?;
    }
    let elapsed_ns = monotonic_ns() - start_ns;
    let mut plain: Vec<BTreeMap<(Side, i64), i64>> = vec![BTreeMap::new(); books.len()];
    for (book, payload) in &records.records {
        for entry in BookEntry::decode_all(&records.bytes[payload.clone()]) {
            apply_to_map(&mut plain[*book], &entry?);
        }
    }
    for (nth, book) in books.iter().enumerate() {
        compare(book, &plain[nth]).with_context(|| format!("order book {nth} is wrong"))?;
    }
    Ok((elapsed_ns, (records.bytes.len() / BOOK_ENTRY_BYTES) as u64))
}

fn apply_to_map(plain: &mut BTreeMap<(Side, i64), i64>, entry: &BookEntry) {
    match *entry {
        BookEntry::Set { side, price, size } => drop(plain.insert((side, price), size)),
        BookEntry::Remove { side, price } => drop(plain.remove(&(side, price))),
        BookEntry::Clear { side } => plain.retain(|(other, _), _| *other != side),
    }
}

fn orders(records: &RecordedUpdates) -> Result<(u64, u64)> {
    ensure!(records.scales.len() == 1, "received {} books, expected one", records.scales.len());
    let mut book = Orders::new(records.scales[0]);
    let start_ns = monotonic_ns();
    for (seq, (_, payload)) in (1..).zip(&records.records) {
        book.apply_payload(seq, &records.bytes[payload.clone()])?;
    }
    let elapsed_ns = monotonic_ns() - start_ns;
    let mut plain: HashMap<u64, (Side, i64, i64)> = HashMap::new();
    for entry in OrderEntry::decode_all(&records.bytes) {
        match entry? {
            OrderEntry::Add { side, id, price, size } => drop(plain.insert(id, (side, price, size))),
            OrderEntry::Change { id, price, size } => {
                if let Some(order) = plain.get_mut(&id) {
                    (order.1, order.2) = (price, size);
                }
            }
            OrderEntry::Delete { id } => drop(plain.remove(&id)),
            OrderEntry::Clear { side } => plain.retain(|_, order| order.0 != side),
        }
    }
    ensure!(
        book.order_count() == plain.len(),
        "the book has {} orders, expected {}",
        book.order_count(),
        plain.len()
    );
    let mut sums = BTreeMap::new();
    plain.values().for_each(|(side, price, size)| *sums.entry((*side, *price)).or_default() += size);
    compare(&book, &sums)?;
    Ok((elapsed_ns, (records.bytes.len() / ORDER_ENTRY_BYTES) as u64))
}

fn compare(book: &impl PriceLevels, plain: &BTreeMap<(Side, i64), i64>) -> Result<()> {
    let mut count = 0;
    for side in [Side::Bid, Side::Ask] {
        for level in book.levels(side) {
            count += 1;
            let size = plain.get(&(side, level.price));
            ensure!(
                size == Some(&level.size),
                "{side} {}: size {}, expected {size:?}",
                level.price,
                level.size
            );
        }
    }
    ensure!(count == plain.len(), "the book has {count} levels, expected {}", plain.len());
    Ok(())
}
