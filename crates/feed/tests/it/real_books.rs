//! Tests of reducers with real recordings, which `cargo xtask data` fetches. The results are compared with simple
//! models.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use dunlin_feed::recording::{Recording, RecordingFormat, RecordingItem, RecordingOptions};
use dunlin_feed::{Book, BookEntry, OrderEntry, Orders, PriceLevels, Scale, Side};
use dunlin_topic::Reducer;

use crate::cuts::{self, StateCheckpoint};
use crate::model::{BookModel, OrdersModel};
use crate::record::RecordFrame;

/// Returns the payloads of all records of a recording, grouped by book.
fn books(name: &str, format: RecordingFormat) -> Vec<Vec<Vec<u8>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name);
    let Ok(bytes) = fs::read(&path) else {
        eprintln!("{} is not there: not tested (`cargo xtask data` fetches it)", path.display());
        return Vec::new();
    };
    let mut books: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
    let mut sink = |item: RecordingItem<'_>| {
        if let RecordingItem::Record { book, payload, .. } = item {
            books.entry(book).or_default().push(payload.to_vec());
        }
    };
    let mut recording = Recording::new(format, &RecordingOptions::default());
    recording.push(&bytes, &mut sink);
    recording.end(&mut sink);
    books.into_values().collect()
}

fn assert_levels_equal(levels: &dyn PriceLevels, model: &BookModel) {
    for side in Side::BOTH {
        assert!(levels.levels(side).eq(model.levels(side)));
    }
}

#[test]
fn betfair_books_equal_their_models() {
    for name in ["PRO-1.170258213", "SELF-1.181223995"] {
        for payloads in books(name, RecordingFormat::Betfair) {
            let (mut book, mut model) = (Book::new(Scale::default()), BookModel::default());
            for (payload, seq) in payloads.iter().zip(1..) {
                book.apply_payload(seq, payload).unwrap();
                BookEntry::decode_all(payload).for_each(|entry| model.apply(&entry.unwrap()));
                if seq % 16 == 0 {
                    assert_levels_equal(&book, &model);
                }
            }
            assert_levels_equal(&book, &model);
        }
    }
}

/// After each of the first 2,000 records, all orders are compared with a model. After every record, the price levels
/// are compared with a second book, which receives only the total size of each level.
#[test]
fn orders_and_levels_of_bitstamp_books_equal_a_model() {
    for payloads in books("orders.csv", RecordingFormat::Bitstamp) {
        let (mut orders, mut model) = (Orders::new(Scale::default()), OrdersModel::default());
        let mut summed = Book::new(Scale::default());
        for (payload, seq) in payloads.iter().zip(1..) {
            let mut changed_levels = Vec::new();
            for entry in OrderEntry::decode_all(payload).map(Result::unwrap) {
                changed_levels.extend(changed_by(&orders, &entry));
                if seq < 2_000 {
                    model.apply(&entry);
                }
            }
            orders.apply_payload(seq, payload).unwrap();
            summed.apply_payload(seq, &set_payload(&orders, &changed_levels)).unwrap();
            if seq < 2_000 && seq % 100 == 0 {
                assert_levels_equal(&orders, &model.book());
                assert!(model.all().iter().all(|order| orders.order(order.id) == Some(*order)));
            }
            if seq % 10_000 == 0 {
                assert!(Side::BOTH.into_iter().all(|side| orders.levels(side).eq(summed.levels(side))));
            }
        }
    }
}

/// Returns the side and price of each level that an entry will change. The entry has not been applied yet.
fn changed_by(orders: &Orders, entry: &OrderEntry) -> Vec<(Side, i64)> {
    let level_of_order = |id| orders.order(id).map(|order| (order.side, order.price));
    match *entry {
        OrderEntry::Add { side, price, .. } => vec![(side, price)],
        OrderEntry::Change { id, price, .. } => {
            level_of_order(id).into_iter().flat_map(|(side, old)| [(side, old), (side, price)]).collect()
        }
        OrderEntry::Delete { id } => level_of_order(id).into_iter().collect(),
        OrderEntry::Clear { side } => orders.levels(side).map(|level| (side, level.price)).collect(),
    }
}

/// Returns a payload that sets each of these levels to the total size of its orders.
fn set_payload(orders: &Orders, levels: &[(Side, i64)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (side, price) in levels.iter().copied() {
        let entry = match orders.level(side, price) {
            Some(level) => BookEntry::Set { side, price, size: level.size },
            None => BookEntry::Remove { side, price },
        };
        entry.encode(&mut payload);
    }
    payload
}

/// At several points of a recording, a copy of the state is made. Each copy must reach the final state, both through
/// the remaining records and through one record that merges them.
#[test]
fn replicas_joining_at_any_record_reach_the_same_books() {
    for payloads in books("PRO-1.170258213", RecordingFormat::Betfair) {
        check_catching_up(|| Box::new(Book::new(Scale::default())), &payloads, 997);
    }
    for payloads in books("orders.csv", RecordingFormat::Bitstamp) {
        check_catching_up(|| Box::new(Orders::new(Scale::default())), &payloads, 39_989);
    }
}

fn check_catching_up(new: impl Fn() -> Box<dyn Reducer>, payloads: &[Vec<u8>], every: u64) {
    let (mut reducer, mut cuts) = (new(), Vec::new());
    let records: Vec<_> = payloads.iter().map(|payload| RecordFrame::new(payload)).collect();
    for (record, seq) in records.iter().zip(1..) {
        reducer.apply(seq, &record.frame()).unwrap();
        if seq % every == 0 || seq == records.len() as u64 {
            cuts.push(StateCheckpoint::of(&mut *reducer, seq));
        }
    }
    let Some(last) = cuts.last() else { return };
    for (cut, next) in cuts.iter().zip(&cuts[1..]) {
        cuts::check_frozen_state_is_unchanged(cut);
        let mut reader = new();
        reader.restore(cut.seq, &cut.bytes).unwrap();
        for seq in cut.seq + 1..=next.seq {
            reader.apply(seq, &records[seq as usize - 1].frame()).unwrap();
        }
        cuts::check_equals_cut(&mut *reader, next, "restored and resumed");
        let mut payload = Vec::new();
        if reducer.changes_since(next.seq, &mut payload) {
            reader.apply(last.seq, &RecordFrame::new(&payload).frame()).unwrap();
            cuts::check_equals_cut(&mut *reader, last, "caught up");
        }
    }
}
