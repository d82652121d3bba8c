//! Tests of order books that consist of single orders.

use std::collections::BTreeSet;

use dunlin_feed::{
    BidAskRelation, BookEntry, FeedLimits, Order, OrderEntry, Orders, PriceLevels, QueuePosition, Scale, Side,
};
use dunlin_topic::Reducer;
use proptest::prelude::*;

use crate::cuts::check_every_way_to_catch_up;
use crate::model::{BookModel, OrdersModel};
use crate::record::{RecordFrame, append, check, snapshot};

fn add(side: Side, id: u64, price: i64, size: i64) -> OrderEntry {
    OrderEntry::Add { side, id, price, size }
}

fn change(id: u64, price: i64, size: i64) -> OrderEntry {
    OrderEntry::Change { id, price, size }
}

fn delete(id: u64) -> OrderEntry {
    OrderEntry::Delete { id }
}

fn record(entries: &[OrderEntry]) -> RecordFrame {
    let mut payload = Vec::new();
    entries.iter().for_each(|entry| entry.encode(&mut payload));
    RecordFrame::new(&payload)
}

fn orders_of(entries: &[OrderEntry]) -> Orders {
    let mut orders = Orders::new(Scale::default());
    append(&mut orders, 1, &record(entries)).unwrap();
    orders
}

/// Random numbers from which an entry is made. The entry fits the orders that are in the book when the entry is made.
#[derive(Debug, Clone)]
struct Choice {
    kind: u8,
    pick: usize,
    side: Side,
    price: i64,
    size: i64,
}

fn choices(prices: i64) -> impl Strategy<Value = Vec<Vec<Choice>>> {
    let side = prop_oneof![Just(Side::Bid), Just(Side::Ask)];
    let choice = (0_u8..40, any::<usize>(), side, 0..prices, 1_i64..6)
        .prop_map(|(kind, pick, side, price, size)| Choice { kind, pick, side, price, size });
    prop::collection::vec(prop::collection::vec(choice, 1..5), 1..50)
}

impl Choice {
    /// Makes an entry that fits the orders in the model. A new order may have the id of an order that was deleted
    /// before.
    fn entry(&self, model: &OrdersModel) -> OrderEntry {
        let used_ids: BTreeSet<u64> = model.all().iter().map(|order| order.id).collect();
        let new = || (self.pick as u64 % 50..).find(|id| !used_ids.contains(id)).unwrap();
        let picked = model.all().get(self.pick % model.all().len().max(1)).copied();
        match (self.kind, picked) {
            (0, _) => OrderEntry::Clear { side: self.side },
            (1..=18, _) | (_, None) => add(self.side, new(), self.price, self.size),
            (19..=24, Some(order)) => change(order.id, order.price, self.size),
            (25..=29, Some(order)) => change(order.id, self.price, self.size),
            (_, Some(order)) => delete(order.id),
        }
    }
}

fn any_entry() -> impl Strategy<Value = OrderEntry> {
    let side = || prop_oneof![Just(Side::Bid), Just(Side::Ask)];
    prop_oneof![
        (side(), 0_u64..3).prop_map(|(side, id)| add(side, id, 5, 1)),
        (0_u64..3, 1_i64..3).prop_map(|(id, size)| change(id, 5, size)),
        (0_u64..3).prop_map(delete),
        side().prop_map(|side| OrderEntry::Clear { side }),
    ]
}

/// Makes the entries of each record. Also returns the model to which all these entries were applied.
fn entries(choices: &[Vec<Choice>]) -> (Vec<Vec<OrderEntry>>, OrdersModel) {
    let mut model = OrdersModel::default();
    let mut records = Vec::new();
    for choices in choices {
        let mut entries = Vec::new();
        for choice in choices {
            let entry = choice.entry(&model);
            model.apply(&entry);
            entries.push(entry);
        }
        records.push(entries);
    }
    (records, model)
}

fn assert_equals_model(orders: &Orders, model: &OrdersModel) {
    assert_eq!(orders.order_count(), model.all().len());
    assert_equals_levels(orders, &model.book());
    for order in model.all() {
        assert_eq!(orders.order(order.id), Some(*order));
        let queue = model.queue(order.side, order.price);
        assert_eq!(orders.queue(order.side, order.price).collect::<Vec<_>>(), queue);
        let ahead: Vec<&Order> = queue.iter().take_while(|other| other.id != order.id).collect();
        let size_ahead = ahead.iter().map(|order| order.size).sum();
        let position = QueuePosition { orders_ahead: ahead.len(), size_ahead };
        assert_eq!(orders.queue_position(order.id), Some(position));
    }
}

