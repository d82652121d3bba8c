//! Tests of durable topics: subscribers receive only stored records, publishers receive a response once their records
//! are stored, and a read continues from disk to memory without a gap.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use dunlin_topic::*;

use crate::disk::*;
use crate::fixture::*;

const AT_ONCE: AckLevel = AckLevel::Memory;

#[test]
fn subscribers_see_a_record_only_after_it_is_stored() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 1);
    let log = &topic.logs()[0];
    let mut numbered = NumberedPublisher::of(&topic);
    let (mut reader, mut witness) = (subscriber(&topic, &earliest()), DeliveryChecker::from_seq(1));
    for stored in [1, 2, 7, 300, 3] {
        let before = witness.next;
        numbered.publish(stored, 100);
        assert_eq!(witness.drain(&mut reader), 0, "appended, not stored");
        let staged = disk.write(log).unwrap();
        assert_eq!((log.info().next_seq, log.last().seq), (before + stored, before - 1));
        assert_eq!(witness.drain(&mut reader), 0, "written, not synced");
        log.mark_synced(staged, PLENTY);
        assert_eq!(witness.drain(&mut reader) as u64, stored);
        assert_eq!(log.last().seq, before + stored - 1);
    }
    assert!(log.stage().is_none(), "all is stored");
}

#[test]
fn stored_batches_and_shared_payloads_are_read_back_unchanged() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 1);
    let log = &topic.logs()[0];
    let mut publisher = topic.publisher("t");
    let large: Vec<u8> = (0..9_001).map(|n| n as u8).collect();
    publisher.publish("one").unwrap();
    publisher.publish(Bytes::from(large.clone())).unwrap();
    let drafts = [Draft::from("two"), Draft::from(Bytes::from(large.clone())), Draft::from("three")];
    publisher.publish_batch(&drafts).unwrap();
    let expected: Vec<&[u8]> = vec![b"one", &large, b"two", &large, b"three"];
    let staged = disk.write(log).unwrap();
    let frames: Vec<u8> = staged.batches().iter().flat_map(|batch| batch.frames().into_owned()).collect();
    let batch = CheckedBatch::check(&frames, 5, 1 << 20).unwrap();
    assert!(batch.frames().map(|frame| frame.payload().to_vec()).eq(expected.iter().map(|p| p.to_vec())));
    log.mark_synced(staged, PLENTY);
    let append = BatchAppend {
        batch,
        partition: 0,
        mark: None,
        expect_last: Some(5),
        claim: None,
        evict: false,
        relayed: false,
    };
    assert_eq!(topic.append_batch(MANUAL.now_ns(), append).unwrap().position.seq, 10);
    assert!(disk.sync(log));
    let mut seen = Vec::new();
    let mut reader = subscriber(&topic, &earliest());
    reader
        .drain(99, |event| {
            if let Event::Record(r) = event {
                seen.push(r.payload().to_vec())
            }
        })
        .unwrap();
    assert!(seen.iter().eq(expected.iter().chain(&expected)));
}

#[test]
fn unstored_records_stay_in_memory_beyond_the_retention() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 1);
    let log = &topic.logs()[0];
    let (mut reader, mut witness) = (subscriber(&topic, &earliest()), DeliveryChecker::from_seq(1));
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(10_000, 100);
    assert!(log.info().bytes > 1 << 20, "all of it is retained");
    assert!(disk.sync(log));
    numbered.publish(3, 100);
    assert!(disk.sync(log));
    numbered.publish(2_000, 100);
    assert!(log.info().bytes < 1 << 20, "stored records are dropped");
    assert!(disk.sync(log));
    while witness.drain(&mut reader) > 0 {}
    assert_eq!((witness.records, witness.missing), (12_003, 0));
}

