//! Tests of topics that are deleted while a node is unreachable or has not learned of the deletion yet.

use dunlin::topic::{AckLevel, AckProgress, Draft, Payload, RecordMeta, SubscribeError};
use dunlin::{NodeLimits, ShareMember, ShareOptions};

use super::*;

/// Publishes a record to topic `t` on another thread. Returns a receiver of the outcome.
fn spawn_publish(node: Node, mark: Option<ProducerMark>) -> mpsc::Receiver<Result<Position, PublishError>> {
    let (send, outcomes) = mpsc::channel();
    thread::spawn(move || {
        let mut publisher = node.publisher("t").unwrap();
        let outcome = match mark {
            Some(mark) => publisher.with_producer(mark).publish("waits"),
            None => publisher.publish("waits"),
        };
        let _ = send.send(outcome.map(|receipt| receipt.position));
    });
    outcomes
}

#[test]
fn publisher_stops_waiting_for_an_owner_if_topic_is_deleted() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t");
    cluster.cut(1);
    let outcomes = spawn_publish(cluster.node(2), None);
    cluster.until_failed_forwards(1);
    cluster.node(2).delete_topic("t").unwrap();
    let outcome = outcomes.recv_timeout(PATIENCE).expect("the outcome arrives");
    assert!(matches!(outcome, Err(PublishError::Closed)), "{outcome:?}");
}

/// In some rounds, the feed that handed over the records has not ended when the topic is deleted.
#[test]
fn subscriber_at_a_new_owner_learns_of_the_topic_deletion() {
    let cluster = TestCluster::of(2);
    for round in 0..50 {
        let topic = &format!("t{round}");
        cluster.create_topic_at(1, topic);
        let mut reader = cluster.node(2).subscribe(topic, &from(Start::Latest)).unwrap();
        cluster.ownership(1).move_topic(topic, 2).unwrap();
        cluster.until_owned_by(topic, 2);
        cluster.node(2).delete_topic(topic).unwrap();
        loop {
            match reader.next_timeout(PATIENCE) {
                Ok(Some(_)) => {}
                Err(SubscribeError::Closed) => break,
                other => panic!("{other:?} in round {round}"),
            }
        }
    }
}

#[test]
fn unconfirmed_record_of_a_deleted_topic_has_unknown_outcome() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t");
    cluster.hub.lost_responses.lock().unwrap().insert(1);
    let mark = ProducerMark { producer: 7, producer_epoch: 1, producer_seq: 1 };
    let outcomes = spawn_publish(cluster.node(2), Some(mark));
    let owned = cluster.node(1).topic("t").unwrap();
    until("the owner has appended the record", || owned.logs()[0].last().seq == 1);
    cluster.node(2).delete_topic("t").unwrap();
    let outcome = outcomes.recv_timeout(PATIENCE).expect("the outcome arrives");
    assert!(matches!(outcome, Err(PublishError::Unknown(_))), "{outcome:?}");
}

#[test]
fn memory_of_a_deleted_topic_is_free_for_other_topics() {
    let cluster = TestCluster::of(1);
    let limits = NodeLimits { memory_bytes_max: 4 << 20, idle_bytes_max: 0, ..NodeLimits::default() };
    cluster.add_node(2, Node::start(Config { limits, ..Config::default() }).unwrap());
    until("both nodes are members", || [1, 2].iter().all(|&id| cluster.ownership(id).nodes().len() == 2));
    let (node, payload) = (cluster.node(2), vec![0_u8; 1_000]);
    let fill = |name: &str| {
        cluster.create_topic_at(2, name);
        let mut publisher = node.publisher(name).unwrap();
        for _ in 0..2_500 {
            publisher.publish(payload.as_slice()).unwrap();
        }
    };
    fill("t");
    node.delete_topic("t").unwrap();
    assert!(node.budget().used() > 2 << 20, "the node keeps the deleted topic for the other node");
    fill("u");
    assert_eq!(node.topic("u").unwrap().logs()[0].info().oldest_seq, 1, "no record was dropped for room");
}

#[test]
fn late_deletion_notice_does_not_delete_a_recreated_topic() {
    let cluster = TestCluster::of(1);
    let disk: Arc<dyn Disk> = Arc::new(FakeDisk::new(1));
    cluster.add_node(2, Node::open(Config::default(), disk, Path::new("/data")).unwrap().0);
    until("both nodes are members", || [1, 2].iter().all(|&id| cluster.ownership(id).nodes().len() == 2));
    let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    cluster.node(2).create_topic("t", durable.clone(), false).unwrap();
    publish(&cluster.node(2), "t", "before");
    cluster.hub.held_changes.lock().unwrap().insert(2, Vec::new());
    let node = cluster.node(2);
    let recreating = thread::spawn(move || {
        node.delete_topic("t").unwrap();
        node.create_topic("t", durable, false).unwrap();
        publish(&node, "t", "anew")
    });
    let is_deleted = || cluster.hub.state.lock().unwrap().placement(b"t").is_none();
    until("the topic is deleted", is_deleted);
    // Meanwhile, other topics work as usual.
    for _ in 0..100 {
        publish(&cluster.node(1), "other", "x");
    }
    deliver_held_changes(&cluster, 2);
    let position = recreating.join().unwrap();
    let mut subscriber = cluster.node(2).subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(next_events(&mut subscriber, 1), ["anew"]);
    assert_eq!(cluster.node(2).topic("t").unwrap().logs()[0].last(), position);
}

