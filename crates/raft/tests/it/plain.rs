//! Tests of groups without faults.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_raft::{RaftGroupError, RaftLimits};

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_node_applies_the_same_commands_in_the_same_order() {
    let cluster = TestCluster::with_nodes(3, LIMITS).await;
    for number in 0..20 {
        cluster.propose_line(&format!("line {number}")).await;
    }
    assert_eq!(cluster.wait_until_equal().await.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_proposals_share_log_entries_but_get_own_replies() {
    let cluster = TestCluster::with_nodes(3, LIMITS).await;
    let leader = cluster.leader().await;
    let node = &cluster.nodes[&leader];
    let before = node.status().last.unwrap();
    let proposals: Vec<_> = (0..1_000)
        .map(|number| {
            let node = Arc::clone(node);
            tokio::spawn(async move { node.propose(Bytes::from(number.to_string())).await.unwrap() })
        })
        .collect();
    let mut replies = Vec::new();
    for proposal in proposals {
        replies.push(String::from_utf8(proposal.await.unwrap().to_vec()).unwrap().parse::<u64>().unwrap());
    }
    replies.sort_unstable();
    assert_eq!(replies, (1..=1_000).collect::<Vec<_>>(), "each command has its own position");
    assert_eq!(cluster.wait_until_equal().await.len(), 1_000);
    let entries = cluster.nodes[&leader].status().last.unwrap() - before;
    assert!(entries < 1_000, "{entries} entries");
}

#[tokio::test(flavor = "multi_thread")]
async fn single_node_raft_group_keeps_its_state_over_crashes() {
    let mut cluster = TestCluster::with_nodes(1, LIMITS).await;
    for round in 0..5 {
        cluster.propose_line(&format!("round {round}")).await;
        cluster.crash(1).await;
        cluster.start(1);
        cluster.leader().await;
        assert_eq!(cluster.wait_until_equal().await.len(), round + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_names_the_leader_and_takes_no_command() {
    let cluster = TestCluster::with_nodes(3, LIMITS).await;
    let leader = cluster.leader().await;
    let follower = cluster.nodes.iter().find(|(id, _)| **id != leader).unwrap().1;
    let expected = RaftGroupError::NotLeader { leader: Some(member(leader)) };
    assert_eq!(follower.propose(Bytes::from("no")).await, Err(expected.clone()));
    assert_eq!(follower.catch_up().await, Err(expected));
    cluster.propose_line("yes").await;
    assert_eq!(cluster.wait_until_equal().await, ["yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn caught_up_leader_has_applied_every_acknowledged_command() {
    let cluster = TestCluster::with_nodes(3, LIMITS).await;
    for number in 1..=50 {
        cluster.propose_line(&number.to_string()).await;
        let leader = &cluster.nodes[&cluster.leader().await];
        leader.catch_up().await.unwrap();
        assert!(leader.with(|log| log.lines.len()) >= number);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_machine_timer_fires_without_a_further_command() {
    let cluster = TestCluster::with_nodes(3, LIMITS).await;
    cluster.propose_line("due in 300").await;
    cluster
        .wait_until("all are told", |cluster| {
            cluster.nodes.values().all(|node| node.with(|s| s.due_ms.is_none() && s.lines.len() == 1))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_over_the_size_limit_is_refused() {
    let cluster = TestCluster::with_nodes(1, RaftLimits { command_bytes_max: 10, ..LIMITS }).await;
    let refused = cluster.nodes[&1].propose(Bytes::from("eleven bytes")).await;
    assert_eq!(refused, Err(RaftGroupError::TooLarge { bytes: 12, bytes_max: 10 }));
    let garbage = cluster.nodes[&1].receive(Bytes::from("garbage")).await.unwrap_err();
    assert!(garbage.to_string().contains("not a valid encoding"), "{garbage}");
}