#[test]
fn slow_subscriber_reads_old_records_from_disk_then_new_ones() {
    let disk = MemoryStore::new();
    let topic = disk.topic_of(durable(AckLevel::Synced), &budget(), RUNNING, disk.recovered(1));
    let log = &topic.logs()[0];
    let done = AtomicBool::new(false);
    const RECORDS: u64 = 40_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if !disk.sync(log) {
                    thread::yield_now();
                }
            }
            disk.sync(log);
        });
        scope.spawn(|| {
            let mut publisher = topic.publisher("t");
            for n in 1..=RECORDS {
                let mut payload = [0; 64];
                payload[..8].copy_from_slice(&n.to_le_bytes());
                publisher.send(&payload).unwrap();
                if n % 500 == 0 {
                    assert_eq!(publisher.flush().unwrap().unwrap().position.seq, n);
                    assert!(log.last().seq >= n, "acknowledged is stored");
                }
            }
        });
        let followers: Vec<_> = (0..3)
            .map(|late| {
                let topic = &topic;
                scope.spawn(move || {
                    until("so much is stored", || topic.logs()[0].last().seq >= late * RECORDS / 4);
                    let mut reader = subscriber(topic, &earliest());
                    let mut witness = DeliveryChecker::from_seq(1);
                    witness.follow(&mut reader, RECORDS);
                    (witness.records, witness.missing)
                })
            })
            .collect();
        for follower in followers {
            assert_eq!(follower.join().unwrap(), (RECORDS, 0));
        }
        let mut reader = subscriber(&topic, &earliest());
        let mut witness = DeliveryChecker::from_seq(1);
        witness.follow(&mut reader, RECORDS);
        assert_eq!(witness.records, RECORDS);
        done.store(true, Ordering::Relaxed);
    });
    assert!(disk.loads.load(Ordering::Relaxed) > 0, "memory held too much: the test tests nothing");
}

#[test]
fn records_refused_by_a_full_disk_use_no_sequence_numbers() {
    let disk = MemoryStore::new();
    let recovered = RecoveredLog::nothing(1, 1_000);
    let topic = disk.topic_of(durable(AT_ONCE), &budget(), MANUAL, recovered);
    let log = &topic.logs()[0];
    log.grant(1_000, Some("no space left on device"));
    let mut publisher = topic.publisher("t");
    let mut last = 0;
    let refused = loop {
        match publisher.publish(&[7; 100]) {
            Ok(receipt) => last = receipt.position.seq,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, PublishError::DiskFull("no space left on device".to_owned()));
    assert_eq!((last, log.info().next_seq), (8, 9), "all granted bytes were used");
    assert!(log.info().stored.unwrap().full);
    let staged = disk.write(log).unwrap();
    log.mark_synced(staged, 10);
    assert!(matches!(publisher.publish(&[7; 100]), Err(PublishError::DiskFull(_))), "still full");
    log.grant(10_000, None);
    assert_eq!(publisher.publish(&[7; 100]).unwrap().position.seq, 9, "no number was used up");
    assert!(!log.info().stored.unwrap().full);
}

#[test]
fn unstored_bytes_stay_limited_while_the_disk_is_slow() {
    let disk = MemoryStore::new();
    let topic = disk.topic_of(durable(AT_ONCE), &budget(), RUNNING, RecoveredLog::nothing(1, 4_000));
    let log = &topic.logs()[0];
    thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            let mut numbered = NumberedPublisher::of(&topic);
            numbered.publish(500, 100);
        });
        let mut stored = 0;
        while !publishing.is_finished() {
            if let Some(staged) = disk.write(log) {
                assert!(log.info().stored.unwrap().unstored_bytes <= 4_000, "bounded");
                stored += 1;
                log.mark_synced(staged, 4_000);
            }
        }
        publishing.join().unwrap();
        assert!(stored > 10, "{stored} commits");
    });
}

