//! Tests that a slow subscriber first receives a warning, and then a gap with the exact range of lost records.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dunlin_topic::*;

use crate::fixture::*;

fn on_gap(on_gap: OnGap) -> SubscribeOptions {
    SubscribeOptions { on_gap, ..earliest() }
}

#[test]
fn slow_subscriber_receives_exact_gaps() {
    let topic = small_topic();
    let mut numbered = NumberedPublisher::of(&topic);
    let mut reader = subscriber(&topic, &earliest());
    let mut witness = DeliveryChecker::from_seq(1);
    for round in 0..50 {
        // In the first rounds, the records fill only a part of the history; in the last rounds, they fill it several
        // times.
        numbered.publish(20 + round * 30, 100);
        reader.drain(1 + round as usize * 11, |event| witness.check(event)).unwrap();
    }
    witness.drain(&mut reader);
    assert!(witness.gaps.len() >= 5, "the test is about gaps: {}", witness.gaps.len());
    assert_eq!(witness.records + witness.missing, numbered.published);
    assert!(witness.records > 0);
}

#[test]
fn subscriber_that_misses_records_between_reads_gets_one_gap() {
    let topic = small_topic();
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(100, 100);
    let mut reader = subscriber(&topic, &earliest());
    let mut witness = DeliveryChecker::from_seq(1);
    reader.drain(10, |event| witness.check(event)).unwrap();
    numbered.publish(5_000, 100);
    witness.drain(&mut reader);
    assert_eq!(witness.gaps.len(), 1);
    assert_eq!(witness.gaps[0].first, 11);
    assert_eq!(witness.records + witness.missing, numbered.published);
}

#[test]
fn publishing_does_not_overwrite_a_payload_in_use() {
    let topic = small_topic();
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(3, 100);
    let mut reader = subscriber(&topic, &earliest());
    assert!(reader.ready().unwrap());
    let Event::Record(record) = reader.take() else { panic!("no record") };
    let payload = record.payload();
    numbered.publish(10_000, 100);
    assert_eq!(number(payload), 1);
    assert!(payload[8..].iter().all(|&b| b == 0));
}

#[test]
fn subscriber_with_gap_option_newest_continues_after_the_gap() {
    let topic = small_topic();
    let mut numbered = NumberedPublisher::of(&topic);
    let mut reader = subscriber(&topic, &on_gap(OnGap::Newest));
    numbered.publish(5_000, 100);
    let mut witness = DeliveryChecker::from_seq(1);
    assert_eq!(witness.drain(&mut reader), 2, "a warning, then the gap");
    assert_eq!((witness.gaps[0].first, witness.gaps[0].last), (1, 5_000));
    numbered.publish(3, 100);
    assert_eq!(witness.drain(&mut reader), 3);
    assert_eq!(witness.records + witness.missing, numbered.published);
}

#[test]
fn subscriber_with_gap_option_fail_gets_the_gap_and_then_ends() {
    let topic = small_topic();
    let mut numbered = NumberedPublisher::of(&topic);
    let mut reader = subscriber(&topic, &on_gap(OnGap::Fail));
    numbered.publish(5_000, 100);
    let mut witness = DeliveryChecker::from_seq(1);
    assert_eq!(witness.drain(&mut reader), 2, "a warning, then the gap");
    assert_eq!(witness.gaps.len(), 1);
    numbered.publish(5, 100);
    for _ in 0..3 {
        assert_eq!(reader.ready(), Err(SubscribeError::Lost));
        assert_eq!(reader.drain(1, |event| panic!("{event:?}")), Err(SubscribeError::Lost));
        assert_eq!(reader.wait(None), Ok(true), "a reader that ended does not wait for ever");
    }
}

