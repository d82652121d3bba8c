//! Tests of reliable topics: a publisher waits, up to `wait_max`, until registered subscribers have read.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dunlin_topic::*;

use crate::fixture::*;

fn reliable(wait_max: Duration, on_full: OnFull) -> TopicConfig {
    let reliable = ReliableOptions { subscribers_max: 4, wait_max, on_full };
    TopicConfig { reliable: Some(reliable), ..config(64 << 10) }
}

fn registered(name: &str) -> SubscribeOptions {
    SubscribeOptions { name: name.to_owned(), registered: true, ..earliest() }
}

/// Publishes until a record is refused. Returns the number of records that were accepted, and the error.
fn fill(topic: &Arc<Topic>) -> (u64, PublishError) {
    fill_with(topic, 1_000)
}

/// Like [`fill`], but with payloads of `payload_bytes` bytes.
fn fill_with(topic: &Arc<Topic>, payload_bytes: usize) -> (u64, PublishError) {
    let mut publisher = topic.publisher("t");
    let mut payload = vec![0; payload_bytes];
    loop {
        let number = topic.logs()[0].last().seq + 1;
        payload[..8].copy_from_slice(&number.to_le_bytes());
        if let Err(refused) = publisher.publish(payload.as_slice()) {
            return (number - 1, refused);
        }
    }
}

/// Waits until another thread has filled the topic's history with payloads of `payload_bytes` bytes, so that the
/// thread's next record has to wait.
fn until_full(topic: &Topic, payload_bytes: usize) {
    let twin = topic_of(reliable(Duration::ZERO, OnFull::Refuse), &budget(), RUNNING);
    let _reader = subscriber(&twin, &registered("never reads"));
    let (full, _) = fill_with(&twin, payload_bytes);
    until("the history is full", || topic.logs()[0].last().seq == full);
}

#[test]
fn slow_registered_readers_lose_no_record() {
    let topic = topic_of(reliable(PATIENCE, OnFull::Refuse), &budget(), RUNNING);
    let count = 20_000;
    thread::scope(|scope| {
        for at_once in [50, 7, 2] {
            let mut reader = subscriber(&topic, &registered(&format!("{at_once} at once")));
            scope.spawn(move || {
                let mut witness = DeliveryChecker::from_seq(1);
                while witness.records < count {
                    assert!(reader.wait(Some(PATIENCE)).unwrap());
                    reader.drain(at_once, |event| witness.check(event)).unwrap();
                }
                assert_eq!((witness.missing, witness.lagging.len()), (0, 0));
            });
        }
        scope.spawn(|| NumberedPublisher::of(&topic).publish(count, 100));
    });
}

#[test]
fn refusal_of_a_waiting_publisher_names_the_slow_reader() {
    let wait_max = Duration::from_millis(30);
    let topic = topic_of(reliable(wait_max, OnFull::Refuse), &budget(), RUNNING);
    let mut reader = subscriber(&topic, &registered("slow"));
    let (retained, refused) = fill(&topic);
    let PublishError::Full { subscriber: name, needed, waited } = refused else { panic!("{refused}") };
    assert_eq!((name.as_str(), needed), ("slow", 1));
    assert!(waited >= wait_max);
    let mut witness = DeliveryChecker::from_seq(1);
    witness.drain(&mut reader);
    assert_eq!((witness.records, witness.missing), (retained, 0));
    // With this read, the subscriber consumes the records that it has read before.
    assert!(!reader.ready().unwrap());
    topic.publisher("t").publish(&(retained + 1).to_le_bytes()).unwrap();
    assert_eq!(witness.drain(&mut reader), 1);
}

