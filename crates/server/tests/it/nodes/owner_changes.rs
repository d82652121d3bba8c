//! Tests owner changes of topics with queue groups and subscribers, which connect to the next owner in any order. The
//! members are like those of NATS sessions, but read only when the test tells them to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dunlin::journal::FakeDisk;
use dunlin::state::ControlCommand;
use dunlin::topic::{DurableOptions, Event, Publish, Subscribe, TopicConfig, Waiter};
use dunlin::{Config, Node, ShareMember, ShareOptions};
use dunlin_wait::until;

use super::TestCluster;

fn member(cluster: &TestCluster, id: u64) -> ShareMember {
    let options = ShareOptions {
        member: id.to_string(),
        registered: true,
        lasting: false,
        anywhere: true,
        ..ShareOptions::default()
    };
    cluster.node(id).join_share_with_waiter("t", "workers", &options, (Waiter::new(), 0)).unwrap()
}

/// How often each record was delivered to the group.
#[derive(Debug, Default)]
struct GroupDeliveries(BTreeMap<u64, usize>);

impl GroupDeliveries {
    /// Reads all records that the members can receive now. A member that reads connects to the topic's owner.
    fn read(&mut self, members: &mut [&mut ShareMember]) {
        for member in members {
            while member.ready().unwrap() {
                let Event::Record(record) = member.take() else { continue };
                let number: u64 = std::str::from_utf8(record.payload()).unwrap().parse().unwrap();
                let (partition, seq) = (record.log.partition, record.seq());
                *self.0.entry(number).or_default() += 1;
                member.consume(partition, seq);
            }
        }
    }

    fn numbers(&self) -> Vec<u64> {
        assert!(self.0.values().all(|times| *times == 1), "given twice: {:?}", self.0);
        self.0.keys().copied().collect()
    }
}

fn publish(cluster: &TestCluster, id: u64, numbers: std::ops::Range<u64>) {
    let mut publisher = cluster.node(id).publisher("t").unwrap();
    for number in numbers {
        publisher.publish(number.to_string().as_str()).unwrap();
    }
}

fn members_at(cluster: &TestCluster, id: u64) -> usize {
    let topic = cluster.node(id).topic("t").unwrap();
    cluster.node(id).groups(&topic).first().map_or(0, |group| group.members.len())
}

fn move_to(cluster: &TestCluster, id: u64) {
    let epoch = cluster.state.lock().unwrap().placement(b"t").unwrap().epoch + 10;
    cluster.apply(&ControlCommand::Move { topic: b"t", node: id, epoch }).unwrap();
    until("the owner has it", || !cluster.node(id).topic("t").unwrap().logs()[0].is_mirror());
}

/// Starts a cluster in which node 3 owns the topic and is then killed. Node 2 becomes the owner, but node 1 does not
/// know this yet.
fn cluster_without_owner(before: impl FnOnce(&Arc<TestCluster>)) -> Arc<TestCluster> {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(3, "t", TopicConfig::default());
    before(&cluster);
    cluster.hold_back_changes(1);
    cluster.kill(3);
    publish(&cluster, 2, 100..110);
    assert_eq!(cluster.owner("t"), 2);
    cluster
}

#[test]
fn member_gets_records_published_before_a_newer_member_joined() {
    let (mut old, mut deliveries) = (None, GroupDeliveries::default());
    let cluster = cluster_without_owner(|cluster| {
        old = Some(member(cluster, 1));
        until("it is a member", || members_at(cluster, 3) == 1);
        publish(cluster, 3, 0..10);
        until("it has them", || {
            deliveries.read(&mut [old.as_mut().unwrap()]);
            deliveries.numbers().len() == 10
        });
    });
    let (mut old, mut new) = (old.unwrap(), member(&cluster, 2));
    publish(&cluster, 2, 110..120);
    deliveries.read(&mut [&mut new]);
    assert_eq!(
        deliveries.numbers(),
        Vec::from_iter((0..10).chain(110..120)),
        "a new group gets new records only"
    );
    cluster.release_changes(1);
    until("both are members", || {
        deliveries.read(&mut [&mut old]);
        members_at(&cluster, 2) == 2
    });
    publish(&cluster, 2, 120..130);
    let all = Vec::from_iter((0..10).chain(100..130));
    until("each record is given", || {
        deliveries.read(&mut [&mut old, &mut new]);
        deliveries.numbers().len() >= all.len()
    });
    assert_eq!(deliveries.numbers(), all);
}

