//! Files of a node alone that somebody put back, or took away, while it was stopped: no position ever names two records.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use dunlin::journal::RealDisk;
use dunlin::topic::{
    Durable, EpochChanged, Event, Notice, Position, Publish, Start, Subscribe, SubscribeOptions, TopicConfig,
};
use dunlin::{Config, Node, RecoveredTopic};

fn open(dir: &Path) -> (Node, Vec<RecoveredTopic>) {
    Node::open(Config::default(), Arc::new(RealDisk), dir).unwrap()
}

fn publish(node: &Node, texts: &[&str]) -> Position {
    let mut publisher = node.publisher("a").unwrap();
    texts.iter().map(|text| publisher.publish(*text).unwrap().position).last().unwrap()
}

/// The records after this position, and the changes of epoch that were reported.
fn read(node: &Node, after: Position) -> (Vec<String>, Vec<EpochChanged>) {
    let options = SubscribeOptions { start: Start::After(after), ..SubscribeOptions::default() };
    let mut subscriber = node.subscribe("a", &options).unwrap();
    let (mut texts, mut epochs) = (Vec::new(), Vec::new());
    while let Some(event) = subscriber.try_next().unwrap() {
        match event {
            Event::Record(record) => texts.push(String::from_utf8_lossy(record.payload()).into_owned()),
            Event::Notice(Notice::EpochChanged(changed)) => epochs.push(changed),
            Event::Notice(other) => panic!("{other:?}"),
        }
    }
    (texts, epochs)
}

/// As `cp -a` does: times of content stay as they were.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
            continue;
        }
        fs::copy(entry.path(), &target).unwrap();
        let written = entry.metadata().unwrap().modified().unwrap();
        fs::File::options().write(true).open(&target).unwrap().set_modified(written).unwrap();
    }
}

fn put_back(from: &Path, to: &Path) {
    fs::remove_dir_all(to).unwrap();
    copy(from, to);
}

/// A node publishes `1` and `2`, is backed up, and publishes `3` and `4`; `put_back` puts back what it likes. The last position.
fn backed_up_and(put_back: impl Fn(&Path, &Path)) -> (tempfile::TempDir, Position) {
    let folder = tempfile::tempdir().unwrap();
    let (dir, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let (node, _) = open(&dir);
    let config = TopicConfig { durable: Some(Durable::default()), ..TopicConfig::default() };
    node.create_topic("a", config, false).unwrap();
    publish(&node, &["1", "2"]);
    node.stop();
    drop(node);
    copy(&dir, &backup);
    let (node, _) = open(&dir);
    let last = publish(&node, &["3", "4"]);
    node.stop();
    drop(node);
    put_back(&backup, &dir);
    (folder, last)
}

/// A subscriber that has all of what was lost is told so, and gets all that comes after.
fn assert_goes_on_anew(dir: &Path, last: Position) {
    let (node, found) = open(dir);
    assert!(found[0].remarks.iter().any(|remark| remark.contains("restored from a backup")), "{found:?}");
    let next = publish(&node, &["new 3", "new 4", "new 5"]);
    assert!(next.epoch > last.epoch, "{next} after {last}");
    let (texts, epochs) = read(&node, last);
    assert_eq!(texts, ["new 3", "new 4", "new 5"]);
    let [changed] = &epochs[..] else { panic!("{epochs:?}") };
    assert_eq!((changed.old, changed.last_seen, changed.known_through), (last.epoch, 4, None));
    assert_eq!((changed.new_first.epoch, changed.new_first.seq), (next.epoch, 3));
    node.stop();
    drop(node);
    // From then on it is the node's own.
    let (node, found) = open(dir);
    assert!(found[0].clean && found[0].remarks.is_empty(), "{found:?}");
    assert_eq!(publish(&node, &["6"]).epoch, next.epoch);
    let (_, epochs) = read(&node, last);
    assert_eq!((epochs.len(), epochs[0].known_through), (1, None));
}

#[test]
fn data_directory_from_a_backup_begins_a_new_epoch() {
    let (folder, last) = backed_up_and(put_back);
    assert_goes_on_anew(&folder.path().join("data"), last);
}

#[test]
fn topics_and_logs_from_a_backup_begin_a_new_epoch() {
    let (folder, last) = backed_up_and(|backup, dir| {
        for part in ["topics", "logs"] {
            put_back(&backup.join(part), &dir.join(part));
        }
    });
    assert_goes_on_anew(&folder.path().join("data"), last);
}

#[test]
fn files_written_over_the_ones_there_begin_a_new_epoch() {
    let (folder, last) = backed_up_and(copy);
    assert_goes_on_anew(&folder.path().join("data"), last);
}

#[test]
fn logs_from_a_backup_are_told_as_a_loss() {
    let (folder, last) = backed_up_and(|backup, dir| put_back(&backup.join("logs"), &dir.join("logs")));
    let (node, _) = open(&folder.path().join("data"));
    let next = publish(&node, &["new"]);
    assert!(next.epoch > last.epoch && next.seq == 5, "{next} after {last}");
    let (texts, epochs) = read(&node, last);
    assert_eq!((texts, epochs.len(), epochs[0].known_through), (vec!["new".to_owned()], 1, Some(4)));
}

#[test]
fn data_directory_that_was_moved_goes_on_in_its_epoch() {
    let (folder, last) = backed_up_and(|_, _| {});
    let moved = folder.path().join("moved");
    fs::rename(folder.path().join("data"), &moved).unwrap();
    let (node, found) = open(&moved);
    assert!(found[0].clean && found[0].remarks.is_empty(), "{found:?}");
    assert_eq!(publish(&node, &["5"]), Position { seq: 5, ..last });
}

#[test]
fn topic_made_again_under_its_name_begins_a_new_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let config = TopicConfig { durable: Some(Durable::default()), ..TopicConfig::default() };
    let (mut node, _) = open(folder.path());
    node.create_topic("a", config.clone(), false).unwrap();
    let mut last = publish(&node, &["1", "2"]);
    for is_restarted in [false, true] {
        node.delete_topic("a").unwrap();
        if is_restarted {
            node.stop();
            drop(node);
            node = open(folder.path()).0;
        }
        node.create_topic("a", config.clone(), false).unwrap();
        let next = publish(&node, &["new"]);
        assert!(next.epoch > last.epoch, "{next} after {last}, started again: {is_restarted}");
        let (texts, epochs) = read(&node, last);
        assert_eq!((texts, epochs.len()), (vec!["new".to_owned()], 1));
        last = next;
    }
}

/// What a node alone had beside topics does not begin anew in silence.
#[test]
fn keys_and_tasks_that_were_taken_away_are_missed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let (node, _) = open(dir);
    node.control().unwrap();
    node.tasks().unwrap();
    node.stop();
    drop(node);
    for part in ["control", "tasks"] {
        fs::remove_dir_all(dir.join(part)).unwrap();
    }
    let (node, _) = open(dir);
    let why =
        [node.control().map(drop).unwrap_err().to_string(), node.tasks().map(drop).unwrap_err().to_string()];
    for (why, part) in why.iter().zip(["control", "tasks"]) {
        assert!(
            why.contains("this node's log is damaged")
                && why.contains(&format!("remove {}", dir.join(part).with_extension("synced").display())),
            "{why}"
        );
    }
    assert_eq!(node.failed_parts().len(), 2, "{:?}", node.failed_parts());
    node.stop();
    drop(node);
    for part in ["control", "tasks"] {
        fs::remove_file(dir.join(format!("{part}.synced"))).unwrap();
    }
    let (node, _) = open(dir);
    node.control().unwrap();
    node.tasks().unwrap();
}
