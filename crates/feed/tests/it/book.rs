//! Tests of order books that consist of price levels.

use std::ops::RangeInclusive;

use dunlin_feed::{
    BidAskRelation, Book, BookEntry, Crossings, FeedLimits, PriceLevel, PriceLevels, Scale, Side,
};
use dunlin_topic::Reducer;
use proptest::prelude::*;

use crate::cuts::check_every_way_to_catch_up;
use crate::model::BookModel;
use crate::record::{RecordFrame, append, check, snapshot};

fn set(side: Side, price: i64, size: i64) -> BookEntry {
    BookEntry::Set { side, price, size }
}

fn remove(side: Side, price: i64) -> BookEntry {
    BookEntry::Remove { side, price }
}

/// Limits with which a book remembers all removals.
const ALL_REMOVALS_KEPT: FeedLimits = FeedLimits {
    levels_max: 1 << 20,
    orders_max: 1 << 20,
    keys_max: 1 << 20,
    last_bytes_max: 1 << 26,
    removals_min: 1 << 20,
    removals_max: 1 << 20,
};

fn record(entries: &[BookEntry]) -> RecordFrame {
    let mut payload = Vec::new();
    entries.iter().for_each(|entry| entry.encode(&mut payload));
    RecordFrame::new(&payload)
}

fn book_of(entries: &[BookEntry]) -> Book {
    let mut book = Book::new(Scale::default());
    append(&mut book, 1, &record(entries)).unwrap();
    book
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Bid), Just(Side::Ask)]
}

/// Generates an entry that has one of only a few prices. Levels therefore often appear and disappear, and bids and asks
/// often have equal prices.
fn entry() -> impl Strategy<Value = BookEntry> {
    let price = -6_i64..6;
    prop_oneof![
        12 => (side(), price.clone(), 1_i64..5).prop_map(|(side, price, size)| set(side, price, size)),
        5 => (side(), price).prop_map(|(side, price)| remove(side, price)),
        1 => side().prop_map(|side| BookEntry::Clear { side }),
    ]
}

fn records() -> impl Strategy<Value = Vec<Vec<BookEntry>>> {
    prop::collection::vec(prop::collection::vec(entry(), 1..4), 1..40)
}

/// Generates records. Each record either mostly sets or mostly removes levels, so that a book grows to many pages and
/// shrinks again.
fn large_records(entries_max: usize) -> impl Strategy<Value = Vec<Vec<BookEntry>>> {
    let record = (prop_oneof![Just(5_u8), Just(95)], -2_000_i64..2_000, 1_i64..400).prop_flat_map(
        move |(set_percent, first, width)| {
            let choice = (0_u8..100, side(), first..first + width, 1_i64..1_000);
            let entry = choice.prop_map(move |(percent, side, price, size)| match percent < set_percent {
                true => set(side, price, size),
                false => remove(side, price),
            });
            prop::collection::vec(entry, 1..entries_max)
        },
    );
    prop::collection::vec(record, 1..40)
}

