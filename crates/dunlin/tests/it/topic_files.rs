//! Tests of topics whose files are damaged or were removed: their subjects stay reserved, and their records are kept
//! until the topic is deleted.

use std::path::Path;
use std::sync::Arc;

use dunlin::journal::RealDisk;
use dunlin::topic::{DurableOptions, Pattern, Publish, SubscribeOptions, TopicConfig};
use dunlin::{Config, Node, RecoveredTopic};

fn open(dir: &Path) -> (Node, Vec<RecoveredTopic>) {
    Node::open(Config::default(), Arc::new(RealDisk), dir).unwrap()
}

fn durable() -> TopicConfig {
    TopicConfig {
        pattern: Some("a.>".to_owned()),
        durable: Some(DurableOptions::default()),
        ..TopicConfig::default()
    }
}

/// Creates a topic `a` with three records in a data directory. Returns the text of the topic's file.
fn write_topic(dir: &Path) -> String {
    let (node, _) = open(dir);
    node.create_topic("a", durable(), false).unwrap();
    let mut publisher = node.publisher("a.x").unwrap();
    for _ in 0..3 {
        publisher.publish("x").unwrap();
    }
    node.stop();
    std::fs::read_to_string(dir.join("topics/00000001.topic")).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Checks that topic `a` is not open, and that its subjects stay reserved. The error must contain `reason`.
fn assert_refused(node: &Node, reason: &str) {
    let refused = node.refused_topics();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!((refused[0].name.as_str(), refused[0].pattern.as_str()), ("a", "a.>"));
    assert!(refused[0].is_damaged() && refused[0].why.contains(reason), "{refused:?}");
    assert!(refused[0].why.contains("dunlin topics delete a"), "{refused:?}");
    assert!(node.publisher("a.x").is_err() && node.publisher("a").is_err());
    assert!(node.create_topic("a.y", TopicConfig::default(), false).is_err());
}

#[test]
fn damaged_topic_file_is_reported_with_its_topic_name() {
    let folder = tempfile::tempdir().unwrap();
    let text = write_topic(folder.path());
    let file = folder.path().join("topics/00000001.topic");
    for (line, damaged) in [
        ("name a", "name b"),
        ("pattern a.>", "pattern b.>"),
        ("partitions 1", "partitions 3"),
        ("record_bytes_max ", "record_bytes_max 1"),
    ] {
        assert!(text.contains(line), "{line} of {text}");
        std::fs::write(&file, text.replace(line, damaged)).unwrap();
        let (node, _) = open(folder.path());
        assert_refused(&node, "damaged");
        assert!(node.create_topic("b.x", TopicConfig::default(), false).is_ok());
        node.stop();
    }
    // A file without a checksum is accepted, because older versions wrote none.
    let older: Vec<_> = text.lines().filter(|line| !line.starts_with("checksum ")).collect();
    std::fs::write(&file, older.join("\n") + "\n").unwrap();
    let (_, found) = open(folder.path());
    assert!(found[0].refused.is_none() && found[0].records == 3, "{found:?}");
}

#[test]
fn invisible_characters_are_allowed_in_old_topic_names_only() {
    // Release 0.1.0 allowed this invisible character in topic names.
    let old = "a\u{3164}";
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = write_topic(folder.path());
    let older: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with("checksum ") && !line.starts_with("pattern "))
        .map(|line| if line == "name a" { format!("name {old}") } else { line.to_owned() })
        .collect();
    std::fs::create_dir(other.path().join("topics")).unwrap();
    std::fs::write(other.path().join("topics/00000001.topic"), older.join("\n") + "\n").unwrap();
    let (node, found) = open(other.path());
    assert!(found.len() == 1 && found[0].name == old && found[0].refused.is_none(), "{found:?}");
    assert_eq!(node.topics(Some(&Pattern::parse(old).unwrap()), "", 10).topics.len(), 1);
    node.subscribe(old, &SubscribeOptions::default()).unwrap();
    assert!(node.publisher(old).is_err());
    node.delete_topic(old).unwrap();
    let with = |pattern: String| TopicConfig { pattern: Some(pattern), ..TopicConfig::default() };
    assert!(node.create_topic(old, TopicConfig::default(), false).is_err());
    assert!(node.create_topic("b", with(format!("{old}.>")), false).is_err());
    node.create_topic("b", with("a.>".to_owned()), false).unwrap();
}

#[test]
fn topic_with_a_missing_topic_file_is_refused_but_keeps_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let text = write_topic(folder.path());
    let file = folder.path().join("topics/00000001.topic");
    std::fs::remove_file(&file).unwrap();
    let (node, found) = open(folder.path());
    assert!(found.len() == 1 && found[0].refused.is_some(), "{found:?}");
    assert_refused(&node, "missing");
    // A new topic must not get the number of the topic whose file is missing.
    node.create_topic("new", TopicConfig { pattern: None, ..durable() }, false).unwrap();
    node.stop();
    drop(node);
    std::fs::write(&file, text).unwrap();
    let (node, found) = open(folder.path());
    let topic = found.iter().find(|topic| topic.name == "a").unwrap();
    assert!(topic.clean && topic.records == 3, "{found:?}");
    node.stop();
}

#[test]
fn topic_with_a_damaged_or_missing_file_can_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let text = write_topic(folder.path());
    let file = folder.path().join("topics/00000001.topic");
    for has_file in [true, false] {
        if has_file {
            std::fs::write(&file, text.replace("name a", "name b")).unwrap();
        } else {
            std::fs::remove_file(&file).unwrap();
        }
        let (node, _) = open(folder.path());
        assert!(node.delete_topic("b").is_err());
        node.delete_topic("a").unwrap();
        assert!(node.refused_topics().is_empty() && names(&folder.path().join("logs")).is_empty());
        assert!(node.delete_topic("a").is_err());
        assert_eq!(names(&folder.path().join("topics")), [""; 0]);
        node.create_topic("a", durable(), false).unwrap();
        node.stop();
        drop(node);
        let (node, found) = open(folder.path());
        assert!(found.len() == 1 && found[0].refused.is_none() && found[0].records == 0, "{found:?}");
        node.delete_topic("a").unwrap();
        node.stop();
        drop(node);
        assert_eq!(names(&folder.path().join("topics")), [""; 0]);
        write_topic(folder.path());
    }
}

#[test]
fn interrupted_deletion_is_finished_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    write_topic(folder.path());
    let (topics, logs) = (folder.path().join("topics"), folder.path().join("logs"));
    std::fs::rename(topics.join("00000001.topic"), topics.join("00000001.deleted")).unwrap();
    // Add a log without records, which the interrupted creation of another topic could have left behind.
    std::fs::create_dir(logs.join("00000002-0")).unwrap();
    let (node, found) = open(folder.path());
    assert!(found.is_empty() && node.refused_topics().is_empty(), "{found:?}");
    assert_eq!((names(&topics), names(&logs)), (vec![], vec![]));
    assert!(node.create_topic("a", durable(), false).is_ok());
}
