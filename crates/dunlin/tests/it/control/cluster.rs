//! Tests of keys, leases and locks in a cluster of several nodes.

use std::time::{Duration, Instant};

use dunlin::state::{ControlCommand, ControlQuery, ControlQueryResult, ControlRefusal, ControlReply};
use dunlin::topic::{Position, Start, SubscribeError, SubscribeOptions};
use dunlin::{Consistency, ControlError, ControlGroup, KV, block_on};
use dunlin_wait::POLL;

use super::nodes::*;

#[test]
fn every_node_accepts_commands_and_all_deliver_equal_changes() {
    let cluster = TestCluster::of(3, limits());
    for (number, id) in [1, 2, 3, 1, 2, 3].into_iter().enumerate() {
        let reply = block_on(cluster.control(id).execute(&put("a", "1"))).unwrap();
        assert_eq!(reply, ControlReply::Changed { revision: number as u64 + 1, keys: 1 });
        let read =
            block_on(cluster.control(1 + id % 3).read(Consistency::Linearizable, |state| state.revision()));
        assert_eq!(read, Ok(number as u64 + 1), "another node has the key after the response");
    }
    let watched =
        cluster.nodes.values().map(|node| Watch::from_first(node).until(|seen| seen.len() == 6).to_vec());
    let watched: Vec<_> = watched.collect();
    assert!(watched.iter().all(|seen| *seen == watched[0]), "{watched:?}");
}

#[test]
fn command_with_a_lost_response_returns_unknown_and_runs_once() {
    let cluster = TestCluster::of(3, limits());
    block_on(cluster.control(1).execute(&put("a", "1"))).unwrap();
    let follower = cluster.followers()[0];
    cluster.lose_responses(true);
    assert_eq!(block_on(cluster.control(follower).execute(&put("a", "2"))), Err(ControlError::Unknown));
    cluster.lose_responses(false);
    let read = block_on(
        cluster.control(follower).query(Consistency::Linearizable, &ControlQuery::Get { key: b"a" }),
    );
    let ControlQueryResult::Found { found, .. } = read.unwrap() else { panic!() };
    assert_eq!(found.items[0].item.version, 2, "done once");
}

#[test]
fn isolated_node_refuses_commands_and_serves_only_stale_reads() {
    let mut limits = limits();
    limits.raft.answer_ms_max = 2_000;
    let cluster = TestCluster::of(3, limits);
    block_on(cluster.control(1).execute(&put("a", "1"))).unwrap();
    let cut = cluster.followers()[0];
    until("it has it", || cluster.control(cut).with(|state| state.revision()).unwrap() == 1);
    cluster.isolate(cut, true);
    let refused = block_on(cluster.control(cut).execute(&put("a", "2")));
    assert!(matches!(refused, Err(ControlError::NoLeader { .. })), "{refused:?}");
    let refused = block_on(cluster.control(cut).catch_up());
    assert!(matches!(refused, Err(ControlError::NoLeader { .. })), "{refused:?}");
    assert_eq!(block_on(cluster.control(cut).read(Consistency::Stale, |state| state.revision())), Ok(1));
    cluster.isolate(cut, false);
    until("the cluster responds again", || block_on(cluster.control(cut).execute(&put("a", "3"))).is_ok());
}

/// A node without a majority must open the watch soon, without waiting for `answer_ms_max`.
#[test]
fn watch_from_a_future_revision_opens_without_a_majority() {
    let mut limits = limits();
    // Make the limit longer than a test may take.
    limits.raft.answer_ms_max = 3_600_000;
    let cluster = TestCluster::of(3, limits);
    block_on(cluster.control(1).execute(&put("a", "1"))).unwrap();
    let cut = cluster.followers()[0];
    let node = &cluster.nodes[&cut];
    Watch::from_first(node).until(|seen| !seen.is_empty());
    let epoch = block_on(cluster.control(cut).epoch()).unwrap();
    cluster.isolate(cut, true);
    let start = Start::After(Position { epoch, seq: 2 });
    let mut watch = Watch::of(node, &SubscribeOptions { start, ..SubscribeOptions::default() });
    cluster.isolate(cut, false);
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != cut).collect();
    for value in ["2", "3"] {
        cluster.execute_among(&others, &put("a", value));
    }
    assert!(watch.until(|seen| !seen.is_empty())[0].ends_with("a=3"), "{:?}", watch.seen);
}

