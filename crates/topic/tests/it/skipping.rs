//! Tests of subscribers that want only a few records of a long history.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin_topic::*;

use crate::fixture::*;

const UNWANTED: u64 = 20_000;
/// At least this many reads must end without having found the wanted record.
const READS_MIN: usize = 4;
/// A single read must skip at most this many records.
const SKIPPED_MAX: u64 = 10_000;

/// A topic with several MiB of records. The tests search for the last record only.
fn long_topic(name: &str) -> Arc<Topic> {
    let config = TopicConfig { pattern: Some(format!("{name}.>")), ..config(64 << 20) };
    let topic = Arc::new(Topic::new(name, Arc::new(config), &budget(), MANUAL, 1).unwrap());
    let mut unwanted = topic.publisher(&format!("{name}.us"));
    (0..UNWANTED).for_each(|_| _ = unwanted.publish(&[0; 256]).unwrap());
    topic.publisher(&format!("{name}.eu")).publish(b"wanted").unwrap();
    topic
}

/// A payload filter that removes all records except the wanted one.
fn wanted(payload: &[u8]) -> Option<Cow<'_, [u8]>> {
    (payload == b"wanted").then_some(Cow::Borrowed(payload))
}

fn filters() -> [Filter; 2] {
    let payload_filter = Some(PayloadFilter::new(wanted));
    [Filter::new(|tail: &str| tail == "eu"), Filter { payload_filter, ..Filter::new(|_| true) }]
}

fn filtered(topic: &Topic, filter: Filter) -> Cursor {
    Cursor::new(Arc::clone(&topic.logs()[0]), &earliest(), Some(filter), ConsumeMode::Reads).unwrap()
}

#[test]
fn skipping_many_records_takes_several_reads_and_loses_none() {
    let topic = long_topic("orders");
    for filter in filters() {
        let (mut cursor, waiter) = (filtered(&topic, filter), Waiter::new());
        let mut skipped = 0;
        loop {
            let before = cursor.next().seq;
            match cursor.fill() {
                ReadOutcome::Skipped => {}
                ReadOutcome::Records => break,
                other => panic!("unexpected {other:?}"),
            }
            skipped += 1;
            let passed = cursor.next().seq - before;
            assert!((1..=SKIPPED_MAX).contains(&passed), "{passed} records in one read");
            assert_eq!(cursor.prev_seq(), 0, "no record was delivered yet");
            assert!(cursor.lag() > 0 && cursor.may_have_more());
            assert!(!cursor.arm(&waiter, 0), "a cursor with unread records does not sleep");
        }
        assert!(skipped >= READS_MIN, "{skipped} reads ended early");
        let mut seen = Vec::new();
        cursor.drain(usize::MAX, |record| seen.push((record.seq(), record.prev_seq)));
        assert_eq!(seen, [(UNWANTED + 1, 0)]);
        assert!(matches!(cursor.fill(), ReadOutcome::Empty));
        assert_eq!(cursor.lag(), 0);
    }
}

#[test]
fn filtered_read_always_skips_at_least_one_record() {
    let topic = long_topic("orders");
    for filter in filters() {
        let (mut cursor, mut skips) = (filtered(&topic, filter), SkipBudget::default());
        assert!(matches!(cursor.fill_within(&mut skips), ReadOutcome::Skipped));
        assert!(skips.is_spent());
        let before = cursor.next().seq;
        assert!(matches!(cursor.fill_within(&mut skips), ReadOutcome::Skipped));
        assert_eq!(cursor.next().seq, before + 1);
    }
}

#[test]
fn in_process_subscriber_finds_a_record_after_many_skipped_ones() {
    let topic = long_topic("orders");
    for filter in filters() {
        let mut subscriber = Subscriber::one(filtered(&topic, filter), WaitStrategy::Parked);
        let Some(Event::Record(record)) = subscriber.try_next().unwrap() else { panic!("no record") };
        assert_eq!((record.seq(), record.prev_seq), (UNWANTED + 1, 0));
        assert!(subscriber.try_next().unwrap().is_none());
    }
}

#[test]
fn subscriber_does_not_sleep_while_it_has_records_to_skip() {
    let topic = long_topic("orders");
    let [filter, _] = filters();
    let mut subscriber = Subscriber::one(filtered(&topic, filter), WaitStrategy::Parked);
    subscriber.limit_skips();
    let mut skipped = 0;
    while !subscriber.ready().unwrap() {
        skipped += 1;
        let polled = subscriber.poll_ready(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(()))));
        assert!(subscriber.wait(Some(Duration::ZERO)).unwrap());
    }
    assert!(skipped >= READS_MIN, "{skipped} reads ended early");
    let Event::Record(record) = subscriber.take() else { panic!("a notice") };
    assert_eq!((record.seq(), record.prev_seq), (UNWANTED + 1, 0));
}

#[test]
fn subscriber_reads_other_logs_while_it_skips_many_records() {
    let (long, short) = (long_topic("long"), small_topic());
    short.publisher("t").publish(b"short").unwrap();
    let [filter, _] = filters();
    let cursors = vec![filtered(&long, filter), cursor(&short, &earliest())];
    let mut subscriber = Subscriber::many(cursors, None, earliest(), MANUAL);
    let mut order = Vec::new();
    while order.len() < 2 {
        if let Event::Record(record) = subscriber.next().unwrap() {
            order.push(record.payload().to_vec());
        }
    }
    assert_eq!(order, [&b"short"[..], b"wanted"]);
}

#[test]
fn combined_filter_selects_what_any_of_its_filters_selects() {
    let [eu, reducing] = filters();
    let us = Filter::new(|tail: &str| tail == "us");
    let both = Filter::any_of(vec![Some(eu.clone()), Some(us)]).unwrap();
    assert_eq!(["eu", "us", "asia"].map(|tail| (both.accepts)(tail)), [true, true, false]);
    assert!(Filter::any_of(vec![Some(eu.clone()), None]).is_none(), "all records are selected");
    assert!(Filter::any_of(vec![Some(eu), Some(reducing)]).unwrap().payload_filter.is_some());
    let nothing = Filter::any_of(Vec::new()).unwrap();
    assert!(!(nothing.accepts)("eu"));
}
