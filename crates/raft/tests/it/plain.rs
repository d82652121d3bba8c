//! Groups without faults.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_raft::{RaftGroupError, RaftLimits};

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_node_applies_the_same_commands_in_the_same_order() {
    let stage = TestCluster::of(3, LIMITS).await;
    for number in 0..20 {
        stage.say(&format!("line {number}")).await;
    }
    assert_eq!(stage.agrees().await.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_proposals_share_entries_and_get_own_replies() {
    let stage = TestCluster::of(3, LIMITS).await;
    let leader = stage.leader().await;
    let node = &stage.nodes[&leader];
    let before = node.status().last.unwrap();
    let asked: Vec<_> = (0..1_000)
        .map(|number| {
            let node = Arc::clone(node);
            tokio::spawn(async move { node.propose(Bytes::from(number.to_string())).await.unwrap() })
        })
        .collect();
    let mut answers = Vec::new();
    for asked in asked {
        answers.push(String::from_utf8(asked.await.unwrap().to_vec()).unwrap().parse::<u64>().unwrap());
    }
    answers.sort_unstable();
    assert_eq!(answers, (1..=1_000).collect::<Vec<_>>(), "each command has its own position");
    assert_eq!(stage.agrees().await.len(), 1_000);
    let entries = stage.nodes[&leader].status().last.unwrap() - before;
    assert!(entries < 1_000, "{entries} entries");
}

#[tokio::test(flavor = "multi_thread")]
async fn single_node_raft_group_keeps_its_state_over_crashes() {
    let mut stage = TestCluster::of(1, LIMITS).await;
    for round in 0..5 {
        stage.say(&format!("round {round}")).await;
        stage.crash(1).await;
        stage.start(1);
        stage.leader().await;
        assert_eq!(stage.agrees().await.len(), round + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_names_the_leader_and_takes_no_command() {
    let stage = TestCluster::of(3, LIMITS).await;
    let leader = stage.leader().await;
    let follower = stage.nodes.iter().find(|(id, _)| **id != leader).unwrap().1;
    let expected = RaftGroupError::NotLeader { leader: Some(member(leader)) };
    assert_eq!(follower.propose(Bytes::from("no")).await, Err(expected.clone()));
    assert_eq!(follower.catch_up().await, Err(expected));
    stage.say("yes").await;
    assert_eq!(stage.agrees().await, ["yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn caught_up_leader_has_applied_every_acknowledged_command() {
    let stage = TestCluster::of(3, LIMITS).await;
    for number in 1..=50 {
        stage.say(&number.to_string()).await;
        let leader = &stage.nodes[&stage.leader().await];
        leader.catch_up().await.unwrap();
        assert!(leader.with(|scroll| scroll.lines.len()) >= number);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_machine_timer_fires_without_a_further_command() {
    let stage = TestCluster::of(3, LIMITS).await;
    stage.say("due in 300").await;
    stage
        .until("all are told", |stage| {
            stage.nodes.values().all(|node| node.with(|s| s.due_ms.is_none() && s.lines.len() == 1))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_over_the_limit_is_refused() {
    let stage = TestCluster::of(1, RaftLimits { command_bytes_max: 10, ..LIMITS }).await;
    let refused = stage.nodes[&1].propose(Bytes::from("eleven bytes")).await;
    assert_eq!(refused, Err(RaftGroupError::TooLarge { bytes: 12, bytes_max: 10 }));
    let garbage = stage.nodes[&1].receive(Bytes::from("garbage")).await.unwrap_err();
    assert!(garbage.to_string().contains("not a valid encoding"), "{garbage}");
}
