//! Tests of durable topics whose disk is full or fails, and of nodes that lack file descriptors.

use dunlin::Refused;
use dunlin::journal::Faults;
use dunlin::wire::ErrorCode;

use super::*;

#[test]
fn publish_to_a_full_disk_is_refused_and_loses_no_record() {
    let disk = FakeDisk::new(5);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    publish(&node, "a", 1..=10);
    disk.set_capacity(disk.used() + 200_000);
    let mut publisher = node.publisher("a").unwrap();
    let mut last_seq = 10;
    let refused = loop {
        match publisher.publish(&[7; 5_000]) {
            Ok(receipt) => last_seq = receipt.position.seq,
            Err(refused) => break refused,
        }
        assert!(last_seq < 200, "the disk never fills up");
    };
    assert!(matches!(refused, PublishError::DiskFull(_)), "{refused}");
    assert_eq!(refused.to_string().matches("the disk is full").count(), 1, "{refused}");
    let info = node.topic("a").unwrap().logs()[0].info();
    assert_eq!(
        (info.next_seq, info.stored.unwrap().synced_seq),
        (last_seq + 1, last_seq),
        "refused before numbering"
    );
    disk.set_capacity(u64::MAX);
    let position = dunlin_wait::find("there is room", || match publisher.publish(&[8; 5_000]) {
        Ok(receipt) => Some(receipt.position),
        Err(PublishError::DiskFull(_)) => None,
        Err(other) => panic!("{other}"),
    });
    assert_eq!(position.seq, last_seq + 1);
}

/// In this test, the disk becomes full after the topics were created and opened. A topic has no file for its present
/// epoch before the epoch's first record.
#[test]
fn first_record_on_a_full_disk_is_refused() {
    let disk = FakeDisk::new(13);
    let (node, _) = open(&disk);
    for topic in ["a", "b"] {
        node.create_topic(topic, durable(), false).unwrap();
    }
    publish(&node, "a", 1..=1);
    disk.crash();
    drop(node);
    let (node, _) = open(&disk);
    node.create_topic("c", durable(), false).unwrap();
    let next_seq = |topic: &str| node.topic(topic).unwrap().logs()[0].info().next_seq;
    let next_seqs = ["a", "b", "c"].map(|topic| (topic, next_seq(topic)));
    // The remaining space is enough for the record, but not for a new file.
    disk.set_capacity(disk.used() + 1_000);
    for (topic, _) in next_seqs {
        let refused = node.publisher(topic).unwrap().publish("x").unwrap_err();
        assert!(matches!(refused, PublishError::DiskFull(_)), "{topic}: {refused}");
    }
    disk.set_capacity(u64::MAX);
    for (topic, next_seq) in next_seqs {
        let mut publisher = node.publisher(topic).unwrap();
        let position = dunlin_wait::find("there is room", || match publisher.publish("x") {
            Ok(receipt) => Some(receipt.position),
            Err(PublishError::DiskFull(_)) => None,
            Err(other) => panic!("{other}"),
        });
        assert_eq!(position.seq, next_seq, "{topic}: refused before numbering");
    }
}

/// A group does not wait when it appends a letter. But the disk reserves room for a topic only if a publisher waits for
/// this room, so the group has to register as a waiting publisher does.
#[test]
fn dead_letter_is_stored_when_the_disk_is_no_longer_full() {
    let disk = FakeDisk::new(14);
    let (node, _) = open(&disk);
    node.create_topic("jobs", TopicConfig::default(), false).unwrap();
    node.create_topic("dead.jobs", durable(), false).unwrap();
    node.publisher("jobs").unwrap().publish("x").unwrap();
    let options = WorkOptions { start: Start::Earliest, attempts_max: 1, ..WorkOptions::default() };
    let mut member = node.join_work("jobs", "g", &options).unwrap();
    disk.set_capacity(disk.used() + 1_000);
    match member.claim_one(Some(dunlin_wait::PATIENCE)).unwrap() {
        Some(WorkEvent::ClaimedRecord(claimed)) => member.nack(claimed.token, Duration::ZERO).unwrap(),
        other => panic!("{other:?}"),
    }
    let pending = || node.groups(&node.topic("jobs").unwrap()).remove(0).pending_dead_letters;
    assert_eq!(pending(), 1);
    disk.set_capacity(u64::MAX);
    dunlin_wait::until("the letter is stored", || {
        node.tick();
        pending() == 0
    });
    assert_eq!(node.topic("dead.jobs").unwrap().logs()[0].info().stored.unwrap().synced_seq, 1);
}

/// In this test, the topic may append more than the disk has room for now. It accepts a record, which waits until there
/// is room.
#[test]
fn topic_is_no_longer_full_after_its_waiting_record_is_stored() {
    let disk = FakeDisk::new(11);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    publish(&node, "a", 1..=10);
    disk.set_capacity(disk.used());
    let mut publisher = node.publisher("a").unwrap();
    publisher.send(&vec![7; 1 << 20][..]).unwrap();
    let stored = || node.topic("a").unwrap().logs()[0].info().stored.unwrap();
    dunlin_wait::until("the disk is full", || stored().full);
    disk.set_capacity(u64::MAX);
    dunlin_wait::until("the record is stored", || stored().synced_seq == 11);
    dunlin_wait::until("the topic has room", || !stored().full);
}