#[test]
fn failed_disk_stops_publishing_but_not_reading() {
    let disk = MemoryStore::new();
    let topic = disk.topic_of(durable(AckLevel::Synced), &budget(), RUNNING, disk.recovered(1));
    let log = &topic.logs()[0];
    thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            let mut publisher = topic.publisher("t");
            publisher.publish(&1u64.to_le_bytes()).unwrap();
            publisher.publish(&2u64.to_le_bytes()).unwrap_err()
        });
        while !disk.sync(log) {}
        let staged = loop {
            if let Some(staged) = disk.write(log) {
                break staged;
            }
        };
        log.fail("fdatasync: input/output error");
        log.mark_synced(staged, PLENTY);
        let failed = PublishError::DiskFailed("fdatasync: input/output error".to_owned());
        assert_eq!(publishing.join().unwrap(), failed);
        assert_eq!(topic.publisher("t").publish("3").unwrap_err(), failed);
    });
    assert!(log.stage().is_none());
    let (mut reader, mut witness) = (subscriber(&topic, &earliest()), DeliveryChecker::from_seq(1));
    assert_eq!(witness.drain(&mut reader), 1, "only stored records are delivered");
    topic.close();
    assert_eq!(witness.drain(&mut reader), 1);
    assert_eq!(witness.deleted, Some(Position { epoch: 1, seq: 1 }));
}

#[test]
fn publish_is_acknowledged_at_the_level_of_its_topic() {
    for level in [AckLevel::Memory, AckLevel::Written, AckLevel::Synced] {
        let disk = MemoryStore::new();
        let topic = disk.topic_of(durable(level), &budget(), RUNNING, disk.recovered(1));
        let log = &topic.logs()[0];
        let mut publisher = topic.publisher("t");
        publisher.send("x").unwrap();
        let mut is_answered = || {
            let flushed = publisher.poll_flush(&mut Context::from_waker(Waker::noop()));
            flushed.map(|receipt| assert_eq!(receipt.unwrap().unwrap().acknowledged, level)).is_ready()
        };
        if level == AckLevel::Memory {
            assert!(is_answered());
        } else {
            assert!(!is_answered());
            let staged = disk.write(log).unwrap();
            assert_eq!(level == AckLevel::Written, is_answered());
            log.mark_synced(staged, PLENTY);
            assert!(level == AckLevel::Written || is_answered());
        }
        // A thread that waits in `publish` must receive a receipt with the same acknowledgement level.
        thread::scope(|scope| {
            let publishing = scope.spawn(|| topic.publisher("t").publish("y").unwrap());
            until("it is there", || {
                log.info().stored.unwrap().unstored_bytes > 0 || publishing.is_finished()
            });
            while !publishing.is_finished() {
                disk.sync(log);
            }
            assert_eq!(publishing.join().unwrap().acknowledged, level);
        });
    }
}

#[test]
fn async_flush_completes_when_everything_is_stored() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AckLevel::Synced), 1);
    let mut publisher = topic.publisher("t");
    (0..5).for_each(|_| publisher.send("x").unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(publisher.poll_flush(&mut cx).is_pending());
    assert!(disk.sync(&topic.logs()[0]));
    let Poll::Ready(Ok(Some(receipt))) = publisher.poll_flush(&mut cx) else { panic!("all is stored") };
    assert_eq!((receipt.position.seq, receipt.acknowledged), (5, AckLevel::Synced));
}

#[test]
fn subscriber_reads_an_ended_epoch_to_its_last_record() {
    let disk = MemoryStore::new();
    for (epoch, records) in [(1, 50), (2, 30), (5, 20)] {
        let topic = disk.topic(durable(AT_ONCE), epoch);
        let mut numbered = NumberedPublisher::of(&topic);
        numbered.published = topic.logs()[0].info().next_seq - 1;
        numbered.publish(records, 100);
        disk.sync(&topic.logs()[0]);
    }
    let topic = disk.topic(durable(AT_ONCE), 5);
    let at = |epoch, seq| from(Start::After(Position { epoch, seq }));
    let known = |old, last_seen, through, new_first: (u32, u64)| EpochChanged {
        log: topic.logs()[0].name().clone(),
        old,
        last_seen,
        known_through: through,
        new_first: Position { epoch: new_first.0, seq: new_first.1 },
    };
    let mut witness = DeliveryChecker::from_seq(41);
    while witness.drain(&mut subscriber(&topic, &at(1, 40))) > 0 && witness.next == 41 {}
    assert_eq!(witness.next, 101);
    assert_eq!(witness.epochs, [known(1, 50, Some(50), (2, 51)), known(2, 80, Some(80), (5, 81))]);

    // The subscriber has already read records that the disk lacks, so it is unknown how many records were lost.
    let mut witness = DeliveryChecker::from_seq(93);
    witness.drain(&mut subscriber(&topic, &at(2, 92)));
    assert_eq!(witness.epochs, [known(2, 92, None, (5, 81))]);

    // All records of epoch 1 are dropped, so the log forgets this epoch. The subscriber receives the records of the two
    // later epochs, each after a change of epoch.
    disk.drop_before(&topic.logs()[0], 51);
    let mut witness = DeliveryChecker::from_seq(1);
    witness.drain(&mut subscriber(&topic, &at(1, 0)));
    assert_eq!((witness.records, witness.epochs.len()), (50, 2), "{witness:?}");
}

