//! Tests in which nodes join and leave a group.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_journal::{Disk, FakeDisk};
use dunlin_raft::{members_on_disk, seed};
use dunlin_wait::{Deadline, POLL};

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn added_node_is_a_learner_until_promoted_to_voter() {
    let mut cluster = TestCluster::with_nodes(1, LIMITS).await;
    cluster.propose_line("alone").await;
    for id in 2..=3 {
        cluster.start(id);
        cluster.nodes[&1].add_learner(&member(id)).await.unwrap();
    }
    assert_eq!(cluster.nodes[&1].status().learners, [member(2), member(3)]);
    cluster.nodes[&1].set_voters(&[1, 2, 3]).await.unwrap();
    cluster.propose_line("together").await;
    assert_eq!(cluster.wait_until_equal().await, ["alone", "together"]);
    cluster.crash(1).await;
    cluster.propose_line("without the first").await;
    assert_eq!(cluster.wait_until_equal().await.len(), 3);
}

/// Raft changes voters in two steps. After the first one, the group needs majorities of the previous and of the new
/// voters. The second step is missing if the leader fails in between.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_change_of_voters_completes_when_repeated() {
    let mut cluster = TestCluster::with_nodes(1, LIMITS).await;
    for id in 2..=4 {
        cluster.start(id);
        cluster.nodes[&1].add_learner(&member(id)).await.unwrap();
    }
    assert!(!cluster.nodes[&2].status().has_vote, "a learner has no vote");
    cluster.crash(3).await;
    cluster.crash(4).await;
    let (voters, running) = ([1, 2, 3, 4], [1, 2, 3]);
    tokio::select! {
        changed = cluster.nodes[&1].set_voters(&voters) => panic!("two of four are no majority: {changed:?}"),
        () = cluster.wait_until("node 2 knows the new voters", |cluster| {
            cluster.nodes[&2].status().voters.len() == voters.len()
        }) => {}
    }
    assert!(cluster.nodes[&1].status().has_vote, "the previous and the new voters include node 1");
    assert!(!cluster.nodes[&2].status().has_vote, "the previous voters do not include node 2");
    cluster.start(3);
    cluster.propose_line_among(&running, "after the first step").await;
    let leader = cluster.leader_among(&running).await;
    assert!(cluster.nodes[&leader].status().is_changing, "Raft does not take the second step by itself");
    let deadline = Deadline::new();
    while let Err(error) = cluster.nodes[&cluster.leader_among(&running).await].set_voters(&voters).await {
        deadline.check(format_args!("the voters are set: {error}"));
        tokio::time::sleep(POLL).await;
    }
    cluster
        .wait_until("all nodes have a vote", |cluster| {
            let mut statuses = cluster.nodes.values().map(|node| node.status());
            statuses.all(|status| status.has_vote && !status.is_changing)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn group_continues_without_a_removed_voter() {
    let mut cluster = TestCluster::with_nodes(3, LIMITS).await;
    cluster.propose_line("three").await;
    let leader = cluster.leader().await;
    let removed = (1..=3).find(|id| *id != leader).unwrap();
    let remaining: Vec<u64> = (1..=3).filter(|id| *id != removed).collect();
    cluster.nodes[&leader].set_voters(&remaining).await.unwrap();
    cluster.crash(removed).await;
    cluster.propose_line("two").await;
    assert_eq!(cluster.wait_until_equal().await, ["three", "two"]);
    assert_eq!(cluster.nodes[&leader].status().voters.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_transferred_on_request() {
    let cluster = TestCluster::with_nodes(3, LIMITS).await;
    cluster.propose_line("before").await;
    let leader = cluster.leader().await;
    let target = (1..=3).find(|id| *id != leader).unwrap();
    cluster.nodes[&leader].transfer(target).await.unwrap();
    cluster
        .wait_until("the other node leads", |cluster| {
            cluster.nodes.values().all(|node| node.status().leader == Some(target))
        })
        .await;
    cluster.propose_line("after").await;
    assert_eq!(cluster.wait_until_equal().await, ["before", "after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn group_is_initialized_only_once() {
    let cluster = TestCluster::with_nodes(3, LIMITS).await;
    let again = cluster.nodes[&2].begin(&[member(2)]).await.unwrap_err();
    assert!(again.to_string().contains("not allowed to initialize"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn learner_can_be_removed() {
    let mut cluster = TestCluster::with_nodes(1, LIMITS).await;
    cluster.start(2);
    cluster.nodes[&1].add_learner(&member(2)).await.unwrap();
    cluster.nodes[&1].remove_learner(2).await.unwrap();
    assert_eq!(cluster.nodes[&1].status().learners, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_raft_group_can_start_from_the_state_of_another() {
    let cluster = TestCluster::with_nodes(3, LIMITS).await;
    cluster.propose_line("one").await;
    cluster.propose_line("two").await;
    let leader = &cluster.nodes[&cluster.leader().await];
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
    other.propose_line("three").await;
    assert_eq!(other.wait_until_equal().await, ["one", "two", "three"]);
    other.crash(7).await;
    other.start(7);
    other.propose_line("four").await;
    assert_eq!(other.wait_until_equal().await, ["one", "two", "three", "four"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_leader_counts_its_won_election() {
    let mut cluster = TestCluster::with_nodes(3, LIMITS).await;
    let leader = cluster.leader().await;
    cluster.crash(leader).await;
    let next = cluster.leader().await;
    cluster
        .wait_until("the election is counted", |cluster| !cluster.nodes[&next].elections_won().is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_can_be_read_from_the_files_of_a_group() {
    let read = |cluster: &TestCluster, id: u64| {
        let disk: Arc<dyn Disk> = cluster.disks[&id].clone();
        members_on_disk(&disk, Path::new("/raft")).unwrap()
    };
    let mut cluster = TestCluster::with_nodes(2, LIMITS).await;
    cluster.propose_line("two").await;
    assert_eq!(read(&cluster, 2), [member(1), member(2)]);
    cluster.start(3);
    assert_eq!(read(&cluster, 3), []);
    let leader = cluster.leader_among(&[1, 2]).await;
    cluster.nodes[&leader].add_learner(&member(3)).await.unwrap();
    cluster.propose_line_among(&[1, 2], "three").await;
    let all = [member(1), member(2), member(3)];
    cluster.wait_until("it has all", |cluster| read(cluster, 3) == all).await;
    cluster.nodes[&3].snapshot().await.unwrap();
    cluster.wait_until("it has a snapshot", |cluster| cluster.nodes[&3].status().snapshot.is_some()).await;
    cluster.crash(3).await;
    assert_eq!(read(&cluster, 3), all);
}

#[test]
fn members_are_read_from_a_snapshot_without_a_log() {
    let disk: Arc<dyn Disk> = Arc::new(FakeDisk::new(1));
    assert_eq!(members_on_disk(&disk, Path::new("/raft")).unwrap(), []);
    let block = Ok(Bytes::from(0u64.to_le_bytes().to_vec()));
    seed(Arc::clone(&disk), Path::new("/raft"), &member(7), [block].into_iter()).unwrap();
    assert_eq!(members_on_disk(&disk, Path::new("/raft")).unwrap(), [member(7)]);
}
