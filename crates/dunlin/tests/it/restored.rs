//! Tests of a single node whose files were restored or removed while it was stopped: a position never denotes two
//! different records.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use dunlin::journal::RealDisk;
use dunlin::topic::{
    DurableOptions, EpochChanged, Event, Notice, Position, Publish, Start, Subscribe, SubscribeOptions,
    TopicConfig,
};
use dunlin::{Config, KV, Node, RecoveredTopic, TASKS, block_on, scheduler, state};

fn open(dir: &Path) -> (Node, Vec<RecoveredTopic>) {
    Node::open(Config::default(), Arc::new(RealDisk), dir).unwrap()
}

fn publish(node: &Node, texts: &[&str]) -> Position {
    let mut publisher = node.publisher("a").unwrap();
    texts.iter().map(|text| publisher.publish(*text).unwrap().position).last().unwrap()
}

/// Reads what topic `a` has after a position: the texts of the records, and the notices of new epochs.
fn read(node: &Node, after: Position) -> (Vec<String>, Vec<EpochChanged>) {
    read_of(node, "a", after)
}

fn read_of(node: &Node, topic: &str, after: Position) -> (Vec<String>, Vec<EpochChanged>) {
    let options = SubscribeOptions { start: Start::After(after), ..SubscribeOptions::default() };
    let mut subscriber = node.subscribe(topic, &options).unwrap();
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

/// Copies a directory and keeps the modification times of files, as `cp -a` does.
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

fn restore(from: &Path, to: &Path) {
    fs::remove_dir_all(to).unwrap();
    copy(from, to);
}

/// Publishes `1` and `2`, makes a backup, publishes `3` and `4`, and calls `restore` with the backup and the data
/// directory. Returns the folder of both, and the position of the last record.
fn with_backup_restored_by(restore: impl Fn(&Path, &Path)) -> (tempfile::TempDir, Position) {
    let folder = tempfile::tempdir().unwrap();
    let (dir, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let (node, _) = open(&dir);
    let config = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    node.create_topic("a", config, false).unwrap();
    publish(&node, &["1", "2"]);
    node.stop();
    drop(node);
    copy(&dir, &backup);
    let (node, _) = open(&dir);
    let last = publish(&node, &["3", "4"]);
    node.stop();
    drop(node);
    restore(&backup, &dir);
    (folder, last)
}

/// Checks that a subscriber which has read the lost records is told of the loss, and receives all later records.
fn assert_continues_in_new_epoch(dir: &Path, last: Position) {
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
    // From now on, the files count as written by this node.
    let (node, found) = open(dir);
    assert!(found[0].clean && found[0].remarks.is_empty(), "{found:?}");
    assert_eq!(publish(&node, &["6"]).epoch, next.epoch);
    let (_, epochs) = read(&node, last);
    assert_eq!((epochs.len(), epochs[0].known_through), (1, None));
}

#[test]
fn data_directory_from_a_backup_begins_a_new_epoch() {
    let (folder, last) = with_backup_restored_by(restore);
    assert_continues_in_new_epoch(&folder.path().join("data"), last);
}

#[test]
fn topics_and_logs_from_a_backup_begin_a_new_epoch() {
    let (folder, last) = with_backup_restored_by(|backup, dir| {
        for part in ["topics", "logs"] {
            restore(&backup.join(part), &dir.join(part));
        }
    });
    assert_continues_in_new_epoch(&folder.path().join("data"), last);
}

#[test]
fn files_overwritten_by_a_backup_begin_a_new_epoch() {
    let (folder, last) = with_backup_restored_by(copy);
    assert_continues_in_new_epoch(&folder.path().join("data"), last);
}

#[test]
fn logs_restored_from_a_backup_begin_a_new_epoch() {
    let (folder, last) =
        with_backup_restored_by(|backup, dir| restore(&backup.join("logs"), &dir.join("logs")));
    let (node, _) = open(&folder.path().join("data"));
    let next = publish(&node, &["new"]);
    assert!(next.epoch > last.epoch && next.seq == 5, "{next} after {last}");
    let (texts, epochs) = read(&node, last);
    assert_eq!((texts, epochs.len(), epochs[0].known_through), (vec!["new".to_owned()], 1, Some(4)));
}

#[test]
fn moved_data_directory_continues_its_epoch() {
    let (folder, last) = with_backup_restored_by(|_, _| {});
    let moved = folder.path().join("moved");
    fs::rename(folder.path().join("data"), &moved).unwrap();
    let (node, found) = open(&moved);
    assert!(found[0].clean && found[0].remarks.is_empty(), "{found:?}");
    assert_eq!(publish(&node, &["5"]), Position { seq: 5, ..last });
}

#[test]
fn topic_recreated_under_its_name_begins_a_new_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let config = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
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

/// If the files of a single node's keys or tasks were removed, the node must not start with empty ones.
#[test]
fn keys_and_tasks_are_not_opened_if_their_files_were_removed() {
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

/// Starts a node, and publishes `1` and `2` to its durable topic `a`. Returns the node, and the position of the last
/// record.
fn node_with_two_records(dir: &Path) -> (Node, Position) {
    let (node, _) = open(dir);
    let config = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    node.create_topic("a", config, false).unwrap();
    let last = publish(&node, &["1", "2"]);
    (node, last)
}

/// Opens the restored files several times. Checks each time, for each of these positions, that a subscriber at the
/// position learns that the end of its epoch is unknown.
fn assert_unknown_ends(dir: &Path, positions: &[Position]) {
    let mut next = Position::default();
    for start in 0..3 {
        let (node, found) = open(dir);
        assert_eq!(found[0].remarks.is_empty(), start > 0, "start {start}: {found:?}");
        next = if start == 0 { publish(&node, &["new"]) } else { next };
        for &position in positions {
            assert!(next.epoch > position.epoch, "{next} after {position}");
            let (texts, epochs) = read(&node, position);
            assert_eq!(texts.last().map(String::as_str), Some("new"), "start {start}, {position}");
            assert_eq!(epochs.first().unwrap().known_through, None, "start {start}, {position}: {epochs:?}");
        }
        node.stop();
    }
}

#[test]
fn node_restored_from_a_live_backup_reports_possible_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let (node, second) = node_with_two_records(&dir);
    copy(&dir, &backup);
    let last = publish(&node, &["3", "4"]);
    node.stop();
    drop(node);
    restore(&backup, &dir);
    assert_unknown_ends(&dir, &[second, last, Position { seq: 3, ..last }]);
}

/// In this test, another epoch began after the copy was made, so that the copy does not know this epoch. Then the copy
/// is restored.
#[test]
fn restored_node_does_not_know_how_later_epochs_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let (node, second) = node_with_two_records(&dir);
    copy(&dir, &backup);
    node.stop();
    drop(node);
    restore(&backup, &dir);
    let (node, _) = open(&dir);
    let last = publish(&node, &["3", "4"]);
    assert!(last.epoch > second.epoch);
    node.stop();
    drop(node);
    restore(&backup, &dir);
    let unread = Position { seq: 2, ..last };
    assert_unknown_ends(&dir, &[second, last, Position { seq: 3, ..last }, unread]);
}

#[test]
fn damaged_copy_of_a_log_reports_possible_loss() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("flipped", |log| {
            let mut bytes = fs::read(log).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(log, bytes).unwrap();
        }),
        ("cut", |log| {
            let file = fs::File::options().write(true).open(log).unwrap();
            file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        }),
        ("appended", |log| {
            let mut bytes = fs::read(log).unwrap();
            bytes.extend([7; 3_000]);
            fs::write(log, bytes).unwrap();
        }),
        ("file removed", |log| fs::remove_file(log).unwrap()),
        ("directory removed", |log| fs::remove_dir_all(log.parent().unwrap()).unwrap()),
    ];
    for (name, damage) in damages {
        let (folder, last) = with_backup_restored_by(|backup, dir| {
            restore(backup, dir);
            let mut files: Vec<_> = fs::read_dir(dir.join("logs/00000001-0"))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            files.retain(|file| file.extension().is_some_and(|extension| extension == "log"));
            damage(&files[0]);
        });
        println!("{name}");
        assert_unknown_ends(&folder.path().join("data"), &[last, Position { seq: 2, ..last }]);
    }
}