#[test]
fn restart_in_the_same_epoch_causes_no_epoch_notice() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 4);
    let mut numbered = NumberedPublisher::of(&topic);
    numbered.publish(10, 100);
    disk.sync(&topic.logs()[0]);
    let topic = disk.topic(durable(AT_ONCE), 4);
    numbered.publisher = topic.publisher("t");
    numbered.publish(10, 100);
    disk.sync(&topic.logs()[0]);
    let mut witness = DeliveryChecker::from_seq(6);
    witness.drain(&mut subscriber(&topic, &from(Start::After(Position { epoch: 4, seq: 5 }))));
    assert_eq!((witness.next, witness.epochs.len(), witness.missing), (21, 0, 0));
}

#[test]
fn retry_after_a_restart_is_detected_as_a_duplicate() {
    let disk = MemoryStore::new();
    let mark = |producer_seq| ProducerMark { producer: 9, producer_epoch: 1, producer_seq };
    let topic = disk.topic(durable(AT_ONCE), 1);
    let mut publisher = topic.publisher("t").with_producer(mark(1));
    (1..=5).for_each(|seq| assert_eq!(publisher.publish("x").unwrap().position.seq, seq));
    disk.sync(&topic.logs()[0]);
    let topic = disk.topic(durable(AT_ONCE), 2);
    assert_eq!(topic.logs()[0].last_producer_seq(9), Some(5));
    let retried = topic.publisher("t").with_producer(mark(4)).publish("x").unwrap();
    assert_eq!((retried.duplicate, retried.position), (true, Position { epoch: 1, seq: 4 }));
    let fresh = topic.publisher("t").with_producer(mark(6)).publish("y").unwrap();
    assert_eq!((fresh.duplicate, fresh.position), (false, Position { epoch: 2, seq: 6 }));
}

#[test]
fn unreadable_records_on_disk_are_reported_as_a_gap() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 1);
    let mut numbered = NumberedPublisher::of(&topic);
    for _ in 0..60 {
        numbered.publish(100, 100);
        disk.sync(&topic.logs()[0]);
    }
    disk.damage(250);
    let (mut reader, mut witness) = (subscriber(&topic, &earliest()), DeliveryChecker::from_seq(1));
    while witness.drain(&mut reader) > 0 {}
    assert_eq!((witness.records + witness.missing, witness.next, witness.gaps.len()), (6_000, 6_001, 1));
    assert!((witness.gaps[0].first..=witness.gaps[0].last).contains(&250) && witness.missing <= 100);
}

/// If a log searched its whole list of waiters for each record, this test would make more than 10 billion comparisons.
#[test]
fn hundred_thousand_ack_waiters_need_no_linear_search() {
    const RECORDS: u64 = 100_000;
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 1);
    let log = &topic.logs()[0];
    NumberedPublisher::of(&topic).publish(RECORDS, 8);
    let waiters: Vec<_> = (1..=RECORDS).map(|seq| (seq, Waiter::new())).collect();
    for _ in 0..2 {
        for (seq, waiter) in &waiters {
            let progress = log.poll_ack(Position { epoch: 1, seq: *seq }, AckLevel::Synced, waiter, 0);
            assert_eq!(progress, AckProgress::Waiting);
        }
    }
    let has_left = |seq: u64| seq.is_multiple_of(2);
    let left = waiters.iter().filter(|(seq, _)| has_left(*seq));
    left.for_each(|(_, waiter)| log.remove_ack_waiter(waiter));
    assert!(disk.sync(log));
    assert!(waiters.iter().all(|(seq, waiter)| waiter.is_ready() != has_left(*seq)));
}