/// A new leader cannot know whether a lease was renewed before the leader's term. It must not count the time before its
/// term as time without renewal.
#[test]
fn lease_does_not_end_early_under_a_new_leader() {
    // On a slow machine, an election takes longer than a short lease lasts. Then try a longer lease.
    assert!([2_000, 10_000, 40_000].into_iter().any(check_lease_under_new_leader));
}

/// Checks that a lease does not end early under a new leader. Returns `false`, without a check, if the lease ended
/// before another node became the leader.
fn check_lease_under_new_leader(ttl_ms: u64) -> bool {
    let mut cluster = TestCluster::of(3, limits());
    let old = cluster.leader();
    // Wait until the leader's term has lasted longer than the lease's time to live.
    std::thread::sleep(Duration::from_millis(ttl_ms * 5 / 4));
    let lease = grant(cluster.control(old), ttl_ms);
    let put = ControlCommand::Put { key: b"mine", value: b"1", lease };
    cluster.execute_among(&[1, 2, 3], &put);
    let kept = Instant::now();
    let ControlReply::KeptAlive { ended } =
        cluster.execute_among(&[1, 2, 3], &ControlCommand::KeepAlive { leases: vec![lease] })
    else {
        panic!()
    };
    if !ended.is_empty() {
        return false;
    }
    cluster.stop(old);
    let left: Vec<u64> = cluster.nodes.keys().copied().collect();
    let is_there = |cluster: &TestCluster| {
        let leader = cluster.leader_among(&left);
        block_on(
            cluster.control(leader).read(Consistency::Linearizable, |state| state.get(b"mine").is_some()),
        )
    };
    // Count the reads that succeed while the lease must still exist.
    let mut reads = 0;
    loop {
        let is_present = is_there(&cluster);
        if kept.elapsed() >= Duration::from_millis(ttl_ms * 19 / 20) {
            break;
        }
        if let Ok(is_present) = is_present {
            assert!(is_present, "the lease ended {:?} after its renewal", kept.elapsed());
            reads += 1;
        }
        std::thread::sleep(POLL);
    }
    until("it ends", || is_there(&cluster) == Ok(false));
    reads > 0
}

/// Returns the changes that a watch receives at a node which was unreachable for some time. Meanwhile, the other nodes
/// have removed the log entries that the node lacks. The node therefore receives a snapshot.
fn changes_after_a_snapshot(history_bytes: u64) -> Vec<String> {
    let mut limits = limits();
    limits.raft.log_bytes_max = 4 << 10;
    limits.history_bytes = history_bytes;
    let mut cluster = TestCluster::of(3, limits);
    block_on(cluster.control(1).execute(&put("a", "1"))).unwrap();
    let late = cluster.followers()[0];
    until("it has it", || cluster.control(late).with(|state| state.revision()).unwrap() == 1);
    let mut watch = Watch::from_first(&cluster.nodes[&late]);
    watch.until(|seen| seen.len() == 1);
    cluster.isolate(late, true);
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != late).collect();
    let leader = cluster.leader_among(&others);
    for _ in 0..400 {
        cluster.execute_among(&others, &put("b", "2"));
    }
    block_on(cluster.control(leader).snapshot()).unwrap();
    until("the log is purged", || {
        cluster.control(leader).status().unwrap().purged.is_some_and(|last| last > 20)
    });
    cluster.isolate(late, false);
    until("it caught up", || cluster.control(late).with(|state| state.revision()).unwrap() >= 401);
    cluster.execute_among(&[1, 2, 3], &put("c", "3"));
    let seen = watch.until(|seen| seen.last().is_some_and(|last| last.ends_with("c=3"))).to_vec();
    cluster.join(4);
    let mut newcomer = Watch::from_first(&cluster.nodes[&4]);
    block_on(cluster.control(4).execute(&put("d", "4"))).unwrap();
    newcomer.until(|seen| seen.last().is_some_and(|last| last.ends_with("d=4")));
    seen
}

