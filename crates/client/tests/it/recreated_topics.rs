//! Tests of publishers and subscribers of state topics. In these tests, records are refused, gaps occur, or a topic is
//! created again. No subscriber may have a wrong state without an error.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dunlin::feed::{Book, BookEntry, PriceLevels, Replica, ReplicaFault, ReplicaReport, Scale, Side};
use dunlin::journal::FakeDisk;
use dunlin::topic::*;
use dunlin_client::{Client, Subscriber};

use crate::running_node::{RunningNode, from_earliest, on_disk};

type TcpReplica = Replica<Book, Subscriber>;

const PATIENCE: Duration = Duration::from_secs(60);

fn book() -> TopicConfig {
    TopicConfig {
        retention: Retention { bytes: 64 << 10, ..Retention::default() },
        reducer: Some(ReducerConfig { kind: "book".to_owned(), options: BTreeMap::new() }),
        ..TopicConfig::default()
    }
}

fn with_snapshots() -> SubscribeOptions {
    SubscribeOptions { start: Start::Snapshot, on_gap: OnGap::Snapshot, ..SubscribeOptions::default() }
}

fn level(price: i64, size: i64) -> Vec<u8> {
    let mut payload = Vec::new();
    BookEntry::Set { side: Side::Bid, price, size }.encode(&mut payload);
    payload
}

/// Repeats a call until the node responds to it, because the node may be unreachable for a time.
fn retry_until_answered<T>(mut call: impl FnMut() -> Result<T, PublishError>) -> Result<T, PublishError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call() {
            Err(PublishError::Unknown(why)) => assert!(Instant::now() < deadline, "{why}"),
            result => return result,
        }
    }
}

#[test]
fn state_topic_that_was_lost_is_recreated_with_its_reducer() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("md.a", &book(), false).unwrap();
    let mut publisher = client.publisher("md.a").unwrap();
    for price in 1..=10 {
        assert!(!publisher.publish(&level(price, 5)[..]).unwrap().new_epoch);
    }
    let reader = running.client();
    let subscriber = reader.subscribe("md.a", with_snapshots()).unwrap();
    let mut replica = Replica::new(subscriber, |_| Book::new(Scale::default()));
    let until = |replica: &mut TcpReplica, done: &dyn Fn(&TcpReplica, bool) -> bool| {
        let (deadline, mut began_anew) = (Instant::now() + PATIENCE, false);
        loop {
            let _ = replica.wait(Some(Duration::from_millis(50)));
            let _ = replica.drain(dunlin::now_ns(), usize::MAX, |report| {
                began_anew |=
                    matches!(report, ReplicaReport::Fault { fault: ReplicaFault::NewEpoch { .. }, .. });
            });
            if done(replica, began_anew) {
                return;
            }
            assert!(Instant::now() < deadline, "{replica:?}");
        }
    };
    let levels = |replica: &TcpReplica| -> usize {
        replica.states().map(|(_, _, book)| book.level_count(Side::Bid)).sum()
    };
    until(&mut replica, &|replica, _| replica.is_whole() && levels(replica) == 10);

    let running = running.restart();
    let lost = retry_until_answered(|| publisher.publish(&level(20, 5)[..]));
    assert!(matches!(&lost, Err(PublishError::StateLost(topic)) if topic == "md.a"), "{lost:?}");
    assert_eq!(running.client().describe_topic("md.a").unwrap().config.reducer, book().reducer);
    until(&mut replica, &|replica, began_anew| began_anew && !replica.is_whole());
    assert_eq!(levels(&replica), 0, "the old state is not shown");

    let receipt = retry_until_answered(|| publisher.publish(&level(30, 5)[..])).unwrap();
    assert!(receipt.new_epoch && receipt.position.seq == 1, "{receipt:?}");
    until(&mut replica, &|replica, _| replica.is_whole() && levels(replica) == 1);
}

#[test]
fn publisher_does_not_recreate_a_state_topic_that_was_lost() {
    let running = RunningNode::with_node(dunlin::Node::start(dunlin::Config::default()).unwrap());
    running.client().create_topic("md.a", &book(), false).unwrap();
    let mut publisher = running.client().publisher("md.a").unwrap();
    publisher.publish(&level(1, 5)[..]).unwrap();
    let running = running.restart_with_defaults();
    let refused = retry_until_answered(|| publisher.publish(&level(2, 5)[..]));
    assert!(matches!(refused, Err(PublishError::NoTopic(_))), "{refused:?}");
    let client = running.client();
    assert!(client.topics("").unwrap().is_empty());
    client.create_topic("md.a", &book(), false).unwrap();
    // The publisher must receive one error: its records refer to a state that the node has lost.
    let refused = retry_until_answered(|| publisher.publish(&level(3, 5)[..]));
    assert!(matches!(refused, Err(PublishError::StateLost(_))), "{refused:?}");
    retry_until_answered(|| publisher.publish(&level(4, 5)[..])).unwrap();
}