#[test]
fn slow_subscriber_is_warned_once_before_any_loss() {
    let topic = small_topic();
    let mut numbered = NumberedPublisher::of(&topic);
    let mut reader = subscriber(&topic, &earliest());
    let mut witness = DeliveryChecker::from_seq(1);
    // The subscriber reads one record in the time in which two are published, so that it must get a gap at some point.
    while witness.gaps.is_empty() {
        numbered.publish(2, 200);
        let event = reader.try_next().unwrap().unwrap();
        witness.check(event);
    }
    assert_eq!(witness.lagging.len(), 1, "one warning, before the gap");
    let warning = &witness.lagging[0];
    assert!(warning.behind * 2 >= warning.retained, "{warning:?}");
    assert!(warning.behind <= warning.retained, "it came while nothing was lost: {warning:?}");
}

#[test]
fn subscriber_that_caught_up_is_warned_again_when_it_lags() {
    let topic = small_topic();
    let mut numbered = NumberedPublisher::of(&topic);
    let mut reader = subscriber(&topic, &earliest());
    let mut witness = DeliveryChecker::from_seq(1);
    numbered.publish(2_000, 100);
    witness.drain(&mut reader);
    let before = witness.lagging.len();
    for _ in 0..3 {
        let history = topic.logs()[0].info();
        let retained = history.next_seq - history.oldest_seq;
        numbered.publish(retained * 3 / 4, 100);
        witness.drain(&mut reader);
        witness.drain(&mut reader);
    }
    assert_eq!(witness.lagging.len() - before, 3);
    assert_eq!(witness.records + witness.missing, numbered.published);
}

#[test]
fn subscriber_that_keeps_up_is_never_warned() {
    let topic = small_topic();
    let mut numbered = NumberedPublisher::of(&topic);
    let mut reader = subscriber(&topic, &earliest());
    let mut witness = DeliveryChecker::from_seq(1);
    for _ in 0..500 {
        numbered.publish(20, 100);
        witness.drain(&mut reader);
    }
    assert_eq!((witness.lagging.len(), witness.missing), (0, 0));
    assert_eq!(witness.records, numbered.published);
}

#[test]
fn reset_of_a_log_to_a_later_position_causes_no_lag_warning() {
    let topic = small_topic();
    let mut publisher = topic.publisher("t");
    publisher.publish(b"before").unwrap();
    topic.logs()[0].reset_to(Position { seq: 101, ..topic.logs()[0].last() });
    let mut late = subscriber(&topic, &from(Start::Latest));
    for _ in 0..50 {
        publisher.publish(b"behind").unwrap();
    }
    let mut events = 0;
    late.drain(100, |event| {
        assert!(matches!(event, Event::Record(_)), "{event:?}");
        events += 1;
    })
    .unwrap();
    assert_eq!(events, 50);
}

/// The publisher and the subscriber run on different threads, without synchronisation.
#[test]
fn first_gap_is_always_preceded_by_a_warning() {
    let topic = small_topic();
    let mut publisher = topic.publisher("t");
    let done = AtomicBool::new(false);
    let (mut gaps, mut unwarned) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                publisher.publish(&[0; 1_000]).unwrap();
            }
        });
        let deadline = Deadline::new();
        while gaps < 20 && !deadline.is_over() {
            let mut reader = subscriber(&topic, &from(Start::Latest));
            let (mut warned, mut lost) = (false, false);
            for _ in 0..1_000 {
                let record_event = |event: Event<'_>| match event {
                    Event::Notice(Notice::Lagging(_)) => warned = true,
                    Event::Notice(Notice::Gap(_)) => lost = true,
                    _ => {}
                };
                // Only the first gap matters, so the subscriber reads one event at a time.
                if reader.drain(1, record_event).is_err() || lost {
                    break;
                }
            }
            gaps += u32::from(lost);
            unwarned += u32::from(lost && !warned);
        }
        done.store(true, Relaxed);
    });
    assert_eq!(gaps, 20, "the test is about gaps");
    assert_eq!(unwarned, 0, "of {gaps} first gaps");
}
