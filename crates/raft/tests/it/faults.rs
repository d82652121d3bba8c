//! Tests with crashes and network partitions.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dunlin_journal::Disk;
use dunlin_raft::{RaftGroupError, RaftLimits};

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn crashed_leader_is_replaced_and_catches_up_after_a_restart() {
    let mut cluster = TestCluster::with_nodes(3, LIMITS).await;
    for round in 0..4 {
        cluster.propose_line(&format!("before {round}")).await;
        let leader = cluster.leader().await;
        cluster.crash(leader).await;
        cluster.propose_line(&format!("without {leader}")).await;
        cluster.start(leader);
        cluster.wait_until_equal().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn power_cut_of_all_nodes_loses_no_acknowledged_command() {
    let mut cluster = TestCluster::with_nodes(3, LIMITS).await;
    for round in 0..4 {
        for number in 0..10 {
            cluster.propose_line(&format!("{round}/{number}")).await;
        }
        for id in 1..=3 {
            cluster.crash(id).await;
        }
        (1..=3).for_each(|id| cluster.start(id));
        cluster.wait_until_equal().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn isolated_leader_acknowledges_no_write_and_serves_no_read() {
    let cluster = TestCluster::with_nodes(3, LIMITS).await;
    cluster.propose_line("together").await;
    let old_leader = cluster.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != old_leader).collect();
    cluster.isolate(old_leader, true);
    let lost = {
        let node = cluster.nodes[&old_leader].clone();
        tokio::spawn(async move { node.propose(Bytes::from("alone")).await })
    };
    let read = {
        let node = cluster.nodes[&old_leader].clone();
        tokio::spawn(async move { node.catch_up().await })
    };
    cluster.propose_line_among(&others, "without it").await;
    cluster.isolate(old_leader, false);
    cluster.propose_line("together again").await;
    let lost = lost.await.unwrap().unwrap_err();
    assert!(matches!(lost, RaftGroupError::Unknown | RaftGroupError::NotLeader { .. }), "{lost}");
    read.await.unwrap().unwrap_err();
    assert_eq!(cluster.wait_until_equal().await, ["together", "without it", "together again"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_lacks_purged_log_entries_recovers_by_a_snapshot() {
    let limits = RaftLimits { log_bytes_max: 100, ..LIMITS };
    let mut cluster = TestCluster::with_nodes(3, limits).await;
    let absent = (1..=3).find(|id| *id != 1).unwrap();
    cluster.crash(absent).await;
    // Proposes lines until entries are purged that the crashed node lacks. This takes many lines, because some entries
    // stay in the log after a snapshot.
    let mut number = 0;
    while cluster.nodes.values().any(|node| node.status().purged.is_none()) {
        cluster.propose_line(&format!("a line of some bytes {number}")).await;
        number += 1;
        assert!(number < 20_000, "nothing is purged");
    }
    cluster.start(absent);
    cluster.wait_until_equal().await;
    cluster
        .wait_until("the node has a snapshot", |cluster| cluster.nodes[&absent].status().snapshot.is_some())
        .await;
    for id in 1..=3 {
        cluster.crash(id).await;
    }
    (1..=3).for_each(|id| cluster.start(id));
    cluster.propose_line("after all").await;
    cluster.wait_until_equal().await;
    // The log of this node begins after a snapshot that it received from another node. The node must be able to start
    // with such a log.
    cluster.crash(absent).await;
    cluster.start(absent);
    cluster.propose_line("once more").await;
    cluster.wait_until_equal().await;
}

/// A command that asks for a delay has to wait, because the other nodes cannot be reached. The delay must begin when
/// the command is proposed, and not before.
#[tokio::test(flavor = "multi_thread")]
async fn requested_delay_begins_when_the_command_is_proposed() {
    let cluster = TestCluster::with_nodes(2, LIMITS).await;
    cluster.propose_line("together").await;
    let leader = cluster.leader().await;
    let propose = |line: String| {
        let node = cluster.nodes[&leader].clone();
        tokio::spawn(async move { node.propose(Bytes::from(line)).await })
    };
    cluster.isolate(leader, true);
    let mut waiting = Vec::new();
    for number in 0..=LIMITS.in_flight_max {
        waiting.push(propose(format!("line {number}")));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let (proposed_at, last) = (Instant::now(), propose("due in 500".to_owned()));
    tokio::time::sleep(Duration::from_millis(50)).await;
    cluster.isolate(leader, false);
    // Both outcomes are possible: a leader that was cut off for long may no longer lead, and then refuses the command.
    if last.await.unwrap().is_ok() {
        cluster
            .wait_until("it was due", |cluster| cluster.nodes[&leader].with(|log| log.due_ms.is_none()))
            .await;
        assert!(proposed_at.elapsed() >= Duration::from_millis(500), "due after {:?}", proposed_at.elapsed());
    }
}

/// Every start of a node begins a new epoch and a new file of the log's journal. After several starts without a new
/// snapshot, the entries after the snapshot are in several files.
#[tokio::test(flavor = "multi_thread")]
async fn raft_log_split_over_several_files_survives_restarts() {
    let limits = RaftLimits { log_bytes_max: 600, ..LIMITS };
    let mut cluster = TestCluster::with_nodes(1, limits).await;
    let mut line_count = 0;
    for round in 0..12 {
        let before = cluster.nodes[&1].status().snapshot;
        let is_done = |cluster: &TestCluster, lines| {
            lines >= 3 && (round % 3 != 2 || cluster.nodes[&1].status().snapshot > before)
        };
        for number in 0.. {
            if is_done(&cluster, number) {
                break;
            }
            cluster.propose_line(&format!("line {number} of round {round}")).await;
            line_count += 1;
            assert!(number < 20_000, "no snapshot is taken");
        }
        cluster.crash(1).await;
        cluster.start(1);
        cluster.leader().await;
        assert_eq!(cluster.wait_until_equal().await.len(), line_count);
    }
    cluster.wait_until("entries are purged", |cluster| cluster.nodes[&1].status().purged.is_some()).await;
}

/// Starts node 1, which must fail, and returns the error.
fn start_error(cluster: &mut TestCluster) -> String {
    let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cluster.start(1)));
    *started.unwrap_err().downcast::<String>().unwrap()
}

/// The only file with the suffix `.log` in this directory.
fn only_log_file(disk: &dyn Disk, dir: &str) -> PathBuf {
    let dir = Path::new(dir);
    let mut logs = disk.list(dir).unwrap().into_iter().filter(|name| name.ends_with(".log"));
    let name = logs.next().unwrap();
    assert_eq!(logs.next(), None);
    dir.join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn log_damaged_in_the_middle_is_not_opened() {
    let mut cluster = TestCluster::with_nodes(1, LIMITS).await;
    for number in 0..50 {
        cluster.propose_line(&number.to_string()).await;
    }
    cluster.crash(1).await;
    let disk = cluster.disks[&1].clone();
    let path = only_log_file(&*disk, "/raft/log");
    let mut content = disk.content(&path).unwrap();
    let middle = content.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    content[middle] ^= 0xff;
    disk.overwrite(&path, content);
    let error = start_error(&mut cluster);
    assert!(error.contains("this node's log is damaged"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_emptied_or_removed_log_is_not_opened() {
    // There are four kinds of damage. Damage 3 replaces the journal's only file by an older version. It is tested only
    // after a regular shutdown, because after a power cut the journal has two files.
    let damages = (0..4).map(|damage| (false, damage)).chain((0..3).map(|damage| (true, damage)));
    for (is_power_cut, damage) in damages {
        let mut cluster = TestCluster::with_nodes(1, LIMITS).await;
        for number in 0..10 {
            cluster.propose_line(&number.to_string()).await;
        }
        cluster.end(1, is_power_cut).await;
        let disk = cluster.disks[&1].clone();
        let path = only_log_file(&*disk, "/raft/log");
        let older = disk.content(&path).unwrap();
        cluster.start(1);
        for number in 10..20 {
            cluster.propose_line(&number.to_string()).await;
        }
        cluster.end(1, is_power_cut).await;
        for path in disk
            .list(Path::new("/raft/log"))
            .unwrap()
            .into_iter()
            .map(|name| Path::new("/raft/log").join(name))
        {
            let content = disk.content(&path).unwrap();
            let written = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            match damage {
                0 => disk.overwrite(&path, content[..written / 2].to_vec()),
                1 => disk.overwrite(&path, Vec::new()),
                2 => disk.remove(&path).unwrap(),
                _ => disk.overwrite(&path, older.clone()),
            }
        }
        // The second start must fail too. If it succeeded, the first start would have repaired the log.
        for _ in 0..2 {
            let error = start_error(&mut cluster);
            assert!(
                error.contains("this node's log is damaged") || error.contains("name and its content"),
                "power cut {is_power_cut}, damage {damage}: {error}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_whose_snapshot_was_removed_is_not_opened() {
    let mut cluster = TestCluster::with_nodes(1, RaftLimits { log_bytes_max: 100, ..LIMITS }).await;
    let mut number = 0;
    while cluster.nodes[&1].status().purged.is_none() {
        cluster.propose_line(&format!("a line of some bytes {number}")).await;
        number += 1;
        assert!(number < 20_000, "nothing is purged");
    }
    cluster.end(1, false).await;
    let disk = cluster.disks[&1].clone();
    for name in disk.list(Path::new("/raft/snapshots")).unwrap() {
        disk.remove(&Path::new("/raft/snapshots").join(name)).unwrap();
    }
    let error = start_error(&mut cluster);
    assert!(error.contains("this node's snapshot is damaged"), "{error}");
}