#[test]
fn subscriber_does_not_recreate_a_state_topic_that_was_lost() {
    let running = RunningNode::with_node(dunlin::Node::start(dunlin::Config::default()).unwrap());
    running.client().create_topic("md.a", &book(), false).unwrap();
    let running = running.restart_with_defaults();
    let client = running.client();
    let refused =
        client.subscribe("md.a", with_snapshots()).map(|mut reader| reader.next_timeout(PATIENCE).map(drop));
    assert!(matches!(refused, Err(_) | Ok(Err(SubscribeError::NoTopic(_)))), "{refused:?}");
    assert!(client.topics("").unwrap().is_empty());
}

#[test]
fn publisher_is_refused_if_its_state_topic_became_plain() {
    let running = RunningNode::with_node(dunlin::Node::start(dunlin::Config::default()).unwrap());
    running.client().create_topic("md.a", &book(), false).unwrap();
    let mut publisher = running.client().publisher("md.a").unwrap();
    publisher.publish(&level(1, 5)[..]).unwrap();
    let mut reader = running.client().subscribe("md.a", with_snapshots()).unwrap();
    assert!(matches!(reader.next_timeout(PATIENCE), Ok(Some(Event::Notice(Notice::Snapshot(_))))));

    let running = running.restart_with_defaults();
    let _plain = running.client().subscribe("md.a", from_earliest()).unwrap();
    assert_eq!(running.client().describe_topic("md.a").unwrap().config.reducer, None);
    let refused = retry_until_answered(|| publisher.publish(&level(2, 5)[..]));
    assert!(
        matches!(&refused, Err(PublishError::Refused(why)) if why.contains("TOPIC_EXISTS")),
        "{refused:?}"
    );
    let ended = loop {
        match reader.next_timeout(PATIENCE) {
            Ok(Some(Event::Record(record))) => panic!("{:?}", record.position),
            Ok(_) | Err(SubscribeError::Connection(_)) => {}
            Err(ended) => break ended.to_string(),
        }
    };
    assert!(ended.contains("keeps no state"), "{ended}");
}

#[test]
fn publishing_to_a_plain_topic_continues_after_a_restart() {
    let running = RunningNode::with_node(dunlin::Node::start(dunlin::Config::default()).unwrap());
    let client = running.client();
    let mut publisher = client.publisher("t").unwrap();
    publisher.publish("one").unwrap();
    let _running = running.restart_with_defaults();
    let receipt = retry_until_answered(|| publisher.publish("two")).unwrap();
    assert!(receipt.new_epoch && receipt.position.seq == 1, "{receipt:?}");
    assert!(!retry_until_answered(|| publisher.publish("three")).unwrap().new_epoch);
}

#[test]
fn publisher_continues_with_a_recreated_topic() {
    let running = RunningNode::start();
    let client = running.client();
    for config in [TopicConfig::default(), book()] {
        client.create_topic("t", &config, false).unwrap();
        let mut publisher = client.publisher("t").unwrap();
        publisher.publish(&level(1, 1)[..]).unwrap();
        client.delete_topic("t").unwrap();
        client.create_topic("t", &config, false).unwrap();
        let refused = publisher.publish(&level(2, 1)[..]);
        assert!(matches!(refused, Err(PublishError::Closed)), "{refused:?}");
        let receipt = publisher.publish(&level(3, 1)[..]).unwrap();
        assert!(receipt.new_epoch && receipt.position.seq == 1, "{receipt:?}");
        client.delete_topic("t").unwrap();
    }
}

#[test]
fn subscriber_ends_when_its_topic_is_recreated() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("md.a", &book(), false).unwrap();
    client.publisher("md.a").unwrap().publish(&level(1, 5)[..]).unwrap();
    let mut reader = running.client().subscribe("md.a", with_snapshots()).unwrap();
    assert!(matches!(reader.next_timeout(PATIENCE), Ok(Some(Event::Notice(Notice::Snapshot(_))))));
    client.delete_topic("md.a").unwrap();
    client.create_topic("md.a", &book(), false).unwrap();
    client.publisher("md.a").unwrap().publish(&level(2, 5)[..]).unwrap();
    let mut deleted = false;
    let ended = loop {
        match reader.next_timeout(PATIENCE) {
            Ok(Some(Event::Record(record))) => panic!("{:?}", record.position),
            Ok(event) => deleted |= matches!(event, Some(Event::Notice(Notice::Deleted { .. }))),
            Err(ended) => break ended,
        }
    };
    assert!(deleted && matches!(ended, SubscribeError::Closed), "{deleted} {ended:?}");
    // A new subscriber must read the new topic.
    assert_eq!(prices(&client, "md.a", 1), [2]);
}

