//! Tests of what subscribers of state topics can rely on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dunlin_topic::*;

use crate::disk::*;
use crate::fixture::*;
use crate::slot_values::*;

mod epochs;
mod fairness;
mod losses;
mod mirrored;
mod publishers;

const SLOTS: u64 = 100;

fn stateful(retention_bytes: u64, budget: &Arc<MemoryBudget>, clock: Clock) -> Arc<Topic> {
    let reducer = Some(ReducerConfig { kind: "board".to_owned(), options: Default::default() });
    let config = Arc::new(TopicConfig { reducer, ..config(retention_bytes) });
    let board = |_: &ReducerConfig| Ok(Box::new(SlotValues::default()) as Box<dyn Reducer>);
    Arc::new(Topic::stateful("t", config, budget, clock, 1, board).unwrap())
}

fn small() -> Arc<Topic> {
    stateful(64 << 10, &budget(), MANUAL)
}

fn following() -> SubscribeOptions {
    SubscribeOptions { on_gap: OnGap::Snapshot, ..from(Start::Snapshot) }
}

fn conflated() -> SubscribeOptions {
    SubscribeOptions { conflate: true, ..following() }
}

/// Publishes random values for slots, and keeps the state that they must give.
struct Setter {
    publisher: Publisher,
    expected: SlotValues,
    seq: u64,
    random: u64,
}

impl Setter {
    fn of(topic: &Arc<Topic>) -> Setter {
        Setter { publisher: topic.publisher("t"), expected: SlotValues::default(), seq: 0, random: 1 }
    }

    fn set(&mut self, times: u64) {
        for _ in 0..times {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let payload = sets(&[((self.random >> 33) % SLOTS, self.random >> 40)]);
            let receipt = self.publisher.publish(payload.as_slice()).unwrap();
            self.seq += 1;
            assert_eq!(receipt.position.seq, self.seq);
            self.expected.take(&payload, self.seq);
        }
    }
}

/// A follower: it keeps a copy of the state, and notices when records are missing.
#[derive(Default)]
struct BoardFollower {
    board: SlotValues,
    at: u64,
    lost: bool,
    records: u64,
    merged: u64,
    snapshots: u64,
    gaps: u64,
    checks: u64,
    losses: Vec<u64>,
}

