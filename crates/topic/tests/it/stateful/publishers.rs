//! Tests of the notices that tell followers of a state whether publishers of the topic are connected.

use std::sync::mpsc;
use std::thread;

use super::*;

/// Reads all available events, and returns the notices about publishers. Skips states and checksums.
pub(super) fn read_notices(subscriber: &mut Subscriber) -> Vec<PublisherStatus> {
    let mut notices = Vec::new();
    while let Some(event) = subscriber.try_next().unwrap() {
        if let Event::Notice(Notice::Publishers(publishers)) = event {
            notices.push(publishers);
        }
    }
    notices
}

pub(super) fn connected(notices: &[PublisherStatus]) -> Vec<bool> {
    notices.iter().map(|publishers| publishers.connected).collect()
}

#[test]
fn new_subscriber_learns_when_the_last_publisher_left() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    advance_clock(Duration::from_secs(1));
    setter.set(3);
    let appended_ns = MANUAL.now_ns();
    advance_clock(Duration::from_secs(2));
    let left_ns = MANUAL.now_ns();
    drop(setter);
    advance_clock(Duration::from_secs(4));
    let mut subscriber = Subscriber::one(cursor(&topic, &following()), WaitStrategy::Parked);
    let first = subscriber.try_next().unwrap();
    assert!(matches!(first, Some(Event::Notice(Notice::Snapshot(_)))), "the state comes first: {first:?}");
    let publishers = PublisherStatus {
        log: Arc::clone(topic.logs()[0].name()),
        connected: false,
        since_ns: left_ns,
        last_append_ns: Some(appended_ns),
    };
    assert_eq!(read_notices(&mut subscriber), [publishers]);
    assert_eq!(read_notices(&mut subscriber), [], "once");
}

#[test]
fn topic_without_a_publisher_reports_when_it_was_opened() {
    let opened_ns = MANUAL.now_ns();
    let topic = small();
    advance_clock(Duration::from_secs(5));
    let mut subscriber = Subscriber::one(cursor(&topic, &following()), WaitStrategy::Parked);
    let notices = read_notices(&mut subscriber);
    let seen: Vec<_> = notices.iter().map(|p| (p.connected, p.since_ns, p.last_append_ns)).collect();
    assert_eq!(seen, [(false, opened_ns, None)]);
}

#[test]
fn first_arrival_and_last_exit_of_publishers_are_reported() {
    for options in [following(), conflated()] {
        let topic = small();
        let mut one = Setter::of(&topic);
        let mut subscriber = Subscriber::one(cursor(&topic, &options), WaitStrategy::Parked);
        assert_eq!(read_notices(&mut subscriber), [], "a new reader gets no notice of connected publishers");
        let two = topic.publisher("t");
        drop(two);
        assert_eq!(read_notices(&mut subscriber), [], "one of two publishers left");
        one.set(5);
        advance_clock(Duration::from_secs(1));
        let (left_ns, read) = (MANUAL.now_ns(), topic.logs()[0].last().seq);
        drop(one);
        let notices = read_notices(&mut subscriber);
        assert_eq!(connected(&notices), [false]);
        assert_eq!(notices[0].since_ns, left_ns);
        subscriber.for_each_position(|_, at| assert_eq!(at.seq, read, "a notice uses no sequence"));
        let _back = topic.publisher("t");
        assert_eq!(connected(&read_notices(&mut subscriber)), [true]);
    }
}

#[test]
fn resuming_subscriber_learns_that_publishers_are_connected() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    setter.set(3);
    let after = SubscribeOptions { start: Start::After(topic.logs()[0].last()), ..following() };
    let mut subscriber = Subscriber::one(cursor(&topic, &after), WaitStrategy::Parked);
    assert_eq!(connected(&read_notices(&mut subscriber)), [true], "it may have received the opposite before");
    let name = Arc::clone(topic.logs()[0].name());
    subscriber.resync(&name, Resync::State).unwrap();
    assert_eq!(connected(&read_notices(&mut subscriber)), [true]);
}

#[test]
fn plain_subscriber_receives_no_publisher_notices() {
    let (kept, plain) = (small(), small_topic());
    let mut readers = [(&kept, earliest()), (&plain, earliest())].map(|(topic, options)| {
        let publisher = topic.publisher("t");
        let subscriber = Subscriber::one(cursor(topic, &options), WaitStrategy::Parked);
        drop(publisher);
        subscriber
    });
    readers.iter_mut().for_each(|reader| assert!(reader.try_next().unwrap().is_none()));
}

#[test]
fn exit_of_the_last_publisher_wakes_sleeping_subscribers() {
    let topic = stateful(64 << 10, &budget(), RUNNING);
    let publisher = topic.publisher("t");
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let mut subscriber = Subscriber::one(cursor(&topic, &following()), WaitStrategy::Parked);
            thread::spawn(move || {
                loop {
                    if let Event::Notice(Notice::Publishers(publishers)) = subscriber.next().unwrap() {
                        return publishers.connected;
                    }
                }
            })
        })
        .collect();
    until("all sleep", || topic.logs()[0].info().waiting == 4);
    drop(publisher);
    for reader in readers {
        assert!(!reader.join().unwrap());
    }
}

#[test]
fn sleeping_subscriber_learns_of_every_publisher_change() {
    let topic = stateful(64 << 10, &budget(), RUNNING);
    let mut publisher = Some(topic.publisher("t"));
    let mut subscriber = Subscriber::one(cursor(&topic, &following()), WaitStrategy::Parked);
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        loop {
            if let Event::Notice(Notice::Publishers(publishers)) = subscriber.next().unwrap()
                && sender.send(publishers.connected).is_err()
            {
                return;
            }
        }
    });
    until("the reader sleeps", || topic.logs()[0].info().waiting == 1);
    for round in 0..1_000 {
        let connect = round % 2 == 1;
        publisher = connect.then(|| topic.publisher("t"));
        assert_eq!(receiver.recv_timeout(PATIENCE), Ok(connect), "round {round}");
    }
    drop((receiver, publisher));
    let _last = topic.publisher("t");
    reader.join().unwrap();
}
