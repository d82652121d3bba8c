//! Tests that all subscribers receive the records in the same order, and that the records of each publisher stay in the
//! order in which they were published.

use std::thread;

use dunlin_topic::*;

use crate::fixture::*;

const PUBLISHERS: u64 = 4;
const EACH: u64 = 5_000;

#[test]
fn records_keep_the_order_of_each_publisher() {
    let topic = large_topic(RUNNING);
    let mut readers: Vec<_> = (0..3).map(|_| subscriber(&topic, &earliest())).collect();
    let histories: Vec<Vec<(u64, u64)>> = thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let topic = &topic;
            scope.spawn(move || {
                let mut p = topic.publisher("t");
                let mut last = 0;
                for n in 0..EACH {
                    let mut payload = [0; 16];
                    payload[..8].copy_from_slice(&publisher.to_le_bytes());
                    payload[8..].copy_from_slice(&n.to_le_bytes());
                    let seq = p.publish(&payload).unwrap().position.seq;
                    assert!(seq > last, "a later publish gets a later sequence");
                    last = seq;
                }
            });
        }
        let following: Vec<_> = readers.iter_mut().map(|reader| scope.spawn(|| history_of(reader))).collect();
        following.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(histories.iter().all(|history| *history == histories[0]), "all readers see one order");
    for publisher in 0..PUBLISHERS {
        let own = histories[0].iter().filter(|(by, _)| *by == publisher).map(|(_, n)| *n);
        assert!(own.eq(0..EACH), "publisher {publisher}'s records keep their order");
    }
}

fn history_of(reader: &mut Subscriber) -> Vec<(u64, u64)> {
    let mut history = Vec::new();
    while history.len() < (PUBLISHERS * EACH) as usize {
        assert!(reader.wait(Some(PATIENCE)).unwrap());
        let drained = reader.drain(usize::MAX, |event| match event {
            Event::Record(record) => {
                history.push((number(record.payload()), number(&record.payload()[8..])));
                assert_eq!(record.seq(), history.len() as u64);
            }
            Event::Notice(other) => panic!("unexpected {other:?}"),
        });
        drained.unwrap();
    }
    history
}

#[test]
fn append_time_does_not_decrease_when_the_clock_is_set_back() {
    let topic = topic_of(config(64 << 10), &budget(), BACKWARDS);
    let mut p = topic.publisher("t");
    for _ in 0..100 {
        p.publish(b"x").unwrap();
    }
    let mut times = Vec::new();
    let mut reader = subscriber(&topic, &earliest());
    reader
        .drain(usize::MAX, |event| {
            let Event::Record(record) = event else { panic!("unexpected {event:?}") };
            times.push(record.frame.append_time_ns());
        })
        .unwrap();
    assert_eq!(times.len(), 100);
    assert!(times.is_sorted(), "{times:?}");
}

/// A clock that runs backwards: each reading is earlier than the previous one.
const BACKWARDS: Clock = Clock::new(|| {
    advance_clock(std::time::Duration::from_nanos(3));
    u64::MAX / 2 - MANUAL.now_ns()
});

#[test]
fn every_read_method_yields_the_same_records() {
    let topic = large_topic(MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(1_000, 100);
    let mut drained = DeliveryChecker::from_seq(1);
    let mut reader = subscriber(&topic, &earliest());
    // The subscriber reads seven records at a time, so that some reads end within a segment.
    while reader.drain(7, |event| drained.check(event)).unwrap() > 0 {}
    let mut by_event = DeliveryChecker::from_seq(1);
    let mut reader = subscriber(&topic, &earliest());
    while let Some(event) = reader.try_next().unwrap() {
        by_event.check(event);
    }
    let mut mixed = DeliveryChecker::from_seq(1);
    let mut reader = subscriber(&topic, &earliest());
    while reader.ready().unwrap() {
        mixed.check(reader.take());
        reader.drain(3, |event| mixed.check(event)).unwrap();
    }
    for witness in [drained, by_event, mixed] {
        assert_eq!((witness.records, witness.missing), (1_000, 0));
    }
}

#[test]
fn cursor_yields_spans_of_whole_frames() {
    let topic = large_topic(MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(1_000, 100);
    let mut cursor = cursor(&topic, &earliest());
    let mut seen = 0;
    while let ReadOutcome::Records = cursor.fill() {
        let mut moves = Vec::new();
        for span in cursor.spans(1_000) {
            let RecordSpanContent::Frames(bytes) = span.content else { panic!("unexpected {span:?}") };
            assert!(bytes.len() <= 1_000);
            let batch = CheckedBatch::check(bytes, span.count, 1 << 20).unwrap();
            assert_eq!(batch.bytes().len(), span.advance_bytes as usize);
            moves.push((span.count, span.advance_bytes));
        }
        for (count, bytes) in moves {
            cursor.advance(count.into(), bytes);
            seen += u64::from(count);
        }
        cursor.release();
    }
    assert_eq!(seen, 1_000);
    assert_eq!(cursor.next().seq, 1_001);
}