#[test]
fn node_has_room_again_when_its_only_full_topic_is_deleted() {
    let disk = FakeDisk::new(12);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    publish(&node, "a", 1..=10);
    disk.set_capacity(disk.used());
    node.publisher("a").unwrap().send(&vec![7; 1 << 20][..]).unwrap();
    dunlin_wait::until("the node has no room", || node.lacks_room().is_some());
    node.delete_topic("a").unwrap();
    dunlin_wait::until("the node has room", || node.lacks_room().is_none());
}

#[test]
fn durable_topic_is_created_when_a_full_disk_has_room_again() {
    let disk = FakeDisk::new(9);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    publish(&node, "a", 1..=1);
    disk.set_capacity(disk.used());
    let refused = node.create_topic("b", durable(), false).unwrap_err();
    assert!(matches!(refused, TopicError::DiskFull(_)), "{refused}");
    assert_eq!(Refused::from(&refused).code, ErrorCode::DiskFull);
    let refused = PublishError::from(refused);
    assert!(matches!(refused, PublishError::DiskFull(_)), "an embedded publisher: {refused}");
    assert!(node.topic("b").is_none());
    disk.set_capacity(u64::MAX);
    node.create_topic("b", durable(), false).unwrap();
    assert_eq!(publish(&node, "b", 1..=1).position.seq, 1);
}

#[test]
fn topics_cannot_use_file_descriptors_kept_for_the_node() {
    let disk = FakeDisk::new(22);
    disk.set_open_files_max(100);
    let limits = NodeLimits { reserved_files: 90, ..NodeLimits::default() };
    let config = Config { limits, ..Config::default() };
    let (node, _) = Node::open(config, Arc::new(disk.clone()), Path::new("/data")).unwrap();
    // Durable topics may use half of the limit: 50 files, enough for 25 logs.
    node.create_topic("wide", TopicConfig { partitions: 24, ..durable() }, false).unwrap();
    node.create_topic("a", durable(), false).unwrap();
    let refused = node.create_topic("b", durable(), false).unwrap_err();
    assert!(matches!(refused, TopicError::OpenFiles { limit: 100, .. }), "{refused}");
    assert!(refused.to_string().contains("ulimit -n"), "{refused}");
    let refused = Refused::from(&refused);
    assert_eq!((refused.code, refused.numbers), (ErrorCode::Limit, [100, 0, 0]));
    node.create_topic("a", durable(), true).unwrap();
    node.create_topic("volatile", TopicConfig::default(), false).unwrap();
    node.delete_topic("a").unwrap();
    node.create_topic("b", durable(), false).unwrap();
}

#[test]
fn topic_refused_for_lack_of_file_descriptors_is_created_later() {
    let disk = FakeDisk::new(23);
    let (node, _) = open(&disk);
    let opens_fail = Faults { opens_fail: true, ..Faults::default() };
    let creates_fail = Faults { creates_fail: true, ..Faults::default() };
    for lacking in [opens_fail, creates_fail] {
        disk.set_faults(lacking);
        let refused = node.create_topic("a", durable(), false).unwrap_err();
        assert!(matches!(refused, TopicError::OpenFiles { .. }), "{refused}");
        assert_eq!(Refused::from(&refused).code, ErrorCode::Limit);
        let refused = PublishError::from(refused);
        assert_eq!(Refused::from(&refused).code, ErrorCode::Limit, "an embedded publisher: {refused}");
        assert!(node.topic("a").is_none());
    }
    disk.set_faults(Faults::default());
    node.create_topic("a", durable(), false).unwrap();
    assert_eq!(publish(&node, "a", 1..=1).position.seq, 1);
}

/// In this test, the log has no file yet, because it has no record. Its first record needs a new file.
#[test]
fn lack_of_file_descriptors_is_not_reported_as_a_full_disk() {
    let disk = FakeDisk::new(32);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    let mut publisher = node.publisher("a").unwrap();
    disk.set_faults(Faults { opens_fail: true, creates_fail: true, ..Faults::default() });
    publisher.send(b"x").unwrap();
    let why = dunlin_wait::find("the shortage is reported", || node.lacks_room());
    assert!(why.contains("file descriptors") && !why.contains("room"), "{why}");
    assert!(!node.topic("a").unwrap().logs()[0].info().stored.unwrap().full);
    publisher.send(b"y").expect("publishers are not refused");
    disk.set_faults(Faults::default());
    assert_eq!(publisher.flush().unwrap().unwrap().position.seq, 2);
    dunlin_wait::until("the shortage has ended", || node.lacks_room().is_none());
}

