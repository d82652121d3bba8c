//! Tests of groups that have to skip many expired records before they find a record for a member.

use std::time::Duration;

use dunlin::topic::{
    Draft, Event, Payload, Publish, RecordMeta, ReliableOptions, Retention, Subscribe, TopicConfig, Waiter,
};
use dunlin::{Node, WorkEvent, WorkOptions};

use super::{claim, keyed, number, publish, share_from_start, work_from_start};
use crate::node;

const EXPIRED: u64 = 20_000;
/// The minimum number of calls that a listener's member needs to skip all expired records.
const TURNS_MIN: usize = 2;

fn publish_expired(node: &Node) {
    let mut publisher = node.publisher("jobs").unwrap();
    for _ in 0..EXPIRED {
        publisher.publish(expired()).unwrap();
    }
}

fn expired() -> Draft<'static> {
    let meta = RecordMeta { expires_ns: Some(1), ..RecordMeta::default() };
    Draft { meta, payload: Payload::Copied(b"expired") }
}

#[test]
fn one_claim_call_skips_a_limited_number_of_expired_records() {
    let node = node();
    publish_expired(&node);
    publish(&node, "jobs", [7]);
    let wakeup = (Waiter::new(), 1);
    let mut member = node.join_work_with_waiter("jobs", "g", &work_from_start(), wakeup).unwrap();
    let mut turns = 0;
    let claimed = loop {
        match member.try_claim(true).unwrap() {
            Some(WorkEvent::ClaimedRecord(claimed)) => break claimed,
            Some(other) => panic!("{other:?} instead of a claim"),
            None => {
                assert!(member.is_skipping() && !member.sleep(true), "the member continues");
                turns += 1;
            }
        }
    };
    assert!(turns >= TURNS_MIN, "{turns} turns");
    assert_eq!(number(claimed.record().payload()), 7);
    assert!(member.try_claim(true).unwrap().is_none());
    assert!(!member.is_skipping() && member.sleep(true), "there is no other record");
}

#[test]
fn one_read_call_skips_a_limited_number_of_expired_records() {
    let node = node();
    publish_expired(&node);
    publish(&node, "jobs", [7]);
    let wakeup = (Waiter::new(), 1);
    let mut member = node.join_share_with_waiter("jobs", "g", &share_from_start(), wakeup).unwrap();
    let mut turns = 0;
    while !member.ready().unwrap() {
        assert!(member.is_skipping() && !member.sleep(true), "the member continues");
        turns += 1;
    }
    assert!(turns >= TURNS_MIN, "{turns} turns");
    assert!(matches!(member.take(), Event::Record(record) if number(record.payload()) == 7));
}

#[test]
fn group_member_finds_a_record_after_many_expired_ones() {
    let node = node();
    publish_expired(&node);
    publish(&node, "jobs", [7]);
    let mut work = node.join_work("jobs", "work", &work_from_start()).unwrap();
    assert_eq!(number(claim(&mut work).expect("a claim").record().payload()), 7);
    let mut share = node.join_share("jobs", "share", &share_from_start()).unwrap();
    let event = share.try_next().unwrap();
    assert!(matches!(event, Some(Event::Record(record)) if number(record.payload()) == 7));
}

#[test]
fn expired_records_of_a_partition_do_not_delay_other_partitions() {
    let node = node();
    node.create_topic("jobs", TopicConfig { partitions: 2, ..TopicConfig::default() }, false).unwrap();
    // The expired records have no key, so they go to partition 0.
    publish_expired(&node);
    let topic = node.topic("jobs").unwrap();
    let key =
        (0..100_u64).map(u64::to_le_bytes).find(|key| topic.partition_of(Some(key.as_slice())) == 1).unwrap();
    node.publisher("jobs").unwrap().publish(keyed(&key, b"other")).unwrap();
    let wakeup = (Waiter::new(), 1);
    let mut member = node.join_work_with_waiter("jobs", "g", &work_from_start(), wakeup).unwrap();
    let Some(WorkEvent::ClaimedRecord(claimed)) = member.try_claim(true).unwrap() else {
        panic!("no claim in the first turn")
    };
    assert_eq!(claimed.record().payload(), b"other");
}

#[test]
fn expired_records_do_not_keep_a_reliable_topic_full() {
    let node = node();
    let config = TopicConfig {
        retention: Retention { bytes: 64 << 10, ..Retention::default() },
        reliable: Some(ReliableOptions { wait_max: Duration::from_millis(1), ..ReliableOptions::default() }),
        ..TopicConfig::default()
    };
    node.create_topic("jobs", config, false).unwrap();
    let options = WorkOptions { registered: true, ..work_from_start() };
    let mut member = node.join_work("jobs", "g", &options).unwrap();
    let mut publisher = node.publisher("jobs").unwrap();
    assert!((0..100_000).any(|_| publisher.publish(expired()).is_err()), "the topic is full");
    assert!(claim(&mut member).is_none(), "all records have expired");
    assert_eq!(node.groups(&node.topic("jobs").unwrap())[0].waiting, 0);
    publisher.publish("current").unwrap();
    assert_eq!(claim(&mut member).expect("a claim").record().payload(), b"current");
    assert_eq!(member.lost(), 0);
}
