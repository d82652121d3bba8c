//! Tests that memory is charged to the budget, and that charges beyond the budget are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use dunlin_topic::*;

use crate::fixture::*;

#[test]
fn topic_without_records_holds_no_memory() {
    let budget = budget();
    let topic = topic_of(config(64 << 20), &budget, MANUAL);
    let _readers: Vec<_> = (0..100).map(|_| subscriber(&topic, &earliest())).collect();
    assert_eq!(budget.used(), 0);
    NumberedPublisher::of(&topic).publish(1, 8);
    assert!(budget.used() <= 4 << 10, "one record takes one small segment");
}

#[test]
fn stalled_subscriber_keeps_no_segment_in_memory() {
    let budget = budget();
    let topic = topic_of(config(64 << 10), &budget, MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    let mut stalled: Vec<Subscriber> = Vec::new();
    for _ in 0..200 {
        numbered.publish(50, 100);
        // Each of the 200 subscribers reads two records, in a different part of the log, and then reads no further.
        let mut reader = subscriber(&topic, &from(Start::Latest));
        numbered.publish(3, 100);
        assert_eq!(reader.drain(2, |_| ()).unwrap(), 2);
        stalled.push(reader);
    }
    assert!(budget.used() <= 64 << 10, "{} with {} stalled readers", budget.used(), stalled.len());
    assert_eq!(stalled.len(), 200);
}

#[test]
fn segment_memory_is_released_after_its_last_read() {
    let budget = budget();
    let topic = topic_of(config(64 << 10), &budget, MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(3, 100);
    let mut reader = cursor(&topic, &earliest());
    assert!(matches!(reader.fill(), ReadOutcome::Records));
    numbered.publish(2_000, 100);
    let with_read = budget.used();
    reader.release();
    numbered.publish(2_000, 100);
    assert!(budget.used() <= 64 << 10);
    assert!(with_read > 0);
}

#[test]
fn only_a_record_over_the_memory_budget_of_a_tenant_is_refused() {
    let node = MemoryBudget::node(1 << 20, 0);
    let (small, large) = (node.child(64 << 10), node.child(1 << 20));
    let poor = topic_of(TopicConfig { by_ref_bytes_min: u32::MAX, ..config(1 << 20) }, &small, MANUAL);
    let rich = topic_of(config(256 << 10), &large, MANUAL);
    let mut numbered = NumberedPublisher::of(&poor);
    numbered.publish(10, 100);
    let refused = poor.publisher("t").publish(&[0; 100_000]).unwrap_err();
    assert!(matches!(refused, PublishError::BudgetSpent { limit: 65_536, .. }), "{refused}");
    assert!(small.used() <= small.limit());
    numbered.publish(10, 100);
    NumberedPublisher::of(&rich).publish(1_000, 1_000);
    let mut witness = DeliveryChecker::from_seq(1);
    witness.drain(&mut subscriber(&poor, &from(Start::After(Position { epoch: 1, seq: 0 }))));
    assert_eq!(witness.records + witness.missing, 20);
    drop((poor, rich, numbered));
    assert_eq!((node.used(), small.used(), large.used()), (0, 0, 0));
}

#[test]
fn publishing_over_the_memory_budget_drops_oldest_records() {
    let budget = MemoryBudget::node(64 << 10, 0);
    let topic = topic_of(config(4 << 20), &budget, MANUAL);
    NumberedPublisher::of(&topic).publish(5_000, 100);
    assert!(budget.used() <= 64 << 10);
}

#[test]
fn huge_memory_request_makes_no_concurrent_request_fail() {
    let node = MemoryBudget::node(1 << 20, 0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(node.charge(1 << 40).is_err());
            }
        });
        let modest = || (0..200_000).all(|_| node.charge(4 << 10).map(|()| node.release(4 << 10)).is_ok());
        let undisturbed = modest();
        done.store(true, Ordering::Relaxed);
        assert!(undisturbed, "a small request failed because of a large one");
    });
    assert_eq!(node.used(), 0);
}

#[test]
fn topic_memory_is_released_with_the_topic_and_subscribers() {
    let budget = budget();
    let topic = topic_of(config(1 << 20), &budget, MANUAL);
    NumberedPublisher::of(&topic).publish(500, 1_000);
    topic.publisher("t").publish(Bytes::from(vec![0; 100_000])).unwrap();
    let mut reader = subscriber(&topic, &earliest());
    assert!(reader.ready().unwrap());
    topic.close();
    drop(topic);
    assert!(budget.used() > 0, "the reader still receives the retained records");
    let mut seen = 0;
    while let Ok(true) = reader.ready() {
        let _ = reader.take();
        seen += 1;
    }
    assert_eq!(seen, 502);
    drop(reader);
    assert_eq!(budget.used(), 0);
}

#[test]
fn panic_in_a_closure_passed_to_a_subscriber_loses_no_record() {
    let budget = budget();
    let topic = topic_of(config(64 << 10), &budget, MANUAL);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(20, 100);
    let mut reader = subscriber(&topic, &earliest());
    let mut first = Vec::new();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        reader.drain(usize::MAX, |event| {
            let Event::Record(record) = event else { panic!("unexpected {event:?}") };
            assert!(record.seq() < 5, "a reader's own bug");
            first.push(record.seq());
        })
    }));
    assert!(outcome.is_err());
    assert_eq!(first, [1, 2, 3, 4]);
    let Some(Event::Record(record)) = reader.try_next().unwrap() else { panic!("no record") };
    let again = record.seq();
    assert!((1..=5).contains(&again), "nothing that was not handed over is skipped");
    let mut witness = DeliveryChecker::from_seq(again + 1);
    witness.drain(&mut reader);
    numbered.publish(3_000, 100);
    witness.drain(&mut reader);
    assert_eq!(witness.next, numbered.published + 1);
    assert!(budget.used() <= 64 << 10);
    let _: &Arc<Topic> = numbered.publisher.topic();
}