fn assert_equals_levels(orders: &Orders, book: &BookModel) {
    for side in Side::BOTH {
        assert_eq!(orders.levels(side).collect::<Vec<_>>(), book.levels(side));
        assert_eq!(orders.level_count(side), book.levels(side).len());
        assert_eq!(orders.best(side), book.levels(side).first().copied());
    }
}

proptest! {
    #[test]
    fn orders_equal_their_model_after_every_record(choices in choices(4)) {
        let (records, _) = entries(&choices);
        let (mut orders, mut model) = (Orders::new(Scale::default()), OrdersModel::default());
        for (index, entries) in records.iter().enumerate() {
            append(&mut orders, index as u64 + 1, &record(entries)).unwrap();
            entries.iter().for_each(|entry| model.apply(entry));
            assert_equals_model(&orders, &model);
        }
    }

    #[test]
    fn orders_from_a_snapshot_and_changes_equal_the_full_replay(choices in choices(4)) {
        let (records, _) = entries(&choices);
        let records: Vec<_> = records.iter().map(|entries| record(entries)).collect();
        check_every_way_to_catch_up(|| Box::new(Orders::new(Scale::default())), &records);
    }

    /// An append of several records must be accepted or refused in the same way as the same records in separate
    /// appends.
    #[test]
    fn batch_is_checked_as_if_its_records_came_one_by_one(
        choices in choices(4),
        wrong in (any::<prop::sample::Index>(), 0_u64..50, 0_u8..3),
    ) {
        let (mut records, _) = entries(&choices);
        let (record_index, id, kind) = wrong;
        let wrong_entry = [add(Side::Bid, id, 1, 1), change(id, 2, 2), delete(id)][usize::from(kind)];
        let record_at = record_index.index(records.len());
        records[record_at].push(wrong_entry);
        let records: Vec<_> = records.iter().map(|entries| record(entries)).collect();
        let mut one_by_one = Orders::new(Scale::default());
        let refusal = records.iter().zip(1..).find_map(|(record, seq)| append(&mut one_by_one, seq, record).err());
        let batch = Orders::new(Scale::default());
        prop_assert_eq!(check(&batch, &records).is_err(), refusal.is_some());
        prop_assert_eq!(batch.order_count(), 0);
    }

    /// Compares an append of several entries with separate appends of the same entries. Only a few different ids occur,
    /// so one append often deletes an order and adds an order with the same id on the other side of the book.
    #[test]
    fn batch_of_orders_is_accepted_if_each_entry_is_accepted_alone(
        entries in prop::collection::vec(any_entry(), 1..12),
        last in any_entry(),
    ) {
        let before = [add(Side::Bid, 0, 5, 5), add(Side::Ask, 1, 6, 5)];
        let (mut one_by_one, batch) = (orders_of(&before), orders_of(&before));
        let mut is_accepted = |entry: &OrderEntry| append(&mut one_by_one, 2, &record(&[*entry])).is_ok();
        let mut entries: Vec<_> = entries.into_iter().filter(&mut is_accepted).collect();
        let is_last_accepted = is_accepted(&last);
        entries.push(last);
        prop_assert_eq!(check(&batch, &[record(&entries)]).is_ok(), is_last_accepted);
    }

    #[test]
    fn checksum_depends_on_the_time_priority_of_orders(first in 0_u64..1_000, second in 0_u64..1_000) {
        prop_assume!(first != second);
        let first_ahead = orders_of(&[add(Side::Bid, first, 10, 1), add(Side::Bid, second, 10, 1)]);
        let second_ahead = orders_of(&[add(Side::Bid, second, 10, 1), add(Side::Bid, first, 10, 1)]);
        prop_assert_ne!(first_ahead.checksum(), second_ahead.checksum());
    }
}

