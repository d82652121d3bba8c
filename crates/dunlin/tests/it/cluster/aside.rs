//! Tests of a durable topic that the cluster deletes and creates again while its owner is away.

use std::path::Path;

use dunlin::journal::FakeDisk;
use dunlin::topic::DurableOptions;

use super::*;

fn open(disk: &FakeDisk) -> Node {
    Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).unwrap().0
}

#[test]
fn old_records_of_a_recreated_topic_are_kept_but_not_delivered() {
    let cluster = TestCluster::of(2);
    let disk = FakeDisk::new(1);
    cluster.add_node(3, open(&disk));
    let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    cluster.node(3).create_topic("t", durable, false).unwrap();
    until("all nodes know the topic", || cluster.node(1).topic("t").is_some());
    publish(&cluster.node(3), "t", "before");
    cluster.node(3).stop();
    cluster.hub.nodes.lock().unwrap().remove(&3);
    cluster.node(1).delete_topic("t").unwrap();
    cluster.node(1).create_topic("t", TopicConfig::default(), false).unwrap();
    publish(&cluster.node(1), "t", "anew");

    cluster.add_node(3, open(&disk));
    cluster.ownership(3).register_durable_topics().unwrap();
    let set_aside = cluster.ownership(3).take_set_aside();
    assert!(
        set_aside.len() == 1 && set_aside[0].0 == "t" && set_aside[0].1.contains("node 1"),
        "{set_aside:?}"
    );
    let refused = cluster.node(3).refused_topics();
    assert!(refused.len() == 1 && refused[0].name == "t", "{refused:?}");
    let mut subscriber = cluster.node(3).subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(next_events(&mut subscriber, 1), ["anew"]);
    publish(&cluster.node(3), "t", "through it");
    assert_eq!(next_events(&mut subscriber, 1), ["through it"]);
    // Deleting the new topic must not affect the old one on disk.
    cluster.node(2).delete_topic("t").unwrap();
    until("it is gone", || cluster.node(3).topic("t").is_none());
    cluster.node(3).stop();
    cluster.hub.nodes.lock().unwrap().remove(&3);
    let alone = open(&disk);
    let mut subscriber = alone.subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(next_events(&mut subscriber, 1), ["before"]);
}
