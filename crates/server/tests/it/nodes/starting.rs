//! Tests subscriptions at a node that has just started, and does not know the cluster's topics yet.

use std::sync::Arc;
use std::thread;

use dunlin::topic::{Publish, TopicConfig};
use dunlin::{Config, Node};
use dunlin_server::Protocol;
use dunlin_wait::POLL;

use super::TestCluster;
use crate::http::Peer as HttpPeer;

#[test]
fn subscription_at_a_starting_node_gets_no_old_records() {
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