fn revisions(seen: &[String]) -> Vec<u64> {
    seen.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn watcher_gets_every_change_although_its_node_got_a_snapshot() {
    let seen = changes_after_a_snapshot(64 << 20);
    assert!(revisions(&seen).into_iter().eq(1..=seen.len() as u64), "{:?}", &seen[..3]);
}

#[test]
fn watch_reports_revisions_missing_from_a_snapshot_as_a_gap() {
    let seen = changes_after_a_snapshot(16 << 10);
    assert!(seen[1].starts_with("gap 2 to "), "{:?}", &seen[..3]);
    let gap_end: u64 = seen[1].rsplit(' ').next().unwrap().parse().unwrap();
    let follows = revisions(&seen[2..]);
    assert!(follows.iter().zip(gap_end + 1..).all(|(seq, expected)| *seq == expected), "{:?}", &seen[..5]);
}

fn epoch(cluster: &TestCluster, id: u64) -> u32 {
    block_on(cluster.control(id).epoch()).unwrap()
}

/// If a restarted leader that has not applied its log began a new epoch, all watches would end and all history would be
/// dropped.
#[test]
fn restarted_cluster_keeps_its_epoch_and_history() {
    let mut cluster = TestCluster::of(3, limits());
    block_on(cluster.control(1).execute(&put("a", "0"))).unwrap();
    let first = epoch(&cluster, 1);
    for round in 1..=4_u64 {
        (1..=3).for_each(|id| cluster.stop(id));
        (1..=3).for_each(|id| cluster.start(id));
        // Send each node a command, which a node executes as soon as it leads.
        std::thread::scope(|scope| {
            for id in 1..=3 {
                let control = cluster.control(id);
                scope.spawn(move || block_on(control.execute(&put("a", "1"))).unwrap());
            }
        });
        for id in 1..=3 {
            assert_eq!(epoch(&cluster, id), first, "after {round} restarts");
        }
        let seen =
            Watch::from_first(&cluster.nodes[&1]).until(|seen| seen.len() as u64 == 3 * round + 1).to_vec();
        assert!(revisions(&seen).into_iter().eq(1..=3 * round + 1), "{seen:?}");
    }
}

fn watch_after(cluster: &TestCluster, id: u64, position: Position) -> Watch {
    let options = SubscribeOptions { start: Start::After(position), ..SubscribeOptions::default() };
    Watch::of(&cluster.nodes[&id], &options)
}

/// Restarts a follower without connections, so that it knows no leader. Returns the follower's id, and the position
/// that its topic had before.
fn restarted_follower(cluster: &mut TestCluster) -> (u64, Position) {
    for _ in 0..3 {
        block_on(cluster.control(1).execute(&put("a", "1"))).unwrap();
    }
    let id = cluster.followers()[0];
    block_on(cluster.control(id).catch_up()).unwrap();
    let position = cluster.nodes[&id].topic(KV).unwrap().logs()[0].last();
    cluster.stop(id);
    cluster.isolate(id, true);
    cluster.start(id);
    (id, position)
}

#[test]
fn watch_resumes_at_a_node_that_has_just_restarted() {
    let mut cluster = TestCluster::of(3, limits());
    let (id, position) = restarted_follower(&mut cluster);
    assert_eq!(cluster.control(id).with(|state| state.revision()), Ok(0), "nothing is applied yet");
    // The watch may begin before the node has reached the other nodes. It then waits until the node knows their
    // positions.
    let mut watch = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch_after(&cluster, id, position));
        cluster.isolate(id, false);
        watch.join().unwrap()
    });
    cluster.execute_among(&[1, 2, 3], &put("b", "2"));
    assert_eq!(watch.until(|seen| !seen.is_empty()), ["4 b=2"]);
}

/// Before the node has applied its log, the topic of changes has no epoch. A watch that began in this state would later
/// report a new epoch, and would receive old revisions as new ones.
#[test]
fn watch_without_a_position_waits_until_the_log_is_applied() {
    let mut cluster = TestCluster::of(3, limits());
    let (id, position) = restarted_follower(&mut cluster);
    assert_eq!(cluster.nodes[&id].topic(KV).unwrap().logs()[0].last().epoch, 0, "nothing is applied yet");
    let cluster = &cluster;
    let open = |start| {
        move || Watch::of(&cluster.nodes[&id], &SubscribeOptions { start, ..SubscribeOptions::default() })
    };
    let (mut oldest, mut latest) = std::thread::scope(|scope| {
        let (oldest, latest) = (scope.spawn(open(Start::Earliest)), scope.spawn(open(Start::Latest)));
        cluster.isolate(id, false);
        (oldest.join().unwrap(), latest.join().unwrap())
    });
    cluster.execute_among(&[1, 2, 3], &put("b", "2"));
    assert_eq!(oldest.until(|seen| seen.len() == 4), ["1 a=1", "2 a=1", "3 a=1", "4 b=2"]);
    assert_eq!(latest.until(|seen| !seen.is_empty()), ["4 b=2"]);
    assert_eq!(position.seq, 3);
}