/// In this test, files are replaced as `rsync -a` does: only those whose size or time differs, here the log file and
/// the position file.
#[test]
fn log_with_files_from_a_backup_reports_possible_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let (node, second) = node_with_two_records(&dir);
    copy(&dir, &backup);
    let last = publish(&node, &["3", "4"]);
    drop(node);
    let file = |dir: &Path, name: &str| dir.join(name);
    let logs: Vec<_> = fs::read_dir(backup.join("logs/00000001-0")).unwrap().map(|it| it.unwrap()).collect();
    let logs = logs.iter().map(|entry| format!("logs/00000001-0/{}", entry.file_name().to_string_lossy()));
    let replaced = logs.filter(|name| name.ends_with(".log")).chain(["topics/00000001-0.stored".to_owned()]);
    for name in replaced {
        let new = folder.path().join("new");
        fs::copy(file(&backup, &name), &new).unwrap();
        fs::rename(new, file(&dir, &name)).unwrap();
    }
    assert_unknown_ends(&dir, &[second, last]);
}

#[test]
fn last_record_is_known_after_a_kill_and_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (node, last) = node_with_two_records(folder.path());
    drop(node);
    let (node, found) = open(folder.path());
    assert!(!found[0].clean && found[0].remarks.is_empty(), "{found:?}");
    let next = publish(&node, &["3"]);
    let (texts, epochs) = read(&node, last);
    assert_eq!((texts, epochs[0].known_through), (vec!["3".to_owned()], Some(2)));
    assert!(next.epoch > last.epoch);
    // If a subscriber has read more records of the epoch than the files contain, records have been lost.
    let (texts, epochs) = read(&node, Position { seq: 7, ..last });
    assert_eq!((texts, epochs[0].last_seen, epochs[0].known_through), (vec!["3".to_owned()], 7, None));
}

