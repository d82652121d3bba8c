//! Tests of the order of one publisher's records while their topic moves. Earlier records stay before later ones, even
//! if they were already sent to the previous owner.

use dunlin::topic::{AckLevel, AckProgress, Draft, Payload, Receipt, RecordMeta};

use super::*;

#[test]
fn absent_owner_does_not_delay_publishing_to_another_owner() {
    let cluster = TestCluster::with(
        3,
        OwnershipLimits {
            lease_ttl: Duration::from_secs(120),
            forwarded_bytes_max: 64 << 10,
            owner_wait_max: Duration::from_secs(120),
            ..OwnershipLimits::default()
        },
    );
    cluster.create_topic_at(2, "a");
    cluster.create_topic_at(3, "b");
    // Hold back all records from node 1 to node 2.
    cluster.hub.in_transit.lock().unwrap().insert((1, 2));
    let topic = cluster.node(1).topic("a").unwrap();
    let append = || {
        let draft = Draft { meta: RecordMeta::default(), payload: Payload::Copied(&[b'a'; 1 << 10]) };
        topic.append_drafts(now_ns(), 0, false, [draft].iter())
    };
    let refused = std::iter::repeat_with(append).find_map(Result::err).unwrap();
    assert!(matches!(refused, PublishError::OwnerBehind { .. }), "{refused}");
    publish(&cluster.node(1), "b", "b");
    cluster.hub.in_transit.lock().unwrap().clear();
    until("there is room for node 2 again", || append().is_ok());
}

/// Publishes a record without waiting for its outcome, as a protocol with pipelining or without acknowledgements does.
fn send(node: &Node, text: &str, mark: Option<ProducerMark>) -> Receipt {
    let topic = node.topic("t").unwrap();
    let meta = RecordMeta::default();
    let Some(_) = mark else {
        let draft = Draft { meta, payload: Payload::Copied(text.as_bytes()) };
        return topic.append_drafts(now_ns(), 0, false, [draft].iter()).unwrap();
    };
    let encoded = meta.measure(text.len()).unwrap();
    let mut frame = vec![0; encoded.padded()];
    meta.encode(encoded, 0, text.as_bytes(), &mut frame);
    let batch = CheckedBatch::check(&frame, 1, 1 << 20).unwrap();
    let append = BatchAppend {
        batch,
        partition: 0,
        mark,
        expect_last: None,
        claim: None,
        evict: false,
        relayed: false,
    };
    topic.append_batch(now_ns(), append).unwrap()
}

/// A publisher at node 1 sends records before and after its topic moves from node 2 to the node `to`. When node 1
/// learns of the new owner, the earlier records have not arrived at node 2. Returns all records in the order in which a
/// subscriber receives them.
fn records_around_a_move(to: u64, has_producer: bool) -> Vec<String> {
    let cluster = TestCluster::of(3);
    cluster.create_topic_at(2, "t");
    let mut subscriber = cluster.node(3).subscribe("t", &from(Start::Latest)).unwrap();
    let node = cluster.node(1);
    let mut receipts = Vec::new();
    let mut publish = |number: u64| {
        let mark = ProducerMark { producer: 7, producer_epoch: 1, producer_seq: number };
        receipts.push(send(&node, &number.to_string(), has_producer.then_some(mark)));
    };
    cluster.hub.in_transit.lock().unwrap().insert((1, 2));
    (1..=3).for_each(&mut publish);
    cluster.ownership(1).move_topic("t", to).unwrap();
    cluster.until_owned_by("t", to);
    (4..=6).for_each(&mut publish);
    cluster.hub.in_transit.lock().unwrap().clear();
    let mut all = Vec::new();
    while all.len() < receipts.len() {
        all.extend(next_events(&mut subscriber, 1).into_iter().filter(|event| !event.starts_with("epoch")));
    }
    let (waiter, log) = (Waiter::new(), Arc::clone(&node.topic("t").unwrap().logs()[0]));
    for receipt in receipts.iter().filter(|receipt| receipt.acknowledged == AckLevel::ByOwner) {
        until("the outcome arrives", || {
            match log.poll_ack(receipt.position, AckLevel::ByOwner, &waiter, 0) {
                AckProgress::Waiting => false,
                outcome => {
                    assert!(matches!(outcome, AckProgress::ByOwner(_)), "{outcome:?}");
                    true
                }
            }
        });
    }
    all
}