#[test]
fn watch_at_a_restarted_node_without_a_majority_is_refused() {
    let mut limits = limits();
    limits.raft.answer_ms_max = 5_000;
    let mut cluster = TestCluster::of(3, limits);
    let (id, _) = restarted_follower(&mut cluster);
    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let node = &cluster.nodes[&id];
    let refused = node.subscribe(KV, &options).map(drop);
    let has_no_leader =
        matches!(&refused, Err(SubscribeError::Refused(why)) if why.starts_with("NO_LEADER: "));
    assert!(has_no_leader, "{refused:?}");
    cluster.isolate(id, false);
    until("the watch opens", || node.subscribe(KV, &options).is_ok());
    assert_eq!(Watch::of(node, &options).until(|seen| seen.len() == 3), ["1 a=1", "2 a=1", "3 a=1"]);
}

#[test]
fn stale_read_waits_until_a_restarted_node_has_applied_its_log() {
    let mut cluster = TestCluster::of(3, limits());
    let (id, position) = restarted_follower(&mut cluster);
    std::thread::scope(|scope| {
        let control = cluster.control(id);
        let read = scope.spawn(move || {
            block_on(control.read(Consistency::Stale, |state| (state.epoch(), state.revision())))
        });
        cluster.isolate(id, false);
        assert_eq!(read.join().unwrap(), Ok((position.epoch, position.seq)));
    });
}

#[test]
fn lock_waiter_at_a_follower_gets_the_lock_of_a_revoked_lease() {
    let cluster = TestCluster::of(3, limits());
    let ids = cluster.followers();
    let (holder, other) = (cluster.control(ids[0]), cluster.control(ids[1]));
    let (first, second) = (grant(holder, 60_000), grant(other, 60_000));
    let token = block_on(holder.acquire(b"gate", first, b"")).unwrap();
    let waiting = {
        let node = cluster.nodes[&ids[1]].clone();
        std::thread::spawn(move || block_on(node.control().unwrap().acquire(b"gate", second, b"")))
    };
    until("it waits", || {
        other.with(|state| state.lease(second).is_some_and(|lease| lease.waits == 1)).unwrap()
    });
    block_on(holder.execute(&ControlCommand::Revoke { lease: first })).unwrap();
    let next = waiting.join().unwrap().unwrap();
    assert!(next > token);
    let refused =
        block_on(holder.execute(&ControlCommand::Proclaim { name: b"gate", lease: first, value: b"" }));
    assert_eq!(refused, Err(ControlError::Refused(ControlRefusal::NotHeld { lease: first })));
}

/// When a follower applies a lease's release of a lock, the same lease may already wait for the lock again. The release
/// must not end this new wait.
#[test]
fn late_release_of_a_lock_does_not_end_a_new_wait() {
    let cluster = TestCluster::of(3, limits());
    let ids = cluster.followers();
    let (late, other) = (cluster.control(ids[0]), cluster.control(ids[1]));
    let (first, second) = (grant(late, 60_000), grant(other, 60_000));
    let acquire = |id: u64, lease| {
        let node = cluster.nodes[&id].clone();
        std::thread::spawn(move || block_on(node.control().unwrap().acquire(b"gate", lease, b"")))
    };
    let waits = |control: &ControlGroup, lease| {
        until("it waits", || {
            control.with(|state| state.lease(lease).is_some_and(|lease| lease.waits == 1)).unwrap()
        });
    };
    block_on(late.acquire(b"gate", first, b"")).unwrap();
    let second_holds = acquire(ids[1], second);
    waits(other, second);
    cluster.withhold_log(ids[0], true);
    block_on(late.execute(&ControlCommand::Release { name: b"gate", lease: first })).unwrap();
    let token = second_holds.join().unwrap().unwrap();
    let first_again = acquire(ids[0], first);
    waits(other, first);
    cluster.withhold_log(ids[0], false);
    waits(late, first);
    block_on(other.execute(&ControlCommand::Release { name: b"gate", lease: second })).unwrap();
    assert!(first_again.join().unwrap().unwrap() > token);
}