#[test]
fn records_delivered_by_an_ended_group_are_not_delivered_again() {
    let mut old = None;
    let cluster = cluster_without_owner(|cluster| {
        old = Some(member(cluster, 1));
        until("it is a member", || members_at(cluster, 3) == 1);
    });
    let (mut old, mut deliveries) = (old.unwrap(), GroupDeliveries::default());
    for (first, is_last) in [(110, false), (130, true)] {
        let mut new = member(&cluster, 2);
        publish(&cluster, 2, first..first + 10);
        deliveries.read(&mut [&mut new]);
        new.leave();
        cluster.node(2).end_group("t", "workers");
        if !is_last {
            publish(&cluster, 2, first + 10..first + 20);
        }
    }
    assert_eq!(deliveries.numbers(), Vec::from_iter((110..120).chain(130..140)));
    cluster.release_changes(1);
    until("each record is given", || {
        deliveries.read(&mut [&mut old]);
        deliveries.numbers().len() >= 40
    });
    assert_eq!(deliveries.numbers(), Vec::from_iter(100..140));
}

/// Here, the owner accepts the member before the next owner begins its epoch.
#[test]
fn member_that_joined_during_an_owner_change_misses_no_record() {
    let mut first = None;
    let cluster = cluster_without_owner(|cluster| {
        publish(cluster, 3, 0..10);
        cluster.hold_back_changes(1);
        cluster.stop_with_lease(3);
        first = Some(member(cluster, 1));
    });
    let (mut first, mut deliveries) = (first.unwrap(), GroupDeliveries::default());
    cluster.release_changes(1);
    until("each record is given", || {
        deliveries.read(&mut [&mut first]);
        deliveries.numbers().len() >= 10
    });
    publish(&cluster, 2, 110..120);
    until("each record is given", || {
        deliveries.read(&mut [&mut first]);
        deliveries.numbers().len() >= 20
    });
    assert_eq!(deliveries.numbers(), Vec::from_iter(100..120));
}

/// In this test, node 1 learns of the topic's two moves only after the second move.
#[test]
fn group_gets_no_record_twice_when_its_topic_moves_twice() {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(3, "t", TopicConfig::default());
    let (mut old, mut deliveries) = (member(&cluster, 1), GroupDeliveries::default());
    until("it is a member", || members_at(&cluster, 3) == 1);
    publish(&cluster, 3, 0..10);
    until("it has them", || {
        deliveries.read(&mut [&mut old]);
        deliveries.numbers().len() == 10
    });
    cluster.hold_back_changes(1);
    move_to(&cluster, 2);
    let mut between = member(&cluster, 2);
    publish(&cluster, 2, 10..20);
    until("the group of the second owner has delivered its records", || {
        deliveries.read(&mut [&mut between]);
        deliveries.numbers().len() == 20
    });
    move_to(&cluster, 3);
    publish(&cluster, 3, 20..30);
    cluster.release_changes(1);
    until("each record is given", || {
        deliveries.read(&mut [&mut old]);
        deliveries.numbers().len() >= 30
    });
    assert_eq!(deliveries.numbers(), Vec::from_iter(0..30));
}

#[test]
fn first_member_of_a_group_gets_only_records_after_it_joined() {
    let cluster = cluster_without_owner(|cluster| publish(cluster, 3, 0..10));
    cluster.release_changes(1);
    let (mut first, mut deliveries) = (member(&cluster, 1), GroupDeliveries::default());
    until("it is a member", || members_at(&cluster, 2) == 1);
    publish(&cluster, 2, 110..120);
    until("each record is given", || {
        deliveries.read(&mut [&mut first]);
        deliveries.numbers().last() == Some(&119)
    });
    assert_eq!(deliveries.numbers(), Vec::from_iter(110..120));
}

/// Here, a client at node 1 subscribes while the owner, node 3, does not run.
#[test]
fn subscriber_started_during_an_owner_outage_gets_no_old_record() {
    let cluster = TestCluster::of(2);
    let disk = FakeDisk::new(1);
    let open = || Node::open(Config::default(), Arc::new(disk.clone()), Path::new("/data")).unwrap().0;
    cluster.start_with(3, open());
    let config = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    cluster.node(3).create_topic("t", config, false).unwrap();
    until("node 1 knows the topic", || cluster.node(1).topic("t").is_some());
    for start in 0..3 {
        let before = format!("before start {start}");
        cluster.nats(3).publish("t", &before);
        until("it is appended", || cluster.node(3).topic("t").unwrap().logs()[0].last().seq == 2 * start + 1);
        cluster.kill(3);
        let mut reader = cluster.nats(1);
        reader.subscribe("t 1");
        cluster.start_with(3, open());
        let since = format!("since start {start}");
        cluster.nats(3).publish("t", &since);
        assert_eq!(reader.text().1, since);
    }
}
