//! Tests of keys, leases and locks on a single node, which is a cluster of one.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use dunlin::journal::{FakeDisk, Faults, RealDisk};
use dunlin::state::{ControlCommand, ControlQuery, ControlQueryResult, ControlRefusal, ControlReply};
use dunlin::topic::{OnGap, Position, Publish, Start, SubscribeError, SubscribeOptions};
use dunlin::wire::ErrorCode;
use dunlin::{Config, Consistency, ControlError, KV, Node, NodeLimits, Refused, TopicError, block_on};
use dunlin_wait::{find, until};

use super::nodes::*;
use crate::node;

fn value_of(node: &Node, key: &str) -> Option<String> {
    let query = ControlQuery::Get { key: key.as_bytes() };
    match block_on(node.control().unwrap().query(Consistency::Linearizable, &query)).unwrap() {
        ControlQueryResult::Found { found, .. } => {
            found.items.first().map(|pair| String::from_utf8_lossy(&pair.item.value).into_owned())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn single_node_delivers_each_revision_in_order() {
    let node = node();
    let control = node.control().unwrap();
    assert_eq!(
        block_on(control.execute(&put("a", "1"))).unwrap(),
        ControlReply::Changed { revision: 1, keys: 1 }
    );
    block_on(control.execute(&put("b", "2"))).unwrap();
    let refused =
        block_on(control.execute(&ControlCommand::PutIf { key: b"a", value: b"3", lease: 0, expect: 2 }));
    assert_eq!(refused, Err(ControlError::Refused(ControlRefusal::Mismatch { modified: 1 })));
    block_on(control.execute(&ControlCommand::DeleteRange { start: b"a", end: b"z" })).unwrap();
    assert_eq!(value_of(&node, "a"), None);
    assert_eq!(Watch::from_first(&node).until(|seen| seen.len() == 3), ["1 a=1", "2 b=2", "3 -a -b"]);
}

#[test]
fn reserved_kv_topics_cannot_be_written_created_or_deleted() {
    let node = node();
    node.control().unwrap();
    assert!(node.publisher(KV).is_err());
    assert!(matches!(node.delete_topic(KV), Err(TopicError::Reserved(_))));
    assert!(matches!(node.create_topic("$kv.x", Default::default(), false), Err(TopicError::Reserved(_))));
    assert!(node.topics(None, "", 10).topics.is_empty());
    node.publisher("other").unwrap().publish("1").unwrap();
}

#[test]
fn watch_resumes_after_a_revision_or_reports_a_gap() {
    let mut config = Config::default();
    config.limits.control.history_bytes = 64 << 10;
    let node = Node::start(config).unwrap();
    let control = node.control().unwrap();
    let big = vec![b'x'; 2_000];
    for _ in 0..200 {
        block_on(control.execute(&ControlCommand::Put { key: b"a", value: &big, lease: 0 })).unwrap();
    }
    let log = Arc::clone(&node.topic(KV).unwrap().logs()[0]);
    let epoch = log.info().epoch;
    let after = |seq| SubscribeOptions {
        start: Start::After(Position { epoch, seq }),
        on_gap: OnGap::Fail,
        ..SubscribeOptions::default()
    };
    let seen = Watch::of(&node, &after(198)).until(|seen| seen.len() == 2).to_vec();
    assert!(seen[0].starts_with("199 a=") && seen[1].starts_with("200 a="));
    let oldest = log.info().oldest_seq;
    assert!(oldest > 100, "{oldest}");
    let seen = Watch::of(&node, &after(10)).until(|seen| seen.len() == 2).to_vec();
    assert_eq!(seen, [format!("gap 11 to {}", oldest - 1), SubscribeError::Lost.to_string()]);
}

#[test]
fn keys_can_be_used_when_file_descriptors_are_free_again() {
    let disk = Arc::new(FakeDisk::new(8));
    // In the first round, the node has no keys on disk yet.
    for revision in 1..=2 {
        disk.set_faults(Faults { opens_fail: true, ..Faults::default() });
        let node = Node::open(Config::default(), disk.clone(), std::path::Path::new("/data")).unwrap().0;
        let refused = node.control().map(drop).unwrap_err();
        assert!(matches!(refused, ControlError::LacksResource(_)), "{refused}");
        assert_eq!(Refused::from(&refused).code, ErrorCode::Limit);
        let refused = node.subscribe(KV, &SubscribeOptions::default()).map(drop).unwrap_err();
        assert_eq!(Refused::from(&refused).code, ErrorCode::Limit, "a watch: {refused}");
        disk.set_faults(Faults::default());
        until("keys start by themselves", || {
            node.tick();
            node.failed_parts().is_empty()
        });
        let changed = block_on(node.control().unwrap().execute(&put("a", "1"))).unwrap();
        assert_eq!(changed, ControlReply::Changed { revision, keys: 1 }, "the files are not restored ones");
        node.stop();
    }
}

#[test]
fn acknowledged_keys_survive_a_crash_and_watches_resume() {
    let disk = Arc::new(FakeDisk::new(7));
    let dir = std::path::Path::new("/data");
    let open = || Node::open(Config::default(), disk.clone(), dir).unwrap().0;
    let mut position = Position::default();
    for round in 0..3_u64 {
        let node = open();
        let control = node.control().unwrap();
        assert_eq!(control.with(|state| state.revision()).unwrap(), round * 2);
        for _ in 0..2 {
            block_on(control.execute(&put("a", "1"))).unwrap();
        }
        let mut watch = if round == 0 {
            Watch::from_first(&node)
        } else {
            let start = Start::After(position);
            Watch::of(&node, &SubscribeOptions { start, ..SubscribeOptions::default() })
        };
        let (first, second) = (round * 2 + 1, round * 2 + 2);
        let expected = [format!("{first} a=1"), format!("{second} a=1")];
        assert_eq!(watch.until(|seen| seen.len() == 2), expected);
        position = node.topic(KV).unwrap().logs()[0].last();
        disk.crash();
    }
}

#[test]
fn key_history_survives_a_snapshot_and_a_crash() {
    let disk = Arc::new(FakeDisk::new(7));
    let open = || Node::open(Config::default(), disk.clone(), std::path::Path::new("/data")).unwrap().0;
    let node = open();
    let control = node.control().unwrap();
    for value in ["1", "2", "3"] {
        block_on(control.execute(&put("a", value))).unwrap();
    }
    block_on(control.snapshot()).unwrap();
    until("it is taken", || control.status().unwrap().snapshot.is_some());
    block_on(control.execute(&put("a", "4"))).unwrap();
    disk.crash();
    let seen = Watch::from_first(&open()).until(|seen| seen.len() == 4).to_vec();
    assert_eq!(seen, ["1 a=1", "2 a=2", "3 a=3", "4 a=4"]);
}

#[test]
fn node_without_a_data_directory_restarts_with_a_later_epoch() {
    let epoch = || {
        let node = node();
        block_on(node.control().unwrap().execute(&put("a", "1"))).unwrap();
        let epoch = node.topic(KV).unwrap().logs()[0].last().epoch;
        node.wait_for_epoch();
        epoch
    };
    let first = epoch();
    assert!(first > 0);
    assert!(epoch() > first);
}

/// In this test, another client holds the lock after the restart. The previous holder, which has not noticed the
/// restart, must not renew, use or release that client's lease and lock.
#[test]
fn restart_without_a_data_directory_reuses_no_lease_number() {
    let old = {
        let node = node();
        let lease = grant(node.control().unwrap(), 60_000);
        block_on(node.control().unwrap().acquire(b"gate", lease, b"old")).unwrap();
        node.wait_for_epoch();
        lease
    };
    let node = node();
    let control = node.control().unwrap();
    let new = grant(control, 60_000);
    let token = block_on(control.acquire(b"gate", new, b"new")).unwrap();
    assert!(old < new && new < 1 << 53, "{old}, then {new}");
    let renewed = block_on(control.execute(&ControlCommand::KeepAlive { leases: vec![old] }));
    assert_eq!(renewed, Ok(ControlReply::KeptAlive { ended: vec![old] }));
    let not_held: Result<ControlReply, ControlError> =
        Err(ControlError::Refused(ControlRefusal::NotHeld { lease: old }));
    let proclaim = ControlCommand::Proclaim { name: b"gate", lease: old, value: b"old" };
    assert_eq!(block_on(control.execute(&proclaim)), not_held);
    assert_eq!(block_on(control.execute(&ControlCommand::Release { name: b"gate", lease: old })), not_held);
    assert_eq!(control.with(|state| state.lock_token(b"gate", new)).unwrap(), Some(token));
}

#[test]
fn keys_in_a_data_directory_survive_a_clean_stop() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Node::open(Config::default(), Arc::new(RealDisk), dir.path()).unwrap().0;
    let node = open();
    block_on(node.control().unwrap().execute(&put("a", "1"))).unwrap();
    node.stop();
    assert!(matches!(
        block_on(node.control().unwrap().execute(&put("a", "2"))),
        Err(ControlError::Stopped(_) | ControlError::Unknown)
    ));
    drop(node);
    assert!(dir.path().join("control").is_dir());
    let node = open();
    assert!(node.control_if_any().is_some(), "leases end without any request for keys");
    assert_eq!(value_of(&node, "a"), Some("1".to_owned()));
}

#[test]
fn lease_without_renewal_ends_and_frees_its_lock() {
    let node = node();
    let control = node.control().unwrap();
    let second = grant(control, 60_000);
    let (first, token) = find("a lease that lives until it has the lock", || {
        let first = grant(control, 300);
        Some((first, block_on(control.acquire(b"gate", first, b"first")).ok()?))
    });
    let next = block_on(control.acquire(b"gate", second, b"second")).unwrap();
    assert!(next > token, "{next} after {token}");
    assert_eq!(value_of(&node, "$lock/gate"), Some("second".to_owned()));
    let refused = block_on(control.acquire(b"gate", first, b"first"));
    assert_eq!(refused, Err(ControlError::Refused(ControlRefusal::NoLease { lease: first })));
}

#[test]
fn lock_wait_fails_when_its_lease_or_its_queue_entry_ends() {
    let node = node();
    let control = node.control().unwrap();
    let holder = grant(control, 60_000);
    block_on(control.acquire(b"gate", holder, b"")).unwrap();
    let wait = |lease| {
        let node = node.clone();
        std::thread::spawn(move || block_on(node.control().unwrap().acquire(b"gate", lease, b"")))
    };
    let short = grant(control, 200);
    let ended = wait(short).join().unwrap();
    assert_eq!(ended, Err(ControlError::Refused(ControlRefusal::NoLease { lease: short })));
    let leaver = grant(control, 60_000);
    let waiting = wait(leaver);
    until("it waits", || control.with(|state| state.lease(leaver).unwrap().waits).unwrap() == 1);
    block_on(control.execute(&ControlCommand::Release { name: b"gate", lease: leaver })).unwrap();
    assert_eq!(
        waiting.join().unwrap(),
        Err(ControlError::Refused(ControlRefusal::NotHeld { lease: leaver }))
    );
    let stopped = wait(grant(control, 60_000));
    node.stop();
    assert!(stopped.join().unwrap().is_err(), "no caller waits for ever");
}

#[test]
fn lock_wait_fails_when_the_waiting_lease_sends_a_release() {
    let node = node();
    let control = node.control().unwrap();
    let holder = grant(control, 60_000);
    block_on(control.acquire(b"gate", holder, b"")).unwrap();
    let leaver = grant(control, 60_000);
    let mut wait = pin!(control.acquire(b"gate", leaver, b""));
    // After one poll, the lock was requested, but the wait has not seen the response.
    assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until("the lease is in the queue", || {
        control.with(|state| state.lease(leaver).unwrap().waits).unwrap() == 1
    });
    block_on(control.execute(&ControlCommand::Release { name: b"gate", lease: leaver })).unwrap();
    assert_eq!(block_on(wait), Err(ControlError::Refused(ControlRefusal::NotHeld { lease: leaver })));
}

#[test]
fn key_is_stored_despite_full_memory_but_watchers_get_a_gap() {
    let limits = NodeLimits { memory_bytes_max: 1 << 20, ..NodeLimits::default() };
    let node = Node::start(Config { limits, ..Config::default() }).unwrap();
    let control = node.control().unwrap();
    let mut watch = Watch::from_first(&node);
    block_on(control.execute(&put("a", "1"))).unwrap();
    watch.until(|seen| seen.len() == 1);
    let big = vec![b'x'; 900 << 10];
    let held = dunlin::topic::MemoryCharge::of(node.budget(), 600 << 10).unwrap();
    block_on(control.execute(&ControlCommand::Put { key: b"b", value: &big, lease: 0 })).unwrap();
    drop(held);
    block_on(control.execute(&put("c", "3"))).unwrap();
    assert_eq!(watch.until(|seen| seen.len() == 3), ["1 a=1", "gap 2 to 2", "3 c=3"]);
}

#[test]
fn invalid_command_bytes_are_refused_before_they_are_proposed() {
    let node = node();
    let control = node.control().unwrap();
    let refused = block_on(control.propose(dunlin::raft::CommandBatch::one(b"nonsense")));
    assert!(matches!(refused, Err(ControlError::Malformed(_))), "{refused:?}");
    block_on(control.execute(&put("a", "1"))).unwrap();
}

#[test]
fn keys_are_limited_by_state_bytes_max() {
    let disk = Arc::new(FakeDisk::new(7));
    let open = |state_bytes_max| {
        let mut config = Config::default();
        config.limits.control.state_bytes_max = state_bytes_max;
        Node::open(config, disk.clone(), std::path::Path::new("/data")).unwrap().0
    };
    let put = |node: &Node, number: u8| {
        let (key, value) = (&[b'a' + number][..], &[b'x'; 10_000][..]);
        block_on(node.control().unwrap().execute(&ControlCommand::Put { key, value, lease: 0 }))
    };
    let node = open(64 << 10);
    assert_eq!((0..20).take_while(|number| put(&node, *number).is_ok()).count(), 6);
    let refused = Refused::from(&put(&node, 6).unwrap_err());
    assert_eq!(refused.code, dunlin_wire::ErrorCode::NoRoom);
    assert!(refused.text.contains("kv.bytes_max = 65536: delete keys"), "{refused:?}");
    block_on(node.control().unwrap().execute(&ControlCommand::Delete { key: b"a" })).unwrap();
    put(&node, 0).unwrap();
    node.stop();
    drop(node);
    let node = open(128 << 10);
    put(&node, 6).unwrap();
    node.stop();
    drop(node);
    let node = open(64 << 10);
    assert!(put(&node, 7).is_err(), "existing keys stay, and no key is added");
    assert_eq!(node.control().unwrap().with(|state| state.len()).unwrap(), 7);
}

#[test]
fn memory_limit_sets_the_limits_of_keys_and_tasks() {
    let limits = NodeLimits::with_memory(64 << 20);
    let node = Node::start(Config { limits, ..Config::default() }).unwrap();
    block_on(node.control().unwrap().execute(&put("a", "1"))).unwrap();
    assert_eq!(node.control().unwrap().with(|state| state.limits().state_bytes_max).unwrap(), 16 << 20);
    let tenant = dunlin::scheduler::TaskCommand::EnsureTenant { tenant: b"a" };
    block_on(node.tasks().unwrap().execute(&tenant)).unwrap();
    let tasks = node.tasks().unwrap().read_each(|state| state.limits().state_bytes_max).unwrap();
    assert_eq!(tasks, [16 << 20]);
    let limits = dunlin::scheduler::SchedulerLimits { state_bytes_max: u64::MAX, ..Default::default() };
    let raised = block_on(node.execute_task_command(&dunlin::scheduler::TaskCommand::Limit { limits }));
    assert_eq!(raised.unwrap_err().code, dunlin_wire::ErrorCode::Forbidden, "clients may not set limits");
}
