//! Tests of durable topics through commands: creation, acknowledgement levels, and records after a restart.

use serde_json::Value;

use crate::dunlin::Node;

const LEVELS: [&str; 3] = ["memory", "written", "synced"];

fn read(node: &Node, topic: &str, count: &str) -> String {
    node.run(&["sub", topic, "--from", "earliest", "--count", count, "--format", "{payload}"]).done()
}

#[test]
fn records_of_each_ack_level_survive_stop_and_kill() {
    let folder = tempfile::tempdir().unwrap();
    let data = ["--data-dir", folder.path().to_str().unwrap()];
    let node = Node::start_with(&data);
    for level in LEVELS {
        node.run(&["topics", "create", level, "--durable", "--ack", level, "--retention-age", "1h"]).done();
        node.run(&["pub", level, "one", "two", "three"]).done();
    }
    assert_eq!(node.stop(), Some(0));

    let node = Node::start_with(&data);
    for level in LEVELS {
        let described: Value =
            serde_json::from_str(&node.run(&["topics", "describe", level, "--json"]).done()).unwrap();
        assert_eq!((&described["durable"], &described["retention_ms"]), (&level.into(), &3_600_000.into()));
        assert_eq!(read(&node, level, "3"), "one\ntwo\nthree\n");
        node.run(&["pub", level, "four"]).done();
    }
    node.kill();

    let node = Node::start_with(&data);
    for level in LEVELS {
        // A record that was acknowledged in memory only may be lost.
        let count = if level == "memory" { "3" } else { "4" };
        let records = read(&node, level, count);
        assert!(
            "one\ntwo\nthree\nfour\n".starts_with(&records) && records.starts_with("one\ntwo\nthree\n"),
            "{records}"
        );
        node.run(&["pub", level, "five"]).done();
    }
    let text = node.run(&["topics", "describe", "synced"]).done();
    assert!(text.contains("acknowledged when it is synced") && text.contains("log 0: from "), "{text}");
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn topic_that_cannot_be_opened_is_listed_as_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let data = ["--data-dir", folder.path().to_str().unwrap()];
    let node = Node::start_with(&data);
    node.run(&["topics", "create", "bad", "--durable"]).done();
    node.run(&["topics", "create", "good", "--durable"]).done();
    node.run(&["topics", "create", "state", "--reducer", "last"]).done();
    node.run(&["pub", "good", "one"]).done();
    let listed = node.run(&["topics", "list"]).done();
    assert!(listed.contains("durable") && listed.contains("state last"), "{listed}");
    assert_eq!(node.stop(), Some(0));
    let file = folder.path().join("topics/00000001.topic");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("dunlin topic 1", "something else")).unwrap();

    let node = Node::start_with(&data);
    let listed = node.run(&["topics", "list"]).done();
    assert!(listed.lines().any(|line| line.starts_with("bad ") && line.contains("not opened")), "{listed}");
    assert_eq!(read(&node, "good", "1"), "one\n");
    let described = node.run(&["topics", "describe", "bad"]);
    assert!(described.code == Some(1) && described.err.contains("00000001.topic"), "{described:?}");
    assert_eq!(node.run(&["pub", "bad", "one"]).code, Some(1));
    assert_eq!(node.stop(), Some(0));
    std::fs::write(&file, text).unwrap();
    let node = Node::start_with(&data);
    node.run(&["pub", "bad", "two"]).done();
}
