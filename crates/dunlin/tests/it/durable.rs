//! Tests of durable topics: the topics survive however a node ends, and notify their subscribers of every loss.

mod faults;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dunlin::journal::{Disk, FakeDisk, RealDisk};
use dunlin::topic::*;
use dunlin::{
    Config, Node, NodeLimits, RecoveredTopic, ShareMember, ShareOptions, StorageError, TopicError, WorkEvent,
    WorkOptions, block_on,
};

use crate::{all, from_earliest};

fn open(disk: &FakeDisk) -> (Node, Vec<RecoveredTopic>) {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Node::open(Config::default(), disk, Path::new("/data")).unwrap()
}

fn durable() -> TopicConfig {
    let durable = DurableOptions { memory_bytes: 64 << 10, ..DurableOptions::default() };
    let retention = Retention { bytes: 1 << 30, ..Retention::default() };
    TopicConfig { durable: Some(durable), retention, ..TopicConfig::default() }
}

fn publish(node: &Node, subject: &str, numbers: std::ops::RangeInclusive<u64>) -> Receipt {
    let mut publisher = node.publisher(subject).unwrap();
    numbers.for_each(|n| publisher.send(&n.to_le_bytes()).unwrap());
    publisher.flush().unwrap().unwrap()
}

/// Subscribes, and reads what is available: the numbers in the records, and the notices of new epochs.
fn read(node: &Node, subject: &str, start: Start) -> (Vec<u64>, Vec<EpochChanged>) {
    let options = SubscribeOptions { start, ..Default::default() };
    read_all(&mut node.subscribe(subject, &options).unwrap())
}