#[test]
fn replica_of_a_durable_topic_reports_no_fault_after_restarts() {
    for conflate in [false, true] {
        let disk = FakeDisk::new(51);
        let running = RunningNode::with_node(on_disk(&disk));
        let retention = Retention { bytes: 1 << 20, ..Retention::default() };
        let config = TopicConfig { durable: Some(DurableOptions::default()), retention, ..book() };
        running.client().create_topic("md.a", &config, false).unwrap();
        let publish = |node: &dunlin::Node, prices: std::ops::RangeInclusive<i64>| {
            let mut publisher = node.publisher("md.a").unwrap();
            for price in prices {
                publisher.publish(&level(price, 5)[..]).unwrap();
            }
        };
        publish(&running.node, 1..=10);
        let reader = running.client();
        let options = SubscribeOptions { conflate, ..with_snapshots() };
        let subscriber = reader.subscribe("md.a", options).unwrap();
        let mut replica = Replica::new(subscriber, |_| Book::new(Scale::default()));
        let mut faults = Vec::new();
        let mut wait_until_whole = |seq: u64| {
            let deadline = Instant::now() + PATIENCE;
            while !replica.is_whole() || replica.states().all(|(_, at, _)| at.seq < seq) {
                let _ = replica.wait(Some(Duration::from_millis(50)));
                let _ = replica.drain(dunlin::now_ns(), usize::MAX, |report| {
                    if let ReplicaReport::Fault { fault, .. } = report {
                        faults.push(format!("{fault:?}"));
                    }
                });
                assert!(Instant::now() < deadline, "{seq}: {replica:?}");
            }
            assert!(faults.is_empty(), "conflate {conflate}, at {seq}: {faults:?}");
        };
        wait_until_whole(10);
        // The node crashes three times: once while the subscriber is behind, and twice without new records since the
        // last crash.
        let running = running.crash(&disk, |node| publish(node, 11..=15));
        wait_until_whole(15);
        let running = running.crash(&disk, |_| ());
        let running = running.crash(&disk, |_| ());
        publish(&running.node, 16..=16);
        wait_until_whole(16);
        let levels: usize = replica.states().map(|(_, _, book)| book.levels(Side::Bid).count()).sum();
        assert_eq!(levels, 16);
    }
}

fn prices(client: &Client, topic: &str, count: usize) -> Vec<i64> {
    let mut subscriber = client.subscribe(topic, from_earliest()).unwrap();
    let mut prices = Vec::new();
    while prices.len() < count {
        match subscriber.next_timeout(PATIENCE).unwrap().expect("a record is missing") {
            Event::Record(record) => {
                let payload = record.payload();
                prices.push(i64::from_le_bytes(payload[8..16].try_into().unwrap()));
            }
            Event::Notice(notice) => panic!("{notice:?}"),
        }
    }
    prices
}

#[test]
fn refusal_of_one_record_drops_no_other_sent_record() {
    let running = RunningNode::start();
    let client = running.client();
    for (topic, count, bad) in [("few", 5, 2), ("many", 2_000, 1_000)] {
        let config = TopicConfig { retention: Retention::default(), ..book() };
        client.create_topic(topic, &config, false).unwrap();
        let mut publisher = client.publisher(topic).unwrap();
        let mut errors = Vec::new();
        for number in 0..count {
            let size = if number == bad { -4 } else { 1 };
            errors.extend(publisher.send(&level(number, size)[..]).err());
        }
        errors.extend(publisher.flush().err());
        let [PublishError::LeftOut { record, more: 0, why }] = &errors[..] else { panic!("{errors:?}") };
        assert_eq!(*record, bad as u64 + 1);
        assert!(matches!(&**why, PublishError::Reducer { .. }), "{why}");
        publisher.flush().unwrap();
        let expected: Vec<i64> = (0..count).filter(|&number| number != bad).collect();
        assert_eq!(prices(&client, topic, expected.len()), expected);
    }
}

#[test]
fn refused_record_of_an_idle_publisher_drops_no_other_record() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &book(), false).unwrap();
    let quiet = dunlin_client::PublisherOptions { quiet: true, identity: None };
    let mut publisher = client.publisher_with("t", quiet).unwrap();
    for number in 0..5 {
        // A refusal is ignored here, because a later call returns it too.
        let _ = publisher.send(&level(number, if number == 2 { -4 } else { 1 })[..]);
    }
    let _ = publisher.flush();
    assert_eq!(prices(&client, "t", 4), [0, 1, 3, 4]);
}