impl BoardFollower {
    fn check(&mut self, event: Event<'_>) {
        match event {
            Event::Record(record) if record.prev_seq <= self.at && self.at < record.seq() => {
                self.board.apply(record.seq(), &record.frame).unwrap();
                self.at = record.seq();
                self.records += 1;
                self.merged += u64::from(record.prev_seq + 1 < record.seq());
            }
            Event::Record(record) if record.seq() <= self.at => {}
            Event::Record(record) => {
                self.losses.push(record.prev_seq);
                self.lost = true;
            }
            Event::Notice(Notice::Snapshot(snapshot)) => {
                self.board.restore(snapshot.position.seq, &snapshot.bytes).unwrap();
                assert_eq!(self.board.checksum(), snapshot.checksum);
                self.at = snapshot.position.seq;
                self.snapshots += 1;
            }
            Event::Notice(Notice::Gap(gap)) => {
                assert_eq!(gap.first, self.at + 1);
                self.gaps += 1;
            }
            Event::Notice(Notice::Checksum(checksum)) => {
                self.checks += 1;
                if checksum.position.seq == self.at {
                    assert_eq!(checksum.checksum, self.board.checksum());
                } else {
                    self.losses.push(checksum.position.seq);
                    self.lost = true;
                }
            }
            Event::Notice(Notice::Lagging(_) | Notice::Publishers(_)) => {}
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Reads all available events. If records are missing, requests them and reads on.
    fn drain(&mut self, subscriber: &mut Subscriber) {
        loop {
            let read = subscriber
                .drain(usize::MAX, |event| {
                    if !self.lost {
                        self.check(event)
                    }
                })
                .unwrap();
            if std::mem::take(&mut self.lost) {
                let at = Position { epoch: 1, seq: self.at };
                let log = LogName { topic: "t".to_owned(), subject_prefix: "t".to_owned(), partition: 0 };
                subscriber.resync(&log, Resync::After(at)).unwrap();
            } else if read == 0 {
                return;
            }
        }
    }

    fn assert_matches(&self, setter: &Setter) {
        assert_eq!(self.at, setter.seq);
        assert_eq!(self.board.slots(), setter.expected.slots());
        assert_eq!(self.board.checksum(), setter.expected.checksum());
    }
}

#[test]
fn record_refused_by_the_reducer_changes_nothing() {
    let budget = budget();
    let topic = stateful(64 << 10, &budget, MANUAL);
    let mut setter = Setter::of(&topic);
    let mut reader = subscriber(&topic, &earliest());
    setter.set(3);
    let used = budget.used();
    let refused = setter.publisher.publish(sets(&[(1, 1), (2, REFUSED)]).as_slice()).unwrap_err();
    assert!(matches!(&refused, PublishError::Reducer { why, .. } if why.0.contains("no slot")), "{refused}");
    let drafts = [sets(&[(1, 1)]), sets(&[(1, REFUSED)])];
    let drafts: Vec<Draft<'_>> = drafts.iter().map(|payload| payload.as_slice().into()).collect();
    assert!(matches!(setter.publisher.publish_batch(&drafts), Err(PublishError::Reducer { .. })));
    let mut large = sets(&[(1, 1)]).repeat(512);
    large.extend(sets(&[(1, REFUSED)]));
    assert!(matches!(setter.publisher.publish(Bytes::from(large)), Err(PublishError::Reducer { .. })));
    assert_eq!(topic.logs()[0].state_info().unwrap().1.checksum, setter.expected.checksum());
    setter.set(3);
    let mut follower = BoardFollower::default();
    follower.drain(&mut reader);
    follower.assert_matches(&setter);
    assert!(
        budget.used() <= used + 64 * 3,
        "{} after {used}: removed records are not charged",
        budget.used()
    );
}

#[test]
fn checksums_are_still_sent_after_the_clock_is_set_back() {
    let topic = stateful(64 << 10, &budget(), MANUAL.with_steady(|| STEADY.now_ns()));
    let mut setter = Setter::of(&topic);
    setter.set(1);
    let (mut reader, mut follower) = (subscriber(&topic, &following()), BoardFollower::default());
    follower.drain(&mut reader);
    let before = follower.checks;
    set_clock_back(Duration::from_secs(100));
    advance_clock(Duration::from_secs(1));
    setter.set(1);
    follower.drain(&mut reader);
    assert_eq!(follower.checks, before + 1);
}

#[test]
fn new_subscriber_gets_the_state_and_all_later_records() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    let mut followers = Vec::new();
    for round in 0..2_000 {
        setter.set(1 + round % 7);
        if round % 20 == 0 {
            followers.push((subscriber(&topic, &following()), BoardFollower::default()));
        }
        let one = round as usize % followers.len();
        let (reader, follower) = &mut followers[one];
        follower.drain(reader);
    }
    for (reader, follower) in &mut followers {
        follower.drain(reader);
        follower.assert_matches(&setter);
    }
    assert!(followers.iter().all(|(_, follower)| follower.snapshots >= 1));
    assert!(followers.iter().any(|(_, follower)| follower.gaps > 0), "64 KiB are not enough for all of them");
}

#[test]
fn overrun_subscriber_gets_its_gap_and_the_current_state() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    let mut reader = subscriber(&topic, &following());
    let mut follower = BoardFollower::default();
    follower.drain(&mut reader);
    for _ in 0..5 {
        setter.set(10_000);
        follower.drain(&mut reader);
        follower.assert_matches(&setter);
    }
    assert_eq!((follower.gaps, follower.records), (5, 0), "each time the state, not the records");
}

#[test]
fn slow_subscriber_gets_a_delta_if_little_state_changed() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    setter.set(1_000);
    let mut reader = subscriber(&topic, &following());
    let mut follower = BoardFollower::default();
    follower.drain(&mut reader);
    for value in 0..10_000 {
        let payload = sets(&[(7, value)]);
        setter.publisher.publish(payload.as_slice()).unwrap();
        setter.seq += 1;
        setter.expected.take(&payload, setter.seq);
    }
    follower.drain(&mut reader);
    follower.assert_matches(&setter);
    assert_eq!((follower.snapshots, follower.gaps, follower.merged), (1, 1, 1));
}

