//! Tests of files that were lost from the data directory: the node reports the loss to the operator and to subscribers,
//! and other topics are not affected.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use dunlin::journal::{Disk, FakeDisk, RealDisk};
use dunlin::topic::{
    DurableOptions, EpochChanged, Event, LossCause, Notice, Position, Publish, Retention, Start, Subscribe,
    SubscribeOptions, TopicConfig,
};
use dunlin::{Config, Node, RecoveredTopic, TopicError};
use dunlin_wait::PATIENCE;

const RECORDS: u64 = 3_000;

fn open(disk: &FakeDisk) -> (Node, Vec<RecoveredTopic>) {
    Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).unwrap()
}

/// The configuration of a durable topic. The records of a test fill several files of its log.
fn durable() -> TopicConfig {
    let retention = Retention { bytes: 1 << 20, ..Retention::default() };
    TopicConfig { durable: Some(DurableOptions::default()), retention, ..TopicConfig::default() }
}

fn publish(node: &Node, subject: &str, numbers: std::ops::RangeInclusive<u64>) -> Position {
    let mut publisher = node.publisher(subject).unwrap();
    let mut last = None;
    for n in numbers {
        let mut payload = [0; 100];
        payload[..8].copy_from_slice(&n.to_le_bytes());
        publisher.send(&payload).unwrap();
        if n % 100 == 0 {
            last = publisher.flush().unwrap().or(last);
        }
    }
    publisher.flush().unwrap().or(last).unwrap().position
}

/// Reads what topic `a` has after a position: the numbers in the records, the ranges of gaps, and the notices of new
/// epochs.
fn read(node: &Node, after: Position) -> (Vec<u64>, Vec<(u64, u64)>, Vec<EpochChanged>) {
    let (mut numbers, mut gaps, mut epochs) = (Vec::new(), Vec::new(), Vec::new());
    let options = SubscribeOptions { start: Start::After(after), ..SubscribeOptions::default() };
    let mut subscriber = node.subscribe("a", &options).unwrap();
    while let Some(event) = subscriber.try_next().unwrap() {
        match event {
            Event::Record(record) => {
                numbers.push(u64::from_le_bytes(record.payload()[..8].try_into().unwrap()));
            }
            Event::Notice(Notice::Gap(gap)) => gaps.push((gap.first, gap.last)),
            Event::Notice(Notice::EpochChanged(changed)) => epochs.push(changed),
            _ => {}
        }
    }
    (numbers, gaps, epochs)
}

fn log_files(disk: &FakeDisk) -> Vec<PathBuf> {
    let dir = Path::new("/data/logs/00000001-0");
    let mut names = disk.list(dir).unwrap();
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    names.into_iter().map(|name| dir.join(name)).collect()
}

fn remove_file(disk: &FakeDisk, path: &Path) {
    disk.remove(path).unwrap();
    disk.sync_dir(path.parent().unwrap()).unwrap();
}

/// Checks that every number from `after` + 1 to `last` was either read or in a gap, and not both.
fn assert_complete(numbers: &[u64], gaps: &[(u64, u64)], after: u64, last: u64) {
    let mut all: Vec<u64> = numbers.to_vec();
    gaps.iter().for_each(|&(first, last)| all.extend(first..=last));
    all.sort_unstable();
    assert!(all.iter().copied().eq(after + 1..=last), "{gaps:?} of {after}..={last}");
}

