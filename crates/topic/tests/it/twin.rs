//! Several threads publish the same records to a topic and to a list behind a mutex. The tests check that the topic and
//! the list then have the same records in the same order.
//!
//! The order in which the threads run is different each time. The topic and the list can still be compared, because a
//! record has the same place in the list as in its receipt from the topic.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use dunlin_topic::*;

use crate::fixture::*;

/// A simple substitute for a topic: a list of all records behind one lock.
#[derive(Default)]
struct Twin(Mutex<BTreeMap<u64, Vec<u8>>>);

impl Twin {
    /// Adds `payloads`, which the topic has acknowledged. `last` is the sequence number of the last one.
    fn append(&self, last: u64, payloads: Vec<Vec<u8>>) {
        let mut records = self.0.lock().unwrap();
        let first = last + 1 - payloads.len() as u64;
        for (seq, payload) in (first..).zip(payloads) {
            assert!(records.insert(seq, payload).is_none(), "{seq} was assigned twice");
        }
    }
}

const PUBLISHERS: u64 = 3;
const ROUNDS: u64 = 1_500;

fn payload(publisher: u64, round: u64, at: u64) -> Vec<u8> {
    let mut payload = vec![(publisher ^ round ^ at) as u8; 24 + (round * 37 % 6_000) as usize];
    for (chunk, number) in payload.chunks_exact_mut(8).zip([publisher, round, at]) {
        chunk.copy_from_slice(&number.to_le_bytes());
    }
    payload
}

fn publish(topic: &std::sync::Arc<Topic>, twin: &Twin, by: u64) {
    let mut publisher = topic.publisher("t");
    for round in 0..ROUNDS {
        let count = if round % 3 == 0 { 1 + round % 5 } else { 1 };
        let payloads: Vec<Vec<u8>> = (0..count).map(|at| payload(by, round, at)).collect();
        let receipt = match round % 3 {
            0 => {
                let drafts: Vec<Draft<'_>> = payloads.iter().map(|p| Draft::from(p.as_slice())).collect();
                publisher.publish_batch(&drafts)
            }
            1 => publisher.publish(Bytes::from(payloads[0].clone())),
            _ => publisher.publish(payloads[0].as_slice()),
        };
        twin.append(receipt.unwrap().position.seq, payloads);
    }
}

/// The records and the gaps that a subscriber has received.
#[derive(Default)]
struct View {
    records: Vec<(u64, Vec<u8>)>,
    gaps: Vec<Gap>,
}

/// Reads, at most `max` events at a time, until the publishers have ended and everything is read.
fn read(mut reader: Subscriber, publishing: &AtomicBool, max: usize) -> View {
    let mut view = View::default();
    loop {
        let done = !publishing.load(Ordering::Acquire);
        let drained = reader.drain(max, |event| match event {
            Event::Record(record) => view.records.push((record.seq(), record.payload().to_vec())),
            Event::Notice(Notice::Gap(gap)) => view.gaps.push(gap),
            Event::Notice(Notice::Lagging(_)) => {}
            Event::Notice(other) => panic!("unexpected {other:?}"),
        });
        if drained.unwrap() == 0 {
            if done {
                return view;
            }
            reader.wait(Some(std::time::Duration::from_millis(5))).unwrap();
        }
    }
}

fn work_on_both(retention_bytes: u64) -> u64 {
    let topic = topic_of(config(retention_bytes), &budget(), RUNNING);
    let twin = Twin::default();
    let publishing = AtomicBool::new(true);
    let views: Vec<_> = thread::scope(|scope| {
        let readers: Vec<_> =
            [(WaitStrategy::Parked, usize::MAX), (WaitStrategy::Default, 3), (WaitStrategy::Parked, 50)]
                .into_iter()
                .map(|(wait, max)| {
                    let reader = subscriber(&topic, &SubscribeOptions { wait, ..earliest() });
                    let publishing = &publishing;
                    scope.spawn(move || read(reader, publishing, max))
                })
                .collect();
        let publishers: Vec<_> = (0..PUBLISHERS)
            .map(|by| {
                let (topic, twin) = (&topic, &twin);
                scope.spawn(move || publish(topic, twin, by))
            })
            .collect();
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
        publishing.store(false, Ordering::Release);
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let expected = twin.0.into_inner().unwrap();
    assert!(expected.keys().copied().eq(1..=expected.len() as u64), "every sequence was assigned once");
    let mut missing = 0;
    for View { records, gaps } in views {
        let mut accounted: BTreeMap<u64, Option<&Vec<u8>>> = BTreeMap::new();
        assert!(records.is_sorted_by_key(|(seq, _)| *seq));
        accounted.extend(records.iter().map(|(seq, payload)| (*seq, Some(payload))));
        for gap in gaps {
            missing += gap.records();
            for seq in gap.first..=gap.last {
                assert!(accounted.insert(seq, None).is_none(), "{seq} was delivered and reported missing");
            }
        }
        assert_eq!(accounted.len(), expected.len(), "every record is delivered or reported missing");
        for (seq, payload) in accounted {
            assert!(payload.is_none_or(|payload| *payload == expected[&seq]), "{seq} differs");
        }
    }
    missing
}

#[test]
fn concurrent_publishers_lose_no_record_within_the_retention() {
    assert_eq!(work_on_both(64 << 20), 0, "a history that holds all loses nothing");
}

#[test]
fn gaps_name_exactly_the_records_that_a_subscriber_missed() {
    assert!(work_on_both(64 << 10) > 0, "the test is about gaps");
}