#[test]
fn removed_log_and_position_file_are_reported_as_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let (node, last) = node_with_two_records(dir);
    node.stop();
    drop(node);
    fs::remove_dir_all(dir.join("logs")).unwrap();
    fs::remove_file(dir.join("topics/00000001-0.stored")).unwrap();
    assert_unknown_ends(dir, &[Position { seq: 0, ..last }, Position { seq: 1, ..last }, last]);
}

#[test]
fn log_is_reported_as_lost_if_its_files_were_removed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let (node, last) = node_with_two_records(dir);
    node.stop();
    drop(node);
    for entry in fs::read_dir(dir.join("logs/00000001-0")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            fs::remove_file(path).unwrap();
        }
    }
    fs::remove_file(dir.join("topics/00000001-0.stored")).unwrap();
    assert_unknown_ends(dir, &[Position { seq: 0, ..last }, last]);
}

#[test]
fn topic_without_any_record_reports_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (node, _) = open(folder.path());
    let config = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    let epoch = node.create_topic("a", config, false).unwrap().logs()[0].last().epoch;
    drop(node);
    for is_stopped in [false, true, true] {
        let (node, found) = open(folder.path());
        assert!(found[0].remarks.is_empty(), "{found:?}");
        let (_, epochs) = read(&node, Position { epoch, seq: 0 });
        assert_eq!(epochs[0].known_through, Some(0));
        if is_stopped {
            node.stop();
        }
    }
}

/// Writes a key and submits a task. Returns the last positions of `$kv` and `$tasks`.
fn put_and_submit(node: &Node, name: &str) -> [Position; 2] {
    let put = state::ControlCommand::Put { key: name.as_bytes(), value: b"", lease: 0 };
    block_on(node.control().unwrap().execute(&put)).unwrap();
    let new = vec![scheduler::NewTask::new(b"kind", name.as_bytes())];
    let tasks = node.tasks().unwrap();
    block_on(tasks.execute(&scheduler::TaskCommand::EnsureTenant { tenant: b"tenant" })).unwrap();
    block_on(tasks.execute(&scheduler::TaskCommand::Submit { tenant: b"tenant", tasks: new })).unwrap();
    positions(node)
}

fn positions(node: &Node) -> [Position; 2] {
    [KV, TASKS].map(|topic| node.topic(topic).unwrap().logs()[0].last())
}

/// Checks that `$kv` and `$tasks` continue in the epochs of the positions `before`. A subscriber that starts at such a
/// position receives neither a record nor the notice of a new epoch.
fn assert_continues(dir: &Path, before: [Position; 2]) {
    let (node, _) = open(dir);
    assert_eq!(positions(&node), before);
    for (pattern, last) in [(KV, before[0]), ("$tasks.>", before[1])] {
        assert_eq!(read_of(&node, pattern, last), (Vec::new(), Vec::new()));
    }
    let after = put_and_submit(&node, "one more");
    assert_eq!(after.map(|position| position.epoch), before.map(|position| position.epoch));
    node.stop();
}

#[test]
fn keys_and_tasks_from_a_backup_begin_a_new_epoch() {
    for is_running in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (dir, backup) = (folder.path().join("data"), folder.path().join("backup"));
        let (mut node, _) = open(&dir);
        let early = put_and_submit(&node, "1");
        if is_running {
            copy(&dir, &backup);
        } else {
            node.stop();
            drop(node);
            copy(&dir, &backup);
            node = open(&dir).0;
        }
        for n in 2..5 {
            put_and_submit(&node, &n.to_string());
        }
        let last = put_and_submit(&node, "5");
        assert_eq!(last.map(|position| position.epoch), early.map(|position| position.epoch));
        node.stop();
        drop(node);
        restore(&backup, &dir);
        let (node, _) = open(&dir);
        let mut next = positions(&node);
        for n in 0..8 {
            next = put_and_submit(&node, &format!("new {n}"));
        }
        for (index, pattern) in [KV, "$tasks.>"].into_iter().enumerate() {
            assert!(
                next[index].epoch > last[index].epoch,
                "{pattern}: {} after {}",
                next[index],
                last[index]
            );
            for position in [early[index], last[index]] {
                let (_, epochs) = read_of(&node, pattern, position);
                let [changed] = &epochs[..] else { panic!("{pattern}, {position}: {epochs:?}") };
                assert_eq!((changed.old, changed.known_through), (position.epoch, None), "{pattern}");
            }
        }
        node.stop();
        drop(node);
        // From now on, the files count as written by this node.
        assert_continues(&dir, next);
    }
}

