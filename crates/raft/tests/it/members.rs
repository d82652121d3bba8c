//! Nodes join and leave.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_journal::{Disk, FakeDisk};
use dunlin_raft::{members_on_disk, seed};

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn added_node_is_a_learner_until_it_becomes_a_voter() {
    let mut stage = TestCluster::of(1, LIMITS).await;
    stage.say("alone").await;
    for id in 2..=3 {
        stage.start(id);
        stage.nodes[&1].add_learner(&member(id)).await.unwrap();
    }
    assert_eq!(stage.nodes[&1].status().learners, [member(2), member(3)]);
    stage.nodes[&1].set_voters(&[1, 2, 3]).await.unwrap();
    stage.say("together").await;
    assert_eq!(stage.agrees().await, ["alone", "together"]);
    stage.crash(1).await;
    stage.say("without the first").await;
    assert_eq!(stage.agrees().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn group_continues_without_a_removed_voter() {
    let mut stage = TestCluster::of(3, LIMITS).await;
    stage.say("three").await;
    let leader = stage.leader().await;
    let out = (1..=3).find(|id| *id != leader).unwrap();
    let left: Vec<u64> = (1..=3).filter(|id| *id != out).collect();
    stage.nodes[&leader].set_voters(&left).await.unwrap();
    stage.crash(out).await;
    stage.say("two").await;
    assert_eq!(stage.agrees().await, ["three", "two"]);
    assert_eq!(stage.nodes[&leader].status().voters.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_transferred_on_request() {
    let stage = TestCluster::of(3, LIMITS).await;
    stage.say("before").await;
    let leader = stage.leader().await;
    let to = (1..=3).find(|id| *id != leader).unwrap();
    stage.nodes[&leader].transfer(to).await.unwrap();
    stage
        .until("the other node leads", |stage| {
            stage.nodes.values().all(|node| node.status().leader == Some(to))
        })
        .await;
    stage.say("after").await;
    assert_eq!(stage.agrees().await, ["before", "after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn group_is_initialized_only_once() {
    let stage = TestCluster::of(3, LIMITS).await;
    let again = stage.nodes[&2].begin(&[member(2)]).await.unwrap_err();
    assert!(again.to_string().contains("not allowed to initialize"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn learner_can_be_removed() {
    let mut stage = TestCluster::of(1, LIMITS).await;
    stage.start(2);
    stage.nodes[&1].add_learner(&member(2)).await.unwrap();
    stage.nodes[&1].remove_learner(2).await.unwrap();
    assert_eq!(stage.nodes[&1].status().learners, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_group_can_start_from_the_state_of_another_group() {
    let stage = TestCluster::of(3, LIMITS).await;
    stage.say("one").await;
    stage.say("two").await;
    let leader = &stage.nodes[&stage.leader().await];
    leader.catch_up().await.unwrap();
    let mut blocks = Vec::new();
    let frozen = leader.freeze();
    frozen
        .write(&mut |block| {
            blocks.push(Ok(Bytes::copy_from_slice(block)));
            Ok(())
        })
        .unwrap();

    let mut other = TestCluster::empty(LIMITS);
    let disk = Arc::new(FakeDisk::new(9));
    other.disks.insert(7, disk.clone());
    seed(disk.clone(), Path::new("/raft"), &member(7), blocks.into_iter()).unwrap();
    assert!(seed(disk, Path::new("/raft"), &member(7), std::iter::empty()).is_err(), "once");
    other.start(7);
    other.say("three").await;
    assert_eq!(other.agrees().await, ["one", "two", "three"]);
    other.crash(7).await;
    other.start(7);
    other.say("four").await;
    assert_eq!(other.agrees().await, ["one", "two", "three", "four"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_leader_counts_the_election_that_it_won() {
    let mut stage = TestCluster::of(3, LIMITS).await;
    let leader = stage.leader().await;
    stage.crash(leader).await;
    let next = stage.leader().await;
    stage.until("the election is counted", |stage| !stage.nodes[&next].elections_won().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_can_be_read_from_a_groups_files() {
    let read = |stage: &TestCluster, id: u64| {
        let disk: Arc<dyn Disk> = stage.disks[&id].clone();
        members_on_disk(&disk, Path::new("/raft")).unwrap()
    };
    let mut stage = TestCluster::of(2, LIMITS).await;
    stage.say("two").await;
    assert_eq!(read(&stage, 2), [member(1), member(2)]);
    stage.start(3);
    assert_eq!(read(&stage, 3), []);
    let leader = stage.leader_among(&[1, 2]).await;
    stage.nodes[&leader].add_learner(&member(3)).await.unwrap();
    stage.say_among(&[1, 2], "three").await;
    let all = [member(1), member(2), member(3)];
    stage.until("it has all", |stage| read(stage, 3) == all).await;
    stage.nodes[&3].snapshot().await.unwrap();
    stage.until("it has a snapshot", |stage| stage.nodes[&3].status().snapshot.is_some()).await;
    stage.crash(3).await;
    assert_eq!(read(&stage, 3), all);
}

#[test]
fn members_can_be_read_from_a_snapshot_alone() {
    let disk: Arc<dyn Disk> = Arc::new(FakeDisk::new(1));
    assert_eq!(members_on_disk(&disk, Path::new("/raft")).unwrap(), []);
    let block = Ok(Bytes::from(0u64.to_le_bytes().to_vec()));
    seed(Arc::clone(&disk), Path::new("/raft"), &member(7), [block].into_iter()).unwrap();
    assert_eq!(members_on_disk(&disk, Path::new("/raft")).unwrap(), [member(7)]);
}
