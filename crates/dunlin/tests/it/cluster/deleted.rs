//! Topics that are deleted while a node cannot be reached.

use super::*;

/// The outcome of a record published at a node.
fn outcome_of(node: Node, mark: Option<ProducerMark>) -> mpsc::Receiver<Result<Position, PublishError>> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut publisher = node.publisher("t").unwrap();
        let outcome = match mark {
            Some(mark) => publisher.identified(mark).publish("waits"),
            None => publisher.publish("waits"),
        };
        let _ = tell.send(outcome.map(|receipt| receipt.position));
    });
    told
}

#[test]
fn publisher_waiting_for_an_owner_ends_when_topic_is_deleted() {
    let stage = TestCluster::of(2);
    stage.topic_at(1, "t");
    stage.cut(1);
    let told = outcome_of(stage.node(2), None);
    stage.until_unanswered(1);
    stage.node(2).delete_topic("t").unwrap();
    let outcome = told.recv_timeout(PATIENCE).expect("it is told");
    assert!(matches!(outcome, Err(PublishError::Closed)), "{outcome:?}");
}

#[test]
fn unconfirmed_record_of_a_deleted_topic_has_unknown_outcome() {
    let stage = TestCluster::of(2);
    stage.topic_at(1, "t");
    stage.hall.unheard.lock().unwrap().insert(1);
    let mark = ProducerMark { producer: 7, producer_epoch: 1, producer_seq: 1 };
    let told = outcome_of(stage.node(2), Some(mark));
    let owned = stage.node(1).topic("t").unwrap();
    until("the owner has appended the record", || owned.logs()[0].last().seq == 1);
    stage.node(2).delete_topic("t").unwrap();
    let outcome = told.recv_timeout(PATIENCE).expect("it is told");
    assert!(matches!(outcome, Err(PublishError::Unknown(_))), "{outcome:?}");
}

#[test]
fn late_deletion_notice_does_not_delete_a_recreated_topic() {
    let stage = TestCluster::of(1);
    let disk: Arc<dyn Disk> = Arc::new(FakeDisk::new(1));
    stage.enter(2, Node::open(Config::default(), disk, Path::new("/data")).unwrap().0);
    until("both nodes are members", || [1, 2].iter().all(|&id| stage.ownership(id).nodes().len() == 2));
    let durable = TopicConfig { durable: Some(Durable::default()), ..TopicConfig::default() };
    stage.node(2).create_topic("t", durable.clone(), false).unwrap();
    publish(&stage.node(2), "t", "before");
    stage.hall.late.lock().unwrap().insert(2, Vec::new());
    let node = stage.node(2);
    let anew = thread::spawn(move || {
        node.delete_topic("t").unwrap();
        node.create_topic("t", durable, false).unwrap();
        publish(&node, "t", "anew")
    });
    let is_deleted = || stage.hall.state.lock().unwrap().placement(b"t").is_none();
    until("the topic is deleted", is_deleted);
    // In the meantime, other topics continue to work.
    for _ in 0..100 {
        publish(&stage.node(1), "other", "x");
    }
    hears(&stage, 2);
    let position = anew.join().unwrap();
    let mut subscriber = stage.node(2).subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(told(&mut subscriber, 1), ["anew"]);
    assert_eq!(stage.node(2).topic("t").unwrap().logs()[0].last(), position);
}

/// Delivers all changes that were held back from a node.
fn hears(stage: &TestCluster, id: u64) {
    let mut late = stage.hall.late.lock().unwrap();
    for change in late.remove(&id).unwrap() {
        stage.ownership(id).changed(KeyEvents::new(&change).unwrap());
    }
}

#[test]
fn node_that_missed_a_deletion_serves_the_recreated_topic() {
    let stage = TestCluster::of(2);
    stage.topic_at(1, "t");
    let mut before = stage.node(2).subscribe("t", &from(Start::Latest)).unwrap();
    publish(&stage.node(1), "t", "before");
    assert_eq!(told(&mut before, 1), ["before"]);
    stage.hall.late.lock().unwrap().insert(2, Vec::new());
    stage.node(1).delete_topic("t").unwrap();
    assert!(told(&mut before, 1)[0].starts_with("Deleted"));
    stage.node(1).create_topic("t", TopicConfig::default(), false).unwrap();
    stage.hall.late.lock().unwrap().remove(&2);
    stage.mend(2);
    stage.until_owned_by("t", 1);
    publish(&stage.node(1), "t", "anew");
    publish(&stage.node(2), "t", "through it");
    let mut subscriber = stage.node(2).subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(told(&mut subscriber, 2), ["anew", "through it"]);
}
