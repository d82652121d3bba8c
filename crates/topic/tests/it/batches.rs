//! Tests that a batch is appended as a whole or not at all, and that a publisher can make an append depend on the log's
//! last sequence number.

use std::sync::Arc;
use std::thread;

use dunlin_topic::*;

use crate::fixture::*;

#[test]
fn subscriber_sees_a_batch_whole_or_not_at_all() {
    let topic = large_topic(RUNNING);
    let mut reader = subscriber(&topic, &SubscribeOptions { wait: WaitStrategy::Spin, ..earliest() });
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut publisher = topic.publisher("t");
                for round in 0..2_000u64 {
                    let size = 1 + round % 9;
                    let payloads: Vec<[u8; 16]> = (0..size).map(|at| content(size, at)).collect();
                    let drafts: Vec<Draft<'_>> = payloads.iter().map(Draft::from).collect();
                    publisher.publish_batch(&drafts).unwrap();
                }
            });
        }
        let (mut seen, mut expected_at, mut open) = (0, 0, 0);
        let total = 2 * (0..2_000u64).map(|round| 1 + round % 9).sum::<u64>();
        while seen < total {
            assert!(reader.wait(Some(PATIENCE)).unwrap());
            let drained = reader.drain(usize::MAX, |event| {
                let Event::Record(record) = event else { panic!("unexpected {event:?}") };
                let (size, at) = (number(record.payload()), number(&record.payload()[8..]));
                assert_eq!(at, expected_at, "a batch is not torn and not mixed with another");
                expected_at = (at + 1) % size;
                open = expected_at;
            });
            seen += drained.unwrap() as u64;
            assert_eq!(open, 0, "a drain to the end does not end inside a batch");
        }
    });
}

fn content(size: u64, at: u64) -> [u8; 16] {
    let mut payload = [0; 16];
    payload[..8].copy_from_slice(&size.to_le_bytes());
    payload[8..].copy_from_slice(&at.to_le_bytes());
    payload
}

#[test]
fn refused_batch_appends_none_of_its_records() {
    let topic = topic_of(TopicConfig { record_bytes_max: 1_000, ..config(64 << 10) }, &budget(), MANUAL);
    let mut publisher = topic.publisher("t");
    let (good, bad) = ([1; 100], [2; 2_000]);
    let drafts = [Draft::from(&good), Draft::from(&good), Draft::from(&bad)];
    assert!(matches!(publisher.publish_batch(&drafts), Err(PublishError::RecordTooLarge { .. })));
    assert_eq!(publisher.publish_batch(&[]), Err(PublishError::Batch("a batch needs at least one record")));
    assert_eq!(topic.logs()[0].last().seq, 0);
    assert_eq!(publisher.publish(&good).unwrap().position.seq, 1);
}

#[test]
fn batch_larger_than_a_segment_gets_its_own_segment() {
    let topic = topic_of(config(1 << 20), &budget(), MANUAL);
    let mut publisher = topic.publisher("t");
    publisher.publish(b"before").unwrap();
    let payload = [3; 1_000];
    let drafts: Vec<Draft<'_>> = (0..600).map(|_| Draft::from(&payload)).collect();
    assert_eq!(publisher.publish_batch(&drafts).unwrap().position.seq, 601);
    publisher.publish(b"after").unwrap();
    let mut reader = subscriber(&topic, &from(Start::After(Position { epoch: 1, seq: 1 })));
    let mut next = 2;
    reader
        .drain(usize::MAX, |event| {
            let Event::Record(record) = event else { panic!("unexpected {event:?}") };
            assert_eq!(record.seq(), next);
            next += 1;
        })
        .unwrap();
    assert_eq!(next, 603);
}

#[test]
fn large_record_within_the_record_byte_limit_is_accepted() {
    let bytes = 20 << 20;
    let large_records = TopicConfig { record_bytes_max: 32 << 20, ..config(64 << 20) };
    let topic = topic_of(large_records, &budget(), MANUAL);
    let payload = vec![5; bytes];
    topic.publisher("t").publish(payload.as_slice()).unwrap();
    let mut frame = vec![0; bytes + 64];
    let encoded = RecordMeta::default().measure(bytes).unwrap();
    RecordMeta::default().encode(encoded, 0, &payload, &mut frame);
    frame.truncate(encoded.padded());
    let batch = CheckedBatch::check(&frame, 1, 32 << 20).unwrap();
    let append = BatchAppend {
        batch,
        partition: 0,
        mark: None,
        expect_last: None,
        claim: None,
        evict: false,
        relayed: false,
    };
    assert_eq!(topic.append_batch(MANUAL.now_ns(), append).unwrap().position.seq, 2, "also as a batch");
}

