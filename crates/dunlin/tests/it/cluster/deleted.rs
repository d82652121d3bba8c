//! Topics that are deleted while a node cannot be reached.

use super::*;

/// What comes of a record that is published at a node, as soon as that is known.
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
fn who_waits_for_an_owner_is_told_when_the_topic_is_deleted() {
    let stage = Stage::of(2);
    stage.topic_at(1, "t");
    stage.cut(1);
    let told = outcome_of(stage.node(2), None);
    thread::sleep(Duration::from_millis(100));
    stage.node(2).delete_topic("t").unwrap();
    let outcome = told.recv_timeout(PATIENCE).expect("it is told");
    assert!(matches!(outcome, Err(PublishError::Closed)), "{outcome:?}");
}

#[test]
fn what_an_owner_may_have_taken_before_its_topic_was_deleted_is_told_to_be_unknown() {
    let stage = Stage::of(2);
    stage.topic_at(1, "t");
    stage.hall.unheard.lock().unwrap().insert(1);
    let mark = ProducerMark { producer: 7, producer_epoch: 1, producer_seq: 1 };
    let told = outcome_of(stage.node(2), Some(mark));
    let owned = stage.node(1).topic("t").unwrap();
    until("its owner has taken it", || owned.logs()[0].last().seq == 1);
    stage.node(2).delete_topic("t").unwrap();
    let outcome = told.recv_timeout(PATIENCE).expect("it is told");
    assert!(matches!(outcome, Err(PublishError::Unknown(_))), "{outcome:?}");
}
