//! Several nodes, of which one leads.

use std::time::{Duration, Instant};

use dunlin::state::{ControlCommand, ControlQuery, ControlRefusal, ControlReply, QueryAnswer};
use dunlin::topic::{Position, Start, SubscribeOptions};
use dunlin::{Consistency, ControlError, KV, block_on};
use dunlin_wait::POLL;

use super::nodes::*;

#[test]
fn any_node_accepts_commands_and_delivers_the_same_changes() {
    let stage = TestCluster::of(3, limits());
    for (number, id) in [1, 2, 3, 1, 2, 3].into_iter().enumerate() {
        let reply = block_on(stage.control(id).ask(&put("a", "1"))).unwrap();
        assert_eq!(reply, ControlReply::Changed { revision: number as u64 + 1, keys: 1 });
        let read =
            block_on(stage.control(1 + id % 3).read(Consistency::Linearizable, |state| state.revision()));
        assert_eq!(read, Ok(number as u64 + 1), "another node has the key after the response");
    }
    let told =
        stage.nodes.values().map(|node| Watch::from_first(node).until(|seen| seen.len() == 6).to_vec());
    let told: Vec<_> = told.collect();
    assert!(told.iter().all(|seen| *seen == told[0]), "{told:?}");
}

#[test]
fn command_with_a_lost_response_is_unknown_and_applied_once() {
    let stage = TestCluster::of(3, limits());
    block_on(stage.control(1).ask(&put("a", "1"))).unwrap();
    let follower = stage.followers()[0];
    stage.lose_answers(true);
    assert_eq!(block_on(stage.control(follower).ask(&put("a", "2"))), Err(ControlError::Unknown));
    stage.lose_answers(false);
    let read =
        block_on(stage.control(follower).query(Consistency::Linearizable, &ControlQuery::Get { key: b"a" }));
    let QueryAnswer::Found { found, .. } = read.unwrap() else { panic!() };
    assert_eq!(found.items[0].item.version, 2, "done once");
}

#[test]
fn isolated_node_refuses_in_time_and_serves_only_stale_reads() {
    let mut limits = limits();
    limits.raft.answer_ms_max = 2_000;
    let stage = TestCluster::of(3, limits);
    block_on(stage.control(1).ask(&put("a", "1"))).unwrap();
    let cut = stage.followers()[0];
    until("it has it", || stage.control(cut).with(|state| state.revision()).unwrap() == 1);
    stage.isolate(cut, true);
    let refused = block_on(stage.control(cut).ask(&put("a", "2")));
    assert!(matches!(refused, Err(ControlError::NoLeader { .. })), "{refused:?}");
    let refused = block_on(stage.control(cut).catch_up());
    assert!(matches!(refused, Err(ControlError::NoLeader { .. })), "{refused:?}");
    assert_eq!(block_on(stage.control(cut).read(Consistency::Stale, |state| state.revision())), Ok(1));
    stage.isolate(cut, false);
    until("the cluster responds again", || block_on(stage.control(cut).ask(&put("a", "3"))).is_ok());
}

/// On a node without a majority, the watch must not wait for as long as `answer_ms_max`.
#[test]
fn watch_from_a_future_revision_opens_without_a_majority() {
    let mut limits = limits();
    // The limit is longer than a test may take.
    limits.raft.answer_ms_max = 3_600_000;
    let stage = TestCluster::of(3, limits);
    block_on(stage.control(1).ask(&put("a", "1"))).unwrap();
    let cut = stage.followers()[0];
    let node = &stage.nodes[&cut];
    Watch::from_first(node).until(|seen| !seen.is_empty());
    let epoch = block_on(stage.control(cut).epoch()).unwrap();
    stage.isolate(cut, true);
    let start = Start::After(Position { epoch, seq: 2 });
    let mut watch = Watch::of(node, &SubscribeOptions { start, ..SubscribeOptions::default() });
    stage.isolate(cut, false);
    let others: Vec<u64> = stage.nodes.keys().copied().filter(|id| *id != cut).collect();
    for value in ["2", "3"] {
        stage.ask_among(&others, &put("a", value));
    }
    assert!(watch.until(|seen| !seen.is_empty())[0].ends_with("a=3"), "{:?}", watch.seen);
}

/// A new leader must not count time before its term as time in which a lease was not renewed.
#[test]
fn lease_does_not_end_early_under_a_new_leader() {
    // On a slow machine, an election takes longer than a short lease.
    assert!([2_000, 10_000, 40_000].into_iter().any(is_kept_by_the_next_leader));
}