#[test]
fn evicted_subscriber_gets_its_exact_gap_and_others_continue() {
    let topic = topic_of(reliable(Duration::from_millis(5), OnFull::Evict), &budget(), RUNNING);
    let mut slow = subscriber(&topic, &registered("slow"));
    let mut quick = subscriber(&topic, &registered("quick"));
    let (mut slow_witness, mut quick_witness) = (DeliveryChecker::from_seq(1), DeliveryChecker::from_seq(1));
    let mut numbered = NumberedPublisher::of(&topic);
    for _ in 0..200 {
        numbered.publish(10, 100);
        quick_witness.drain(&mut quick);
        assert!(!quick.ready().unwrap());
    }
    assert_eq!((quick_witness.records, quick_witness.missing), (numbered.published, 0));
    slow_witness.drain(&mut slow);
    assert_eq!(slow_witness.gaps.len(), 1);
    assert_eq!(slow_witness.records + slow_witness.missing, numbered.published);
    assert_eq!(topic.logs()[0].info().registered, 1);
}

/// Publishes more records than the topic has room for. The only registered subscriber leaves when the history is full.
fn publish_while_the_reader_leaves(clock: Clock) {
    let topic = topic_of(reliable(PATIENCE, OnFull::Refuse), &budget(), clock);
    let mut numbered = NumberedPublisher::of(&topic);
    let reader = subscriber(&topic, &registered("leaving"));
    thread::scope(|scope| {
        scope.spawn(|| {
            until_full(&topic, 100);
            drop(reader);
        });
        numbered.publish(1_000, 100);
    });
}

#[test]
fn departed_reader_frees_room_for_publishers() {
    publish_while_the_reader_leaves(RUNNING);
}

/// A clock whose time of day is set forward by an hour before each reading. Waits are measured with a steady clock.
const JUMPING: Clock = Clock::new(|| {
    advance_clock(Duration::from_secs(3_600));
    MANUAL.now_ns()
})
.with_steady(|| RUNNING.now_ns());

#[test]
fn setting_the_clock_forward_does_not_end_a_wait_for_room() {
    publish_while_the_reader_leaves(JUMPING);
}

#[test]
fn dropped_cursor_frees_room_for_publishers() {
    let topic = topic_of(reliable(Duration::ZERO, OnFull::Refuse), &budget(), RUNNING);
    drop(cursor(&topic, &registered("never read")));
    assert_eq!(topic.logs()[0].info().registered, 0);
    NumberedPublisher::of(&topic).publish(1_000, 100);
}

#[test]
fn waiting_publisher_is_released_when_its_topic_closes() {
    let topic = topic_of(reliable(PATIENCE, OnFull::Refuse), &budget(), RUNNING);
    let _reader = subscriber(&topic, &registered("stuck"));
    thread::scope(|scope| {
        let publisher = scope.spawn(|| fill(&topic).1);
        until_full(&topic, 1_000);
        topic.close();
        assert_eq!(publisher.join().unwrap(), PublishError::Closed);
    });
}

#[test]
fn registered_reader_over_the_limit_is_refused() {
    let topic = topic_of(reliable(Duration::ZERO, OnFull::Refuse), &budget(), MANUAL);
    let readers: Vec<_> = (0..4).map(|_| subscriber(&topic, &registered("one of four"))).collect();
    let fifth = || Cursor::new(topic.logs()[0].clone(), &registered("fifth"), None, ConsumeMode::Reads);
    assert_eq!(fifth().unwrap_err(), SubscribeError::Limit { limit: "subscribers_max", value: 4 });
    drop(readers);
    assert!(fifth().is_ok());
}

#[test]
fn unregistered_reader_delays_no_publisher() {
    let topic = topic_of(reliable(Duration::ZERO, OnFull::Refuse), &budget(), MANUAL);
    let mut reader = subscriber(&topic, &earliest());
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(5_000, 100);
    let mut witness = DeliveryChecker::from_seq(1);
    witness.drain(&mut reader);
    assert_eq!(witness.gaps.len(), 1);
    assert_eq!(witness.records + witness.missing, 5_000);
}

