//! Tests of a subscriber of several logs. It reads each log in order, and all logs in turn, including logs that join
//! later.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use dunlin_topic::*;

use crate::fixture::*;

fn named(name: &str, bytes: u64, clock: Clock) -> Arc<Topic> {
    Arc::new(Topic::new(name, Arc::new(config(bytes)), &budget(), clock, 1).unwrap())
}

fn publish(topic: &Arc<Topic>, count: u64) {
    let mut publisher = topic.publisher(topic.name());
    for _ in 0..count {
        let number = topic.logs()[0].last().seq + 1;
        publisher.publish(&number.to_le_bytes()).unwrap();
    }
}

fn subscriber_of(topics: &[Arc<Topic>], new_logs: Option<Arc<NewLogs>>, clock: Clock) -> Subscriber {
    let cursors = topics.iter().map(|topic| cursor(topic, &earliest())).collect();
    Subscriber::many(cursors, new_logs, earliest(), clock)
}

/// The checker of each log's events, by the name of the topic.
#[derive(Default)]
struct Logs(HashMap<String, DeliveryChecker>);

impl Logs {
    fn check(&mut self, event: Event<'_>) {
        let log = match &event {
            Event::Record(record) => record.log.topic.clone(),
            Event::Notice(Notice::Gap(gap)) => gap.log.topic.clone(),
            Event::Notice(Notice::Lagging(lagging)) => lagging.log.topic.clone(),
            Event::Notice(Notice::Deleted { log, .. }) => log.topic.clone(),
            Event::Notice(other) => panic!("unexpected {other:?}"),
        };
        self.0.entry(log).or_insert_with(|| DeliveryChecker::from_seq(1)).check(event);
    }

    fn records(&self) -> u64 {
        self.0.values().map(|witness| witness.records).sum()
    }
}

#[test]
fn every_log_is_read_in_its_own_order() {
    let topics: Vec<_> = (0..20).map(|n| named(&format!("t{n}"), 1 << 20, RUNNING)).collect();
    let mut reader = subscriber_of(&topics, None, RUNNING);
    let mut logs = Logs::default();
    thread::scope(|scope| {
        for share in topics.chunks(10) {
            scope.spawn(|| {
                for _ in 0..100 {
                    share.iter().for_each(|topic| publish(topic, 5));
                }
            });
        }
        while logs.records() < 20 * 500 {
            assert!(reader.wait(Some(PATIENCE)).unwrap());
            reader.drain(usize::MAX, |event| logs.check(event)).unwrap();
        }
    });
    assert!(logs.0.values().all(|witness| (witness.records, witness.missing) == (500, 0)));
}

#[test]
fn busy_log_does_not_starve_the_others() {
    let topics = [named("busy", 64 << 20, MANUAL), named("calm", 1 << 20, MANUAL)];
    let mut reader = subscriber_of(&topics, None, MANUAL);
    publish(&topics[0], 100_000);
    publish(&topics[1], 1);
    let mut before_calm = 0;
    while let Some(Event::Record(record)) = reader.try_next().unwrap() {
        if record.log.topic == "calm" {
            break;
        }
        before_calm += 1;
    }
    assert!(before_calm < 1_000, "{before_calm} records of the busy log came first");
}

#[test]
fn new_topic_is_read_from_its_first_record() {
    let new_logs = NewLogs::new();
    let mut reader = subscriber_of(&[], Some(Arc::clone(&new_logs)), RUNNING);
    assert!(!reader.ready().unwrap());
    let mut logs = Logs::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..50 {
                let topic = named(&format!("new{n}"), 1 << 20, RUNNING);
                publish(&topic, 3);
                new_logs.add(topic.logs()[0].clone(), None);
                publish(&topic, 4);
            }
        });
        while logs.records() < 50 * 7 {
            assert!(reader.wait(Some(PATIENCE)).unwrap());
            reader.drain(usize::MAX, |event| logs.check(event)).unwrap();
        }
    });
    assert_eq!(logs.0.len(), 50);
}

#[test]
fn subscriber_reads_a_deleted_topic_before_its_replacement() {
    let new_logs = NewLogs::new();
    let topics = ["t", "t"].map(|name| named(name, 1 << 20, MANUAL));
    let mut reader = subscriber_of(&topics[..1], Some(Arc::clone(&new_logs)), MANUAL);
    topics[1].logs()[0].set_follows_deleted();
    new_logs.add(topics[1].logs()[0].clone(), None);
    publish(&topics[0], 200);
    publish(&topics[1], 300);
    let (mut records, mut of_deleted) = (0, None);
    let mut count = |event: Event<'_>| match event {
        Event::Record(_) => records += 1,
        _ => of_deleted = Some(records),
    };
    reader.drain(usize::MAX, &mut count).unwrap();
    topics[0].close();
    reader.drain(usize::MAX, &mut count).unwrap();
    assert_eq!((records, of_deleted), (500, Some(200)));
    let mut positions = Vec::new();
    reader.for_each_position(|_, at| positions.push(at.seq));
    assert_eq!(positions, [300]);
}