/// Whether another node led before the lease's time to live had passed, and so could have ended the lease too early.
fn is_kept_by_the_next_leader(ttl_ms: u64) -> bool {
    let mut stage = TestCluster::of(3, limits());
    let old = stage.leader();
    // The term must be older than the lease.
    std::thread::sleep(Duration::from_millis(ttl_ms * 5 / 4));
    let lease = grant(stage.control(old), ttl_ms);
    let put = ControlCommand::Put { key: b"mine", value: b"1", lease };
    stage.ask_among(&[1, 2, 3], &put);
    let kept = Instant::now();
    let ControlReply::KeptAlive { ended } =
        stage.ask_among(&[1, 2, 3], &ControlCommand::KeepAlive { leases: vec![lease] })
    else {
        panic!()
    };
    if !ended.is_empty() {
        return false;
    }
    stage.stop(old);
    let left: Vec<u64> = stage.nodes.keys().copied().collect();
    let is_there = |stage: &TestCluster| {
        let leader = stage.leader_among(&left);
        block_on(stage.control(leader).read(Consistency::Linearizable, |state| state.get(b"mine").is_some()))
    };
    // Counts only reads within the lease's time to live.
    let mut asked = 0;
    loop {
        let there = is_there(&stage);
        if kept.elapsed() >= Duration::from_millis(ttl_ms * 19 / 20) {
            break;
        }
        if let Ok(there) = there {
            assert!(there, "the lease ended {:?} after its renewal", kept.elapsed());
            asked += 1;
        }
        std::thread::sleep(POLL);
    }
    until("it ends", || is_there(&stage) == Ok(false));
    asked > 0
}

/// Returns the changes that a watch receives at a node that was unreachable until the other nodes had removed the log
/// entries that it lacks.
fn seen_after_a_snapshot(history_bytes: u64) -> Vec<String> {
    let mut limits = limits();
    limits.raft.log_bytes_max = 4 << 10;
    limits.history_bytes = history_bytes;
    let mut stage = TestCluster::of(3, limits);
    block_on(stage.control(1).ask(&put("a", "1"))).unwrap();
    let late = stage.followers()[0];
    until("it has it", || stage.control(late).with(|state| state.revision()).unwrap() == 1);
    let mut watch = Watch::from_first(&stage.nodes[&late]);
    watch.until(|seen| seen.len() == 1);
    stage.isolate(late, true);
    let others: Vec<u64> = stage.nodes.keys().copied().filter(|id| *id != late).collect();
    let leader = stage.leader_among(&others);
    for _ in 0..400 {
        stage.ask_among(&others, &put("b", "2"));
    }
    block_on(stage.control(leader).snapshot()).unwrap();
    until("the log is purged", || {
        stage.control(leader).status().unwrap().purged.is_some_and(|last| last > 20)
    });
    stage.isolate(late, false);
    until("it caught up", || stage.control(late).with(|state| state.revision()).unwrap() >= 401);
    stage.ask_among(&[1, 2, 3], &put("c", "3"));
    let seen = watch.until(|seen| seen.last().is_some_and(|last| last.ends_with("c=3"))).to_vec();
    stage.join(4);
    let mut newcomer = Watch::from_first(&stage.nodes[&4]);
    block_on(stage.control(4).ask(&put("d", "4"))).unwrap();
    newcomer.until(|seen| seen.last().is_some_and(|last| last.ends_with("d=4")));
    seen
}

