//! Tests in which a caller interrupts the waits of a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use dunlin_client::interruptible;
use dunlin_client::topic::{Event, Publish, Subscribe, SubscribeError, SubscribeOptions, TopicConfig};

use crate::running_node::RunningNode;

fn interrupted(error: SubscribeError) -> bool {
    matches!(error, SubscribeError::Connection(why) if why == "interrupted")
}

#[test]
fn interrupted_wait_ends_without_losing_a_record() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &TopicConfig::default(), false).unwrap();
    let mut events = client.subscribe("t", SubscribeOptions::default()).unwrap();
    let check_count = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&check_count);
    let is_third_check = move || counter.fetch_add(1, Ordering::Relaxed) == 2;
    assert!(interrupted(interruptible(is_third_check, || events.wait(None)).unwrap_err()));
    assert_eq!(check_count.load(Ordering::Relaxed), 3);

    client.publisher("t").unwrap().publish(b"one").unwrap();
    let Event::Record(record) = interruptible(|| false, || events.next()).unwrap() else {
        panic!("no record")
    };
    assert_eq!(record.payload(), b"one");
}

#[test]
fn every_waiting_thread_of_a_connection_is_interrupted() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &TopicConfig::default(), false).unwrap();
    let mut all: Vec<_> =
        (0..2).map(|_| client.subscribe("t", SubscribeOptions::default()).unwrap()).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let waits: Vec<_> = all
        .drain(..)
        .map(|mut events| {
            let stop = Arc::clone(&stop);
            let is_stopped = move || stop.load(Ordering::Relaxed);
            thread::spawn(move || interruptible(is_stopped, || events.wait(None)).unwrap_err())
        })
        .collect();
    stop.store(true, Ordering::Relaxed);
    for wait in waits {
        assert!(interrupted(wait.join().unwrap()));
    }
}

#[test]
fn call_is_interruptible_again_after_a_nested_call() {
    let running = RunningNode::start();
    let client = running.client();
    client.create_topic("t", &TopicConfig::default(), false).unwrap();
    let mut events = client.subscribe("t", SubscribeOptions::default()).unwrap();
    let error = interruptible(
        || true,
        || {
            assert_eq!(interruptible(|| false, || client.topics("").unwrap().len()), 1);
            events.wait(None).unwrap_err()
        },
    );
    assert!(interrupted(error));
}

#[test]
fn interrupted_lock_request_is_removed_from_the_lock_queue() {
    let running = RunningNode::start();
    let (kv, other) = (running.client().kv(), running.client().kv());
    let patience = std::time::Duration::from_secs(60);
    let (ours, theirs) = (kv.lease(patience).unwrap(), other.lease(patience).unwrap());
    let lock = kv.lock("gate", &ours, b"").unwrap();
    let (watched, number) = (kv.clone(), theirs.id());
    let waits = move || watched.lease_state(number).unwrap().unwrap().waits;
    let wait_until_waiting =
        |expected: u64| dunlin_wait::until(format_args!("{expected} wait"), || waits() == expected);
    let stop = Arc::new(AtomicBool::new(false));
    let is_stopped = Arc::clone(&stop);
    let waiting = thread::spawn(move || {
        let interrupted_lock = || other.lock("gate", &theirs, b"").map(|lock| lock.token());
        (interruptible(move || is_stopped.load(Ordering::Relaxed), interrupted_lock), theirs)
    });
    wait_until_waiting(1);
    stop.store(true, Ordering::Relaxed);
    let (interrupted_lock, _theirs) = waiting.join().unwrap();
    assert!(matches!(interrupted_lock, Err(dunlin_client::KvError::Unknown(_))), "{interrupted_lock:?}");
    wait_until_waiting(0);
    lock.release().unwrap();
    assert_eq!(kv.holder("gate").unwrap(), None);
}
