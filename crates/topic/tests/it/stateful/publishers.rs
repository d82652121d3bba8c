//! Reports of a state's publishers to its followers.

use std::sync::mpsc;
use std::thread;

use super::*;

/// The available notices about publishers. Ignores states and checksums.
pub(super) fn told(subscriber: &mut Subscriber) -> Vec<Publishers> {
    let mut told = Vec::new();
    while let Some(event) = subscriber.try_next().unwrap() {
        if let Event::Notice(Notice::Publishers(publishers)) = event {
            told.push(publishers);
        }
    }
    told
}

pub(super) fn connected(told: &[Publishers]) -> Vec<bool> {
    told.iter().map(|publishers| publishers.connected).collect()
}

#[test]
fn new_subscriber_learns_when_the_last_publisher_left() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    pass(Duration::from_secs(1));
    setter.set(3);
    let appended_ns = MANUAL.now_ns();
    pass(Duration::from_secs(2));
    let gone_ns = MANUAL.now_ns();
    drop(setter);
    pass(Duration::from_secs(4));
    let mut subscriber = Subscriber::one(cursor(&topic, &following()), Wait::Parked);
    let first = subscriber.try_next().unwrap();
    assert!(matches!(first, Some(Event::Notice(Notice::Snapshot(_)))), "the state comes first: {first:?}");
    let publishers = Publishers {
        log: Arc::clone(topic.logs()[0].name()),
        connected: false,
        since_ns: gone_ns,
        last_append_ns: Some(appended_ns),
    };
    assert_eq!(told(&mut subscriber), [publishers]);
    assert_eq!(told(&mut subscriber), [], "once");
}

#[test]
fn subscriber_learns_since_when_no_publisher_is_connected() {
    let opened_ns = MANUAL.now_ns();
    let topic = small();
    pass(Duration::from_secs(5));
    let mut subscriber = Subscriber::one(cursor(&topic, &following()), Wait::Parked);
    let told = told(&mut subscriber);
    let seen: Vec<_> = told.iter().map(|p| (p.connected, p.since_ns, p.last_append_ns)).collect();
    assert_eq!(seen, [(false, opened_ns, None)]);
}

#[test]
fn arrival_of_first_and_exit_of_last_publisher_are_reported() {
    for options in [following(), conflated()] {
        let topic = small();
        let mut one = Setter::of(&topic);
        let mut subscriber = Subscriber::one(cursor(&topic, &options), Wait::Parked);
        assert_eq!(told(&mut subscriber), [], "that all is well is no news to a new reader");
        let two = topic.publisher("t");
        drop(two);
        assert_eq!(told(&mut subscriber), [], "one of two went");
        one.set(5);
        pass(Duration::from_secs(1));
        let (went_ns, read) = (MANUAL.now_ns(), topic.logs()[0].last().seq);
        drop(one);
        let gone = told(&mut subscriber);
        assert_eq!(connected(&gone), [false]);
        assert_eq!(gone[0].since_ns, went_ns);
        subscriber.for_each_position(|_, at| assert_eq!(at.seq, read, "it takes no number"));
        let _back = topic.publisher("t");
        assert_eq!(connected(&told(&mut subscriber)), [true]);
    }
}

#[test]
fn resuming_subscriber_learns_that_publishers_are_connected() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    setter.set(3);
    let after = SubscribeOptions { start: Start::After(topic.logs()[0].last()), ..following() };
    let mut subscriber = Subscriber::one(cursor(&topic, &after), Wait::Parked);
    assert_eq!(connected(&told(&mut subscriber)), [true], "it may have been told otherwise before");
    let name = Arc::clone(topic.logs()[0].name());
    subscriber.resync(&name, Resync::State).unwrap();
    assert_eq!(connected(&told(&mut subscriber)), [true]);
}

#[test]
fn plain_subscriber_receives_no_publisher_notices() {
    let (kept, plain) = (small(), small_topic());
    let mut readers = [(&kept, earliest()), (&plain, earliest())].map(|(topic, options)| {
        let publisher = topic.publisher("t");
        let subscriber = Subscriber::one(cursor(topic, &options), Wait::Parked);
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
            let mut subscriber = Subscriber::one(cursor(&topic, &following()), Wait::Parked);
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
fn subscriber_falling_asleep_misses_no_publisher_change() {
    let topic = stateful(64 << 10, &budget(), RUNNING);
    let mut publisher = Some(topic.publisher("t"));
    let mut subscriber = Subscriber::one(cursor(&topic, &following()), Wait::Parked);
    let (tell, told) = mpsc::channel();
    let reader = thread::spawn(move || {
        loop {
            if let Event::Notice(Notice::Publishers(publishers)) = subscriber.next().unwrap()
                && tell.send(publishers.connected).is_err()
            {
                return;
            }
        }
    });
    until("the reader sleeps", || topic.logs()[0].info().waiting == 1);
    for round in 0..1_000 {
        let connect = round % 2 == 1;
        publisher = connect.then(|| topic.publisher("t"));
        assert_eq!(told.recv_timeout(PATIENCE), Ok(connect), "round {round}");
    }
    drop((told, publisher));
    let _last = topic.publisher("t");
    reader.join().unwrap();
}
