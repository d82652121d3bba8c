//! Tests of `dunlin kv`, `dunlin lock` and `dunlin elect`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::dunlin::{Node, RunningProgram, signal};

#[test]
fn keys_are_written_read_compared_and_deleted() {
    let node = Node::start();
    assert_eq!(node.run(&["kv", "put", "a", "1"]).done(), "revision 1\n");
    assert_eq!(node.run(&["kv", "get", "a"]).done(), "1");
    assert_eq!(node.run_with(&["kv", "put", "b", "-"], b"from a pipe").done(), "revision 2\n");
    let stale = node.run(&["kv", "cas", "a", "7", "2"]);
    assert_eq!(stale.code, Some(1));
    assert!(stale.err.contains("the key has revision 1") && stale.err.contains("KEY_MOVED"), "{stale:?}");
    assert_eq!(node.run(&["kv", "cas", "a", "1", "2"]).done(), "revision 3\n");
    let entry: serde_json::Value =
        serde_json::from_str(&node.run(&["kv", "get", "a", "--json"]).done()).unwrap();
    assert_eq!((&entry["value"], &entry["modified"], &entry["version"]), (&"2".into(), &3.into(), &2.into()));
    assert_eq!(node.run(&["kv", "range"]).done(), "a\t2\nb\tfrom a pipe\n");
    assert_eq!(node.run(&["kv", "range", "a", "--end", "b", "--keys"]).done(), "a\n");
    assert_eq!(node.run(&["kv", "del", "a", "--if", "1"]).code, Some(1));
    assert_eq!(node.run(&["kv", "del", "a"]).done(), "revision 4\n");
    let missing = node.run(&["kv", "get", "a"]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(1), ""));
    node.run(&["kv", "del", "", "--prefix"]).done();
    assert_eq!(node.run(&["kv", "range"]).done(), "");
}

#[test]
fn kv_txn_runs_exactly_one_branch() {
    let node = Node::start();
    node.run(&["kv", "txn", "--if-revision", "a=0", "--put", "a=1", "--put", "b=2"]).done();
    let other = node.run(&["kv", "txn", "--if-value", "a=9", "--put", "a=3", "--else-get", "b"]);
    assert_eq!((other.code, other.out.as_str()), (Some(1), "revision 1\nb\t2\n"));
    assert_eq!(node.run(&["kv", "txn", "--put", "nothing"]).code, Some(2));
}

#[test]
fn kv_watch_prints_changes_and_refuses_unknown_revisions() {
    let node = Node::start();
    for value in ["1", "2"] {
        node.run(&["kv", "put", "a", value]).done();
    }
    node.run(&["kv", "del", "a"]).done();
    let changes = node.run(&["kv", "watch", "--from", "oldest", "-n", "3"]).done();
    assert_eq!(changes, "1\tput\ta\t1\n2\tput\ta\t2\n3\tdel\ta\n");
    let watch = |from: &str| node.run(&["kv", "watch", "--from", from, "-n", "1", "--json"]);
    let oldest: serde_json::Value = serde_json::from_str(&watch("oldest").done()).unwrap();
    let epoch = oldest["epoch"].as_u64().unwrap();
    let change: serde_json::Value = serde_json::from_str(&watch(&format!("{epoch}-2")).done()).unwrap();
    // The command must refuse a revision number without an epoch.
    let without_epoch = watch("2");
    assert!(
        without_epoch.code != Some(0) && without_epoch.err.contains(&format!("use --from {epoch}-2")),
        "{without_epoch:?}"
    );
    let earlier_epoch = watch(&format!("{}-2", epoch - 1));
    assert!(
        earlier_epoch.code == Some(1) && earlier_epoch.err.contains("have restarted"),
        "{earlier_epoch:?}"
    );
    assert_eq!((&change["revision"], &change["events"][0]["value"]), (&2.into(), &"2".into()));
}

#[test]
fn dunlin_lock_runs_its_command_and_returns_the_exit_code() {
    let node = Node::start();
    let token = node.run(&["lock", "gate", "--", "sh", "-c", "echo $DUNLIN_LOCK_TOKEN; exit 7"]);
    assert_eq!((token.code, token.out.trim().parse::<u64>().is_ok()), (Some(7), true), "{token:?}");
    let outcome = node.run(&[
        "lock",
        "gate",
        "--",
        env!("CARGO_BIN_EXE_dunlin"),
        "lock",
        "gate",
        "--no-wait",
        "--",
        "true",
    ]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("LOCK_HELD"), "{outcome:?}");
    let outcome = node.run(&[
        "lock",
        "gate",
        "--value",
        "the first",
        "--",
        env!("CARGO_BIN_EXE_dunlin"),
        "lock",
        "gate",
        "--no-wait",
        "--",
        "true",
    ]);
    assert!(outcome.err.contains("held by \"the first\""), "{outcome:?}");
}

#[test]
fn next_candidate_is_elected_when_the_leader_leaves() {
    let node = Node::start();
    let elect = |value: &str| {
        let mut child =
            node.command(&["elect", "leader", "--value", value]).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (RunningProgram::from(child), out)
    };
    let (mut first, mut output) = elect("one");
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with("one is elected, token "), "{line}");
    let (mut second, mut output) = elect("two");
    assert!(node.run(&["elect", "leader", "--show"]).done().starts_with("one is elected"));
    signal("INT", first.id());
    assert_eq!(first.wait().unwrap().code(), Some(0));
    line.clear();
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with("two is elected"), "{line}");
    signal("INT", second.id());
    assert_eq!(second.wait().unwrap().code(), Some(0));
    assert_eq!(node.run(&["elect", "leader", "--show"]).code, Some(1));
}

#[test]
fn keys_in_a_data_directory_survive_a_node_restart() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let node = Node::start_with(&["--data-dir", data]);
    node.run(&["kv", "put", "a", "kept"]).done();
    drop(node);
    let node = Node::start_with(&["--data-dir", data]);
    assert_eq!(node.run(&["kv", "get", "a"]).done(), "kept");
}
