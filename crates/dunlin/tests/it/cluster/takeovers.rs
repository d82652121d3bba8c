//! Tests of subscribers and publishers that wait while a topic moves to another owner, or until their node knows the
//! topic.

use dunlin::topic::{ConfigError, ReducerConfig, ReliableOptions, Retention};
use dunlin::{JoinError, TopicError, WorkEvent, WorkOptions, block_on};

use super::*;

/// Limits with waiting times that are longer than any test takes.
fn long_limits() -> OwnershipLimits {
    let long = Duration::from_secs(600);
    OwnershipLimits {
        lease_ttl: long,
        owner_wait_max: long,
        mirror_wait_max: long,
        ..OwnershipLimits::default()
    }
}

/// Subscribes to the topic `t` on another thread. Returns a receiver of the subscriber.
fn spawn_subscribe(cluster: &TestCluster, id: u64, start: Start) -> mpsc::Receiver<Subscriber> {
    let (node, (send, receive)) = (cluster.node(id), mpsc::channel());
    thread::spawn(move || drop(send.send(node.subscribe("t", &from(start)).unwrap())));
    receive
}

#[test]
fn subscribe_succeeds_while_the_topic_moves_to_another_node() {
    for to in [1, 3] {
        let cluster = TestCluster::with(3, long_limits());
        cluster.create_topic_at(2, "t");
        publish(&cluster.node(2), "t", "first");
        *cluster.hub.moves_before_feed.lock().unwrap() = Some((1, to));
        let subscribed = spawn_subscribe(&cluster, 1, Start::Earliest).recv_timeout(PATIENCE);
        let mut subscriber = subscribed.unwrap_or_else(|_| panic!("moved to node {to}: the wait timed out"));
        assert_eq!(next_events(&mut subscriber, 1), ["first"], "moved to node {to}");
    }
}

#[test]
fn next_owner_resumes_an_interrupted_handover() {
    let cluster = TestCluster::with(3, long_limits());
    cluster.create_topic_at(1, "t");
    publish(&cluster.node(3), "t", "before");
    cluster.hub.ending_feeds.lock().unwrap().insert((2, 1));
    cluster.ownership(3).move_topic("t", 2).unwrap();
    cluster.until_owned_by("t", 2);
    let mut subscriber = cluster.node(2).subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(next_events(&mut subscriber, 1), ["before"]);
}

#[test]
fn next_owner_does_not_wait_for_a_dead_owner() {
    let cluster = TestCluster::with(3, long_limits());
    cluster.create_topic_at(1, "t");
    cluster.hub.silent_feeds.lock().unwrap().insert(1);
    cluster.ownership(3).move_topic("t", 2).unwrap();
    until("it is moved", || cluster.owner("t").0 == 2);
    cluster.cut(1);
    cluster.end_lease(1);
    cluster.until_owned_by("t", 2);
}

/// If the node did not check the reducer, the cluster would agree on a topic that no node can open, and the topic's
/// name could not be used any more.
#[test]
fn topic_name_stays_free_if_the_requested_reducer_is_invalid() {
    let cluster = TestCluster::with(2, long_limits());
    let node = cluster.node(1);
    for (kind, option) in [("boook", None), ("book", Some(("depht", "1")))] {
        let options = option.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        let reducer = Some(ReducerConfig { kind: kind.to_owned(), options });
        let config = TopicConfig { reducer, ..TopicConfig::default() };
        let refused = node.create_topic("t", config, false).unwrap_err();
        assert!(matches!(refused, TopicError::Config(ConfigError::Reducer { .. })), "{refused}");
    }
    node.create_topic("t", TopicConfig::default(), false).unwrap();
}

#[test]
fn all_nodes_know_a_topic_with_extremely_long_limits() {
    let cluster = TestCluster::with(2, long_limits());
    let retention = Retention { age: Some(Duration::MAX), ..Retention::default() };
    let reliable = Some(ReliableOptions { wait_max: Duration::MAX, ..ReliableOptions::default() });
    let config = TopicConfig { retention, reliable, ..TopicConfig::default() };
    cluster.node(1).create_topic("t", config.clone(), false).unwrap();
    cluster.node(1).create_topic("t", config, true).unwrap();
    until("the other node knows the topic", || cluster.node(2).topic("t").is_some());
}

