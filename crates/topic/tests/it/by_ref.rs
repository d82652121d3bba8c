//! Tests that large payloads are shared instead of copied, and are freed when no subscriber can read them any more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use dunlin_topic::*;

use crate::fixture::*;

const BYTES: usize = 16 << 10;

/// The owner of a payload, which increments a counter when the payload is freed.
struct CountedPayload {
    bytes: Vec<u8>,
    freed: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for CountedPayload {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedPayload {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Ordering::SeqCst);
    }
}

fn payload(seq: u64, freed: &Arc<AtomicUsize>) -> Bytes {
    let mut bytes = vec![seq as u8; BYTES];
    bytes[..8].copy_from_slice(&seq.to_le_bytes());
    Bytes::from_owner(CountedPayload { bytes, freed: Arc::clone(freed) })
}

fn publish(topic: &Arc<Topic>, count: u64, freed: &Arc<AtomicUsize>) {
    let mut publisher = topic.publisher("t");
    for _ in 0..count {
        let next = topic.logs()[0].last().seq + 1;
        publisher.publish(payload(next, freed)).unwrap();
    }
}

#[test]
fn shared_payload_is_not_copied() {
    let topic = large_topic(MANUAL);
    let shared = Bytes::from(vec![7; BYTES]);
    topic.publisher("t").publish(shared.clone()).unwrap();
    let mut reader = subscriber(&topic, &earliest());
    let Some(Event::Record(record)) = reader.try_next().unwrap() else { panic!("no record") };
    assert_eq!(record.payload().as_ptr(), shared.as_ptr());
}

#[test]
fn small_shared_payload_is_copied_and_freed() {
    let topic = large_topic(MANUAL);
    let freed = Arc::new(AtomicUsize::new(0));
    let small = Bytes::from_owner(CountedPayload { bytes: vec![7; 100], freed: Arc::clone(&freed) });
    topic.publisher("t").publish(small).unwrap();
    assert_eq!(freed.load(Ordering::SeqCst), 1);
}

#[test]
fn shared_payload_is_freed_once_when_history_drops_it() {
    let freed = Arc::new(AtomicUsize::new(0));
    let budget = budget();
    let topic = topic_of(config(256 << 10), &budget, MANUAL);
    publish(&topic, 500, &freed);
    let early = freed.load(Ordering::SeqCst);
    assert!(early > 400, "{early} of 500 are out of the history");
    let mut witness = DeliveryChecker::from_seq(1);
    witness.drain(&mut subscriber(&topic, &earliest_after_gap(&topic)));
    assert_eq!(witness.records + witness.missing, 500);
    assert_eq!(witness.records as usize, 500 - early, "only unreadable payloads are freed");
    drop(topic);
    assert_eq!(freed.load(Ordering::SeqCst), 500);
    assert_eq!(budget.used(), 0);
}

fn earliest_after_gap(_topic: &Topic) -> SubscribeOptions {
    from(Start::After(Position { epoch: 1, seq: 0 }))
}

#[test]
fn payload_is_not_freed_while_a_subscriber_reads_it() {
    let freed = Arc::new(AtomicUsize::new(0));
    let topic = topic_of(config(64 << 10), &budget(), MANUAL);
    publish(&topic, 1, &freed);
    let mut reader = subscriber(&topic, &earliest());
    {
        let Some(Event::Record(record)) = reader.try_next().unwrap() else { panic!("no record") };
        publish(&topic, 200, &freed);
        assert_eq!(number(record.payload()), 1);
        assert!(record.payload()[8..].iter().all(|&b| b == 1));
    }
    let mut witness = DeliveryChecker::from_seq(2);
    witness.drain(&mut reader);
    assert!(!witness.gaps.is_empty());
    drop((reader, topic));
    assert_eq!(freed.load(Ordering::SeqCst), 201);
}

#[test]
fn header_and_shared_payload_form_a_valid_frame() {
    let freed = Arc::new(AtomicUsize::new(0));
    let topic = large_topic(MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(3, 8);
    publish(&topic, 2, &freed);
    let mut cursor = cursor(&topic, &earliest());
    assert!(matches!(cursor.fill(), ReadOutcome::Records));
    let spans: Vec<_> = cursor.spans(1 << 20).collect();
    assert_eq!(spans.iter().map(|span| span.count).collect::<Vec<_>>(), [3, 1, 1]);
    let RecordSpanContent::ByRef { head, payload } = &spans[1].content else { panic!("{:?}", spans[1]) };
    let mut travelling = head.to_vec();
    travelling[5] &= !dunlin_topic::frame::FLAG_BY_REF;
    travelling.extend_from_slice(payload);
    travelling.resize(travelling.len().next_multiple_of(8), 0);
    let (frame, _) = Frame::check(&travelling, 1 << 20).unwrap();
    assert_eq!(number(frame.payload()), 4);
}

#[test]
fn payload_of_a_refused_record_uses_no_memory_budget() {
    let freed = Arc::new(AtomicUsize::new(0));
    let budget = MemoryBudget::node(100 << 10, 0);
    let topic = topic_of(config(64 << 10), &budget, MANUAL);
    let used = budget.used();
    let mut publisher = topic.publisher("t");
    let drafts: Vec<Draft<'_>> = (0..20).map(|n| Draft::from(payload(n, &freed))).collect();
    assert!(matches!(publisher.publish_batch(&drafts), Err(PublishError::BudgetSpent { .. })));
    assert_eq!(budget.used(), used);
    let moved = publisher.publish_expecting(9, payload(1, &freed));
    assert!(matches!(moved, Err(PublishError::SeqMoved { .. })));
    assert_eq!(budget.used(), used);
    topic.close();
    assert_eq!(publisher.publish(payload(1, &freed)), Err(PublishError::Closed));
    assert_eq!(budget.used(), used);
    drop(drafts);
    assert_eq!(freed.load(Ordering::SeqCst), 22);
}

#[test]
fn publisher_frees_old_shared_payloads_if_memory_is_full() {
    let freed = Arc::new(AtomicUsize::new(0));
    // The node's budget is smaller than the topic's retention, so memory runs out before the retention is reached.
    let budget = MemoryBudget::node(300 << 10, 0);
    let topic = topic_of(config(4 << 20), &budget, MANUAL);
    publish(&topic, 100, &freed);
    assert!(budget.used() <= 300 << 10);
    assert!(freed.load(Ordering::SeqCst) > 70);
}

/// The owner of a payload, which publishes to the payload's topic when the payload is dropped. It refers to the topic
/// weakly, because the topic holds the payload.
struct Echo(Weak<Topic>);

impl AsRef<[u8]> for Echo {
    fn as_ref(&self) -> &[u8] {
        &[7; 8 << 10]
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        if let Some(topic) = self.0.upgrade() {
            topic.publisher("t").publish("dropped").unwrap();
        }
    }
}

#[test]
fn destructor_of_a_shared_payload_may_publish_to_its_topic() {
    let topic = small_topic();
    let mut publisher = topic.publisher("t");
    for _ in 0..100 {
        let payload = Bytes::from_owner(Echo(Arc::downgrade(&topic)));
        publisher.publish(Draft { meta: RecordMeta::default(), payload: Payload::Shared(payload) }).unwrap();
    }
    let mut dropped = 0;
    let mut reader = subscriber(&topic, &earliest());
    while let Some(event) = reader.try_next().unwrap() {
        if let Event::Record(record) = event {
            dropped += u32::from(record.payload() == b"dropped");
        }
    }
    assert!(dropped > 0, "segments were dropped, and their payloads with them");
}
