//! Tests of where subscriptions start.

use std::time::Duration;

use dunlin_topic::*;

use crate::fixture::*;

fn first_seq(topic: &Topic, start: Start) -> Option<u64> {
    let mut reader = subscriber(topic, &from(start));
    match reader.try_next().unwrap()? {
        Event::Record(record) => Some(record.seq()),
        Event::Notice(other) => panic!("unexpected {other:?}"),
    }
}

#[test]
fn late_subscriber_starts_at_the_requested_position() {
    let topic = large_topic(MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(100, 8);
    assert_eq!(first_seq(&topic, Start::Earliest), Some(1));
    assert_eq!(first_seq(&topic, Start::Latest), None);
    assert_eq!(first_seq(&topic, Start::After(Position { epoch: 1, seq: 40 })), Some(41));
    assert_eq!(first_seq(&topic, Start::After(Position { epoch: 1, seq: 0 })), Some(1));
    assert_eq!(first_seq(&topic, Start::After(Position { epoch: 1, seq: 100 })), None);
    let mut latest = subscriber(&topic, &from(Start::Latest));
    numbered.publish(10, 8);
    let mut witness = DeliveryChecker::from_seq(101);
    witness.drain(&mut latest);
    assert_eq!(witness.records, 10);
}

#[test]
fn position_beyond_the_log_is_refused() {
    let topic = large_topic(MANUAL);
    NumberedPublisher::of(&topic).publish(10, 8);
    let positions = [(1, 11), (1, u64::MAX), (2, 0), (u32::MAX, u64::MAX)];
    for requested in positions.map(|(epoch, seq)| Position { epoch, seq }) {
        let last = Position { epoch: 1, seq: 10 };
        let refused =
            Cursor::new(topic.logs()[0].clone(), &from(Start::After(requested)), None, ConsumeMode::Reads);
        assert_eq!(refused.unwrap_err(), SubscribeError::Ahead { requested, last });
    }
}

#[test]
fn subscriber_ahead_of_a_replicated_log_waits_for_the_log() {
    let topic = large_topic(MANUAL);
    topic.logs()[0].set_replicated(true);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(10, 8);
    let mut ahead = subscriber(&topic, &from(Start::After(Position { epoch: 1, seq: 12 })));
    let mut later = subscriber(&topic, &from(Start::After(Position { epoch: 2, seq: 13 })));
    let nothing = |reader: &mut Subscriber| assert!(reader.try_next().unwrap().is_none());
    nothing(&mut ahead);
    numbered.publish(2, 8);
    nothing(&mut ahead);
    numbered.publish(1, 8);
    assert!(matches!(ahead.try_next().unwrap(), Some(Event::Record(record)) if record.seq() == 13));
    nothing(&mut ahead);
    nothing(&mut later);
    // The log moves to a later epoch, as after a snapshot from another process. Subscribers that are in the previous
    // epoch must be told that it has ended.
    topic.logs()[0].reset_to(Position { epoch: 2, seq: 14 });
    assert!(matches!(ahead.try_next().unwrap(), Some(Event::Notice(Notice::EpochChanged(_)))));
    nothing(&mut later);
    numbered.publish(1, 8);
    assert!(matches!(later.try_next().unwrap(), Some(Event::Record(record)) if record.seq() == 14));
    let requested = Position { epoch: 9, seq: 1 };
    topic.logs()[0].set_replicated(false);
    let refused =
        Cursor::new(topic.logs()[0].clone(), &from(Start::After(requested)), None, ConsumeMode::Reads);
    assert!(matches!(refused, Err(SubscribeError::Ahead { .. })));
}

#[test]
fn start_time_selects_the_first_record_at_or_after_that_time() {
    let topic = large_topic(MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    let began_ns = MANUAL.now_ns();
    // One record is appended each second. Together, the records fill several segments.
    for _ in 0..200 {
        numbered.publish(1, 1_000);
        advance_clock(Duration::from_secs(1));
    }
    let at = |seconds: u64| first_seq(&topic, Start::Time(began_ns + seconds * 1_000_000_000));
    assert_eq!(at(0), Some(1));
    for seconds in [1, 2, 3, 4, 5, 50, 100, 150, 198, 199] {
        assert_eq!(at(seconds), Some(seconds + 1), "{seconds} s");
    }
    assert_eq!(first_seq(&topic, Start::Time(began_ns + 500_000_000)), Some(2));
    assert_eq!(first_seq(&topic, Start::Time(0)), Some(1));
    assert_eq!(at(200), None);
}

#[test]
fn last_record_of_an_older_epoch_is_reported_as_unknown() {
    let topic = std::sync::Arc::new(
        Topic::new("t", std::sync::Arc::new(config(64 << 10)), &budget(), MANUAL, 7).unwrap(),
    );
    NumberedPublisher::of(&topic).publish(5, 8);
    for seq in [0, 3, 1_000, u64::MAX] {
        let mut reader = subscriber(&topic, &from(Start::After(Position { epoch: 6, seq })));
        let mut witness = DeliveryChecker::from_seq(0);
        witness.drain(&mut reader);
        let [changed] = witness.epochs.as_slice() else { panic!("{witness:?}") };
        assert_eq!((changed.old, changed.known_through), (6, None));
        assert_eq!(changed.last_seen, seq.min(u64::MAX - 1), "what it said itself");
        assert_eq!(changed.new_first, Position { epoch: 7, seq: 1 });
        assert_eq!(witness.records, 5);
    }
}

#[test]
fn every_start_option_on_an_empty_topic_reads_all_later_records() {
    for start in [Start::Earliest, Start::Latest, Start::After(Position { epoch: 1, seq: 0 }), Start::Time(0)]
    {
        let topic = large_topic(MANUAL);
        let mut reader = subscriber(&topic, &from(start));
        let mut witness = DeliveryChecker::from_seq(1);
        assert_eq!(witness.drain(&mut reader), 0);
        NumberedPublisher::of(&topic).publish(3, 8);
        assert_eq!(witness.drain(&mut reader), 3);
    }
}

#[test]
fn filter_skips_only_records_of_other_subjects() {
    let topic = std::sync::Arc::new(
        Topic::new(
            "orders",
            std::sync::Arc::new(TopicConfig { pattern: Some("orders.>".to_owned()), ..config(1 << 20) }),
            &budget(),
            MANUAL,
            1,
        )
        .unwrap(),
    );
    let mut publishers = [topic.publisher("orders.eu"), topic.publisher("orders.us")];
    for n in 0..1_000u64 {
        publishers[(n % 3 == 0) as usize].publish(&n.to_le_bytes()).unwrap();
    }
    let filter = Filter::new(|tail: &str| tail == "us");
    let cursor = Cursor::new(topic.logs()[0].clone(), &earliest(), Some(filter), ConsumeMode::Reads).unwrap();
    let mut reader = Subscriber::one(cursor, WaitStrategy::Parked);
    let mut seen = Vec::new();
    reader
        .drain(usize::MAX, |event| {
            let Event::Record(record) = event else { panic!("unexpected {event:?}") };
            assert_eq!(record.subject(), "orders.us");
            assert_eq!(number(record.payload()) + 1, record.seq());
            seen.push(number(record.payload()));
        })
        .unwrap();
    assert!(seen.iter().copied().eq((0..1_000).step_by(3)));
}

/// A payload filter that removes the odd digits of a payload. Records with only odd digits are removed.
fn even_digits(payload: &[u8]) -> Option<std::borrow::Cow<'_, [u8]>> {
    let kept: Vec<u8> = payload.iter().copied().filter(|digit| digit % 2 == 0).collect();
    (!kept.is_empty()).then_some(kept.into())
}

#[test]
fn payload_filter_may_replace_a_payload_or_skip_a_record() {
    let topic = large_topic(MANUAL);
    let mut publisher = topic.publisher("t");
    for n in 1..=2_000 {
        publisher.publish(n.to_string().as_bytes()).unwrap();
    }
    let filter_with = |transform| {
        Some(Filter { payload_filter: Some(PayloadFilter::new(transform)), ..Filter::new(|_| true) })
    };
    let filter = filter_with(even_digits);
    let cursor = Cursor::new(topic.logs()[0].clone(), &earliest(), filter, ConsumeMode::Reads).unwrap();
    let mut reader = Subscriber::one(cursor, WaitStrategy::Parked);
    let (mut shown, mut last) = (0, 0);
    let mut take = |record: dunlin_topic::Record<'_>| {
        let digits = record.seq().to_string();
        assert_eq!(record.payload(), &*even_digits(digits.as_bytes()).unwrap());
        assert_eq!(record.prev_seq, last, "what lies between was left out on purpose");
        assert!((last + 1..record.seq()).all(|seq| even_digits(seq.to_string().as_bytes()).is_none()));
        last = record.seq();
        shown += 1;
    };
    for _ in 0..10 {
        let Some(Event::Record(record)) = reader.try_next().unwrap() else { panic!() };
        take(record);
    }
    while reader
        .drain(64, |event| {
            let Event::Record(record) = event else { panic!("{event:?}") };
            take(record);
        })
        .unwrap()
        > 0
    {}
    assert_eq!(
        (shown, last),
        ((1..=2_000).filter(|n: &u32| n.to_string().bytes().any(|d| d % 2 == 0)).count(), 2_000)
    );
    publisher.publish(b"42").unwrap();
    assert!(reader.wait(Some(std::time::Duration::from_secs(60))).unwrap());
    assert!(matches!(reader.try_next().unwrap(), Some(Event::Record(record)) if record.payload() == b"42"));
}

#[test]
fn changed_filter_applies_from_the_first_undelivered_record() {
    let topic = large_topic(MANUAL);
    topic.publisher("t").publish_batch(&[b"12".as_slice().into(), b"34".as_slice().into()]).unwrap();
    let filter_with = |transform| {
        Some(Filter { payload_filter: Some(PayloadFilter::new(transform)), ..Filter::new(|_| true) })
    };
    let mut cursor =
        Cursor::new(topic.logs()[0].clone(), &earliest(), filter_with(even_digits), ConsumeMode::Reads)
            .unwrap();
    assert!(matches!(cursor.fill(), ReadOutcome::Records));
    assert_eq!(cursor.peek_any().unwrap().0.payload(), b"2");
    assert!(cursor.set_filter(None));
    assert!(matches!(cursor.fill(), ReadOutcome::Records));
    let mut seen = Vec::new();
    cursor.drain(10, |record| seen.push((record.seq(), record.payload().to_vec())));
    assert_eq!(seen, [(1, b"12".to_vec()), (2, b"34".to_vec())]);
}