#[test]
fn publish_waits_until_the_topic_of_its_subject_is_known() {
    let cluster = TestCluster::with(2, long_limits());
    cluster.hub.held_changes.lock().unwrap().insert(2, Vec::new());
    let config = TopicConfig { pattern: Some("a.>".to_owned()), ..TopicConfig::default() };
    cluster.node(1).create_topic("a", config, false).unwrap();
    let (node, (send, receive)) = (cluster.node(2), mpsc::channel());
    thread::spawn(move || {
        let outcome = node.publisher("a.x").and_then(|mut publisher| publisher.publish("early"));
        send.send(outcome.map(|receipt| receipt.position.seq).map_err(|error| error.to_string())).unwrap();
    });
    // The cluster has told node 2 that another topic owns the subject. The publisher must wait until node 2 knows that
    // topic.
    let early = receive.recv_timeout(Duration::from_millis(100));
    assert!(early.is_err(), "{early:?}");
    let held_changes = cluster.hub.held_changes.lock().unwrap().remove(&2).unwrap();
    held_changes.iter().for_each(|change| cluster.ownership(2).apply_events(KeyEvents::new(change).unwrap()));
    assert_eq!(receive.recv_timeout(PATIENCE).unwrap(), Ok(1));
}

/// Only a limited number of the node's threads may block, and other operations need these threads, too.
#[test]
fn waiting_dead_letters_block_only_one_thread() {
    let cluster = TestCluster::with(2, long_limits());
    cluster.create_topic_at(1, "t");
    let node = cluster.node(1);
    publish(&node, "t", "poison");
    let options = WorkOptions { start: Start::Earliest, attempts_max: 1, ..WorkOptions::default() };
    let mut member = node.join_work("t", "g", &options).unwrap();
    let claimed = loop {
        if let Some(WorkEvent::ClaimedRecord(claimed)) = member.claim_one(Some(PATIENCE)).unwrap() {
            break claimed;
        }
    };
    node.delete_topic("dead.t").unwrap();
    cluster.hub.ignored_nodes.lock().unwrap().insert(1);
    member.nack(claimed.token, Duration::ZERO).unwrap();
    (0..200).for_each(|_| node.tick());
    let known = node.prepare_forwarded(&Pattern::parse("u.>").unwrap());
    let config = TopicConfig { pattern: Some("u.>".to_owned()), ..TopicConfig::default() };
    cluster.node(2).create_topic("u", config, false).unwrap();
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(block_on(known)));
    let known = receive.recv_timeout(PATIENCE);
    cluster.hub.ignored_nodes.lock().unwrap().clear();
    assert!(matches!(known, Ok(Ok(()))), "{known:?}");
    until("the dead letter has its topic", || {
        node.tick();
        let is_stored_at =
            |id| cluster.node(id).topic("dead.t").is_some_and(|topic| topic.logs()[0].last().seq == 1);
        [1, 2].into_iter().any(is_stored_at)
    });
}

#[test]
fn next_owner_refuses_group_members_until_its_takeover_ends() {
    let cluster = TestCluster::with(3, long_limits());
    cluster.create_topic_at(1, "t");
    publish(&cluster.node(1), "t", "before");
    cluster.hub.silent_feeds.lock().unwrap().insert(1);
    cluster.ownership(3).move_topic("t", 2).unwrap();
    let (node, topic) = (cluster.node(2), cluster.node(2).topic("t").unwrap());
    until("the node knows of the move", || cluster.ownership(2).owner_of(&topic).0 == 2);
    let join = || node.join_work("t", "workers", &WorkOptions::default()).map(drop);
    let refused = join().unwrap_err();
    assert!(matches!(refused, JoinError::Topic(TopicError::HandingOver(_))), "{refused:?}");
    cluster.hub.silent_feeds.lock().unwrap().clear();
    cluster.until_owned_by("t", 2);
    until("members join the groups there", || join().is_ok());
}