/// The first log is queued twice, so that one entry is left when the log has ended and its place is free.
#[test]
fn recreated_topic_is_read_after_its_deleted_predecessor() {
    let new_logs = NewLogs::new();
    let topics = ["gone", "t", "t"].map(|name| named(name, 1 << 20, MANUAL));
    let mut reader = subscriber_of(&topics[..2], Some(Arc::clone(&new_logs)), MANUAL);
    topics[..2].iter().for_each(|topic| publish(topic, 1));
    reader.drain(usize::MAX, |_| ()).unwrap();
    let ended = &topics[0].logs()[0];
    for _ in 0..2 {
        reader.resync(ended.name(), Resync::After(ended.last())).unwrap();
    }
    topics[0].close();
    assert!(matches!(reader.try_next().unwrap(), Some(Event::Notice(Notice::Deleted { .. }))));
    topics[2].logs()[0].set_follows_deleted();
    new_logs.add(topics[2].logs()[0].clone(), None);
    publish(&topics[2], 1);
    assert!(reader.try_next().unwrap().is_none(), "the deleted topic has not ended yet");
    topics[1].close();
    assert!(matches!(reader.try_next().unwrap(), Some(Event::Notice(Notice::Deleted { .. }))));
    assert!(matches!(reader.try_next().unwrap(), Some(Event::Record(_))));
}

#[test]
fn deletion_is_delivered_after_the_last_record_of_the_topic() {
    let topics = [named("staying", 1 << 20, MANUAL), named("going", 1 << 20, MANUAL)];
    let new_logs = NewLogs::new();
    let mut reader = subscriber_of(&topics, Some(Arc::clone(&new_logs)), MANUAL);
    topics.iter().for_each(|topic| publish(topic, 10));
    topics[1].close();
    let mut logs = Logs::default();
    reader.drain(usize::MAX, |event| logs.check(event)).unwrap();
    assert_eq!(logs.0["going"].records, 10);
    assert_eq!(logs.0["going"].deleted, Some(Position { epoch: 1, seq: 10 }));
    // A third log joins. It takes the place of the deleted log in the subscriber's list.
    let third = named("third", 1 << 20, MANUAL);
    new_logs.add(third.logs()[0].clone(), None);
    publish(&third, 5);
    publish(&topics[0], 5);
    reader.drain(usize::MAX, |event| logs.check(event)).unwrap();
    assert_eq!((logs.0["staying"].records, logs.0["third"].records), (15, 5));
    [&topics[0], &third].iter().for_each(|topic| topic.close());
    reader.drain(usize::MAX, |event| logs.check(event)).unwrap();
    assert!(logs.0.values().all(|witness| witness.deleted.is_some()));
    assert!(!reader.ready().unwrap(), "others may still come");
}

#[test]
fn subscription_ends_when_all_its_topics_are_deleted() {
    let topics = [named("a", 1 << 20, MANUAL), named("b", 1 << 20, MANUAL)];
    let mut reader = subscriber_of(&topics, None, MANUAL);
    topics.iter().for_each(|topic| topic.close());
    let mut deleted = 0;
    reader.drain(usize::MAX, |_| deleted += 1).unwrap();
    assert_eq!(deleted, 2);
    assert_eq!(reader.ready(), Err(SubscribeError::Closed));
}

#[test]
fn deletion_of_a_single_topic_is_delivered_once() {
    let topic = small_topic();
    NumberedPublisher::of(&topic).publish(5, 8);
    let mut reader = subscriber(&topic, &earliest());
    topic.close();
    let mut witness = DeliveryChecker::from_seq(1);
    assert_eq!(witness.drain(&mut reader), 6);
    assert_eq!(witness.deleted, Some(Position { epoch: 1, seq: 5 }));
    assert_eq!(reader.ready(), Err(SubscribeError::Closed));
    assert_eq!(topic.publisher("t").publish(b"late"), Err(PublishError::Closed));
}

#[test]
fn gaps_are_exact_in_each_of_many_logs() {
    let topics: Vec<_> = (0..5).map(|n| named(&format!("t{n}"), 16 << 10, MANUAL)).collect();
    let mut reader = subscriber_of(&topics, None, MANUAL);
    let mut logs = Logs::default();
    for round in 0..10 {
        for (n, topic) in topics.iter().enumerate() {
            publish(topic, 100 * (n as u64 + 1));
        }
        reader.drain(50 * round, |event| logs.check(event)).unwrap();
    }
    reader.drain(usize::MAX, |event| logs.check(event)).unwrap();
    for (n, topic) in topics.iter().enumerate() {
        let witness = &logs.0[topic.name()];
        assert_eq!(witness.records + witness.missing, 1_000 * (n as u64 + 1));
    }
    assert!(logs.0["t4"].missing > 0, "the test is about gaps");
}

#[test]
fn wildcard_subscription_continues_after_a_refused_topic() {
    let new_logs = NewLogs::new();
    let options = SubscribeOptions { registered: true, ..earliest() };
    let mut reader = Subscriber::many(Vec::new(), Some(Arc::clone(&new_logs)), options.clone(), MANUAL);
    let reliable = ReliableOptions { subscribers_max: 1, ..ReliableOptions::default() };
    let full = topic_of(TopicConfig { reliable: Some(reliable), ..config(1 << 20) }, &budget(), MANUAL);
    let _first = subscriber(&full, &options);
    let open = named("open", 1 << 20, MANUAL);
    publish(&open, 3);
    new_logs.add(full.logs()[0].clone(), None);
    new_logs.add(open.logs()[0].clone(), None);
    assert_eq!(reader.ready(), Err(SubscribeError::Limit { limit: "subscribers_max", value: 1 }));
    let mut logs = Logs::default();
    reader.drain(usize::MAX, |event| logs.check(event)).unwrap();
    assert_eq!(logs.records(), 3);
}
