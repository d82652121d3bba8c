//! Tests of topics that are created under the names of deleted topics, while nodes are killed and restarted. When a
//! node restarts, it reads the entries that deleted the old topics from its log again. These entries must not delete
//! the new topics.

use std::fmt::from_fn;

use dunlin_client::Client;
use dunlin_client::topic::{DurableOptions, Publish, Start, TopicConfig};

use super::cluster_topics::{from, http, owner, publish, read_until, until};
use super::cluster_under_test::{ClusterNode, ClusterUnderTest};

fn durable() -> TopicConfig {
    TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() }
}

/// Returns the index of the member that owns a topic.
fn owner_index(cluster: &ClusterUnderTest, client: &Client, topic: &str) -> usize {
    let number = owner(client, topic).0;
    cluster.members.iter().position(|member| member.number == number).expect("a member owns it")
}

#[test]
fn recreated_topic_keeps_its_records_over_an_owner_restart() {
    let mut cluster = ClusterUnderTest::of(3);
    let client = cluster.members[0].connect();
    for round in 1..=3 {
        client.create_topic("again", &durable(), false).expect("the name is free");
        publish(&client, "again", 1..=100 * round);
        if round < 3 {
            client.delete_topic("again").expect("the topic exists");
        }
    }
    let dead = cluster.kill(owner_index(&cluster, &client, "again"));
    cluster.restart(&dead);
    let restarted = cluster.members.last().expect("the node is back").connect();
    let mut publisher = restarted.publisher("again").expect("a publisher");
    until("the topic accepts records again", || publisher.publish(b"301").is_ok());
    let mut reader =
        restarted.subscribe("again", from(Start::Earliest)).expect("the subscription is accepted");
    let (numbers, notices) = read_until(&mut reader, 301);
    assert!(numbers.iter().copied().eq(1..=301), "{} records, {notices:?}", numbers.len());
}

#[test]
fn topic_deleted_while_its_owner_is_down_stays_deleted() {
    let mut cluster = ClusterUnderTest::of(3);
    let client = cluster.members[0].connect();
    client.create_topic("gone", &durable(), false).expect("the name is free");
    client.create_topic("stays", &durable(), false).expect("the name is free");
    publish(&client, "gone", 1..=100);
    publish(&client, "stays", 1..=100);
    let dead = cluster.kill(owner_index(&cluster, &client, "gone"));
    let other = cluster.members[0].connect();
    other.delete_topic("gone").expect("the cluster deletes it");
    cluster.restart(&dead);
    let restarted = cluster.members.last().expect("the node is back");
    let list_topics = |member: &ClusterNode| http(member, "GET", "/v1/topics?limit=100", "");
    let knows_deletion =
        |member: &ClusterNode| list_topics(member).contains("stays") && !list_topics(member).contains("gone");
    let description =
        from_fn(|f| write!(f, "it is gone at the node that is back, which lists {}", list_topics(restarted)));
    until(description, || knows_deletion(restarted));
    let mut publisher = restarted.connect().publisher("stays").expect("a publisher");
    until("the node that is back takes part", || publisher.publish(b"101").is_ok());
    cluster.members.iter().for_each(|member| assert!(knows_deletion(member), "{}", list_topics(member)));
}