#[test]
fn node_start_without_file_descriptors_fails_and_loses_no_topic() {
    let disk = FakeDisk::new(24);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    let last = publish(&node, "a", 1..=10).position;
    node.stop();
    drop(node);
    let opens_fail = Faults { opens_fail: true, ..Faults::default() };
    let creates_fail = Faults { creates_fail: true, ..Faults::default() };
    for lacking in [opens_fail, creates_fail] {
        disk.set_faults(lacking);
        let failed = Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).err();
        assert!(failed.as_ref().is_some_and(StorageError::lacks_resource), "{failed:?}");
    }
    disk.set_faults(Faults::default());
    let (node, found) = open(&disk);
    assert!(found[0].clean && found[0].refused.is_none(), "{found:?}");
    assert_eq!(publish(&node, "a", 11..=11).position, Position { seq: 11, ..last });
}

#[test]
fn failed_sync_stops_only_the_topic_of_the_failed_file() {
    let disk = FakeDisk::new(6);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    node.create_topic("b", durable(), false).unwrap();
    publish(&node, "a", 1..=10);
    publish(&node, "b", 1..=10);
    disk.set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
    let failed = node.publisher("a").unwrap().publish("x").unwrap_err();
    assert!(matches!(failed, PublishError::DiskFailed(_)), "{failed}");
    disk.set_faults(Faults::default());
    assert!(matches!(node.publisher("a").unwrap().publish("y"), Err(PublishError::DiskFailed(_))));
    assert_eq!(publish(&node, "b", 11..=20).position.seq, 20);
    assert!(read(&node, "a", Start::Earliest).0.into_iter().eq(1..=10), "stored records stay readable");
}

#[test]
fn subscriber_gets_all_records_if_the_search_by_time_fails() {
    let disk = FakeDisk::new(13);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    publish(&node, "a", 1..=5_000);
    disk.set_faults(Faults { opens_fail: true, ..Faults::default() });
    let options = SubscribeOptions { start: Start::Time(1), ..Default::default() };
    let mut subscriber = node.subscribe("a", &options).unwrap();
    disk.set_faults(Faults::default());
    let (numbers, _) = read_all(&mut subscriber);
    assert!(numbers.iter().copied().eq(1..=5_000), "{} records", numbers.len());
}

#[test]
fn reader_waits_for_file_descriptors_and_skips_no_record() {
    let disk = FakeDisk::new(14);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    publish(&node, "a", 1..=5_000);
    node.stop();
    drop(node);
    // After this start, the records are only on disk, not in memory.
    let (node, _) = open(&disk);
    let mut subscriber = node.subscribe("a", &from_earliest()).unwrap();
    disk.set_faults(Faults { opens_fail: true, ..Faults::default() });
    assert!(read_all(&mut subscriber).0.is_empty());
    disk.set_faults(Faults::default());
    let mut numbers = Vec::new();
    while numbers.len() < 5_000 {
        assert!(subscriber.wait(Some(dunlin_wait::PATIENCE)).unwrap(), "{} records", numbers.len());
        numbers.extend(read_all(&mut subscriber).0);
    }
    assert!(numbers.into_iter().eq(1..=5_000));
}

#[test]
fn redelivery_without_file_descriptors_loses_no_record() {
    let disk = FakeDisk::new(15);
    // With this limit, only the records that were loaded last stay in memory.
    let limits = NodeLimits { loaded_bytes_max: 1, ..NodeLimits::default() };
    let open = || {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Node::open(Config { limits: limits.clone(), ..Config::default() }, disk, Path::new("/data"))
            .unwrap()
            .0
    };
    let node = open();
    node.create_topic("a", durable(), false).unwrap();
    let mut publisher = node.publisher("a").unwrap();
    // Write many blocks, so that the first and the last record are not loaded together.
    for _ in 0..100 {
        (0..10).for_each(|_| publisher.send(&[1; 10_000]).unwrap());
        publisher.flush().unwrap();
    }
    drop(publisher);
    node.stop();
    drop(node);

    let node = open();
    let claim = Duration::from_secs(3_600);
    let options = WorkOptions { start: Start::Earliest, claim, ..WorkOptions::default() };
    let mut member = node.join_work("a", "g", &options).unwrap();
    let mut first = None;
    for seq in 1..=1_000 {
        let Some(WorkEvent::ClaimedRecord(claimed)) = member.claim_one(Some(dunlin_wait::PATIENCE)).unwrap()
        else {
            panic!("no claim of record {seq}");
        };
        match first {
            None => first = Some(claimed.token),
            Some(_) => member.ack(claimed.token).unwrap(),
        }
    }
    disk.set_faults(Faults { opens_fail: true, ..Faults::default() });
    member.nack(first.unwrap(), Duration::ZERO).unwrap();
    let events = member.claim(1).unwrap();
    assert!(events.is_empty(), "{events:?}");
    disk.set_faults(Faults::default());
    match member.claim_one(Some(dunlin_wait::PATIENCE)).unwrap() {
        Some(WorkEvent::ClaimedRecord(claimed)) => {
            assert_eq!((claimed.record().seq(), claimed.attempt), (1, 2))
        }
        other => panic!("{other:?} instead of record 1"),
    }
}
