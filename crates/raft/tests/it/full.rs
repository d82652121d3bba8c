//! Full disks and failing disks.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use dunlin_journal::Faults;
use dunlin_raft::{RaftGroupError, RaftLimits};

use crate::cluster::*;

/// A line of about 1,000 bytes.
fn line(number: usize) -> String {
    format!("line {number} {}", "-".repeat(1_000))
}

/// Proposes lines until there is no room; returns how many were acknowledged.
async fn fill(stage: &TestCluster, leader: u64) -> usize {
    for number in 0..100_000 {
        match stage.nodes[&leader].propose(Bytes::from(line(number))).await {
            Ok(_) => stage.acknowledged.lock().unwrap().push(Bytes::from(line(number))),
            Err(RaftGroupError::NoRoom(why)) => {
                assert!(!why.is_empty());
                return number;
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk never fills up");
}

async fn has_reserve(stage: &TestCluster, id: u64) {
    let is_there = |stage: &TestCluster, dir: &str| {
        let content = stage.disks[&id].content(&Path::new("/raft").join(dir).join("reserve"));
        content.is_some_and(|content| content.len() as u64 == LIMITS.reserve_bytes)
    };
    stage.until("the reserves exist", |stage| is_there(stage, "log") && is_there(stage, "snapshots")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_takes_only_commands_that_free_room() {
    let mut stage = TestCluster::of(1, LIMITS).await;
    has_reserve(&stage, 1).await;
    stage.disks[&1].set_room(stage.disks[&1].used() + (512 << 10));
    let said = fill(&stage, 1).await;
    assert!(said > 100, "{said}");
    assert!(stage.nodes[&1].status().lacks_room.is_some());
    assert_eq!(stage.agrees().await.len(), said, "refused commands changed nothing");
    // The disk is still full after a restart.
    stage.crash(1).await;
    stage.start(1);
    stage.leader().await;
    assert_eq!(stage.agrees().await.len(), said);
    let forgotten = stage.nodes[&1].propose(Bytes::from("forget")).await;
    assert!(forgotten.is_ok(), "{forgotten:?}");
    stage.acknowledged.lock().unwrap().clear();
    // The state is small now: a snapshot fits, and the log can be purged.
    stage.until("there is room", |stage| stage.nodes[&1].status().lacks_room.is_none()).await;
    stage.say("on we go").await;
    let mut again = fill(&stage, 1).await;
    while again < said / 2 {
        // The log's files are freed a little later than its claimed room.
        stage.until("there is room", |stage| stage.nodes[&1].status().lacks_room.is_none()).await;
        again += fill(&stage, 1).await;
    }
    stage.crash(1).await;
    stage.start(1);
    stage.leader().await;
    assert_eq!(stage.agrees().await.len(), again + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_continue_when_a_full_disk_has_room() {
    let limits = RaftLimits { answer_ms_max: 2_000, ..LIMITS };
    let stage = TestCluster::of(1, limits).await;
    has_reserve(&stage, 1).await;
    stage.disks[&1].set_room(stage.disks[&1].used());
    fill(&stage, 1).await;
    // Fills the disk completely. These commands make the state smaller, and are accepted while there is any room.
    let mut small = 0;
    while stage.nodes[&1].propose(Bytes::from(format!("forget {}", "-".repeat(1_000)))).await.is_ok() {
        small += 1;
        assert!(small < 10_000, "the reserve has no end");
    }
    assert!(small > 10, "the reserve took {small}");
    stage.disks[&1].set_room(u64::MAX);
    stage.until("there is room", |stage| stage.nodes[&1].status().lacks_room.is_none()).await;
    stage.say("on we go").await;
    stage.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_with_a_full_disk_catches_up_when_room_is_free() {
    let stage = TestCluster::of(3, LIMITS).await;
    let leader = stage.leader().await;
    let full = (1..=3).find(|id| *id != leader).unwrap();
    has_reserve(&stage, full).await;
    stage.disks[&full].set_room(stage.disks[&full].used());
    for number in 0..500 {
        stage.say(&line(number)).await;
    }
    let lacks = |stage: &TestCluster, id: u64| stage.nodes[&id].status().lacks_room.is_some();
    stage.until("the node's disk is full", |stage| lacks(stage, full)).await;
    assert!(!lacks(&stage, leader) && stage.nodes[&full].status().stopped.is_none());
    stage.disks[&full].set_room(u64::MAX);
    stage.until("it has room", |stage| !lacks(stage, full)).await;
    assert!(stage.agrees().await.len() >= 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_disk_stops_its_node_which_later_catches_up() {
    let mut stage = TestCluster::of(3, LIMITS).await;
    stage.say("before").await;
    let leader = stage.leader().await;
    stage.disks[&leader].set_faults(Faults { sync_fails: Some(0), ..Faults::default() });
    let said = stage.nodes[&leader].propose(Bytes::from("meanwhile")).await;
    stage.until("the node has stopped", |stage| stage.nodes[&leader].status().stopped.is_some()).await;
    let refused =
        tokio::time::timeout(Duration::from_secs(60), stage.nodes[&leader].propose(Bytes::from("late")));
    assert!(refused.await.unwrap().is_err());
    if said.is_ok() {
        stage.acknowledged.lock().unwrap().push(Bytes::from("meanwhile"));
    }
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    stage.say_among(&others, "after").await;
    stage.crash(leader).await;
    stage.disks[&leader].set_faults(Faults::default());
    stage.start(leader);
    stage.agrees().await;
}
