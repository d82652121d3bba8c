//! Tests of how much history a topic retains, and for how long.

use std::time::Duration;

use bytes::Bytes;
use dunlin_topic::*;

use crate::fixture::*;

fn retained(topic: &Topic) -> u64 {
    let info = topic.logs()[0].info();
    info.next_seq - info.oldest_seq
}

/// The number of records that a subscriber receives if it starts at the oldest one.
fn readable(topic: &Topic) -> u64 {
    let oldest = topic.logs()[0].info().oldest_seq;
    let mut witness = DeliveryChecker::from_seq(oldest);
    witness.drain(&mut subscriber(topic, &earliest()));
    assert_eq!(witness.missing, 0, "the earliest record is a record");
    witness.records
}

#[test]
fn history_stays_within_its_byte_limit_but_uses_much_of_it() {
    for (bytes, payload) in
        [(16 << 10, 10), (64 << 10, 100), (64 << 10, 3_000), (64 << 10, 20_000), (1 << 20, 100)]
    {
        let budget = budget();
        let topic = topic_of(config(bytes), &budget, MANUAL);
        let mut numbered = NumberedPublisher::of(&topic);
        for _ in 0..4 * bytes / payload as u64 {
            numbered.publish(1, payload);
            let retained_bytes = topic.logs()[0].info().bytes;
            assert!(retained_bytes <= bytes, "{retained_bytes} of {bytes} with records of {payload}");
            assert!(budget.used() <= bytes);
        }
        let fair = bytes / (payload as u64 + 24) / 3;
        assert!(readable(&topic) >= fair.max(1), "{} of {fair}", readable(&topic));
        assert_eq!(readable(&topic), retained(&topic));
    }
}

#[test]
fn history_with_large_batches_stays_within_its_byte_limit() {
    let bytes = 64 << 10;
    let topic = topic_of(config(bytes), &budget(), MANUAL);
    let mut publisher = topic.publisher("t");
    let payload = [1; 1_000];
    let drafts: Vec<Draft<'_>> = (0..33).map(|_| Draft::from(&payload)).collect();
    for _ in 0..50 {
        publisher.publish_batch(&drafts).unwrap();
        publisher.publish(&payload).unwrap();
        let retained_bytes = topic.logs()[0].info().bytes;
        // The retained bytes stay within the limit although a batch is in a single segment, which is retained even if
        // there is no room for any other segment.
        assert!(retained_bytes <= bytes, "{retained_bytes}");
    }
}

