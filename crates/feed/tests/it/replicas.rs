//! Tests of replicas with faults. At the end, every replica must equal the oracle: a state to which the publisher
//! applies the records that it publishes.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use dunlin_feed::{Replica, ReplicaCounts, ReplicaFault, ReplicaReport};
use dunlin_topic::*;
use dunlin_wait::{Deadline, PATIENCE, until};

use crate::slot_values::{SlotValues, sets};

const SLOTS: u64 = 200;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
const CLOCK: Clock = Clock::new(|| 1_000_000_000 + START.elapsed().as_nanos() as u64);

fn topic(name: &str, retention_bytes: u64) -> Arc<Topic> {
    let config = TopicConfig {
        retention: Retention { bytes: retention_bytes, ..Retention::default() },
        reducer: Some(ReducerConfig { kind: "board".to_owned(), ..ReducerConfig::default() }),
        ..TopicConfig::default()
    };
    let board = |_: &ReducerConfig| Ok(Box::new(SlotValues::default()) as Box<dyn Reducer>);
    let budget = MemoryBudget::node(1 << 30, 1 << 20);
    Arc::new(Topic::stateful(name, Arc::new(config), &budget, CLOCK, 1, board).unwrap())
}

fn from_snapshot() -> SubscribeOptions {
    SubscribeOptions { start: Start::Snapshot, on_gap: OnGap::Snapshot, ..SubscribeOptions::default() }
}

fn replica(topics: &[&Arc<Topic>], options: &SubscribeOptions) -> Replica<SlotValues, Subscriber> {
    let cursor = |topic: &&Arc<Topic>| {
        Cursor::new(Arc::clone(&topic.logs()[0]), options, None, ConsumeMode::Reads).unwrap()
    };
    let mut cursors: Vec<Cursor> = topics.iter().map(cursor).collect();
    let subscriber = match cursors.len() {
        1 => Subscriber::one(cursors.remove(0), options.wait),
        _ => Subscriber::many(cursors, None, options.clone(), CLOCK),
    };
    Replica::new(subscriber, |_| SlotValues::default()).with_retry_ns(100_000_000)
}

/// Publishes random entries, and applies them to the oracle.
struct ReplicaSource {
    publisher: Publisher,
    oracle: SlotValues,
    log: Arc<LogName>,
    random: u64,
    seq: u64,
}

impl ReplicaSource {
    fn of(topic: &Arc<Topic>) -> ReplicaSource {
        let publisher = topic.publisher(topic.name());
        ReplicaSource {
            publisher,
            oracle: SlotValues::default(),
            log: topic.logs()[0].name().clone(),
            random: 1,
            seq: 0,
        }
    }

    fn publish(&mut self, count: u64) {
        for _ in 0..count {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let payload = sets(&[((self.random >> 33) % SLOTS, self.random >> 40)]);
            self.publisher.publish(payload.as_slice()).unwrap();
            self.seq += 1;
            self.oracle.take(&payload, self.seq);
        }
    }

    /// Lets the replica read until it has reached the last published record, and then compares its state with the
    /// oracle.
    fn check_replica(&self, replica: &mut Replica<SlotValues, Subscriber>) {
        let deadline = Deadline::new();
        while replica.state(&self.log).is_none_or(|(at, _)| at.seq < self.seq) {
            deadline.check(format_args!("{} is read: {:?}", self.seq, replica.counts()));
            replica.wait(Some(Duration::from_millis(100))).unwrap();
            replica.drain(CLOCK.now_ns(), usize::MAX, |_| ()).unwrap();
        }
        let (at, board) = replica.state(&self.log).unwrap();
        assert_eq!(at.seq, self.seq);
        assert_eq!(board.slots(), self.oracle.slots());
        assert_eq!(board.checksum(), self.oracle.checksum());
    }
}

