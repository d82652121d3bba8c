//! Subscribers that wait for their mirror while the topic moves.

use dunlin::{JoinError, TopicError, WorkOptions};

use super::*;

/// Time limits that are longer than any test takes.
fn endless() -> OwnershipLimits {
    let long = Duration::from_secs(600);
    OwnershipLimits {
        lease_ttl: long,
        owner_wait_max: long,
        mirror_wait_max: long,
        ..OwnershipLimits::default()
    }
}

/// Subscribes on another thread.
fn subscribing(stage: &TestCluster, id: u64, start: Start) -> mpsc::Receiver<Subscriber> {
    let (node, (begun, receive)) = (stage.node(id), mpsc::channel());
    thread::spawn(move || drop(begun.send(node.subscribe("t", &from(start)).unwrap())));
    receive
}

#[test]
fn subscribe_succeeds_while_the_topic_moves_to_another_node() {
    for to in [1, 3] {
        let stage = TestCluster::with(3, endless());
        stage.topic_at(2, "t");
        publish(&stage.node(2), "t", "first");
        *stage.hall.moves_before_feed.lock().unwrap() = Some((1, to));
        let begun = subscribing(&stage, 1, Start::Earliest).recv_timeout(PATIENCE);
        let mut subscriber = begun.unwrap_or_else(|_| panic!("moved to node {to}: the wait timed out"));
        assert_eq!(told(&mut subscriber, 1), ["first"], "moved to node {to}");
    }
}

#[test]
fn next_owner_resumes_an_interrupted_handover() {
    let stage = TestCluster::with(3, endless());
    stage.topic_at(1, "t");
    publish(&stage.node(3), "t", "before");
    stage.hall.breaking.lock().unwrap().insert((2, 1));
    stage.ownership(3).move_topic("t", 2).unwrap();
    stage.until_owned_by("t", 2);
    let mut subscriber = stage.node(2).subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(told(&mut subscriber, 1), ["before"]);
}

#[test]
fn next_owner_does_not_wait_for_a_dead_owner() {
    let stage = TestCluster::with(3, endless());
    stage.topic_at(1, "t");
    stage.hall.mute.lock().unwrap().insert(1);
    stage.ownership(3).move_topic("t", 2).unwrap();
    until("it is moved", || stage.owner("t").0 == 2);
    stage.cut(1);
    stage.end_lease(1);
    stage.until_owned_by("t", 2);
}

#[test]
fn publish_waits_until_the_topic_of_its_subject_is_known() {
    let stage = TestCluster::with(2, endless());
    stage.hall.late.lock().unwrap().insert(2, Vec::new());
    let config = TopicConfig { pattern: Some("a.>".to_owned()), ..TopicConfig::default() };
    stage.node(1).create_topic("a", config, false).unwrap();
    let (node, (tell, receive)) = (stage.node(2), mpsc::channel());
    thread::spawn(move || {
        let outcome = node.publisher("a.x").and_then(|mut publisher| publisher.publish("early"));
        tell.send(outcome.map(|receipt| receipt.position.seq).map_err(|error| error.to_string())).unwrap();
    });
    // The subscriber has learned that another topic owns the subject.
    let early = receive.recv_timeout(Duration::from_millis(100));
    assert!(early.is_err(), "{early:?}");
    let unheard = stage.hall.late.lock().unwrap().remove(&2).unwrap();
    unheard.iter().for_each(|change| stage.ownership(2).changed(KeyEvents::new(change).unwrap()));
    assert_eq!(receive.recv_timeout(PATIENCE).unwrap(), Ok(1));
}

#[test]
fn next_owner_refuses_group_members_until_its_takeover_ends() {
    let stage = TestCluster::with(3, endless());
    stage.topic_at(1, "t");
    publish(&stage.node(1), "t", "before");
    stage.hall.mute.lock().unwrap().insert(1);
    stage.ownership(3).move_topic("t", 2).unwrap();
    let (node, topic) = (stage.node(2), stage.node(2).topic("t").unwrap());
    until("the node knows of the move", || stage.ownership(2).owner_of(&topic).0 == 2);
    let join = || node.join_work("t", "workers", &WorkOptions::default()).map(drop);
    let refused = join().unwrap_err();
    assert!(matches!(refused, JoinError::Topic(TopicError::HandingOver(_))), "{refused:?}");
    stage.hall.mute.lock().unwrap().clear();
    stage.until_owned_by("t", 2);
    until("members join the groups there", || join().is_ok());
}
