//! Tests publishers at a node that forwards their records to a full reliable topic of another node.

use dunlin::now_ns;
use dunlin::topic::{AckLevel, AckProgress, Receipt, ReliableOptions, Retention, Subscriber, Waiter};

use super::*;

/// A record of 1,000 bytes that begins with its number.
fn record(number: u64) -> Vec<u8> {
    let mut payload = vec![0; 1_000];
    payload[..8].copy_from_slice(&number.to_le_bytes());
    payload
}

fn append(node: &Node, number: u64) -> Result<Receipt, PublishError> {
    let payload = record(number);
    let draft = Draft { meta: RecordMeta::default(), payload: Payload::Copied(&payload) };
    node.topic("full").unwrap().append_drafts(now_ns(), 0, false, [draft].iter())
}

/// Creates the reliable topic `full` at node 2, with a registered subscriber that has read nothing, and fills it.
/// Returns the subscriber and the number of records.
fn full_topic(cluster: &TestCluster, wait_max: Duration) -> (Subscriber, u64) {
    let reliable = Some(ReliableOptions { wait_max, ..ReliableOptions::default() });
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    cluster.create_topic_at(2, "full", TopicConfig { reliable, retention, ..TopicConfig::default() });
    let owner = cluster.node(2);
    let options = SubscribeOptions { registered: true, ..start_at(Start::Latest) };
    let subscriber = owner.subscribe("full", &options).unwrap();
    let refused = (1..=1_000).find_map(|number| Some((number, append(&owner, number).err()?)));
    let (number, refused) = refused.expect("the history is full at last");
    assert!(matches!(refused, PublishError::Full { .. }), "{refused}");
    (subscriber, number - 1)
}

#[test]
fn full_topic_delays_no_other_topic_of_its_owner() {
    let cluster = TestCluster::of(2);
    let (mut subscriber, filled) = full_topic(&cluster, Duration::MAX);
    cluster.create_topic_at(2, "other", TopicConfig::default());
    let (node, client) = (cluster.node(1), cluster.client(1));
    let mut publisher = client.publisher("other").unwrap();
    publisher.publish(b"the nodes are connected").unwrap();
    let last = filled + 100;
    let receipts: Vec<Receipt> = (filled + 1..=last).map(|number| append(&node, number).unwrap()).collect();
    assert!(receipts.iter().all(|receipt| receipt.acknowledged == AckLevel::ByOwner));
    publisher.publish(b"tcp").unwrap();
    let mut http = HttpPeer::connect(cluster.address(1, Protocol::Http));
    assert_eq!(http.request("POST", "/v1/topics/other", &[], b"http").status, 200);
    let mut nats = cluster.nats(1);
    nats.publish("other", "nats");
    let appended = || cluster.node(2).topic("other").unwrap().logs()[0].last().seq;
    until("the owner has the records for the other topic", || appended() == 4);
    let log = Arc::clone(&node.topic("full").unwrap().logs()[0]);
    let waiter = Waiter::new();
    let outcome = |receipt: &Receipt| log.poll_ack(receipt.position, receipt.acknowledged, &waiter, 0);
    assert_eq!(outcome(&receipts[0]), AckProgress::Waiting);
    let (numbers, notices) = read_until(&mut subscriber, last);
    assert!(numbers.iter().copied().eq(1..=last) && notices.is_empty(), "{numbers:?}, {notices:?}");
    for (number, receipt) in (filled + 1..).zip(&receipts) {
        let mut appended = None;
        until("the record has its outcome", || {
            appended = Some(outcome(receipt)).filter(|outcome| *outcome != AckProgress::Waiting);
            appended.is_some()
        });
        let Some(AckProgress::ByOwner(receipt)) = appended else { panic!("{appended:?}") };
        assert_eq!(receipt.position.seq, number);
    }
}

#[test]
fn publisher_at_another_node_waits_until_a_full_topic_has_room() {
    let limits = OwnershipLimits { forwarded_bytes_max: 64 << 10, ..OwnershipLimits::default() };
    let cluster = TestCluster::with(2, limits);
    let (mut subscriber, filled) = full_topic(&cluster, Duration::MAX);
    let (node, last) = (cluster.node(1), filled + 300);
    let publishing = thread::spawn(move || {
        let mut publisher = node.publisher("full").unwrap();
        (filled + 1..=last).for_each(|number| publisher.send(&record(number)[..]).unwrap());
        publisher.flush().unwrap().unwrap().position.seq
    });
    assert!(read_until(&mut subscriber, last).0.into_iter().eq(1..=last));
    assert_eq!(publishing.join().unwrap(), last);
}

#[test]
fn publisher_at_another_node_is_refused_if_a_topic_stays_full() {
    let cluster = TestCluster::of(2);
    let (_subscriber, filled) = full_topic(&cluster, Duration::from_millis(1));
    let last = || cluster.node(2).topic("full").unwrap().logs()[0].last().seq;
    let client = cluster.client(1);
    let refused = client.publisher("full").unwrap().publish(&record(0)[..]);
    assert!(matches!(refused, Err(PublishError::Full { .. })), "{refused:?}");
    let mut http = HttpPeer::connect(cluster.address(1, Protocol::Http));
    let response = http.request("POST", "/v1/topics/full", &[], &record(0));
    assert_eq!((response.status, response.code().as_str()), (503, "FULL"));
    let mut nats = cluster.nats(1);
    nats.publish("full", &"x".repeat(1_000));
    let line = nats.line();
    assert!(line.contains("history is full"), "{line}");
    assert_eq!(last(), filled);
}