#[test]
fn replicas_of_every_kind_reach_the_expected_states_under_load() {
    let topic = topic("t", 64 << 10);
    let mut source = ReplicaSource::of(&topic);
    let (running, published) = (AtomicBool::new(true), AtomicU64::new(0));
    let test_loss_every = NonZeroU32::new(50);
    // The last field of each entry is the number of records that are published between two reads of the replica. The
    // log keeps only about 700 records.
    let kinds = [
        ("plain", from_snapshot(), 0),
        ("slow", from_snapshot(), 4_000),
        ("conflated", SubscribeOptions { conflate: true, ..from_snapshot() }, 0),
        ("conflated and slow", SubscribeOptions { conflate: true, ..from_snapshot() }, 1_000),
        ("losing", SubscribeOptions { test_loss_every, ..from_snapshot() }, 0),
        (
            "losing and conflated",
            SubscribeOptions { test_loss_every, conflate: true, ..from_snapshot() },
            200,
        ),
        ("from the first record", SubscribeOptions { start: Start::Earliest, ..from_snapshot() }, 0),
    ];
    let counts: Vec<(&str, ReplicaCounts)> = thread::scope(|scope| {
        let (running, published) = (&running, &published);
        let read = |(name, options, every): (&'static str, SubscribeOptions, u64)| {
            let topic = &topic;
            scope.spawn(move || {
                let mut replica = replica(&[topic], &options);
                let mut next = 0;
                while running.load(Ordering::Relaxed) {
                    replica.wait(Some(Duration::from_millis(10))).unwrap();
                    replica.drain(CLOCK.now_ns(), 64, |_| ()).unwrap();
                    let is_enough = || published.load(Ordering::Relaxed) >= next;
                    until("more is published", || is_enough() || !running.load(Ordering::Relaxed));
                    next = published.load(Ordering::Relaxed) + every;
                }
                (name, replica)
            })
        };
        let threads: Vec<_> = kinds.into_iter().map(read).collect();
        for _ in 0..500 {
            source.publish(200);
            published.store(source.seq, Ordering::Relaxed);
            thread::yield_now();
        }
        running.store(false, Ordering::Relaxed);
        let join = |thread: thread::ScopedJoinHandle<'_, (&'static str, Replica<SlotValues, Subscriber>)>| {
            let (name, mut replica) = thread.join().unwrap();
            source.check_replica(&mut replica);
            assert!(replica.is_whole(), "{name}");
            (name, replica.counts())
        };
        threads.into_iter().map(join).collect()
    });
    for (name, counts) in counts {
        assert_eq!((counts.divergent, counts.refused), (0, 0), "{name}: {counts:?}");
        match name {
            "slow" => assert!(counts.gaps > 0, "{counts:?}"),
            "conflated and slow" => {
                assert!(counts.conflated + counts.snapshots > 0 && counts.gaps == 0, "{counts:?}");
            }
            // A snapshot may repair a replica before it requests anything, so the number of requests may be lower than
            // the number of holes.
            "losing" => {
                assert!(counts.resyncs > 0 && counts.holes > 0, "{counts:?}");
                assert!(counts.gaps_healed >= counts.holes, "{counts:?}");
            }
            _ => {}
        }
    }
}

#[test]
fn replicas_joining_at_any_moment_miss_no_record() {
    let topic = topic("t", 64 << 10);
    let mut source = ReplicaSource::of(&topic);
    let running = AtomicBool::new(true);
    let mut replicas = thread::scope(|scope| {
        let joiner = scope.spawn(|| {
            let mut replicas = Vec::new();
            while running.load(Ordering::Relaxed) {
                let mut joined = replica(&[&topic], &from_snapshot());
                joined.drain(CLOCK.now_ns(), 1_000, |_| ()).unwrap();
                replicas.push(joined);
            }
            replicas
        });
        for _ in 0..300 {
            source.publish(100);
            thread::yield_now();
        }
        running.store(false, Ordering::Relaxed);
        joiner.join().unwrap()
    });
    assert!(replicas.len() > 20, "{} joined", replicas.len());
    for replica in &mut replicas {
        source.check_replica(replica);
        let counts = replica.counts();
        assert_eq!((counts.holes, counts.divergent, counts.refused), (0, 0, 0), "{counts:?}");
    }
}

#[test]
fn replica_detects_and_repairs_each_loss_exactly_once() {
    let topic = topic("t", 8 << 20);
    let mut source = ReplicaSource::of(&topic);
    let options = SubscribeOptions { test_loss_every: NonZeroU32::new(50), ..from_snapshot() };
    let without_retries = |replica: Replica<_, _>| replica.with_retry_ns(PATIENCE.as_nanos() as u64);
    let mut replicas: Vec<_> = (0..10).map(|_| without_retries(replica(&[&topic], &options))).collect();
    let mut holes = vec![Vec::new(); replicas.len()];
    for round in 0..100 {
        source.publish(round % 13);
        for (replica, holes) in replicas.iter_mut().zip(&mut holes) {
            while replica.drain(CLOCK.now_ns(), usize::MAX, |report| {
                if let ReplicaReport::Fault { fault: ReplicaFault::Hole { first, last }, .. } = report {
                    assert_eq!(first, last, "one was lost, and the next one showed it");
                    holes.push(first);
                }
            }) != Ok(0)
            {}
        }
    }
    source.publish(1);
    let lost: Vec<u64> = (1..source.seq).filter(|seq| seq.is_multiple_of(50)).collect();
    for (replica, holes) in replicas.iter_mut().zip(&holes) {
        source.check_replica(replica);
        let counts = replica.counts();
        assert_eq!((counts.resyncs, counts.gaps_healed), (lost.len() as u64, lost.len() as u64));
        assert_eq!((counts.retries, counts.divergent), (0, 0));
        assert!(lost.starts_with(holes));
    }
}