#[test]
fn order_keeps_its_priority_unless_it_grows_or_changes_price() {
    let added = [1, 2, 3].map(|id| add(Side::Bid, id, 10, 5));
    let ids = |entry: OrderEntry| {
        let mut orders = orders_of(&added);
        append(&mut orders, 2, &record(&[entry])).unwrap();
        orders.queue(Side::Bid, 10).map(|order| order.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(change(1, 10, 4)), [1, 2, 3]);
    assert_eq!(ids(change(1, 10, 5)), [1, 2, 3]);
    assert_eq!(ids(change(1, 10, 6)), [2, 3, 1]);
    assert_eq!(ids(change(1, 11, 5)), [2, 3]);
}

#[test]
fn refusal_of_a_bad_order_entry_names_the_order() {
    let mut orders = orders_of(&[add(Side::Bid, 7, 100, 5)]);
    let (bytes, checksum) = (snapshot(&mut orders), orders.checksum());
    let refused = |entries: &[OrderEntry]| check(&orders, &[record(entries)]).unwrap_err().0;
    assert_eq!(refused(&[add(Side::Ask, 7, 101, 1)]), "order 7 already exists");
    assert_eq!(refused(&[change(8, 100, 1)]), "order 8 is not known");
    assert_eq!(refused(&[delete(8)]), "order 8 is not known");
    assert_eq!(refused(&[delete(7), delete(7)]), "entry 2: order 7 is not known");
    assert_eq!(
        refused(&[add(Side::Bid, 9, 1, 1), add(Side::Bid, 9, 1, 1)]),
        "entry 2: order 9 already exists"
    );
    assert_eq!(refused(&[OrderEntry::Clear { side: Side::Bid }, delete(7)]), "entry 2: order 7 is not known");
    assert_eq!(refused(&[change(7, 100, 0)]), "size 0 is not above zero");
    assert_eq!(refused(&[]), "the record has no entry");
    assert_eq!((snapshot(&mut orders), orders.checksum()), (bytes, checksum));
}

/// The order has moved to the side that an entry then clears. The check must not find the order on its old side.
#[test]
fn order_moved_to_a_side_is_removed_when_this_side_is_cleared() {
    let orders = orders_of(&[add(Side::Bid, 0, 5, 5)]);
    let moved = [delete(0), add(Side::Ask, 0, 6, 5), OrderEntry::Clear { side: Side::Ask }, delete(0)];
    assert_eq!(check(&orders, &[record(&moved)]).unwrap_err().0, "entry 4: order 0 is not known");
}

#[test]
fn full_book_accepts_no_new_order() {
    let limits = FeedLimits { orders_max: 2, ..FeedLimits::default() };
    let mut orders = Orders::with_limits(Scale::default(), limits);
    append(&mut orders, 1, &record(&[add(Side::Bid, 1, 10, 1), add(Side::Bid, 2, 10, 1)])).unwrap();
    let refused = check(&orders, &[record(&[add(Side::Bid, 3, 10, 1)])]).unwrap_err();
    assert_eq!(refused.0, "the state would have more than 2 orders");
}

#[test]
fn record_that_replaces_all_orders_of_a_full_book_is_accepted() {
    let limits = FeedLimits { orders_max: 2, ..FeedLimits::default() };
    let mut orders = Orders::with_limits(Scale::default(), limits);
    append(&mut orders, 1, &record(&[add(Side::Bid, 1, 10, 1), add(Side::Ask, 2, 11, 1)])).unwrap();
    let clear = |side| OrderEntry::Clear { side };
    let (bid, ask) = (add(Side::Bid, 3, 10, 1), add(Side::Ask, 4, 11, 1));
    append(&mut orders, 2, &record(&[clear(Side::Bid), clear(Side::Ask), bid, ask])).unwrap();
    append(&mut orders, 3, &record(&[clear(Side::Bid), add(Side::Bid, 5, 9, 1)])).unwrap();
    let two_bids = [clear(Side::Bid), add(Side::Bid, 6, 9, 1), add(Side::Bid, 7, 9, 1)];
    let refused = check(&orders, &[record(&two_bids)]).unwrap_err();
    assert_eq!(refused.0, "entry 3: the state would have more than 2 orders");
}

#[test]
fn replica_refuses_deletion_of_an_unknown_order() {
    let mut orders = orders_of(&[add(Side::Bid, 7, 100, 5)]);
    assert_eq!(orders.apply(2, &record(&[delete(8)]).frame()).unwrap_err().0, "order 8 is not known");
}

#[test]
fn crossed_book_is_reported() {
    let orders = orders_of(&[add(Side::Bid, 1, 100, 5), add(Side::Ask, 2, 99, 5)]);
    assert_eq!(orders.touch(), BidAskRelation::Crossed);
    assert_eq!(orders.crossings().crossed, 1);
}

#[test]
fn level_sizes_are_the_sums_of_their_orders() {
    let orders =
        orders_of(&[add(Side::Bid, 1, 100, 5), add(Side::Bid, 2, 100, 6), add(Side::Ask, 3, 101, 1)]);
    let mut book = BookModel::default();
    book.apply(&BookEntry::Set { side: Side::Bid, price: 100, size: 11 });
    book.apply(&BookEntry::Set { side: Side::Ask, price: 101, size: 1 });
    assert_equals_levels(&orders, &book);
}