#[test]
fn missing_last_log_file_is_reported_as_an_exact_gap() {
    let disk = FakeDisk::new(31);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    let last = publish(&node, "a", 1..=RECORDS);
    node.stop();
    drop(node);
    let files = log_files(&disk);
    assert!(files.len() > 2, "{files:?}");
    remove_file(&disk, files.last().unwrap());

    let (node, found) = open(&disk);
    assert!(!found[0].clean && found[0].remarks.iter().any(|remark| remark.contains("lost")), "{found:?}");
    let (numbers, gaps, epochs) = read(&node, Position { seq: 10, ..last });
    assert_complete(&numbers, &gaps, 10, RECORDS);
    assert_eq!(gaps.len(), 1);
    assert_eq!((epochs[0].old, epochs[0].known_through), (last.epoch, Some(RECORDS)));
    // A subscriber that had read everything misses no record, and receives none twice.
    let (numbers, gaps, epochs) = read(&node, last);
    assert!(numbers.is_empty() && gaps.is_empty());
    assert_eq!((epochs[0].last_seen, epochs[0].known_through), (RECORDS, Some(RECORDS)));
    assert!(epochs[0].new_first.epoch > last.epoch && epochs[0].new_first.seq == RECORDS + 1);
    assert_eq!(publish(&node, "a", 1..=1), epochs[0].new_first);
}

/// The number of records that the node counts as lost to damage.
fn damaged_records(node: &Node) -> u64 {
    node.losses()
        .into_iter()
        .filter(|totals| totals.cause == LossCause::Damaged)
        .map(|totals| totals.records)
        .sum()
}

#[test]
fn records_of_a_missing_file_are_counted_once_as_lost() {
    let disk = FakeDisk::new(37);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    let last = publish(&node, "a", 1..=RECORDS);
    node.stop();
    drop(node);
    remove_file(&disk, log_files(&disk).last().unwrap());
    let (node, _) = open(&disk);
    let at_start = damaged_records(&node);
    let reports = node.take_losses();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!((&*reports[0].log.topic, reports[0].last, reports[0].records), ("a", Some(RECORDS), at_start));
    for _ in 0..2 {
        let (_, gaps, _) = read(&node, Position { seq: 10, ..last });
        assert_eq!(gaps, [(reports[0].first.seq, RECORDS)]);
        assert_eq!(damaged_records(&node), at_start, "each record counts once");
    }
    assert!(at_start > 0 && node.take_losses().is_empty());
}