#[test]
fn loss_of_the_last_records_is_detected_by_a_checksum() {
    let topic = topic("t", 64 << 10);
    let mut source = ReplicaSource::of(&topic);
    let options = SubscribeOptions { test_loss_every: NonZeroU32::new(10), ..from_snapshot() };
    let mut replica = replica(&[&topic], &options);
    replica.drain(CLOCK.now_ns(), usize::MAX, |_| ()).unwrap();
    source.publish(10);
    source.check_replica(&mut replica);
    assert_eq!(replica.counts().holes, 1);
}

#[test]
fn diverged_replica_is_detected_and_repaired() {
    /// A state that ignores every hundredth record.
    #[derive(Debug, Default)]
    struct Faulty(SlotValues);

    impl Reducer for Faulty {
        fn check(&self, frames: &mut dyn Iterator<Item = Frame<'_>>) -> Result<(), ReducerError> {
            self.0.check(frames)
        }

        fn apply(&mut self, seq: u64, frame: &Frame<'_>) -> Result<(), ReducerError> {
            if seq.is_multiple_of(100) { Ok(()) } else { self.0.apply(seq, frame) }
        }

        fn freeze(&mut self) -> Arc<dyn FrozenState> {
            self.0.freeze()
        }

        fn restore(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), ReducerError> {
            self.0.restore(seq, snapshot)
        }

        fn checksum(&self) -> u64 {
            self.0.checksum()
        }

        fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool {
            self.0.changes_since(seq, payload)
        }

        fn snapshot_bytes(&self) -> usize {
            self.0.snapshot_bytes()
        }

        fn bytes(&self) -> u64 {
            self.0.bytes()
        }

        fn entries(&self) -> u64 {
            self.0.entries()
        }
    }

    let topic = topic("t", 1 << 20);
    let mut source = ReplicaSource::of(&topic);
    let cursor =
        Cursor::new(Arc::clone(&topic.logs()[0]), &from_snapshot(), None, ConsumeMode::Reads).unwrap();
    let mut replica = Replica::new(Subscriber::one(cursor, WaitStrategy::Default), |_| Faulty::default());
    let mut diverged = 0;
    let deadline = Deadline::new();
    source.publish(10);
    replica.drain(CLOCK.now_ns(), usize::MAX, |_| ()).unwrap();
    source.publish(100);
    while diverged == 0 || !replica.is_whole() {
        deadline.check(format_args!("{:?}", replica.counts()));
        replica.wait(Some(Duration::from_millis(100))).unwrap();
        let on_report = |report: ReplicaReport<'_, Faulty>| {
            diverged += u64::from(matches!(
                report,
                ReplicaReport::Fault { fault: ReplicaFault::Diverged { .. }, .. }
            ));
        };
        replica.drain(CLOCK.now_ns(), usize::MAX, on_report).unwrap();
    }
    assert_eq!(diverged, 1);
    assert_eq!(replica.state(&source.log).unwrap().1.checksum(), source.oracle.checksum());
}

#[test]
fn replica_of_many_logs_keeps_separate_states() {
    let topics: Vec<_> = (0..20).map(|number| topic(&format!("t{number}"), 64 << 10)).collect();
    let mut sources: Vec<_> = topics.iter().map(ReplicaSource::of).collect();
    let options = SubscribeOptions { test_loss_every: NonZeroU32::new(7), ..from_snapshot() };
    let mut replica = replica(&topics.iter().collect::<Vec<_>>(), &options);
    let mut changes = 0;
    for round in 0..200 {
        for (number, source) in sources.iter_mut().enumerate() {
            source.publish((round + number as u64) % 5);
        }
        let report = |report: ReplicaReport<'_, SlotValues>| {
            if let ReplicaReport::Changed(change) = report {
                assert!(change.from < change.to || change.to.seq == 0);
                changes += 1;
            }
        };
        replica.drain(CLOCK.now_ns(), usize::MAX, report).unwrap();
    }
    for source in &sources {
        source.check_replica(&mut replica);
    }
    assert!(changes > 1_000);
    assert_eq!(replica.states().count(), 20);
    topics[3].close();
    let mut deleted = 0;
    while deleted == 0 {
        replica.wait(Some(PATIENCE)).unwrap();
        let on_report = |report: ReplicaReport<'_, SlotValues>| {
            deleted += u64::from(matches!(report, ReplicaReport::Deleted { .. }))
        };
        replica.drain(CLOCK.now_ns(), usize::MAX, on_report).unwrap();
    }
    assert_eq!(replica.states().count(), 19);
}
