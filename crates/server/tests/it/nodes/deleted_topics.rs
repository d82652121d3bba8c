//! Tests topics that are deleted before another node has received all their records.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use dunlin::OwnershipLimits;
use dunlin::topic::{Draft, Event, Notice, Payload, Publish, RecordMeta, Start, Subscribe, TopicConfig};
use dunlin_server::Protocol;
use dunlin_server::grpc::proto::dunlin::Record as GrpcRecord;
use dunlin_wait::PATIENCE;

use super::{At, GrpcEvent, TestCluster, read_until, start_at};
use crate::grpc;

/// Starts a cluster whose owners keep deleted topics, and whose nodes wait for records, longer than a busy machine
/// needs.
fn patient_cluster() -> Arc<TestCluster> {
    let (mirror_wait_max, deleted_topic_age_max) = (5 * PATIENCE, 5 * PATIENCE);
    let limits = OwnershipLimits { mirror_wait_max, deleted_topic_age_max, ..OwnershipLimits::default() };
    TestCluster::with(2, limits)
}

/// Publishes the numbers to `r.x` at node 2, which creates the topic if it does not exist.
fn publish(cluster: &TestCluster, numbers: RangeInclusive<u64>) {
    let mut publisher = cluster.node(2).publisher("r.x").unwrap();
    for number in numbers {
        publisher.publish(&number.to_le_bytes()).unwrap();
    }
}

/// Reads until `count` logs have ended. Returns the numbers of all records, and all other notices.
fn read_until_deleted(subscriber: &mut impl Subscribe, count: usize) -> (Vec<u64>, Vec<Notice>) {
    let (mut numbers, mut notices, mut ended) = (Vec::new(), Vec::new(), 0);
    while ended < count {
        match subscriber.next_timeout(PATIENCE).unwrap() {
            Some(Event::Record(record)) => {
                numbers.push(u64::from_le_bytes(record.payload()[..8].try_into().unwrap()));
            }
            Some(Event::Notice(Notice::Deleted { .. })) => ended += 1,
            Some(Event::Notice(notice)) => notices.push(notice),
            None => panic!("nothing after {:?}, {notices:?}", numbers.last()),
        }
    }
    (numbers, notices)
}

fn is_loss(notice: &Notice) -> bool {
    matches!(notice, Notice::Gap(_) | Notice::EpochChanged(_))
}

#[test]
fn lagging_node_receives_each_record_of_a_recreated_topic_once() {
    let cluster = patient_cluster();
    let mut reader = cluster.client(1).subscribe("r.*", start_at(Start::Latest)).unwrap();
    cluster.hold_back_changes(1);
    publish(&cluster, 1..=2);
    cluster.node(2).delete_topic("r.x").unwrap();
    publish(&cluster, 3..=4);
    cluster.release_changes(1);
    let (mut numbers, mut notices) = read_until_deleted(&mut reader, 1);
    publish(&cluster, 5..=5);
    let (last_numbers, last_notices) = read_until(&mut reader, 5);
    numbers.extend(last_numbers);
    notices.extend(last_notices);
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert!(!notices.iter().any(is_loss), "{notices:?}");
}

#[test]
fn recreated_topic_follows_the_deleted_one_in_every_protocol() {
    const RECORDS: u64 = 400;
    let cluster = patient_cluster();
    let mut nats = cluster.nats(1);
    nats.subscribe("r.* 1");
    let mut in_process = cluster.node(1).subscribe("r.*", &start_at(Start::Latest)).unwrap();
    let mut client = cluster.client(1).subscribe("r.*", start_at(Start::Latest)).unwrap();
    let all: Vec<u64> = (1..=RECORDS).collect();
    grpc::run(async {
        let address = format!("http://{}", cluster.address(1, Protocol::Grpc));
        let channel = tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let request = grpc::subscribe(&["r.*"], At::Latest(true));
        let stream = grpc::GrpcClient::new(channel).subscribe(request).await;
        let mut stream = stream.unwrap().into_inner();
        assert!(matches!(grpc::next(&mut stream).await, Ok(GrpcEvent::Subscribed(_))));
        cluster.hold_back_changes(1);
        publish(&cluster, 1..=RECORDS / 2);
        cluster.node(2).delete_topic("r.x").unwrap();
        publish(&cluster, RECORDS / 2 + 1..=RECORDS);
        cluster.release_changes(1);
        let mut numbers = Vec::new();
        while numbers.len() < all.len() {
            if let GrpcEvent::Records(batch) = grpc::next(&mut stream).await.unwrap() {
                let number =
                    |record: &GrpcRecord| u64::from_le_bytes(record.payload[..8].try_into().unwrap());
                numbers.extend(batch.records.iter().map(number));
            }
        }
        assert_eq!(numbers, all, "gRPC");
    });
    assert_eq!(read_until(&mut client, RECORDS).0, all, "client");
    assert_eq!(read_until(&mut in_process, RECORDS).0, all, "in process");
    for number in all {
        assert_eq!(nats.message().payload, number.to_le_bytes(), "NATS");
    }
}