/// Like [`read`], but with an existing subscriber.
fn read_all(subscriber: &mut Subscriber) -> (Vec<u64>, Vec<EpochChanged>) {
    let (mut numbers, mut epochs) = (Vec::new(), Vec::new());
    while let Some(event) = subscriber.try_next().unwrap() {
        match event {
            Event::Record(record) => numbers.push(u64::from_le_bytes(record.payload().try_into().unwrap())),
            Event::Notice(Notice::EpochChanged(changed)) => epochs.push(changed),
            Event::Notice(Notice::Lagging(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    (numbers, epochs)
}

#[test]
fn topic_with_its_records_and_epoch_survives_a_clean_stop() {
    let disk = FakeDisk::new(1);
    let (node, found) = open(&disk);
    assert!(found.is_empty());
    let config = TopicConfig { pattern: Some("a.>".to_owned()), ..durable() };
    node.create_topic("a", config.clone(), false).unwrap();
    let receipt = publish(&node, "a.x", 1..=1_000);
    assert_eq!((receipt.position.seq, receipt.acknowledged), (1_000, AckLevel::Synced));
    node.stop();
    drop(node);

    let (node, found) = open(&disk);
    assert_eq!(found.len(), 1);
    assert!(found[0].clean && found[0].remarks.is_empty() && found[0].records == 1_000, "{found:?}");
    let config = TopicConfig { limits: node.config().limits.topic, ..config };
    assert_eq!(**node.topic("a").unwrap().config(), config);
    let next = publish(&node, "a.x", 1_001..=1_010).position;
    assert_eq!(next, Position { seq: 1_010, ..receipt.position }, "the same epoch");
    let (numbers, epochs) = read(&node, "a.x", Start::After(Position { seq: 500, ..next }));
    assert!(numbers.into_iter().eq(501..=1_010) && epochs.is_empty());
    let (numbers, _) = read(&node, "a.x", Start::Earliest);
    assert!(numbers.into_iter().eq(1..=1_010));
}

#[test]
fn crash_loses_no_acknowledged_record_and_ends_the_epoch() {
    for seed in 0..20 {
        let disk = FakeDisk::new(seed);
        let (node, _) = open(&disk);
        node.create_topic("a", durable(), false).unwrap();
        let acked = publish(&node, "a", 1..=100).position;
        let mut publisher = node.publisher("a").unwrap();
        (101..=150).for_each(|n: u64| publisher.send(&n.to_le_bytes()).unwrap());
        disk.crash();
        drop((publisher, node));
        // None of the unsynced records was acknowledged or read. They may have survived, or not.
        let (node, found) = open(&disk);
        assert!(!found[0].clean);
        let kept = found[0].records;
        assert!((100..=150).contains(&kept), "{kept}");
        let next = publish(&node, "a", 1_000..=1_000).position;
        assert!(next.epoch > acked.epoch && next.seq == kept + 1);
        let (numbers, epochs) = read(&node, "a", Start::After(Position { seq: 60, ..acked }));
        assert!(numbers.into_iter().eq((61..=kept).chain([1_000])));
        let changed = &epochs[0];
        assert_eq!((changed.old, changed.last_seen, changed.known_through), (acked.epoch, kept, Some(kept)));
        assert_eq!(changed.new_first, next);
    }
}

#[test]
fn restarts_without_new_records_report_no_loss() {
    for records in [0, 10] {
        let disk = FakeDisk::new(21 + records);
        let (mut node, _) = open(&disk);
        node.create_topic("a", durable(), false).unwrap();
        let epoch = node.topic("a").unwrap().logs()[0].last().epoch;
        if records > 0 {
            publish(&node, "a", 1..=records);
        }
        let mut seen = vec![Position { epoch, seq: records }];
        for ends_well in [false, false, true, false] {
            if ends_well {
                node.stop();
            } else {
                disk.crash();
            }
            drop(node);
            node = open(&disk).0;
            for &after in &seen {
                let (numbers, epochs) = read(&node, "a", Start::After(after));
                let known: Vec<_> = epochs.iter().map(|changed| changed.known_through).collect();
                assert!(numbers.is_empty() && known == [Some(records)], "{after:?}: {epochs:?}");
                assert_eq!(epochs[0].new_first.seq, records + 1);
            }
            let here = node.topic("a").unwrap().logs()[0].last();
            assert!(here.epoch > seen[seen.len() - 1].epoch && here.seq == records, "{here:?}");
            seen.push(here);
        }
        let next = publish(&node, "a", 1..=1).position;
        for after in seen {
            let (numbers, epochs) = read(&node, "a", Start::After(after));
            let changed = epochs.iter().all(|changed| changed.known_through == Some(records));
            assert!(changed && numbers == [1] && next.seq == records + 1, "{after:?}: {epochs:?}");
        }
        // A subscriber may have read more records of an epoch than have survived. It is told that the epoch's last
        // record is unknown.
        let (_, epochs) = read(&node, "a", Start::After(Position { epoch: epoch + 1, seq: records + 7 }));
        assert_eq!((epochs[0].last_seen, epochs[0].known_through), (records + 7, None));
    }
}

#[test]
fn retry_after_a_crash_returns_the_original_position() {
    let disk = FakeDisk::new(3);
    let mark = |producer_seq| ProducerMark { producer: 77, producer_epoch: 2, producer_seq };
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    let mut publisher = node.publisher("a").unwrap().with_producer(mark(1));
    (1..=50u64).for_each(|n| publisher.send(&n.to_le_bytes()).unwrap());
    let first = publisher.flush().unwrap().unwrap().position;
    disk.crash();
    drop((publisher, node));
    let (node, _) = open(&disk);
    let mut retrying = node.publisher("a").unwrap().with_producer(mark(50));
    let retried = retrying.publish(&50u64.to_le_bytes()).unwrap();
    assert_eq!((retried.duplicate, retried.position), (true, first));
    assert!(!retrying.publish(&51u64.to_le_bytes()).unwrap().duplicate);
    assert!(read(&node, "a", Start::Earliest).0.into_iter().eq(1..=51));
}

/// In this test, the producer's records are not in the log's last epoch, but in an earlier one.
#[test]
fn retry_after_two_restarts_returns_the_original_position() {
    let disk = FakeDisk::new(10);
    let mark = |producer_seq| ProducerMark { producer: 77, producer_epoch: 2, producer_seq };
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    let mut publisher = node.publisher("a").unwrap().with_producer(mark(1));
    (1..=50u64).for_each(|n| publisher.send(&n.to_le_bytes()).unwrap());
    let first = publisher.flush().unwrap().unwrap().position;
    disk.crash();
    drop((publisher, node));
    let (node, _) = open(&disk);
    assert!(publish(&node, "a", 51..=51).position.epoch > first.epoch);
    node.stop();
    drop(node);
    let (node, _) = open(&disk);
    let mut retrying = node.publisher("a").unwrap().with_producer(mark(50));
    let retried = retrying.publish(&50u64.to_le_bytes()).unwrap();
    assert_eq!((retried.duplicate, retried.position), (true, first));
    assert!(read(&node, "a", Start::Earliest).0.into_iter().eq(1..=51));
}

#[test]
fn groups_deliver_each_record_with_its_own_epoch() {
    let disk = FakeDisk::new(11);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    let first = publish(&node, "a", 1..=1).position;
    disk.crash();
    drop(node);
    let (node, _) = open(&disk);
    let second = publish(&node, "a", 2..=2).position;
    assert!(second.epoch > first.epoch);

    let start = Start::Earliest;
    let mut worker = node.join_work("a", "w", &WorkOptions { start, ..WorkOptions::default() }).unwrap();
    let mut claim = || loop {
        match worker.claim_one(Some(Duration::ZERO)).unwrap() {
            Some(WorkEvent::ClaimedRecord(claimed)) => return claimed.record().position,
            Some(WorkEvent::Notice(_)) => {}
            None => panic!("no record"),
        }
    };
    assert_eq!([claim(), claim()], [first, second]);

    let options = ShareOptions { start, ..ShareOptions::default() };
    let join = || node.join_share_with_waiter("a", "s", &options, (Waiter::new(), 0)).unwrap();
    let next = |member: &mut ShareMember| loop {
        match member.try_next().unwrap() {
            Some(Event::Record(record)) => return record.position,
            Some(Event::Notice(_)) => {}
            None => panic!("no record"),
        }
    };
    let (mut leaves, mut stays) = (join(), join());
    assert_eq!([next(&mut leaves), next(&mut stays)], [first, second]);
    leaves.leave_unconsumed();
    assert_eq!(next(&mut stays), first, "the record that another member has returned");
}

#[test]
fn deleted_topic_stays_deleted_and_its_name_gets_a_new_epoch() {
    let disk = FakeDisk::new(4);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    node.create_topic("b", durable(), false).unwrap();
    let old = publish(&node, "a", 1..=10).position;
    publish(&node, "b", 1..=10);
    let mut reader = node.subscribe("a", &from_earliest()).unwrap();
    node.delete_topic("a").unwrap();
    assert!(reader.wait(Some(dunlin_wait::PATIENCE)).unwrap());
    assert!(all(&mut reader).ends_with(&["a deleted".to_owned()]));
    disk.crash();
    drop((reader, node));
    let (node, found) = open(&disk);
    assert_eq!(found.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["b"]);
    node.create_topic("a", durable(), false).unwrap();
    let new = publish(&node, "a", 1..=1).position;
    assert!(new.epoch > old.epoch && new.seq == 1);
    let (numbers, epochs) = read(&node, "a", Start::After(old));
    assert_eq!((numbers.len(), epochs.len(), epochs[0].known_through), (1, 1, None));
}

/// The test deletes the topic for dead letters, so that the group has to create it again for a letter. The new topic
/// must be durable, too.
#[test]
fn dead_letters_of_a_durable_topic_survive_a_restart() {
    let disk = FakeDisk::new(30);
    let (node, _) = open(&disk);
    node.create_topic("jobs", durable(), false).unwrap();
    publish(&node, "jobs", 1..=1);
    let options = WorkOptions { start: Start::Earliest, attempts_max: 1, ..WorkOptions::default() };
    let mut member = node.join_work("jobs", "g", &options).unwrap();
    assert_eq!(node.topic("dead.jobs").unwrap().config().durable, durable().durable);
    node.delete_topic("dead.jobs").unwrap();
    match member.claim_one(Some(dunlin_wait::PATIENCE)).unwrap() {
        Some(WorkEvent::ClaimedRecord(claimed)) => member.nack(claimed.token, Duration::ZERO).unwrap(),
        other => panic!("{other:?}"),
    }
    dunlin_wait::until("the letter is stored", || {
        node.tick();
        node.groups(&node.topic("jobs").unwrap()).remove(0).pending_dead_letters == 0
    });
    drop(member);
    node.stop();
    drop(node);
    let (node, _) = open(&disk);
    assert_eq!(read(&node, "dead.jobs", Start::Earliest).0, [1]);
}

#[test]
fn deleted_dead_letter_topic_is_recreated_before_a_member_joins() {
    let (node, _) = open(&FakeDisk::new(31));
    let options = WorkOptions::default();
    node.create_topic("jobs", durable(), false).unwrap();
    let _member = node.join_work("jobs", "g", &options).unwrap();
    for topic in ["jobs", "dead.jobs"] {
        node.delete_topic(topic).unwrap();
    }
    node.create_topic("jobs", durable(), false).unwrap();
    block_on(node.prepare_work("jobs", "g", &options)).unwrap();
    assert!(node.topic("dead.jobs").is_some(), "the join need not wait for this topic's disk");
}

#[test]
fn deleted_topic_frees_its_memory_despite_unsent_dead_letters() {
    let limits = NodeLimits { deleted_age_max: Duration::from_millis(50), ..NodeLimits::default() };
    let config = Config { limits, auto_create: false, ..Config::default() };
    let (node, _) = Node::open(config, Arc::new(FakeDisk::new(21)), Path::new("/data")).unwrap();
    node.create_topic("jobs", durable(), false).unwrap();
    node.create_topic("dead.jobs", TopicConfig::default(), false).unwrap();
    publish(&node, "jobs", 1..=1);
    let options = WorkOptions { start: Start::Earliest, attempts_max: 1, ..WorkOptions::default() };
    let mut member = node.join_work("jobs", "g", &options).unwrap();
    node.delete_topic("dead.jobs").unwrap();
    let Some(WorkEvent::ClaimedRecord(claimed)) = member.claim_one(Some(dunlin_wait::PATIENCE)).unwrap()
    else {
        panic!("no claim");
    };
    member.nack(claimed.token, Duration::ZERO).unwrap();
    let topic = {
        let topic = node.topic("jobs").unwrap();
        assert_eq!(node.groups(&topic)[0].pending_dead_letters, 1);
        Arc::downgrade(&topic)
    };
    member.leave();
    node.delete_topic("jobs").unwrap();
    dunlin_wait::until("the topic is freed", || {
        node.tick();
        topic.upgrade().is_none()
    });
}

#[test]
fn stored_bytes_stay_bounded_and_removed_records_become_gaps() {
    let disk = FakeDisk::new(7);
    let (node, _) = open(&disk);
    let retention = Retention { bytes: 512 << 10, ..Retention::default() };
    node.create_topic("a", TopicConfig { retention, ..durable() }, false).unwrap();
    let mut reader = node.subscribe("a", &from_earliest()).unwrap();
    let mut publisher = node.publisher("a").unwrap();
    for _ in 0..50 {
        (0..100).for_each(|_| publisher.send(&[1; 500]).unwrap());
        publisher.flush().unwrap();
    }
    let before = node.topic("a").unwrap().logs()[0].info();
    assert!(before.stored.unwrap().bytes < 1 << 20 && before.oldest_seq > 1_000, "{before:?}");
    let (mut records, mut missing) = (0, 0);
    while let Some(event) = reader.try_next().unwrap() {
        match event {
            Event::Record(_) => records += 1,
            Event::Notice(Notice::Gap(gap)) => missing += gap.records(),
            _ => {}
        }
    }
    // Read the log's position again: the log may have dropped another segment while the subscriber read.
    let after = node.topic("a").unwrap().logs()[0].info();
    assert_eq!(records + missing, 5_000);
    assert!((before.oldest_seq - 1..after.oldest_seq).contains(&missing), "{missing} of {after:?}");
}

#[test]
fn topic_state_survives_a_crash_despite_retention_by_size() {
    check_kept_state(Retention { bytes: 256 << 10, ..Retention::default() });
}

#[test]
fn topic_state_survives_a_crash_despite_retention_by_age() {
    let age = Some(Duration::from_nanos(1));
    check_kept_state(Retention { bytes: 2 << 20, age, ..Retention::default() });
}

fn check_kept_state(retention: Retention) {
    let disk = FakeDisk::new(8);
    let reducer = ReducerConfig { kind: "last".to_owned(), options: Default::default() };
    let config = TopicConfig { retention, reducer: Some(reducer), ..durable() };
    let (node, _) = open(&disk);
    node.create_topic("a", config, false).unwrap();
    let mut publisher = node.publisher("a").unwrap();
    for n in 0..4_000u64 {
        // Set keys 0 to 9 only once, at the beginning, and the others again and again.
        let key = if n < 10 { n } else { 10 + n % 50 };
        let mut draft = Draft::from(&[5u8; 200]);
        let key = key.to_le_bytes();
        draft.meta.key = Some(&key);
        publisher.send(draft).unwrap();
        if n % 100 == 99 {
            publisher.flush().unwrap();
        }
    }
    let (_, before) = node.topic("a").unwrap().logs()[0].state_info().unwrap();
    assert_eq!(before.entries, 60);
    assert!(node.topic("a").unwrap().logs()[0].info().oldest_seq > 10, "no record was dropped");
    disk.crash();
    drop((publisher, node));
    let (node, _) = open(&disk);
    let (_, after) = node.topic("a").unwrap().logs()[0].state_info().unwrap();
    assert_eq!((after.entries, after.checksum), (60, before.checksum));
}

#[test]
fn damaged_saved_state_is_refused_with_advice() {
    let disk = FakeDisk::new(10);
    let reducer = ReducerConfig { kind: "last".to_owned(), options: Default::default() };
    let retention = Retention { bytes: 256 << 10, ..Retention::default() };
    let (node, _) = open(&disk);
    node.create_topic("a", TopicConfig { retention, reducer: Some(reducer), ..durable() }, false).unwrap();
    node.create_topic("b", durable(), false).unwrap();
    let mut publisher = node.publisher("a").unwrap();
    for n in 0..4_000u64 {
        let key = (n % 50).to_le_bytes();
        let mut draft = Draft::from(&[5u8; 200]);
        draft.meta.key = Some(&key);
        publisher.send(draft).unwrap();
        if n % 100 == 99 {
            publisher.flush().unwrap();
        }
    }
    drop(publisher);
    node.stop();
    drop(node);
    let dir = Path::new("/data/logs/00000001-0");
    let names = disk.list(dir).unwrap();
    let snapshot = names.iter().find(|name| name.ends_with(".snapshot")).expect("a state was saved");
    disk.open(&dir.join(snapshot), true).unwrap().write_at(&[b"damaged"], 50).unwrap();
    let (node, found) = open(&disk);
    let why = found.iter().find_map(|topic| topic.refused.clone()).expect("the topic is refused");
    assert!(why.contains(".snapshot") && why.contains("dunlin topics delete a"), "{why}");
    assert_eq!(publish(&node, "b", 1..=3).position.seq, 3, "the other topic is served");
}

#[test]
fn data_directory_in_use_is_refused() {
    let disk = FakeDisk::new(9);
    let (_node, _) = open(&disk);
    let reopened = Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data"));
    assert!(matches!(reopened, Err(StorageError::InUse(_))));
}

#[test]
fn durable_topic_without_a_data_directory_is_refused() {
    let refused = crate::node().create_topic("a", durable(), false).unwrap_err();
    assert_eq!(refused, TopicError::NoDataDir);
    assert!(refused.to_string().contains("--data-dir"));
}

#[test]
fn records_of_three_partitions_survive_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let config = TopicConfig { partitions: 3, ..durable() };
    let open = || Node::open(Config::default(), Arc::new(RealDisk), dir.path()).unwrap();
    let (node, _) = open();
    node.create_topic("a", config, false).unwrap();
    let mut publisher = node.publisher("a").unwrap();
    let payload = |n: u32| bytes::Bytes::from(vec![n as u8; 100 * n as usize]);
    for n in 0..200u32 {
        let key = n.to_le_bytes();
        let mut draft = Draft::from(payload(n));
        draft.meta.key = Some(&key);
        publisher.send(draft).unwrap();
    }
    publisher.flush().unwrap();
    drop(publisher);
    node.stop();
    drop(node);
    let (node, found) = open();
    assert_eq!(found[0].records, 200);
    let mut reader = node.subscribe("a", &from_earliest()).unwrap();
    let mut seen = Vec::new();
    while let Some(Event::Record(record)) = reader.try_next().unwrap() {
        let n = u32::from_le_bytes(record.frame.key().unwrap().try_into().unwrap());
        assert_eq!(record.payload(), payload(n));
        seen.push(n);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..200));
    node.delete_topic("a").unwrap();
    node.stop();
    drop((reader, node));
    assert_eq!(std::fs::read_dir(dir.path().join("logs")).unwrap().count(), 0);
}