#[test]
fn publisher_with_option_quiet_gets_receipts_for_its_records() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &book(), false).unwrap();
    let quiet = dunlin_client::PublisherOptions { quiet: true, identity: None };
    let mut publisher = client.publisher_with("t", quiet).unwrap();
    assert_eq!(publisher.publish(&level(0, 1)[..]).unwrap().position.seq, 1);
    let payloads = [level(1, 1), level(2, 1)];
    let drafts: Vec<Draft<'_>> = payloads.iter().map(|payload| Draft::from(&payload[..])).collect();
    assert_eq!(publisher.publish_batch(&drafts).unwrap().position.seq, 3);
    assert_eq!(publisher.publish_expecting(3, &level(3, 1)[..]).unwrap().position.seq, 4);
    let outdated = publisher.publish_expecting(3, &level(4, 1)[..]);
    assert_eq!(outdated, Err(PublishError::SeqMoved { expected: 3, last_seq: 4 }));
    assert_eq!(prices(&client, "t", 4), [0, 1, 2, 3]);
}

#[test]
fn records_sent_again_by_a_producer_are_not_appended_twice() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &TopicConfig::default(), false).unwrap();
    for count in [3, 1_000] {
        let identity = Some(dunlin_client::ProducerIdentity { producer: 77, epoch: 1 });
        let options = dunlin_client::PublisherOptions { quiet: false, identity };
        let mut publisher = client.publisher_with("t", options).unwrap();
        for number in 1..=count {
            publisher.send(&level(number, 1)[..]).unwrap();
        }
        publisher.flush().unwrap();
    }
    assert_eq!(prices(&client, "t", 1_000), (1..=1_000).collect::<Vec<_>>());
    assert_eq!(client.describe_topic("t").unwrap().logs[0].last_seq, 1_000);
}

#[test]
fn batch_is_refused_whole_and_the_bad_record_is_named() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &book(), false).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    let payloads = [level(1, 1), level(2, -1), level(3, 1)];
    let drafts: Vec<Draft<'_>> = payloads.iter().map(|payload| Draft::from(&payload[..])).collect();
    let refused = publisher.publish_batch(&drafts).unwrap_err();
    assert!(matches!(refused, PublishError::Reducer { record: 2, .. }), "{refused:?}");
    assert_eq!(client.describe_topic("t").unwrap().logs[0].last_seq, 0);
}

#[test]
fn sent_record_is_delivered_without_a_flush() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &TopicConfig::default(), false).unwrap();
    let mut subscriber = running.client().subscribe("t", SubscribeOptions::default()).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    for payload in ["one", "two"] {
        publisher.send(payload).unwrap();
        let event = subscriber.next_timeout(PATIENCE).unwrap().expect("the record never left the client");
        assert!(
            matches!(&event, Event::Record(record) if record.payload() == payload.as_bytes()),
            "{event:?}"
        );
    }
}

#[test]
fn slow_subscriber_gets_a_snapshot_or_delta_in_place_of_a_gap() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &book(), false).unwrap();
    let mut publisher = client.publisher("t").unwrap();
    publisher.publish(&level(1, 1)[..]).unwrap();
    let mut subscriber = running.client().subscribe("t", with_snapshots()).unwrap();
    let mut expected_levels = BTreeMap::from([(1, 1)]);
    let (mut subscriber_levels, mut repaired, mut last) = (BTreeMap::from([(1, 1)]), 0, 0);
    let mut size = 1;
    // Publish in rounds, until the log no longer contains all records that the subscriber has still to read.
    for round in 1.. {
        assert!(round < 50, "the subscriber never falls behind");
        for _ in 0..20_000 {
            size += 1;
            expected_levels.insert(1 + size % 50, size);
            publisher.send(&level(1 + size % 50, size)[..]).unwrap();
        }
        let end = publisher.flush().unwrap().unwrap().position.seq;
        let mut gap_pending = false;
        while last < end {
            match subscriber.next_timeout(PATIENCE).unwrap().expect("nothing makes up for the gap") {
                Event::Record(record) => {
                    for entry in record.payload().chunks(24) {
                        let number = |at: usize| i64::from_le_bytes(entry[at..at + 8].try_into().unwrap());
                        subscriber_levels.insert(number(8), number(16));
                    }
                    last = record.seq();
                    repaired += u32::from(std::mem::take(&mut gap_pending));
                }
                Event::Notice(Notice::Snapshot(snapshot)) => {
                    let mut book = Book::new(Scale::default());
                    book.restore(snapshot.position.seq, &snapshot.bytes).unwrap();
                    subscriber_levels =
                        book.levels(Side::Bid).map(|level| (level.price, level.size)).collect();
                    last = snapshot.position.seq;
                    repaired += u32::from(std::mem::take(&mut gap_pending));
                }
                Event::Notice(Notice::Gap(_)) => gap_pending = true,
                Event::Notice(_) => {}
            }
        }
        assert_eq!(subscriber_levels, expected_levels, "after round {round}");
        if repaired > 0 {
            return;
        }
    }
}
