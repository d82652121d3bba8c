//! A durable topic that the cluster deleted and recreated while its owner was away.

use std::path::Path;

use dunlin::journal::FakeDisk;
use dunlin::topic::Durable;

use super::*;

fn open(disk: &FakeDisk) -> Node {
    Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).unwrap().0
}

#[test]
fn old_records_of_a_recreated_topic_are_kept_but_not_delivered() {
    let stage = TestCluster::of(2);
    let disk = FakeDisk::new(1);
    stage.enter(3, open(&disk));
    let durable = TopicConfig { durable: Some(Durable::default()), ..TopicConfig::default() };
    stage.node(3).create_topic("t", durable, false).unwrap();
    until("all nodes know the topic", || stage.node(1).topic("t").is_some());
    publish(&stage.node(3), "t", "before");
    stage.node(3).stop();
    stage.hall.nodes.lock().unwrap().remove(&3);
    stage.node(1).delete_topic("t").unwrap();
    stage.node(1).create_topic("t", TopicConfig::default(), false).unwrap();
    publish(&stage.node(1), "t", "anew");

    stage.enter(3, open(&disk));
    stage.ownership(3).announce().unwrap();
    let told_why = stage.ownership(3).set_aside();
    assert!(told_why.len() == 1 && told_why[0].0 == "t" && told_why[0].1.contains("node 1"), "{told_why:?}");
    let refused = stage.node(3).refused_topics();
    assert!(refused.len() == 1 && refused[0].name == "t", "{refused:?}");
    let mut subscriber = stage.node(3).subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(told(&mut subscriber, 1), ["anew"]);
    publish(&stage.node(3), "t", "through it");
    assert_eq!(told(&mut subscriber, 1), ["through it"]);
    // The deletion of the new topic does not affect the old one.
    stage.node(2).delete_topic("t").unwrap();
    until("it is gone", || stage.node(3).topic("t").is_none());
    stage.node(3).stop();
    stage.hall.nodes.lock().unwrap().remove(&3);
    let alone = open(&disk);
    let mut subscriber = alone.subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(told(&mut subscriber, 1), ["before"]);
}
