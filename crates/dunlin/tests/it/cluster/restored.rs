//! Tests of a node that lacks the records of topics which the cluster knows: the node's disk was lost, or the cluster
//! was restored from a backup.

use super::*;

/// Waits until any node that is started afterwards begins with later epochs than `epoch`.
fn until_later_epochs(epoch: u32) {
    const BEGIN_NS: u64 = 1_735_689_600_000_000_000;
    until("later epochs", || (now_ns() - BEGIN_NS) / 100_000_000 >= u64::from(epoch));
}

fn durable_node(seed: u64) -> Node {
    Node::open(Config::default(), Arc::new(FakeDisk::new(seed)), Path::new("/data")).unwrap().0
}

#[test]
fn durable_topic_without_its_records_begins_a_new_epoch() {
    let cluster = TestCluster::of(1);
    cluster.add_node(2, durable_node(1));
    let config = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    cluster.node(2).create_topic("t", config, false).unwrap();
    assert_eq!(cluster.owner("t").0, 2);
    let last = ["1", "2"].map(|payload| publish(&cluster.node(2), "t", payload))[1];
    cluster.node(2).stop();
    cluster.hub.nodes.lock().unwrap().remove(&2);
    until_later_epochs(last.epoch);

    cluster.add_node(2, durable_node(2));
    let next = publish(&cluster.node(2), "t", "new");
    assert!(next.epoch > last.epoch, "{next} after {last}");
    for id in [1, 2] {
        let mut subscriber = cluster.node(id).subscribe("t", &from(Start::After(last))).unwrap();
        assert_eq!(next_events(&mut subscriber, 2), ["epoch after 2 of None", "new"], "at node {id}");
    }
}

/// In this test, the topic moves after the backup was made, so that the restored cluster does not know the topic's last
/// epoch.
#[test]
fn volatile_topic_of_a_restored_cluster_begins_a_new_epoch() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t");
    let backup = cluster.hub.state.lock().unwrap().clone();
    cluster.ownership(1).move_topic("t", 2).unwrap();
    cluster.until_owned_by("t", 2);
    let last = publish(&cluster.node(1), "t", "after the backup");
    until_later_epochs(last.epoch);

    let restored = TestCluster::of(0);
    *restored.hub.state.lock().unwrap() = backup;
    restored.start(1);
    until("the topic begins a new epoch", || {
        restored.node(1).topic("t").is_some_and(|t| !t.logs()[0].is_mirror())
    });
    let next = publish(&restored.node(1), "t", "new");
    assert!(next.epoch > last.epoch, "{next} after {last}");
}