#[test]
fn record_frees_room_only_after_it_is_reported_as_consumed() {
    let topic = topic_of(reliable(Duration::ZERO, OnFull::Refuse), &budget(), MANUAL);
    let options = registered("remote");
    let mut cursor = Cursor::new(topic.logs()[0].clone(), &options, None, ConsumeMode::Explicit).unwrap();
    let (retained, _) = fill(&topic);
    let mut witness = DeliveryChecker::from_seq(1);
    while let ReadOutcome::Records = cursor.fill() {
        cursor.drain(usize::MAX, |record| witness.check(Event::Record(record)));
    }
    assert_eq!(witness.records, retained);
    assert_eq!(fill(&topic).0, retained, "read is not consumed");
    cursor.consume(retained / 2);
    let (more, _) = fill(&topic);
    let oldest = topic.logs()[0].info().oldest_seq;
    assert!(
        more > retained && oldest > 1 && oldest <= retained / 2 + 1,
        "{oldest} … {more} after {retained}"
    );
    cursor.leave(&Waiter::new(), 0);
}

#[test]
fn record_limit_drops_no_unread_record_of_a_registered_reader() {
    let mut config = reliable(Duration::ZERO, OnFull::Refuse);
    config.retention.records = Some(10);
    let topic = topic_of(config, &budget(), MANUAL);
    let mut reader = subscriber(&topic, &registered("slow"));
    let (retained, _) = fill(&topic);
    let mut witness = DeliveryChecker::from_seq(1);
    witness.drain(&mut reader);
    assert_eq!((witness.records, witness.missing), (retained, 0));
}

#[test]
fn registered_reader_of_an_older_epoch_loses_no_new_record() {
    let topic = Arc::new(
        Topic::new("t", Arc::new(reliable(Duration::ZERO, OnFull::Refuse)), &budget(), MANUAL, 2).unwrap(),
    );
    let start = Start::After(Position { epoch: 1, seq: 1_000_000 });
    let mut reader = subscriber(&topic, &SubscribeOptions { start, ..registered("resumed") });
    let (retained, refused) = fill(&topic);
    assert!(matches!(refused, PublishError::Full { .. }), "{refused}");
    let mut witness = DeliveryChecker::from_seq(0);
    witness.drain(&mut reader);
    assert_eq!((witness.epochs.len(), witness.records, witness.missing), (1, retained, 0));
}

#[test]
fn publisher_that_repeatedly_waits_for_room_is_listed_once() {
    let topic = topic_of(reliable(Duration::ZERO, OnFull::Refuse), &budget(), MANUAL);
    let _reader = subscriber(&topic, &registered("stuck"));
    fill(&topic);
    let waiter = Waiter::new();
    for _ in 0..1_000 {
        topic.await_room(0, &waiter);
    }
    assert!(Arc::strong_count(&waiter) <= 2, "it is in the list once: {}", Arc::strong_count(&waiter));
}

#[test]
fn publisher_without_a_wait_limit_waits_for_room() {
    let topic = topic_of(reliable(Duration::MAX, OnFull::Refuse), &budget(), RUNNING);
    let mut reader = subscriber(&topic, &registered("slow"));
    thread::scope(|scope| {
        scope.spawn(|| NumberedPublisher::of(&topic).publish(2_000, 100));
        until_full(&topic, 100);
        let mut witness = DeliveryChecker::from_seq(1);
        witness.follow(&mut reader, 2_000);
        assert_eq!(witness.missing, 0);
    });
}

#[test]
fn publisher_that_never_waits_is_refused_or_evicts_subscribers() {
    let topic = topic_of(reliable(Duration::MAX, OnFull::Evict), &budget(), RUNNING);
    let _reader = subscriber(&topic, &registered("never reads"));
    let mut publisher = topic.publisher("t").without_room_wait(false);
    let refused = loop {
        if let Err(refused) = publisher.publish(&[0_u8; 1_000][..]) {
            break refused;
        }
    };
    assert!(matches!(refused, PublishError::Full { .. }), "{refused}");
    topic.publisher("t").without_room_wait(true).publish(&[0_u8; 1_000][..]).unwrap();
}
