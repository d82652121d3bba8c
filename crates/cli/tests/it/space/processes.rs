//! Tests that a world continues when its processes end, restart, or do not join.

use super::{Process, wait_for_ticks};
use crate::dunlin::{Node, signal};

/// On SIGTERM, a process of a world must end even if the node that holds the world's keys does not respond.
#[test]
fn signal_ends_a_world_process_while_its_node_is_frozen() {
    let node = Node::start();
    let mut process = Process::start(&["run", "w", "--processes", "1", "--flock", "10", "--url", &node.url]);
    process.wait_for_event("owns");
    signal("STOP", node.pid());
    process.wait_for_event("lease_lost");
    signal("TERM", process.program.id());
    let status = dunlin_wait::find("its end", || process.program.try_wait().expect("wait for the program"));
    assert_eq!(status.code(), Some(0));
    signal("CONT", node.pid());
}

/// Without standbys, no other process has a copy of a region when its owner receives SIGTERM.
#[test]
fn signal_makes_a_world_process_hand_over_its_regions() {
    let node = Node::start();
    let words = ["run", "w", "--processes", "1", "--regions", "3", "--flock", "50", "--url", &node.url];
    let mut leaving = Process::start(&words);
    (0..3).for_each(|_| drop(leaving.wait_for_event("owns")));
    let heir = Process::start(&["join", "w", "--url", &node.url]);
    let receive = || {
        let owns = heir.wait_for_event("owns");
        assert!(owns["from_tick"].is_u64(), "{owns}");
    };
    // The process receives its first region because it has joined the world.
    receive();
    signal("TERM", leaving.program.id());
    receive();
    receive();
    let status = dunlin_wait::find("its end", || leaving.program.try_wait().expect("wait for the program"));
    assert_eq!(status.code(), Some(0));
    let others: Vec<_> = leaving.objects.iter().collect();
    assert!(others.iter().all(|object| object["event"] != "not_handed_over"), "{others:?}");
    signal("TERM", heir.program.id());
    let report = heir.wait_for_event("not_handed_over");
    assert_eq!(report["regions"], serde_json::json!([1, 2, 3]), "{report}");
}

/// The first process is killed together with its node, which holds the world's leases. Then the same command starts the
/// process again.
#[test]
fn world_continues_when_its_first_process_restarts() {
    // With a time to live this long, the leases survive a pause of the machine.
    let ttl = ["--ttl", "4s"];
    let words = |listen| ["run", "two", "--processes", "2", "--flock", "300", "--listen", listen];
    let first = Process::start(&[&words("127.0.0.1:0")[..], &ttl].concat());
    let url = first.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    let second = Process::start(&[&["join", "two", "--url", &url][..], &ttl].concat());
    let (first_region, second_region) =
        (first.wait_for_event("owns")["region"].clone(), second.wait_for_event("owns")["region"].clone());
    wait_for_ticks(&url, &first_region);
    wait_for_ticks(&url, &second_region);
    drop(first);
    let restarted =
        Process::start(&[&words(url.strip_prefix("dunlin://").expect("a host"))[..], &ttl].concat());
    restarted.wait_for_event("started");
    second.wait_for("it goes on with its own", |object| {
        object["reclaimed"] == true && object["region"] == second_region
    });
    let is_copy = |object: &serde_json::Value| object["event"] == "owns" && object["from_tick"].is_u64();
    restarted.wait_for("it is given a region", is_copy);
    wait_for_ticks(&url, &first_region);
    wait_for_ticks(&url, &second_region);
}

/// Runs two processes, as the README shows. After one process is killed, the other runs all regions until a third
/// process joins.
#[test]
fn world_continues_in_one_process_after_the_other_is_killed() {
    // With a time to live this long, the leases survive a pause of the machine.
    let ttl = ["--ttl", "4s"];
    let run = ["run", "two", "--processes", "2", "--flock", "300", "--listen", "127.0.0.1:0"];
    let first = Process::start(&[&run[..], &ttl].concat());
    let url = first.wait_for_event("started")["url"].as_str().expect("the node's address").to_owned();
    let join = [&["join", "two", "--url", &url][..], &ttl].concat();
    let second = Process::start(&join);
    let (first_region, second_region) =
        (first.wait_for_event("owns")["region"].clone(), second.wait_for_event("owns")["region"].clone());
    wait_for_ticks(&url, &second_region);
    drop(second);
    let mut alone =
        [first.wait_for_event("alone")["region"].as_u64(), first.wait_for_event("alone")["region"].as_u64()];
    alone.sort_unstable();
    assert_eq!(alone, [Some(1), Some(2)]);
    wait_for_ticks(&url, &second_region);
    let _third = Process::start(&join);
    first.wait_for_event("released");
    wait_for_ticks(&url, &first_region);
    wait_for_ticks(&url, &second_region);
}

/// If the second of two processes does not join within `--patience`, the first process must stop waiting and report
/// this.
#[test]
fn first_process_reports_processes_that_did_not_join_in_time() {
    let words = ["run", "two", "--processes", "2", "--flock", "50", "--patience", "1ms"];
    let first = Process::start(&[&words[..], &["--listen", "127.0.0.1:0"]].concat());
    let object = first.wait_for_event("waited_out");
    assert_eq!((&object["processes"], &object["expected"]), (&1.into(), &2.into()));
}