#[test]
fn damage_in_an_older_file_is_reported_as_an_exact_gap() {
    fn flip_bit(path: &Path, at: usize) {
        let mut content = std::fs::read(path).unwrap();
        content[at] ^= 4;
        std::fs::write(path, content).unwrap();
    }
    fn truncate(path: &Path) {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    }
    fn replace_by_directory(path: &Path) {
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
    }
    type Case = (&'static str, fn(&Path), bool);
    let cases: [Case; 6] = [
        ("a flipped bit in the header", |path| flip_bit(path, 20), false),
        ("a flipped bit in a block's length", |path| flip_bit(path, 512 + 4), true),
        ("an empty file", |path| std::fs::write(path, b"").unwrap(), true),
        ("a truncated file", truncate, true),
        ("a missing file", |path| std::fs::remove_file(path).unwrap(), true),
        ("a directory instead of the file", replace_by_directory, true),
    ];
    for (case, damage, loses_records) in cases {
        let dir = tempfile::tempdir().unwrap();
        let open = || Node::open(Config::default(), Arc::new(RealDisk), dir.path()).unwrap();
        let (node, _) = open();
        node.create_topic("a", durable(), false).unwrap();
        let last = publish(&node, "a", 1..=RECORDS);
        node.stop();
        drop(node);
        let log = dir.path().join("logs/00000001-0");
        let names = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> =
            names.filter(|path| path.extension().is_some_and(|it| it == "log")).collect();
        files.sort();
        assert!(files.len() > 2, "{files:?}");
        damage(&files[1]);

        let (node, found) = open();
        assert_eq!((found[0].refused.as_deref(), found[0].clean), (None, true), "{case}: {found:?}");
        for _ in 0..2 {
            let (numbers, gaps, _) = read(&node, Position { seq: 0, ..last });
            assert_complete(&numbers, &gaps, 0, RECORDS);
            assert_eq!(gaps.len(), usize::from(loses_records), "{case}: {gaps:?}");
            let lost: u64 = gaps.iter().map(|(first, last)| last - first + 1).sum();
            assert_eq!(damaged_records(&node), lost, "{case}");
        }
        assert_eq!(node.take_losses().len(), usize::from(loses_records), "{case}");
        assert_eq!(publish(&node, "a", 1..=1).seq, RECORDS + 1, "{case}");
    }
}

#[test]
fn end_of_a_log_is_unknown_if_its_last_file_is_missing() {
    let disk = FakeDisk::new(32);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    let last = publish(&node, "a", 1..=RECORDS);
    disk.crash();
    drop(node);
    remove_file(&disk, log_files(&disk).last().unwrap());
    let (node, found) = open(&disk);
    assert!(!found[0].clean && !found[0].remarks.is_empty(), "{found:?}");
    let (numbers, gaps, epochs) = read(&node, Position { seq: 10, ..last });
    let known = epochs[0].new_first.seq - 1;
    assert_complete(&numbers, &gaps, 10, known);
    assert!(known < RECORDS, "the last record was not noted");
    assert_eq!((epochs[0].old, epochs[0].known_through), (last.epoch, None));
    // After this start, the files are consistent again, but the end of the old epoch stays unknown at the next start.
    publish(&node, "a", 1..=10);
    node.stop();
    drop(node);
    let (node, _) = open(&disk);
    assert_eq!(read(&node, Position { seq: 10, ..last }).2[0].known_through, None);
}

#[test]
fn removed_log_files_become_a_gap_and_numbering_continues() {
    let disk = FakeDisk::new(33);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    let last = publish(&node, "a", 1..=RECORDS);
    node.stop();
    drop(node);
    let dir = Path::new("/data/logs/00000001-0");
    disk.list(dir).unwrap().iter().for_each(|name| disk.remove(&dir.join(name)).unwrap());
    disk.remove_dir(dir).unwrap();
    let (node, found) = open(&disk);
    assert!(!found[0].clean && found[0].remarks.iter().any(|remark| remark.contains("lost")), "{found:?}");
    let (numbers, gaps, epochs) = read(&node, Position { seq: 10, ..last });
    assert!(numbers.is_empty());
    assert_eq!(gaps, [(11, RECORDS)]);
    assert_eq!(epochs[0].known_through, Some(RECORDS));
    assert_eq!(publish(&node, "a", 1..=1).seq, RECORDS + 1);
}

#[test]
fn new_epoch_exceeds_the_epoch_of_a_deleted_log_file() {
    let disk = FakeDisk::new(34);
    let (node, _) = open(&disk);
    node.create_topic("a", durable(), false).unwrap();
    let old = publish(&node, "a", 1..=50);
    disk.crash();
    drop(node);
    let (node, _) = open(&disk);
    let lost = publish(&node, "a", 51..=60);
    assert!(lost.epoch > old.epoch);
    disk.crash();
    drop(node);
    remove_file(&disk, log_files(&disk).last().unwrap());
    for start in 0..3 {
        let (node, _) = open(&disk);
        let (_, _, epochs) = read(&node, lost);
        assert!(epochs[0].new_first.epoch > lost.epoch, "{start}: {epochs:?}");
        publish(&node, "a", 1..=5);
        node.stop();
    }
}

#[test]
fn unreadable_topic_is_refused_and_other_topics_are_served() {
    let disk = FakeDisk::new(35);
    let (node, _) = open(&disk);
    node.create_topic("a", TopicConfig { pattern: Some("a.>".to_owned()), ..durable() }, false).unwrap();
    node.create_topic("b", durable(), false).unwrap();
    publish(&node, "a.x", 1..=10);
    publish(&node, "b", 1..=10);
    node.stop();
    drop(node);
    let path = Path::new("/data/topics/00000001.topic");
    let file = disk.open(path, true).unwrap();
    let mut whole = vec![0; file.bytes().unwrap() as usize];
    file.read_at(&mut whole, 0).unwrap();
    file.write_at(&[b"DUNLIN"], 0).unwrap();
    drop(file);

    let (node, found) = open(&disk);
    let refused = found.iter().find(|topic| topic.name == "a").unwrap();
    assert!(refused.refused.as_ref().is_some_and(|why| why.contains("00000001.topic")), "{found:?}");
    assert_eq!(node.refused_topics()[0].name, "a");
    assert_eq!(publish(&node, "b", 11..=20).seq, 20);
    let in_its_place = node.create_topic("a", TopicConfig::default(), false).unwrap_err();
    assert!(matches!(&in_its_place, TopicError::Disk(why) if why.contains("could not be opened")));
    assert!(node.publisher("a").is_err());
    // A new topic must not get the number of the refused topic.
    node.create_topic("c", durable(), false).unwrap();
    publish(&node, "c", 1..=3);
    node.stop();
    drop(node);
    disk.open(path, true).unwrap().write_at(&[&whole], 0).unwrap();
    let (node, found) = open(&disk);
    assert!(found.iter().all(|topic| topic.refused.is_none() && topic.clean), "{found:?}");
    assert_eq!(publish(&node, "a.x", 11..=11).seq, 11);
}

#[test]
fn topic_with_files_of_another_log_keeps_its_subjects() {
    let disk = FakeDisk::new(36);
    let (node, _) = open(&disk);
    node.create_topic("a", TopicConfig { pattern: Some("a.>".to_owned()), ..durable() }, false).unwrap();
    node.create_topic("b", durable(), false).unwrap();
    publish(&node, "a.x", 1..=10);
    publish(&node, "b", 1..=10);
    node.stop();
    drop(node);
    // Move the files of topic `b`'s log (number 2) into the directory of topic `a`'s log (number 1).
    let from = Path::new("/data/logs/00000002-0");
    for name in disk.list(from).unwrap().iter().filter(|name| name.ends_with(".log")) {
        disk.rename(&from.join(name), &Path::new("/data/logs/00000001-0").join(name)).unwrap();
    }
    let (node, found) = open(&disk);
    assert_eq!(found.iter().filter(|topic| topic.refused.is_some()).count(), 1, "{found:?}");
    assert!(
        node.publisher("a.x").is_err()
            && node
                .create_topic(
                    "other",
                    TopicConfig { pattern: Some("a.*".to_owned()), ..TopicConfig::default() },
                    false
                )
                .is_err()
    );
    // Topic `b` has lost its log files, and reports its lost records.
    let b = found.iter().find(|topic| topic.name == "b").unwrap();
    assert!(!b.clean && !b.remarks.is_empty());
    assert_eq!(publish(&node, "b", 1..=1).seq, 11);
}

#[test]
fn only_the_topic_with_a_pipe_as_its_log_file_is_refused() {
    for name in ["0000000007-00000000000000000001-ca8216fa9058d0fa.log", "lock"] {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &Path| Node::open(Config::default(), Arc::new(RealDisk), path).unwrap();
        let (node, _) = open(dir.path());
        node.create_topic("a", durable(), false).unwrap();
        node.create_topic("b", durable(), false).unwrap();
        publish(&node, "b", 1..=10);
        node.stop();
        drop(node);
        let pipe = dir.path().join("logs/00000001-0").join(name);
        let _ = std::fs::remove_file(&pipe);
        let created = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(created.success());
        let (path, (send, opened)) = (dir.path().to_owned(), mpsc::channel());
        thread::spawn(move || send.send(open(&path)));
        let (node, found) = opened.recv_timeout(PATIENCE).expect("the node does not wait for the pipe");
        let refused = found.iter().find(|topic| topic.name == "a").unwrap();
        assert!(refused.refused.as_ref().is_some_and(|why| why.contains("pipe")), "{found:?}");
        assert_eq!(publish(&node, "b", 11..=11).seq, 11);
    }
}