/// Makes the node assign numbers, and returns them: of a lease, of a lock's fencing token, of a revision, and of a
/// task.
fn next_numbers(node: &Node) -> [u64; 4] {
    let control = node.control().unwrap();
    let granted = block_on(control.execute(&state::ControlCommand::Grant { ttl_ms: 60_000 })).unwrap();
    let state::ControlReply::Granted { lease, .. } = granted else { panic!("{granted:?}") };
    let token = block_on(control.acquire(b"lock", lease, b"")).unwrap();
    let put = state::ControlCommand::Put { key: b"key", value: b"", lease };
    let changed = block_on(control.execute(&put)).unwrap();
    let state::ControlReply::Changed { revision, .. } = changed else { panic!("{changed:?}") };
    block_on(control.execute(&state::ControlCommand::Revoke { lease })).unwrap();
    let tasks = node.tasks().unwrap();
    block_on(tasks.execute(&scheduler::TaskCommand::EnsureTenant { tenant: b"tenant" })).unwrap();
    let new = vec![scheduler::NewTask::new(b"kind", b"")];
    let submitted =
        block_on(tasks.execute(&scheduler::TaskCommand::Submit { tenant: b"tenant", tasks: new }));
    let Ok(scheduler::CommandReply::Submitted { tasks, .. }) = submitted else { panic!("{submitted:?}") };
    [lease, token, revision, tasks[0].task]
}

#[test]
fn restored_node_reuses_no_ids_tokens_or_revisions() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let (node, _) = open(&dir);
    next_numbers(&node);
    node.stop();
    drop(node);
    copy(&dir, &backup);
    let (node, _) = open(&dir);
    for _ in 0..3 {
        next_numbers(&node);
    }
    let before = next_numbers(&node);
    node.stop();
    drop(node);
    restore(&backup, &dir);
    let (node, _) = open(&dir);
    let after = next_numbers(&node);
    assert!(after.iter().zip(before).all(|(after, before)| *after > before), "{after:?} after {before:?}");
    node.stop();
}

#[test]
fn restoring_only_keys_or_only_tasks_begins_a_new_epoch() {
    for (index, part) in ["control", "tasks"].into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, backup) = (folder.path().join("data"), folder.path().join("backup"));
        let (node, _) = open(&dir);
        put_and_submit(&node, "1");
        node.stop();
        drop(node);
        copy(&dir, &backup);
        let (node, _) = open(&dir);
        let last = put_and_submit(&node, "2");
        node.stop();
        drop(node);
        restore(&backup.join(part), &dir.join(part));
        // The restored files of this part are older than its mark `.synced` says. An operator who wants to continue
        // with these files removes the mark.
        fs::remove_file(dir.join(part).with_extension("synced")).unwrap();
        let (node, _) = open(&dir);
        let next = put_and_submit(&node, "3");
        assert!(next[index].epoch > last[index].epoch, "{part}");
        assert_eq!(next[1 - index].epoch, last[1 - index].epoch, "{part}");
        node.stop();
    }
}

#[test]
fn keys_and_tasks_begin_a_new_epoch_if_file_times_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (node, _) = open(folder.path());
    let last = put_and_submit(&node, "1");
    node.stop();
    drop(node);
    for part in ["control.made", "tasks.made"] {
        fs::write(folder.path().join(part), "").unwrap();
    }
    let (node, _) = open(folder.path());
    let next = put_and_submit(&node, "2");
    assert!((0..2).all(|index| next[index].epoch > last[index].epoch), "{next:?} after {last:?}");
    node.stop();
    drop(node);
    assert_continues(folder.path(), next);
}

#[test]
fn moved_or_killed_node_keeps_the_epoch_of_keys_and_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, moved) = (folder.path().join("data"), folder.path().join("moved"));
    let (node, _) = open(&dir);
    put_and_submit(&node, "1");
    node.stop();
    drop(node);
    fs::rename(&dir, &moved).unwrap();
    let (node, _) = open(&moved);
    let last = put_and_submit(&node, "2");
    // Stop keys and tasks without writing the marks of their files, as if the node were killed.
    node.control().unwrap().stop();
    node.tasks().unwrap().stop();
    drop(node);
    assert_continues(&moved, last);
}