#[test]
fn subscribers_that_join_close_together_share_one_snapshot() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    setter.set(1_000);
    let snapshots: Vec<Bytes> = (0..10)
        .map(|_| {
            setter.set(1);
            match subscriber(&topic, &following()).next().unwrap() {
                Event::Notice(Notice::Snapshot(snapshot)) => snapshot.bytes,
                other => panic!("a snapshot comes first, not {other:?}"),
            }
        })
        .collect();
    assert!(snapshots.iter().all(|bytes| bytes.as_ptr() == snapshots[0].as_ptr()));
    setter.set(1_000);
    let Event::Notice(Notice::Snapshot(later)) = subscriber(&topic, &following()).next().map(owned).unwrap()
    else {
        panic!("a snapshot comes first");
    };
    assert_eq!(later.position.seq, setter.seq, "what would have to follow the old one is longer than itself");
}

fn owned(event: Event<'_>) -> Event<'static> {
    match event {
        Event::Notice(notice) => Event::Notice(notice),
        Event::Record(record) => panic!("unexpected {record:?}"),
    }
}

#[test]
fn snapshot_counts_towards_the_memory_budget_until_dropped() {
    let budget = budget();
    let topic = stateful(64 << 10, &budget, MANUAL);
    Setter::of(&topic).set(1_000);
    let before = budget.used();
    let snapshot = topic.logs()[0].snapshot().unwrap();
    assert!(budget.used() >= before + snapshot.bytes.len() as u64);
    topic.close();
    drop(topic);
    assert!(budget.used() >= snapshot.bytes.len() as u64);
    drop(snapshot);
    assert_eq!(budget.used(), 0);
}

#[test]
fn conflated_subscriber_gets_one_record_per_read() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    let mut reader = subscriber(&topic, &conflated());
    let mut follower = BoardFollower::default();
    follower.drain(&mut reader);
    for round in 0..1_000 {
        setter.set(round % 20);
        let before = (follower.records, follower.snapshots);
        reader.drain(usize::MAX, |event| follower.check(event)).unwrap();
        follower.assert_matches(&setter);
        let delivered = follower.records - before.0 + follower.snapshots - before.1;
        assert_eq!(delivered, u64::from(round % 20 > 0));
    }
    assert!(follower.merged > 800, "{}", follower.merged);
    assert_eq!(follower.gaps, 0);
}

#[test]
fn one_event_brings_a_stalled_conflated_subscriber_up_to_date() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    let mut reader = subscriber(&topic, &conflated());
    let mut follower = BoardFollower::default();
    follower.drain(&mut reader);
    setter.set(50_000);
    assert_eq!(reader.drain(usize::MAX, |event| follower.check(event)).unwrap(), 1);
    follower.assert_matches(&setter);
}

#[test]
fn conflated_subscriber_is_woken_by_the_next_record() {
    let topic = stateful(64 << 10, &budget(), RUNNING);
    let mut setter = Setter::of(&topic);
    let mut reader = subscriber(&topic, &conflated());
    let mut follower = BoardFollower::default();
    follower.drain(&mut reader);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while follower.at < 1_000 {
                assert!(reader.wait(Some(PATIENCE)).unwrap());
                reader.drain(usize::MAX, |event| follower.check(event)).unwrap();
            }
        });
        for _ in 0..1_000 {
            until("it sleeps", || topic.logs()[0].info().waiting > 0);
            setter.set(1);
        }
    });
    follower.assert_matches(&setter);
}

#[test]
fn subscriber_with_a_wrong_state_gets_a_new_snapshot() {
    let topic = small();
    let mut setter = Setter::of(&topic);
    setter.set(100);
    let log = LogName { topic: "t".to_owned(), subject_prefix: "t".to_owned(), partition: 0 };
    for many in [false, true] {
        let mut reader = match many {
            false => subscriber(&topic, &following()),
            true => Subscriber::many(vec![cursor(&topic, &following())], None, following(), MANUAL),
        };
        let mut follower = BoardFollower::default();
        follower.drain(&mut reader);
        assert!(!reader.wait(Some(Duration::ZERO)).unwrap());
        follower.board.take(&sets(&[(1, 1)]), 1);
        reader.resync(&log, Resync::State).unwrap();
        assert!(reader.wait(Some(Duration::ZERO)).unwrap());
        follower.drain(&mut reader);
        setter.set(10);
        follower.drain(&mut reader);
        follower.assert_matches(&setter);
        assert_eq!(follower.snapshots, 2);
    }
}