#[test]
fn record_larger_than_the_history_limit_is_the_only_one_kept() {
    let topic = topic_of(config(16 << 10), &budget(), MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(10, 100);
    numbered.publish(1, 100_000);
    assert_eq!(readable(&topic), 1);
    numbered.publish(1, 8);
    assert!(readable(&topic) >= 1);
    assert!(topic.logs()[0].info().bytes <= 128 << 10);
}

#[test]
fn topic_keeps_at_most_as_many_records_as_its_record_limit() {
    let retention = Retention { records: Some(10), ..Retention::default() };
    let topic = topic_of(TopicConfig { retention, ..TopicConfig::default() }, &budget(), MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(7, 8);
    assert_eq!(readable(&topic), 7);
    numbered.publish(1_000, 8);
    assert_eq!(readable(&topic), 10);
    let mut stalled = subscriber(&topic, &from(Start::After(Position { epoch: 1, seq: 3 })));
    let mut witness = DeliveryChecker::from_seq(4);
    witness.drain(&mut stalled);
    assert_eq!((witness.records, witness.missing), (10, 1_007 - 3 - 10));
}

#[test]
fn records_past_retention_age_are_dropped_on_an_idle_topic() {
    let retention = Retention { age: Some(Duration::from_secs(10)), ..Retention::default() };
    let budget = budget();
    let topic = topic_of(TopicConfig { retention, ..TopicConfig::default() }, &budget, MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(100, 100);
    let mut reader = subscriber(&topic, &earliest());
    advance_clock(Duration::from_secs(9));
    topic.expire(MANUAL.now_ns());
    assert_eq!(readable(&topic), 100);
    advance_clock(Duration::from_secs(2));
    topic.expire(MANUAL.now_ns());
    assert_eq!(readable(&topic), 0);
    assert_eq!(budget.used(), 0, "its memory is free");
    let mut witness = DeliveryChecker::from_seq(1);
    witness.drain(&mut reader);
    assert_eq!((witness.records, witness.missing), (0, 100));
    numbered.publish(1, 8);
    assert_eq!(witness.drain(&mut reader), 1);
}

#[test]
fn retention_age_counts_from_the_append_of_each_record() {
    let retention = Retention { age: Some(Duration::from_secs(10)), ..Retention::default() };
    let topic = topic_of(TopicConfig { retention, ..TopicConfig::default() }, &budget(), MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(3, 1_000);
    advance_clock(Duration::from_secs(9));
    // This record must be in another segment than the first three: a segment is dropped only when all its records are
    // too old.
    numbered.publish(1, 5_000);
    advance_clock(Duration::from_secs(5));
    topic.expire(MANUAL.now_ns());
    assert_eq!(readable(&topic), 1, "three are 14 s old, one is 5 s old");
}

#[test]
fn expired_record_is_skipped_without_a_gap() {
    let topic = large_topic(MANUAL);
    let mut publisher = topic.publisher("t");
    for n in 1..=100u64 {
        let payload = n.to_le_bytes();
        let mut draft = Draft::from(&payload);
        draft.meta.expires_ns = (n % 2 == 0).then(|| MANUAL.now_ns() + 1_000_000_000);
        publisher.publish(draft).unwrap();
    }
    assert_eq!(readable_numbers(&topic).len(), 100);
    advance_clock(Duration::from_secs(1));
    assert!(readable_numbers(&topic).into_iter().eq((1..=100).step_by(2)));
}

fn readable_numbers(topic: &Topic) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut reader = subscriber(topic, &earliest());
    while let Some(event) = reader.try_next().unwrap() {
        let Event::Record(record) = event else { panic!("unexpected {event:?}") };
        assert_eq!(number(record.payload()), record.seq());
        numbers.push(record.seq());
    }
    numbers
}

#[test]
fn record_reported_as_ready_is_delivered_even_if_it_expires() {
    let topic = large_topic(MANUAL);
    let mut draft = Draft::from(b"short-lived");
    draft.meta.expires_ns = Some(MANUAL.now_ns() + 5);
    topic.publisher("t").publish(draft).unwrap();
    let mut reader = subscriber(&topic, &earliest());
    assert!(reader.ready().unwrap());
    advance_clock(Duration::from_secs(1));
    assert!(matches!(reader.take(), Event::Record(record) if record.payload() == b"short-lived"));
    assert!(!reader.ready().unwrap());
}

#[test]
fn history_limit_includes_payloads_held_by_reference() {
    let bytes = 1 << 20;
    let budget = budget();
    let topic = topic_of(config(bytes), &budget, MANUAL);
    let mut publisher = topic.publisher("t");
    for _ in 0..500 {
        publisher.publish(Bytes::from(vec![1; 50_000])).unwrap();
        // The history may exceed its limit by one segment and one payload.
        assert!(budget.used() <= bytes + bytes / 8 + (50_000 + 4_096) * 2, "{}", budget.used());
    }
    assert!(retained(&topic) >= 10);
}

#[test]
fn history_is_kept_for_slow_subscribers_up_to_a_limit() {
    let limits = LogLimits { pending_bytes_max: 1 << 20, ..LogLimits::default() };
    let topic = topic_of(TopicConfig { limits, ..config(64 << 10) }, &budget(), MANUAL);
    let log = &topic.logs()[0];
    let mut numbered = NumberedPublisher::of(&topic);
    let options = SubscribeOptions { keeps_history: true, ..earliest() };
    let progress = log.list_subscriber(&options, false, Position { epoch: 1, seq: 0 });
    numbered.publish(4_000, 100);
    assert_eq!((log.info().oldest_seq, log.pressure()), (1, 0), "all is kept for it, and it reads nothing");
    progress.set_position(Position { epoch: 1, seq: 10 });
    numbered.publish(200, 100);
    assert!(log.pressure() > 300_000, "{} bytes lie before a reader that does read", log.pressure());
    numbered.publish(20_000, 100);
    let retained_bytes = log.info().bytes;
    assert!((800_000..=1 << 20).contains(&retained_bytes), "{retained_bytes} bytes: no more than the limit");
    progress.set_position(log.last());
    numbered.publish(200, 100);
    assert!(log.info().bytes <= 64 << 10, "{} bytes: it has read them", log.info().bytes);
    assert!(log.pressure() < 64 << 10);
}

#[test]
fn slow_reader_gets_no_extra_history_when_memory_is_half_used() {
    let limits = LogLimits { pending_bytes_max: 1 << 20, ..LogLimits::default() };
    let budget = MemoryBudget::node(1 << 20, 0);
    budget.charge(600 << 10).unwrap();
    let topic = topic_of(TopicConfig { limits, ..config(64 << 10) }, &budget, MANUAL);
    let log = &topic.logs()[0];
    let options = SubscribeOptions { keeps_history: true, ..earliest() };
    let _progress = log.list_subscriber(&options, false, Position { epoch: 1, seq: 0 });
    NumberedPublisher::of(&topic).publish(4_000, 100);
    assert!(log.info().bytes <= 64 << 10, "{} bytes", log.info().bytes);
}
