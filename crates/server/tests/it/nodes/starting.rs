//! Tests subscriptions and queue groups while a node starts, before it knows the cluster's topics.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use dunlin::journal::FakeDisk;
use dunlin::topic::{DurableOptions, Publish, TopicConfig};
use dunlin::{Config, Node};
use dunlin_server::Protocol;
use dunlin_wait::{POLL, until};

use super::TestCluster;
use crate::http::Peer as HttpPeer;

#[test]
fn subscriber_of_a_starting_node_gets_no_old_records() {
    const EVENTS: &str = "/v1/topics/%3E/events";
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t", TopicConfig::default());
    let mut publisher = cluster.node(1).publisher("t").unwrap();
    publisher.publish("old").unwrap();
    cluster.kill(2);
    cluster.start_without_state(2, Node::start(Config::default()).unwrap());
    let subjects = ["t 1", "> 1", "$DUNLIN.seq.* 1", "t workers 1"];
    let mut early = subjects.map(|_| cluster.nats(2));
    for (peer, subject) in early.iter_mut().zip(subjects) {
        peer.send_line(&format!("SUB {subject}\r\nPING"));
    }
    let mut stream = HttpPeer::connect(cluster.address(2, Protocol::Http));
    stream.head("GET", EVENTS, &[]);
    // The node has a single thread, so it has read the subscriptions when it serves these later clients.
    drop(cluster.nats(2));
    let mut later = HttpPeer::connect(cluster.address(2, Protocol::Http));
    assert_eq!(later.request("GET", "/healthz", &[], b"").status, 200);
    cluster.catch_up(2);
    early.iter_mut().for_each(|peer| assert_eq!(peer.line(), "PONG"));
    let mut stream = stream.read_events(EVENTS);
    publisher.publish("new").unwrap();
    early.iter_mut().for_each(|peer| assert_eq!(peer.text().1, "new"));
    assert_eq!(stream.records(1), ["new"]);
}

#[test]
fn subscription_ends_if_a_starting_node_reaches_no_majority() {
    let cluster = TestCluster::of(1);
    cluster.start_without_state(2, Node::start(Config::default()).unwrap());
    let mut peer = cluster.nats(2);
    peer.send_line("SUB > 1\r\nPING");
    let refusing = Arc::downgrade(&cluster);
    thread::spawn(move || {
        while let Some(cluster) = refusing.upgrade() {
            let ownership = cluster.members.lock().unwrap()[&2].ownership.clone();
            ownership.refuse_early_subscriptions("no leader");
            drop(cluster);
            thread::sleep(POLL);
        }
    });
    assert!(peer.is_at_end(), "neither an error nor a PONG");
}

/// The owner was stopped properly, so the topic continues in the same epoch.
#[test]
fn queue_group_gets_records_published_while_it_was_away() {
    let cluster = TestCluster::of(2);
    let disk = FakeDisk::new(1);
    let open = || Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).unwrap().0;
    cluster.start_with(3, open());
    let config = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    cluster.node(3).create_topic("t", config, false).unwrap();
    until("node 1 knows the topic", || cluster.node(1).topic("t").is_some());
    let mut members = [1, 2].map(|id| cluster.nats(id));
    members[0].subscribe("t workers 1");
    let publish = |text: &str| cluster.node(3).publisher("t").unwrap().publish(text).unwrap().position;
    let epoch = publish("before").epoch;
    assert_eq!(members[0].text().1, "before");
    cluster.kill(3);
    cluster.start_without_state(3, open());
    // The other nodes do not find the owner until the owner is a member of the cluster again.
    assert_eq!(["first", "second"].map(publish).map(|at| at.epoch), [epoch; 2]);
    cluster.catch_up(3);
    assert_eq!([(); 2].map(|()| members[0].text().1), ["first", "second"]);
    // A new member receives none of these records.
    members[1].subscribe("t others 1");
    publish("last");
    members.iter_mut().for_each(|member| assert_eq!(member.text().1, "last"));
}