fn assert_equals_model(book: &Book, model: &BookModel) {
    for side in Side::BOTH {
        let levels = model.levels(side);
        assert_eq!(book.levels(side).collect::<Vec<_>>(), levels);
        assert_eq!(book.level_count(side), levels.len());
        assert_eq!(book.best(side), levels.first().copied());
        assert!(levels.iter().all(|level| book.level(side, level.price) == Some(*level)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn large_book_from_snapshot_and_changes_equals_the_full_replay(records in large_records(100)) {
        let records: Vec<_> = records.iter().map(|entries| record(entries)).collect();
        check_every_way_to_catch_up(|| Box::new(Book::with_limits(Scale::default(), ALL_REMOVALS_KEPT)), &records);
    }

    #[test]
    fn large_book_equals_its_model_after_every_record(records in large_records(800)) {
        let (mut book, mut model) = (Book::new(Scale::default()), BookModel::default());
        for (index, entries) in records.iter().enumerate() {
            append(&mut book, index as u64 + 1, &record(entries)).unwrap();
            entries.iter().for_each(|entry| model.apply(entry));
            assert_equals_model(&book, &model);
        }
    }
}

proptest! {
    #[test]
    fn book_equals_its_model_after_every_record(records in records()) {
        let (mut book, mut model) = (Book::new(Scale::default()), BookModel::default());
        for (index, entries) in records.iter().enumerate() {
            append(&mut book, index as u64 + 1, &record(entries)).unwrap();
            entries.iter().for_each(|entry| model.apply(entry));
            assert_equals_model(&book, &model);
        }
    }

    #[test]
    fn book_from_a_snapshot_equals_the_book_from_all_records(records in records()) {
        let records: Vec<_> = records.iter().map(|entries| record(entries)).collect();
        check_every_way_to_catch_up(|| Box::new(Book::new(Scale::default())), &records);
    }

    #[test]
    fn check_of_a_random_payload_leaves_the_book_unchanged(payload in prop::collection::vec(0_u8..4, 0..100)) {
        let mut book = book_of(&[set(Side::Bid, 5, 1), set(Side::Ask, 7, 2)]);
        let (bytes, checksum) = (snapshot(&mut book), book.checksum());
        let garbage = RecordFrame::new(&payload);
        let accepted = check(&book, std::slice::from_ref(&garbage)).is_ok();
        prop_assert_eq!((snapshot(&mut book), book.checksum()), (bytes, checksum));
        if accepted {
            book.apply(2, &garbage.frame()).unwrap();
        }
    }
}

#[test]
fn book_levels_are_in_price_order_and_sizes_add_up() {
    let book = book_of(&[
        set(Side::Bid, 100, 1),
        set(Side::Bid, 99, 2),
        set(Side::Bid, 97, 4),
        set(Side::Ask, 103, 8),
        set(Side::Ask, 101, 16),
    ]);
    assert_eq!(book.best(Side::Ask), Some(PriceLevel { price: 101, size: 16 }));
    assert_eq!(book.top(Side::Bid, Some(2)).iter().map(|level| level.price).collect::<Vec<_>>(), [100, 99]);
    assert_eq!(book.top(Side::Bid, None).len(), 3);
    assert_eq!(book.cumulative(Side::Bid).map(|(_, sum)| sum).collect::<Vec<_>>(), [1, 3, 7]);
    assert_eq!(book.size_through(Side::Bid, 98), 3);
    assert_eq!(book.size_through(Side::Ask, 103), 24);
    assert_eq!(book.level(Side::Ask, 102), None);
}

#[test]
fn crossed_and_locked_books_are_reported_but_not_changed() {
    let mut book = book_of(&[set(Side::Bid, 100, 1)]);
    assert_eq!(book.touch(), BidAskRelation::Open);
    let steps = [
        (set(Side::Ask, 101, 1), BidAskRelation::Apart),
        (set(Side::Ask, 100, 1), BidAskRelation::Locked),
        (set(Side::Bid, 102, 1), BidAskRelation::Crossed),
        (set(Side::Bid, 103, 1), BidAskRelation::Crossed),
        (remove(Side::Bid, 103), BidAskRelation::Crossed),
        (remove(Side::Bid, 102), BidAskRelation::Locked),
        (remove(Side::Bid, 100), BidAskRelation::Open),
        (set(Side::Bid, 200, 1), BidAskRelation::Crossed),
    ];
    for (seq, (entry, touch)) in (2..).zip(steps) {
        append(&mut book, seq, &record(&[entry])).unwrap();
        assert_eq!(book.touch(), touch, "after {entry:?}");
    }
    assert_eq!(book.crossings(), Crossings { locked: 1, crossed: 2 });
    assert_eq!(book.best(Side::Ask), Some(PriceLevel { price: 100, size: 1 }));
}

/// A record takes effect as a whole, so a book that is crossed between two entries of one record does not count as
/// crossed.
#[test]
fn crossing_within_a_single_record_is_not_counted() {
    let mut book = book_of(&[set(Side::Bid, 100, 1), set(Side::Ask, 101, 1)]);
    append(&mut book, 2, &record(&[set(Side::Bid, 101, 1), remove(Side::Ask, 101), set(Side::Ask, 102, 1)]))
        .unwrap();
    assert_eq!(book.crossings(), Crossings::default());
}

#[test]
fn removing_a_missing_level_is_no_error() {
    let mut book = book_of(&[set(Side::Bid, 100, 1)]);
    let before = book.checksum();
    append(&mut book, 2, &record(&[remove(Side::Bid, 99)])).unwrap();
    assert_eq!(book.checksum(), before);
    let mut changes = Vec::new();
    assert!(book.changes_since(1, &mut changes));
    assert!(changes.is_empty());
}

#[test]
fn invalid_entries_are_refused_with_position_and_value() {
    let scale = Scale { tick: 5, price_min: 5, price_max: 1_000, ..Scale::default() };
    let mut book = Book::new(scale);
    append(&mut book, 1, &record(&[set(Side::Bid, 100, 1)])).unwrap();
    let (bytes, checksum) = (snapshot(&mut book), book.checksum());
    let refused = |entry: BookEntry| check(&book, &[record(&[set(Side::Ask, 105, 1), entry])]).unwrap_err().0;
    assert_eq!(refused(set(Side::Bid, 100, 0)), "entry 2: size 0 is not above zero");
    assert_eq!(refused(set(Side::Bid, 100, -3)), "entry 2: size -3 is not above zero");
    assert_eq!(
        refused(set(Side::Bid, 100, i64::MAX)),
        "entry 2: size 9223372036854775807 is above 9007199254740992"
    );
    assert_eq!(refused(set(Side::Bid, 101, 1)), "entry 2: price 101 is not a multiple of the tick 5");
    assert_eq!(refused(set(Side::Bid, 1_005, 1)), "entry 2: price 1005 is outside 5 to 1000");
    assert_eq!(refused(remove(Side::Bid, 0)), "entry 2: price 0 is outside 5 to 1000");
    let refused_batch =
        check(&book, &[record(&[set(Side::Ask, 105, 1)]), record(&[set(Side::Ask, 105, -1)])]);
    assert_eq!(refused_batch.unwrap_err().0, "record 2, entry 1: size -1 is not above zero");
    assert_eq!((snapshot(&mut book), book.checksum()), (bytes, checksum));
}

#[test]
fn full_side_of_a_book_accepts_changed_levels_but_no_new_level() {
    let limits = FeedLimits { levels_max: 3, ..FeedLimits::default() };
    let mut book = Book::with_limits(Scale::default(), limits);
    for price in 1..=3 {
        append(&mut book, 1, &record(&[set(Side::Bid, price, 1)])).unwrap();
    }
    let refused = check(&book, &[record(&[set(Side::Bid, 4, 1)])]).unwrap_err();
    assert_eq!(refused.0, "the bid side would have more than 3 levels");
    append(&mut book, 2, &record(&[set(Side::Bid, 3, 2), set(Side::Ask, 4, 1)])).unwrap();
}

#[test]
fn full_book_side_accepts_a_record_that_replaces_all_levels() {
    let limits = FeedLimits { levels_max: 3, ..FeedLimits::default() };
    let mut book = Book::with_limits(Scale::default(), limits);
    let replace = |prices: RangeInclusive<i64>| {
        let clear = BookEntry::Clear { side: Side::Bid };
        let entries: Vec<BookEntry> =
            std::iter::once(clear).chain(prices.map(|price| set(Side::Bid, price, 1))).collect();
        record(&entries)
    };
    append(&mut book, 1, &replace(1..=3)).unwrap();
    append(&mut book, 2, &replace(4..=6)).unwrap();
    append(&mut book, 3, &replace(5..=7)).unwrap();
    let refused = check(&book, &[replace(5..=8)]).unwrap_err();
    assert_eq!(refused.0, "entry 5: the bid side would have more than 3 levels");
}

#[test]
fn book_lists_no_changes_if_it_has_forgotten_removals() {
    let limits = FeedLimits { removals_min: 4, ..FeedLimits::default() };
    let mut book = Book::with_limits(Scale::default(), limits);
    for seq in 1..=20 {
        let price = 100 + seq as i64;
        append(&mut book, seq, &record(&[set(Side::Bid, price, 1), remove(Side::Bid, price - 1)])).unwrap();
    }
    let mut payload = b"kept".to_vec();
    assert!(!book.changes_since(15, &mut payload));
    assert_eq!(payload, b"kept");
    assert!(book.changes_since(16, &mut payload));
}

#[test]
fn small_book_sends_a_snapshot_if_its_changes_are_longer() {
    let mut book = Book::new(Scale::default());
    let prices = 1..=200;
    let set_all: Vec<_> = prices.clone().map(|price| set(Side::Bid, price, 1)).collect();
    let remove_all: Vec<_> = prices.map(|price| remove(Side::Bid, price)).collect();
    append(&mut book, 1, &record(&set_all)).unwrap();
    append(&mut book, 2, &record(&remove_all)).unwrap();
    assert!(!book.changes_since(1, &mut Vec::new()));
    assert!(book.changes_since(0, &mut Vec::new()) == book.changes_since(1, &mut Vec::new()));
}

#[test]
fn dropped_level_does_not_return_when_a_better_one_is_removed() {
    let scale = Scale { max_depth: 3, ..Scale::default() };
    let mut book = Book::new(scale);
    let bids = |book: &Book| book.levels(Side::Bid).map(|level| level.price).collect::<Vec<_>>();
    append(&mut book, 1, &record(&[1, 2, 3, 4].map(|price| set(Side::Bid, price, 1)))).unwrap();
    assert_eq!(bids(&book), [4, 3, 2]);
    let mut reader = Book::new(scale);
    reader.restore(1, &snapshot(&mut book)).unwrap();
    // The new, better level drops the worst level out of the book. When the better level is removed, the dropped level
    // must not return.
    append(&mut book, 2, &record(&[set(Side::Bid, 5, 1)])).unwrap();
    append(&mut book, 3, &record(&[remove(Side::Bid, 5)])).unwrap();
    append(&mut book, 4, &record(&[set(Side::Ask, 9, 1)])).unwrap();
    assert_eq!(bids(&book), [4, 3]);
    let mut merged = Vec::new();
    assert!(book.changes_since(1, &mut merged));
    reader.apply_payload(4, &merged).unwrap();
    assert_eq!((bids(&reader), reader.checksum()), (bids(&book), book.checksum()));
}

#[test]
fn depth_option_is_accepted_for_books_and_refused_for_orders() {
    let options = [("max_depth".to_owned(), "10".to_owned())].into();
    let scale = Scale::parse("book", &options).unwrap();
    assert_eq!((scale.max_depth, scale.options()["max_depth"].as_str()), (10, "10"));
    assert!(Scale::parse("orders", &options).is_err(), "orders know no window of levels");
    assert!(!Scale::default().options().contains_key("max_depth"));
}
