//! Tests of groups whose disks are full or fail.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dunlin_journal::{Disk, Faults};
use dunlin_raft::{RaftGroupError, RaftLimits};
use dunlin_wait::Deadline;

use crate::cluster::*;

/// A line of about 1,000 bytes.
fn line(number: usize) -> String {
    format!("line {number} {}", "-".repeat(1_000))
}

/// Proposes lines until one is refused for lack of room. Returns the number of acknowledged lines.
async fn fill(cluster: &TestCluster, leader: u64) -> usize {
    for number in 0..100_000 {
        match cluster.nodes[&leader].propose(Bytes::from(line(number))).await {
            Ok(_) => cluster.acknowledged.lock().unwrap().push(Bytes::from(line(number))),
            Err(RaftGroupError::NoRoom(why)) => {
                assert!(!why.is_empty());
                return number;
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk never fills up");
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_reserves_are_filled_before_the_first_command() {
    let mut cluster = TestCluster::empty(LIMITS);
    cluster.start(1);
    for dir in ["log", "snapshots"] {
        let reserve = cluster.disks[&1].content(&Path::new("/raft").join(dir).join("reserve"));
        assert_eq!(reserve.map(|reserve| reserve.len() as u64), Some(LIMITS.reserve_bytes), "{dir}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_reserved_disk_space_refuses_new_data() {
    let mut cluster = TestCluster::with_nodes(1, LIMITS).await;
    cluster.crash(1).await;
    let disk = Arc::clone(&cluster.disks[&1]);
    disk.remove(Path::new("/raft/snapshots/reserve")).unwrap();
    // Less than twice the reserve's size is free, even if the start frees the zeros at the end of the log.
    disk.set_capacity(disk.used() + LIMITS.reserve_bytes / 2);
    cluster.start(1);
    cluster.leader().await;
    let refused = cluster.nodes[&1].propose(Bytes::from(line(0))).await;
    assert!(matches!(refused, Err(RaftGroupError::NoRoom(_))), "{refused:?}");
    let outcome = cluster.nodes[&1].propose(Bytes::from("forget")).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    disk.set_capacity(u64::MAX);
    cluster.wait_until("there is room", |cluster| cluster.nodes[&1].status().lacks_room.is_none()).await;
    cluster.propose_line("on we go").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_takes_only_commands_that_free_room() {
    let mut cluster = TestCluster::with_nodes(1, LIMITS).await;
    cluster.disks[&1].set_capacity(cluster.disks[&1].used() + (512 << 10));
    let line_count = fill(&cluster, 1).await;
    assert!(line_count > 100, "{line_count}");
    assert!(cluster.nodes[&1].status().lacks_room.is_some());
    assert_eq!(cluster.wait_until_equal().await.len(), line_count, "refused commands changed nothing");
    // The disk is still full after a restart.
    cluster.crash(1).await;
    cluster.start(1);
    cluster.leader().await;
    assert_eq!(cluster.wait_until_equal().await.len(), line_count);
    let outcome = cluster.nodes[&1].propose(Bytes::from("forget")).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    cluster.acknowledged.lock().unwrap().clear();
    // The state is now small enough for a snapshot, after which the log can be purged.
    cluster.wait_until("there is room", |cluster| cluster.nodes[&1].status().lacks_room.is_none()).await;
    cluster.propose_line("on we go").await;
    let mut again = fill(&cluster, 1).await;
    while again < line_count / 2 {
        // The room that the log had claimed becomes free a little earlier than the log's files.
        cluster.wait_until("there is room", |cluster| cluster.nodes[&1].status().lacks_room.is_none()).await;
        again += fill(&cluster, 1).await;
    }
    cluster.crash(1).await;
    cluster.start(1);
    cluster.leader().await;
    assert_eq!(cluster.wait_until_equal().await.len(), again + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_is_written_even_if_freed_disk_room_is_taken() {
    let cluster = TestCluster::with_nodes(1, LIMITS).await;
    cluster.disks[&1].set_capacity(cluster.disks[&1].used() + (512 << 10));
    fill(&cluster, 1).await;
    cluster.disks[&1].set_capacity(cluster.disks[&1].used());
    cluster.disks[&1].set_faults(Faults { freed_room_is_taken: true, ..Faults::default() });
    let applied = cluster.nodes[&1].status().applied;
    let outcome = cluster.nodes[&1].propose(Bytes::from("forget")).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    cluster
        .wait_until("a snapshot contains the deletion", |cluster| {
            cluster.nodes[&1].status().snapshot > applied && cluster.nodes[&1].status().purged.is_some()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_continue_when_the_disk_is_no_longer_full() {
    let limits = RaftLimits { answer_ms_max: 2_000, ..LIMITS };
    let cluster = TestCluster::with_nodes(1, limits).await;
    cluster.disks[&1].set_capacity(cluster.disks[&1].used());
    fill(&cluster, 1).await;
    // The disk now has room only for commands that make the state smaller. Such commands fill the disk completely.
    let mut forget_count = 0;
    while cluster.nodes[&1].propose(Bytes::from(format!("forget {}", "-".repeat(1_000)))).await.is_ok() {
        forget_count += 1;
        assert!(forget_count < 10_000, "the reserve has no end");
    }
    assert!(forget_count > 10, "the reserve took {forget_count}");
    cluster.disks[&1].set_capacity(u64::MAX);
    cluster.wait_until("there is room", |cluster| cluster.nodes[&1].status().lacks_room.is_none()).await;
    cluster.propose_line("on we go").await;
    cluster.wait_until_equal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_refused_for_lack_of_room_do_not_stop_the_clock() {
    let cluster = TestCluster::with_nodes(1, LIMITS).await;
    cluster.disks[&1].set_capacity(cluster.disks[&1].used());
    fill(&cluster, 1).await;
    cluster.nodes[&1].propose(Bytes::from("forget nothing, due in 300")).await.unwrap();
    let deadline = Deadline::new();
    while cluster.nodes[&1].with(|log| log.due_ms.is_some()) {
        deadline.check("the time advances");
        let outcome = cluster.nodes[&1].propose(Bytes::from(line(0))).await;
        assert!(matches!(outcome, Ok(_) | Err(RaftGroupError::NoRoom(_))), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_with_a_full_disk_catches_up_when_room_is_free() {
    let cluster = TestCluster::with_nodes(3, LIMITS).await;
    let leader = cluster.leader().await;
    let full = (1..=3).find(|id| *id != leader).unwrap();
    cluster.disks[&full].set_capacity(cluster.disks[&full].used());
    for number in 0..500 {
        cluster.propose_line(&line(number)).await;
    }
    let lacks_room = |cluster: &TestCluster, id: u64| cluster.nodes[&id].status().lacks_room.is_some();
    cluster.wait_until("the node's disk is full", |cluster| lacks_room(cluster, full)).await;
    assert!(!lacks_room(&cluster, leader) && cluster.nodes[&full].status().stopped.is_none());
    cluster.disks[&full].set_capacity(u64::MAX);
    cluster.wait_until("it has room", |cluster| !lacks_room(cluster, full)).await;
    assert!(cluster.wait_until_equal().await.len() >= 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_disk_stops_its_node_which_later_catches_up() {
    let mut cluster = TestCluster::with_nodes(3, LIMITS).await;
    cluster.propose_line("before").await;
    let leader = cluster.leader().await;
    cluster.disks[&leader].set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
    let outcome = cluster.nodes[&leader].propose(Bytes::from("meanwhile")).await;
    cluster
        .wait_until("the node has stopped", |cluster| cluster.nodes[&leader].status().stopped.is_some())
        .await;
    let refused =
        tokio::time::timeout(Duration::from_secs(60), cluster.nodes[&leader].propose(Bytes::from("late")));
    assert!(refused.await.unwrap().is_err());
    if outcome.is_ok() {
        cluster.acknowledged.lock().unwrap().push(Bytes::from("meanwhile"));
    }
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    cluster.propose_line_among(&others, "after").await;
    cluster.crash(leader).await;
    cluster.disks[&leader].set_faults(Faults::default());
    cluster.start(leader);
    cluster.wait_until_equal().await;
}
