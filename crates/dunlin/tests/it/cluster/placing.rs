//! Subscribers that wait until their mirror stands where its owner does, while the topic changes hands or is deleted.

use super::*;

/// Limits that no test waits for.
fn endless() -> OwnershipLimits {
    let long = Duration::from_secs(600);
    OwnershipLimits {
        lease_ttl: long,
        owner_wait_max: long,
        mirror_wait_max: long,
        ..OwnershipLimits::default()
    }
}

/// The subscriber, as soon as it has begun.
fn subscribing(stage: &Stage, id: u64, start: Start) -> mpsc::Receiver<Subscriber> {
    let (node, (begun, receive)) = (stage.node(id), mpsc::channel());
    thread::spawn(move || begun.send(node.subscribe("t", &from(start)).unwrap()));
    receive
}

/// The keeper's thread waits for the cluster meanwhile, which gives no answer.
#[test]
fn topic_that_moves_before_its_feed_begins_is_fed_at_once() {
    for to in [1, 3] {
        let stage = Stage::with(4, endless());
        stage.topic_at(2, "t");
        stage.topic_at(4, "gone");
        publish(&stage.node(2), "t", "first");
        let _reader = stage.node(1).subscribe("gone", &from(Start::Latest)).unwrap();
        stage.hall.unanswered_by.lock().unwrap().insert(1);
        stage.cut(4);
        stage.end_lease(4);
        until("the cluster is asked for an owner", || stage.hall.is_asking.load(Ordering::Relaxed));
        *stage.hall.moves_before_feed.lock().unwrap() = Some((1, to));
        let begun = subscribing(&stage, 1, Start::Earliest).recv_timeout(PATIENCE);
        stage.hall.unanswered_by.lock().unwrap().clear();
        let mut reader = begun.unwrap_or_else(|_| panic!("moved to node {to}: it waits in vain"));
        assert_eq!(told(&mut reader, 1), ["first"], "moved to node {to}");
    }
}

#[test]
fn next_owner_asks_again_where_the_handover_breaks_off() {
    let stage = Stage::with(3, endless());
    stage.topic_at(1, "t");
    publish(&stage.node(3), "t", "before");
    stage.hall.breaking.lock().unwrap().insert((2, 1));
    stage.ownership(3).move_topic("t", 2).unwrap();
    stage.until_owned_by("t", 2);
    let mut reader = stage.node(2).subscribe("t", &from(Start::Earliest)).unwrap();
    assert_eq!(told(&mut reader, 1), ["before"]);
}

#[test]
fn next_owner_does_not_wait_for_one_that_is_gone() {
    let stage = Stage::with(3, endless());
    stage.topic_at(1, "t");
    stage.hall.mute.lock().unwrap().insert(1);
    stage.ownership(3).move_topic("t", 2).unwrap();
    until("it is moved", || stage.owner("t").0 == 2);
    stage.cut(1);
    stage.end_lease(1);
    stage.until_owned_by("t", 2);
}

#[test]
fn subscriber_that_waits_for_a_mirror_ends_with_its_topic() {
    for start in [Start::Latest, Start::Earliest] {
        let stage = Stage::with(2, endless());
        stage.topic_at(1, "t");
        stage.hall.mute.lock().unwrap().insert(1);
        let begun = subscribing(&stage, 2, start);
        until("it waits for its mirror", || stage.hall.unreached.load(Ordering::Relaxed) > 0);
        stage.node(2).delete_topic("t").unwrap();
        let mut reader =
            begun.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{start:?}: it waits in vain"));
        let ended = reader.next_timeout(PATIENCE);
        assert!(!matches!(ended, Ok(None | Some(Event::Record(_)))), "{start:?}: {ended:?}");
    }
}