#[test]
fn only_one_publisher_succeeds_with_each_expected_sequence() {
    let topic = large_topic(RUNNING);
    let successes: u64 = thread::scope(|scope| {
        let contenders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut publisher = topic.publisher("t");
                    let mut successes = 0;
                    for _ in 0..2_000 {
                        let last = topic.logs()[0].last().seq;
                        match publisher.publish_expecting(last, &(last + 1).to_le_bytes()) {
                            Ok(receipt) => {
                                assert_eq!(receipt.position.seq, last + 1);
                                successes += 1;
                            }
                            Err(PublishError::SeqMoved { expected, last_seq }) => {
                                assert!(expected == last && last_seq > last);
                            }
                            Err(other) => panic!("unexpected {other}"),
                        }
                    }
                    successes
                })
            })
            .collect();
        contenders.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let mut witness = DeliveryChecker::from_seq(1);
    witness.drain(&mut subscriber(&topic, &earliest()));
    assert_eq!(witness.records, successes, "the log has exactly the acknowledged records");
}

#[test]
fn received_batch_keeps_payloads_and_gets_a_new_append_time() {
    let topic = large_topic(MANUAL);
    let mut frames = Vec::new();
    for n in 1..=3u64 {
        let meta = RecordMeta { key: Some(b"k"), event_time_ns: Some(n), ..RecordMeta::default() };
        let encoded = meta.measure(8).unwrap();
        let at = frames.len();
        frames.resize(at + encoded.padded(), 0);
        meta.encode(encoded, 99, &n.to_le_bytes(), &mut frames[at..]);
    }
    let batch = CheckedBatch::check(&frames, 3, 1 << 20).unwrap();
    let append = BatchAppend {
        batch,
        partition: 0,
        mark: None,
        expect_last: Some(0),
        claim: None,
        evict: false,
        relayed: false,
    };
    assert_eq!(topic.append_batch(MANUAL.now_ns(), append).unwrap().position.seq, 3);
    assert!(matches!(
        topic.append_batch(MANUAL.now_ns(), append),
        Err(PublishError::SeqMoved { expected: 0, last_seq: 3 })
    ));
    let nowhere = BatchAppend { partition: 1, expect_last: None, ..append };
    assert!(matches!(topic.append_batch(MANUAL.now_ns(), nowhere), Err(PublishError::Batch(_))));
    let mut reader = subscriber(&topic, &earliest());
    let mut next = 1;
    while let Some(Event::Record(record)) = reader.try_next().unwrap() {
        assert_eq!((record.seq(), number(record.payload())), (next, next));
        assert_eq!(record.frame.append_time_ns(), MANUAL.now_ns());
        assert_eq!((record.frame.event_time_ns(), record.frame.key()), (Some(next), Some(b"k".as_slice())));
        next += 1;
    }
    assert_eq!(next, 4);
}

#[test]
fn each_key_has_one_partition_and_no_batch_spans_two_partitions() {
    let topic = topic_of(TopicConfig { partitions: 4, ..config(1 << 20) }, &budget(), MANUAL);
    let mut publisher = topic.publisher("t");
    let keys: Vec<[u8; 4]> = (0..100u32).map(u32::to_le_bytes).collect();
    let draft = |key| {
        let mut draft = Draft::from(b"x");
        draft.meta.key = Some(key);
        draft
    };
    for key in &keys {
        let first = publisher.publish(draft(key)).unwrap().partition;
        assert_eq!(publisher.publish(draft(key)).unwrap().partition, first);
        assert_eq!(usize::from(first), topic.partition_of(Some(key)));
    }
    let used: Vec<u64> = topic.logs().iter().map(|log| log.last().seq).collect();
    assert_eq!(used.iter().sum::<u64>(), 200);
    assert!(used.iter().all(|&records| records > 0), "{used:?}");
    let all: Vec<Draft<'_>> = keys.iter().map(|key| draft(key)).collect();
    assert!(matches!(publisher.publish_batch(&all), Err(PublishError::Batch(_))));
    assert_eq!(topic.logs().iter().map(|log| log.last().seq).sum::<u64>(), 200);
    let _: &Arc<Topic> = publisher.topic();
}