#[test]
fn subscriber_sleeps_until_a_deferred_read_can_be_retried() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 1);
    let log = &topic.logs()[0];
    let mut numbered = NumberedPublisher::of(&topic);
    for _ in 0..60 {
        numbered.publish(100, 100);
        disk.sync(log);
    }
    let (mut reader, mut witness) = (subscriber(&topic, &earliest()), DeliveryChecker::from_seq(1));
    let mut cx = Context::from_waker(Waker::noop());
    disk.defers_reads.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        witness.drain(&mut reader);
        assert!(reader.poll_ready(&mut cx).is_pending(), "the subscriber repeats the read without a pause");
        log.retry_reads();
        assert!(reader.poll_ready(&mut cx).is_ready(), "the subscriber is not woken");
    }
    witness.drain(&mut reader);
    log.retry_reads();
    assert!(reader.poll_ready(&mut cx).is_ready(), "a retry between the read and the sleep is missed");
    assert_eq!((witness.next, log.try_read(1, |_| ())), (1, Err(ReadDeferred)));
    disk.defers_reads.store(false, Ordering::Relaxed);
    while witness.drain(&mut reader) > 0 {}
    assert_eq!((witness.records, witness.missing), (6_000, 0));
}

#[test]
fn disk_retention_causes_lag_warnings_and_exact_gaps() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 1);
    let log = &topic.logs()[0];
    let mut numbered = NumberedPublisher::of(&topic);
    let (mut reader, mut witness) = (subscriber(&topic, &earliest()), DeliveryChecker::from_seq(1));
    let mut other = subscriber(&topic, &SubscribeOptions { on_gap: OnGap::Newest, ..earliest() });
    for _ in 0..20 {
        numbered.publish(100, 100);
        disk.sync(log);
    }
    disk.drop_before(log, 501);
    witness.drain(&mut reader);
    assert_eq!((witness.missing, witness.next), (500, 2_001));
    assert_eq!(witness.lagging.len(), 1);
    assert_eq!((witness.lagging[0].behind, witness.lagging[0].retained), (2_000, 1_500));
    let mut witness = DeliveryChecker::from_seq(1);
    witness.drain(&mut other);
    assert_eq!((witness.missing, witness.next), (2_000, 2_001));
}

#[test]
fn start_time_is_found_among_records_that_are_only_on_disk() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 1);
    let mut numbered = NumberedPublisher::of(&topic);
    let began_ns = MANUAL.now_ns();
    for _ in 0..30 {
        numbered.publish(100, 100);
        disk.sync(&topic.logs()[0]);
        advance_clock(Duration::from_secs(1));
    }
    for second in [0u64, 1, 7, 28, 29] {
        let since = from(Start::Time(began_ns + second * 1_000_000_000));
        let mut witness = DeliveryChecker::from_seq(second * 100 + 1);
        let mut reader = subscriber(&topic, &since);
        while witness.drain(&mut reader) > 0 {}
        assert_eq!(witness.next, 3_001);
    }
    let later = from(Start::Time(began_ns + 3_600_000_000_000));
    assert_eq!(DeliveryChecker::from_seq(3_001).drain(&mut subscriber(&topic, &later)), 0);
}