#[test]
fn lagging_node_receives_the_records_of_a_deleted_topic() {
    let cluster = patient_cluster();
    let mut reader = cluster.client(1).subscribe("r.*", start_at(Start::Latest)).unwrap();
    cluster.hold_back_changes(1);
    publish(&cluster, 1..=2);
    cluster.node(2).delete_topic("r.x").unwrap();
    cluster.release_changes(1);
    let (numbers, notices) = read_until_deleted(&mut reader, 1);
    assert_eq!(numbers, [1, 2]);
    assert!(!notices.iter().any(is_loss), "{notices:?}");
}

/// In this test, the owner does not keep deleted topics for other nodes.
#[test]
fn subscriber_learns_that_a_deleted_topic_may_have_lost_records() {
    let limits = OwnershipLimits { deleted_topic_age_max: Duration::ZERO, ..OwnershipLimits::default() };
    let cluster = TestCluster::with(2, limits);
    let mut reader = cluster.client(1).subscribe("r.*", start_at(Start::Latest)).unwrap();
    cluster.hold_back_changes(1);
    publish(&cluster, 1..=2);
    cluster.node(2).delete_topic("r.x").unwrap();
    cluster.release_changes(1);
    let (numbers, notices) = read_until_deleted(&mut reader, 1);
    assert_eq!(numbers, [0; 0]);
    let is_unknown =
        |notice: &Notice| matches!(notice, Notice::EpochChanged(changed) if changed.known_through.is_none());
    assert!(notices.iter().any(is_unknown), "{notices:?}");
}

#[test]
fn large_deleted_topic_does_not_displace_small_deleted_ones() {
    let (mirror_wait_max, deleted_topic_age_max) = (5 * PATIENCE, 5 * PATIENCE);
    let cluster = TestCluster::with(
        2,
        OwnershipLimits {
            mirror_wait_max,
            deleted_topic_age_max,
            deleted_topics_bytes_max: 256 << 10,
            ..OwnershipLimits::default()
        },
    );
    let mut reader = cluster.client(1).subscribe("r.*", start_at(Start::Latest)).unwrap();
    cluster.hold_back_changes(1);
    publish(&cluster, 1..=2);
    cluster.node(2).delete_topic("r.x").unwrap();
    let (mut publisher, payload) = (cluster.node(2).publisher("r.large").unwrap(), [0_u8; 8 << 10]);
    for _ in 0..100 {
        publisher.publish(&payload[..]).unwrap();
    }
    cluster.node(2).delete_topic("r.large").unwrap();
    cluster.release_changes(1);
    let (numbers, notices) = read_until_deleted(&mut reader, 2);
    assert_eq!(numbers, [1, 2]);
    let lost: Vec<&str> = notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::EpochChanged(changed) => Some(&*changed.log.topic),
            _ => None,
        })
        .collect();
    assert_eq!(lost, ["r.large"]);
}

#[test]
fn remote_subscriber_reads_all_partitions_of_a_deleted_topic() {
    const PARTITIONS: u16 = 4;
    let cluster = TestCluster::of(2);
    cluster.create_topic_at(2, "t", TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() });
    let mut reader = cluster.client(1).subscribe("t", start_at(Start::Latest)).unwrap();
    let mut publisher = cluster.node(2).publisher("t").unwrap();
    for number in 1..=2_000_u64 {
        let (key, payload) = (number.to_le_bytes(), number.to_le_bytes());
        let meta = RecordMeta { key: Some(&key), ..RecordMeta::default() };
        publisher.publish(Draft { meta, payload: Payload::Copied(&payload) }).unwrap();
    }
    cluster.node(2).delete_topic("t").unwrap();
    let (mut numbers, notices) = read_until_deleted(&mut reader, PARTITIONS.into());
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=2_000), "{} records", numbers.len());
    assert!(!notices.iter().any(is_loss), "{notices:?}");
}