#[test]
fn moved_topic_keeps_the_order_of_records_in_flight() {
    let in_order: Vec<String> = (1..=6).map(|number| number.to_string()).collect();
    // Move the topic to a third node (3), or to the publisher's own node (1).
    for (to, has_producer) in [(3, false), (3, true), (1, false), (1, true)] {
        let all = records_around_a_move(to, has_producer);
        assert_eq!(all, in_order, "moved to node {to}, with a producer: {has_producer}");
    }
}

/// Batches of one topic that are on their way at the same time form a flight. They use the same relay: the link that
/// forwards one topic's batches. If the owner refuses a batch because the topic was deleted, the owner also refuses all
/// later batches of the flight. A record for a new topic with the same name must therefore wait until the flight has
/// ended. The record is then sent over a new relay. If new records could join the flight, the flight would never end
/// under a constant load.
#[test]
fn refusal_of_old_records_does_not_affect_a_recreated_topic() {
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(2, "t");
    let node = cluster.node(1);
    *cluster.hub.captured.lock().unwrap() = Some(Vec::new());
    let captured = || std::mem::take(cluster.hub.captured.lock().unwrap().as_mut().unwrap());
    for text in ["1", "2"] {
        send(&node, text, None);
    }
    let mut flight = captured().into_iter();
    let (first, second) = (flight.next().unwrap(), flight.next().unwrap());
    let number = first.flight;
    assert_eq!(second.flight, number);
    first.complete(Err(PublishError::Closed));
    // The second record has no response yet, so the flight has not ended. Until the flight has ended, the new record
    // must not be sent.
    send(&node, "3", None);
    assert!(captured().is_empty(), "the relay would refuse the record");
    second.complete(Err(PublishError::Closed));
    let mut later = Vec::new();
    until("the record is sent", || {
        later.extend(captured());
        !later.is_empty()
    });
    assert!(later[0].flight > number, "over a new relay");
    *cluster.hub.captured.lock().unwrap() = None;
    let subscriber = &mut cluster.node(2).subscribe("t", &from(Start::Earliest)).unwrap();
    later.into_iter().for_each(|batch| deliver(&Arc::downgrade(&cluster.hub), 1, 2, batch));
    assert_eq!(next_events(subscriber, 1), ["3"]);
}

#[test]
fn node_removes_a_deleted_topic_before_publishers_are_refused() {
    let wait_max = Duration::from_secs(600);
    let limits =
        OwnershipLimits { lease_ttl: wait_max, owner_wait_max: wait_max, ..OwnershipLimits::default() };
    let cluster = TestCluster::with(2, limits);
    cluster.create_topic_at(2, "t");
    let node = cluster.node(1);
    *cluster.hub.captured.lock().unwrap() = Some(Vec::new());
    let receipt = send(&node, "1", None);
    let refused = cluster.hub.captured.lock().unwrap().as_mut().unwrap().remove(0);
    refused.complete(Err(PublishError::Closed));
    let (waiter, log) = (Waiter::new(), Arc::clone(&node.topic("t").unwrap().logs()[0]));
    let outcome = || log.poll_ack(receipt.position, AckLevel::ByOwner, &waiter, 0);
    let before = outcome();
    assert!(matches!(before, AckProgress::Waiting), "{before:?}");
    cluster.node(2).delete_topic("t").unwrap();
    let mut after = AckProgress::Waiting;
    until("the outcome arrives", || {
        after = outcome();
        !matches!(after, AckProgress::Waiting)
    });
    assert!(matches!(after, AckProgress::Failed(PublishError::Closed)), "{after:?}");
    assert!(node.topic("t").is_none(), "a publisher that repeats its record finds no topic");
}