/// A mirror's feed begins up to a second early, because the clocks of two nodes may differ. Nevertheless, it must not
/// include records from before the owner's restart.
#[test]
fn mirror_gets_no_record_from_before_the_owner_restarted() {
    let disk = MemoryStore::new();
    let texts_since = |topic: &Arc<Topic>, since_ns: u64| -> Vec<String> {
        let name = SubscribeOptions::MIRROR.to_owned();
        let options = SubscribeOptions { name, local_only: true, ..from(Start::Time(since_ns)) };
        let mut reader = subscriber(topic, &options);
        let mut texts = Vec::new();
        while let Some(event) = reader.try_next().unwrap() {
            if let Event::Record(record) = event {
                texts.push(String::from_utf8(record.payload().to_vec()).unwrap());
            }
        }
        texts
    };
    let publish = |topic: &Arc<Topic>, text: &str| {
        topic.publisher("t").publish(text).unwrap();
        disk.sync(&topic.logs()[0]);
    };
    let (short, long) = (Duration::from_millis(400), Duration::from_millis(800));
    let topic = disk.topic(durable(AT_ONCE), 1);
    publish(&topic, "before");
    advance_clock(short);
    let since_ns = MANUAL.now_ns();
    assert_eq!(texts_since(&topic, since_ns), ["before"], "the owner's clock may be behind");
    assert!(texts_since(&topic, since_ns + long.as_nanos() as u64).is_empty());
    for epoch in [1, 2] {
        let topic = disk.topic(durable(AT_ONCE), epoch);
        assert!(texts_since(&topic, since_ns).is_empty(), "the owner has restarted");
    }
    publish(&topic, "by a cut off owner");
    let topic = disk.topic(durable(AT_ONCE), 2);
    assert_eq!(texts_since(&topic, since_ns), ["by a cut off owner"]);
    advance_clock(short);
    publish(&topic, "since the restart");
    assert_eq!(texts_since(&topic, since_ns), ["by a cut off owner", "since the restart"]);
    assert_eq!(texts_since(&topic, since_ns + long.as_nanos() as u64), ["since the restart"]);
}

#[test]
fn closed_topic_delivers_its_pending_records_before_it_ends() {
    let disk = MemoryStore::new();
    let topic = disk.topic_of(durable(AT_ONCE), &budget(), RUNNING, disk.recovered(1));
    let log = &topic.logs()[0];
    let mut numbered = NumberedPublisher::of(&topic);
    let (mut reader, mut witness) = (subscriber(&topic, &earliest()), DeliveryChecker::from_seq(1));
    numbered.publish(1_000, 100);
    topic.close();
    assert_eq!(witness.drain(&mut reader), 0);
    assert!(!reader.wait(Some(Duration::from_millis(10))).unwrap(), "it sleeps until the disk is done");
    thread::scope(|scope| {
        scope.spawn(|| {
            until("the reader sleeps", || log.info().waiting > 0);
            disk.sync(log);
        });
        while witness.deleted.is_none() {
            assert!(reader.wait(Some(PATIENCE)).unwrap());
            witness.drain(&mut reader);
        }
    });
    assert_eq!((witness.records, witness.deleted), (1_000, Some(Position { epoch: 1, seq: 1_000 })));
}

#[test]
fn record_dropped_from_memory_is_read_from_disk() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 1);
    let log = &topic.logs()[0];
    let mut numbered = NumberedPublisher::of(&topic);
    for _ in 0..60 {
        numbered.publish(100, 100);
        disk.sync(log);
    }
    assert_eq!(log.read(42, |record| number(record.payload())), Some(42));
    assert_eq!(log.read(6_000, |record| number(record.payload())), Some(6_000));
    numbered.publish(1, 100);
    assert_eq!(log.read(6_001, |_| ()), None, "not stored yet");
}

#[test]
fn retired_segment_is_loaded_again_for_its_reader() {
    let disk = MemoryStore::new();
    let topic = disk.topic(durable(AT_ONCE), 1);
    let mut numbered = NumberedPublisher::of(&topic);
    for _ in 0..60 {
        numbered.publish(100, 100);
        disk.sync(&topic.logs()[0]);
    }
    let mut reader = cursor(&topic, &earliest());
    assert!(matches!(reader.fill(), ReadOutcome::Records));
    assert_eq!(reader.drain(10, |_| ()), 10);
    assert!(!disk.retire_loaded(), "it is being read");
    reader.release();
    assert!(disk.retire_loaded());
    let loads = disk.loads.load(Ordering::Relaxed);
    assert!(matches!(reader.fill(), ReadOutcome::Records));
    assert_eq!(disk.loads.load(Ordering::Relaxed), loads + 1);
    reader.drain(1, |record| assert_eq!(number(record.payload()), 11));
}