/// Delivers all changes of the agreed state that were held back from the node `id`.
fn deliver_held_changes(cluster: &TestCluster, id: u64) {
    let mut held_changes = cluster.hub.held_changes.lock().unwrap();
    for change in held_changes.remove(&id).unwrap() {
        cluster.ownership(id).apply_events(KeyEvents::new(&change).unwrap());
    }
}

#[test]
fn node_that_missed_a_deletion_serves_the_recreated_topic() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t");
    let mut before = cluster.node(2).subscribe("t", &from(Start::Latest)).unwrap();
    publish(&cluster.node(1), "t", "before");
    assert_eq!(next_events(&mut before, 1), ["before"]);
    cluster.hub.held_changes.lock().unwrap().insert(2, Vec::new());
    cluster.node(1).delete_topic("t").unwrap();
    assert!(next_events(&mut before, 1)[0].starts_with("Deleted"));
    cluster.node(1).create_topic("t", TopicConfig::default(), false).unwrap();
    cluster.hub.held_changes.lock().unwrap().remove(&2);
    cluster.reconnect(2);
    cluster.until_owned_by("t", 1);
    publish(&cluster.node(1), "t", "anew");
    publish(&cluster.node(2), "t", "through it");
    let mut subscriber = cluster.node(2).subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(next_events(&mut subscriber, 2), ["anew", "through it"]);
}

/// The subscribers of a node may learn of a deletion before the node does.
#[test]
fn record_sent_during_the_deletion_of_its_topic_is_refused() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t");
    let (node, topic) = (cluster.node(2), cluster.node(2).topic("t").unwrap());
    let mut subscriber = node.subscribe("t", &from(Start::Latest)).unwrap();
    publish(&cluster.node(1), "t", "before");
    assert_eq!(next_events(&mut subscriber, 1), ["before"]);
    cluster.hub.held_changes.lock().unwrap().insert(2, Vec::new());
    cluster.node(1).delete_topic("t").unwrap();
    assert!(next_events(&mut subscriber, 1)[0].starts_with("Deleted"));
    let draft = Draft { meta: RecordMeta::default(), payload: Payload::Copied(b"late") };
    let receipt = topic.append_drafts(now_ns(), 0, false, [draft].iter()).unwrap();
    deliver_held_changes(&cluster, 2);
    let waiter = Waiter::new();
    let mut outcome = AckProgress::Waiting;
    until("the outcome arrives", || {
        outcome = topic.logs()[0].poll_ack(receipt.position, AckLevel::ByOwner, &waiter, 0);
        !matches!(outcome, AckProgress::Waiting)
    });
    assert!(matches!(outcome, AckProgress::Failed(PublishError::Closed)), "{outcome:?}");
    assert!(node.topic("t").is_none(), "a publisher that repeats its record finds no topic");
}

/// Joins a group of topic `t` at node 2. Returns the member, and the membership that node 2 has requested from node 1.
fn join_at_owner(cluster: &TestCluster) -> (ShareMember, Arc<RemoteMembership>) {
    let options = ShareOptions { anywhere: true, ..ShareOptions::default() };
    let wakeup = (Waiter::new(), 0);
    let member = cluster.node(2).join_share_with_waiter("t", "g", &options, wakeup).unwrap();
    until("the owner receives the request", || !cluster.hub.memberships.lock().unwrap().is_empty());
    let membership = cluster.hub.memberships.lock().unwrap()[0].clone();
    (member, membership)
}

#[test]
fn group_membership_ends_if_owner_of_a_deleted_topic_is_lost() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t");
    let (mut member, membership) = join_at_owner(&cluster);
    membership.on_accepted(cluster.owner("t").1, 1);
    cluster.node(2).delete_topic("t").unwrap();
    assert!(matches!(member.try_next(), Ok(None)), "the owner may still send records");
    membership.ended(&SubscribeError::Connection("lost".to_owned()));
    until("the membership has ended", || matches!(member.try_next(), Err(SubscribeError::Closed)));
}

/// The owner knows that the topic was deleted and created again. It adds the member to a group of the later topic.
#[test]
fn group_member_ends_when_its_topic_is_recreated() {
    for is_accepted_first in [true, false] {
        let cluster = TestCluster::of(2);
        cluster.create_topic_at(1, "t");
        let (mut member, membership) = join_at_owner(&cluster);
        let later_epoch = cluster.owner("t").1 + 1;
        if is_accepted_first {
            membership.on_accepted(later_epoch, 1);
        }
        cluster.node(2).delete_topic("t").unwrap();
        membership.on_accepted(later_epoch, 1);
        let ended = member.try_next().map(|event| event.is_some());
        assert!(matches!(ended, Err(SubscribeError::Closed)), "{ended:?}");
    }
}

/// In this test, the topic was deleted, and created again with more partitions. The owner knows that, but the member's
/// node does not.
#[test]
fn record_of_an_unknown_partition_ends_a_group_membership() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(1, "t");
    let (mut member, membership) = join_at_owner(&cluster);
    let encoded = RecordMeta::default().measure(4).unwrap();
    let mut frame = vec![0; encoded.padded()];
    RecordMeta::default().encode(encoded, 0, b"here", &mut frame);
    let position = Position { epoch: cluster.owner("t").1, seq: 1 };
    [0, 1].into_iter().for_each(|partition| membership.receive_record(partition, position, &frame));
    let Some(Event::Record(record)) = member.try_next().unwrap() else { panic!("no record") };
    assert_eq!(record.payload(), b"here");
    let ended = member.try_next().map(|event| event.is_some());
    assert!(matches!(ended, Err(SubscribeError::Closed)), "{ended:?}");
}