fn revisions(seen: &[String]) -> Vec<u64> {
    seen.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn watcher_gets_every_change_although_its_node_got_a_snapshot() {
    let seen = seen_after_a_snapshot(64 << 20);
    assert!(revisions(&seen).into_iter().eq(1..=seen.len() as u64), "{:?}", &seen[..3]);
}

#[test]
fn watch_reports_revisions_missing_from_a_snapshot_as_a_gap() {
    let seen = seen_after_a_snapshot(16 << 10);
    assert!(seen[1].starts_with("gap 2 to "), "{:?}", &seen[..3]);
    let told: u64 = seen[1].rsplit(' ').next().unwrap().parse().unwrap();
    let follows = revisions(&seen[2..]);
    assert!(follows.iter().zip(told + 1..).all(|(seq, expected)| *seq == expected), "{:?}", &seen[..5]);
}

fn epoch(stage: &TestCluster, id: u64) -> u32 {
    block_on(stage.control(id).epoch()).unwrap()
}

/// A restarted leader that has not applied its log must not begin a new epoch, which would end all watches and drop
/// all history.
#[test]
fn restarted_cluster_keeps_its_epoch_and_history() {
    let mut stage = TestCluster::of(3, limits());
    block_on(stage.control(1).ask(&put("a", "0"))).unwrap();
    let first = epoch(&stage, 1);
    for round in 1..=4_u64 {
        (1..=3).for_each(|id| stage.stop(id));
        (1..=3).for_each(|id| stage.start(id));
        // Each node receives a command as soon as it leads.
        std::thread::scope(|scope| {
            for id in 1..=3 {
                let control = stage.control(id);
                scope.spawn(move || block_on(control.ask(&put("a", "1"))).unwrap());
            }
        });
        for id in 1..=3 {
            assert_eq!(epoch(&stage, id), first, "after {round} restarts");
        }
        let seen =
            Watch::from_first(&stage.nodes[&1]).until(|seen| seen.len() as u64 == 3 * round + 1).to_vec();
        assert!(revisions(&seen).into_iter().eq(1..=3 * round + 1), "{seen:?}");
    }
}

fn watch_after(stage: &TestCluster, id: u64, position: Position) -> Watch {
    let options = SubscribeOptions { start: Start::After(position), ..SubscribeOptions::default() };
    Watch::of(&stage.nodes[&id], &options)
}

/// Restarts a follower, which then knows no leader.
fn restarted_follower(stage: &mut TestCluster) -> (u64, Position) {
    for _ in 0..3 {
        block_on(stage.control(1).ask(&put("a", "1"))).unwrap();
    }
    let id = stage.followers()[0];
    block_on(stage.control(id).catch_up()).unwrap();
    let position = stage.nodes[&id].topic(KV).unwrap().logs()[0].last();
    stage.stop(id);
    stage.isolate(id, true);
    stage.start(id);
    (id, position)
}

#[test]
fn watch_resumes_at_a_restarted_node_that_has_applied_nothing() {
    let mut stage = TestCluster::of(3, limits());
    let (id, position) = restarted_follower(&mut stage);
    assert_eq!(stage.control(id).with(|state| state.revision()), Ok(0), "nothing is applied yet");
    // The watch may begin before the node knows the positions of the other nodes. The watch then waits until the node
    // knows them.
    let mut watch = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch_after(&stage, id, position));
        stage.isolate(id, false);
        watch.join().unwrap()
    });
    stage.ask_among(&[1, 2, 3], &put("b", "2"));
    assert_eq!(watch.until(|seen| !seen.is_empty()), ["4 b=2"]);
}

#[test]
fn stale_read_waits_until_a_restarted_node_has_applied_its_log() {
    let mut stage = TestCluster::of(3, limits());
    let (id, position) = restarted_follower(&mut stage);
    std::thread::scope(|scope| {
        let control = stage.control(id);
        let read = scope.spawn(move || {
            block_on(control.read(Consistency::Stale, |state| (state.epoch(), state.revision())))
        });
        stage.isolate(id, false);
        assert_eq!(read.join().unwrap(), Ok((position.epoch, position.seq)));
    });
}

#[test]
fn lock_waiter_at_a_follower_gets_the_lock_after_a_revoke() {
    let stage = TestCluster::of(3, limits());
    let ids = stage.followers();
    let (here, there) = (stage.control(ids[0]), stage.control(ids[1]));
    let (first, second) = (grant(here, 60_000), grant(there, 60_000));
    let token = block_on(here.acquire(b"gate", first, b"")).unwrap();
    let waiting = {
        let node = stage.nodes[&ids[1]].clone();
        std::thread::spawn(move || block_on(node.control().unwrap().acquire(b"gate", second, b"")))
    };
    until("it waits", || {
        there.with(|state| state.lease(second).is_some_and(|lease| lease.waits == 1)).unwrap()
    });
    block_on(here.ask(&ControlCommand::Revoke { lease: first })).unwrap();
    let next = waiting.join().unwrap().unwrap();
    assert!(next > token);
    let refused = block_on(here.ask(&ControlCommand::Proclaim { name: b"gate", lease: first, value: b"" }));
    assert_eq!(refused, Err(ControlError::Refused(ControlRefusal::NotHeld { lease: first })));
}