#[test]
fn plain_topic_refuses_subscriptions_that_need_a_state() {
    let topic = small_topic();
    for options in
        [from(Start::Snapshot), SubscribeOptions { on_gap: OnGap::Snapshot, ..earliest() }, conflated()]
    {
        let refused = Cursor::new(Arc::clone(&topic.logs()[0]), &options, None, ConsumeMode::Reads);
        assert!(matches!(refused, Err(SubscribeError::NoState { .. })), "{refused:?}");
    }
    let filter = Some(Filter::new(|_: &str| true));
    let refused = Cursor::new(Arc::clone(&small().logs()[0]), &following(), filter, ConsumeMode::Reads);
    assert!(matches!(refused, Err(SubscribeError::NoState { .. })), "{refused:?}");
}

#[test]
fn record_that_grows_the_state_beyond_the_budget_is_refused() {
    let budget = MemoryBudget::node(256 << 10, 0);
    let topic = stateful(64 << 10, &budget, MANUAL);
    let mut publisher = topic.publisher("t");
    let mut slot = 0;
    let refused = loop {
        slot += 1;
        if let Err(refused) = publisher.publish(sets(&[(slot, 1)]).as_slice()) {
            break refused;
        }
        assert!(slot < 100_000, "64 bytes each in 256 KiB");
    };
    assert!(matches!(refused, PublishError::BudgetSpent { .. }), "{refused}");
    assert!(slot > 1_000);
    let mut reader = subscriber(&topic, &following());
    let mut follower = BoardFollower::default();
    follower.drain(&mut reader);
    assert_eq!(follower.board.slots().len() as u64, slot - 1, "readers are served all the same");
}

#[test]
fn durable_state_is_delivered_only_after_it_is_stored() {
    let disk = MemoryStore::new();
    let reducer = Some(ReducerConfig { kind: "board".to_owned(), options: Default::default() });
    let config = Arc::new(TopicConfig { reducer, ..durable(AckLevel::Memory) });
    let board = |_: &ReducerConfig| Ok(Box::new(SlotValues::default()) as Box<dyn Reducer>);
    let disks: Vec<(RecoveredLog, Arc<dyn Store>)> = vec![(disk.recovered(1), Arc::clone(&disk) as _)];
    let topic = Arc::new(Topic::durable_stateful("t", config, &budget(), MANUAL, disks, board).unwrap());
    let log = &topic.logs()[0];
    let mut setter = Setter::of(&topic);
    setter.set(100);
    disk.sync(log);
    for options in [following(), conflated()] {
        let mut reader = subscriber(&topic, &options);
        let mut follower = BoardFollower::default();
        // The owner's state already includes these records, although they are not stored yet.
        setter.set(10);
        follower.drain(&mut reader);
        assert_eq!((follower.at, follower.snapshots), (0, 0));
        assert!(!reader.wait(Some(Duration::ZERO)).unwrap(), "it sleeps until then");
        disk.sync(log);
        assert!(reader.wait(Some(Duration::ZERO)).unwrap());
        follower.drain(&mut reader);
        follower.assert_matches(&setter);
        for _ in 0..20 {
            setter.set(7);
            let before = follower.at;
            follower.drain(&mut reader);
            assert_eq!(follower.at, before);
            disk.sync(log);
            follower.drain(&mut reader);
            follower.assert_matches(&setter);
        }
        assert_eq!((follower.gaps, follower.snapshots), (0, 1));
    }
    // The disk fails before it has stored this record. The record must never be delivered; the subscriber receives only
    // `Deleted`.
    let mut reader = subscriber(&topic, &following());
    setter.set(1);
    assert_eq!(reader.drain(usize::MAX, |event| panic!("{event:?}")).unwrap(), 0);
    topic.close();
    log.fail("gone");
    let mut events = Vec::new();
    while reader.drain(usize::MAX, |event| events.push(format!("{event:?}"))).is_ok() && events.len() < 10 {}
    assert!(events.len() == 1 && events[0].contains("Deleted"), "{events:?}");
}
