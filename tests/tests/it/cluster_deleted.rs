//! Tests of topics that have the names of deleted topics, while nodes are killed and restarted. When a restarted node
//! reads the old deletions from its log, they must not delete the new topics.

use std::fmt::from_fn;

use dunlin_client::Client;
use dunlin_client::topic::{Durable, Publish, Start, TopicConfig};

use super::cluster_stage::{ClusterUnderTest, Member};
use super::cluster_topics::{from, http, owner, publish, read_until, until};

fn durable() -> TopicConfig {
    TopicConfig { durable: Some(Durable::default()), ..TopicConfig::default() }
}

/// Returns the index of the member that owns a topic.
fn place(flock: &ClusterUnderTest, client: &Client, topic: &str) -> usize {
    let number = owner(client, topic).0;
    flock.members.iter().position(|member| member.number == number).expect("a member owns it")
}

#[test]
fn recreated_topic_keeps_its_records_over_an_owner_restart() {
    let mut flock = ClusterUnderTest::of(3);
    let client = flock.members[0].connect();
    for round in 1..=3 {
        client.create_topic("again", &durable(), false).expect("the name is free");
        publish(&client, "again", 1..=100 * round);
        if round < 3 {
            client.delete_topic("again").expect("the topic exists");
        }
    }
    let dead = flock.kill(place(&flock, &client, "again"));
    flock.restart(&dead);
    let back = flock.members.last().expect("the node is back").connect();
    let mut publisher = back.publisher("again").expect("a publisher");
    until("the topic accepts records again", || publisher.publish(b"301").is_ok());
    let mut reader = back.subscribe("again", from(Start::Earliest)).expect("the subscription is accepted");
    let (numbers, notices) = read_until(&mut reader, 301);
    assert!(numbers.iter().copied().eq(1..=301), "{} records, {notices:?}", numbers.len());
}

#[test]
fn topic_deleted_while_its_owner_is_down_stays_deleted() {
    let mut flock = ClusterUnderTest::of(3);
    let client = flock.members[0].connect();
    client.create_topic("gone", &durable(), false).expect("the name is free");
    client.create_topic("stays", &durable(), false).expect("the name is free");
    publish(&client, "gone", 1..=100);
    publish(&client, "stays", 1..=100);
    let dead = flock.kill(place(&flock, &client, "gone"));
    let other = flock.members[0].connect();
    other.delete_topic("gone").expect("the cluster deletes it");
    flock.restart(&dead);
    let back = flock.members.last().expect("the node is back");
    let listed = |member: &Member| http(member, "GET", "/v1/topics?limit=100", "");
    let is_told = |member: &Member| listed(member).contains("stays") && !listed(member).contains("gone");
    let still = from_fn(|f| write!(f, "it is gone at the node that is back, which lists {}", listed(back)));
    until(still, || is_told(back));
    let mut publisher = back.connect().publisher("stays").expect("a publisher");
    until("the node that is back takes part", || publisher.publish(b"101").is_ok());
    flock.members.iter().for_each(|member| assert!(is_told(member), "{}", listed(member)));
}
