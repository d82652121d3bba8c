//! Tests of mirrors. The owner is a plain topic in the same process: [`Owner`] passes forwarded records to the topic,
//! and [`feed`] passes the topic's records to a mirror.

mod ownership;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_topic::*;

use crate::fixture::*;

/// The upstream of a mirror, with the topic that plays the owner.
#[derive(Debug)]
struct Owner {
    topic: Arc<Topic>,
    until_ns: AtomicU64,
    tickets: AtomicU64,
    outcomes: Mutex<HashMap<u64, AckProgress>>,
    /// Whether no private mirrors are available.
    is_full: AtomicBool,
}

impl Owner {
    fn of(topic: &Arc<Topic>) -> Arc<Owner> {
        Arc::new(Owner {
            topic: Arc::clone(topic),
            until_ns: AtomicU64::new(0),
            tickets: AtomicU64::new(0),
            outcomes: Mutex::default(),
            is_full: AtomicBool::new(false),
        })
    }
}

impl Upstream for Owner {
    fn clock(&self) -> Clock {
        STEADY
    }

    fn owned_until_ns(&self) -> u64 {
        self.until_ns.load(Ordering::Relaxed)
    }

    fn forward(&self, forwarded: ForwardedBatch<'_>) -> Result<u64, PublishError> {
        let ForwardedBatch { partition, frames, count, mark, expect_last, .. } = forwarded;
        let batch = CheckedBatch::check(frames, count, 1 << 20)?;
        let append =
            BatchAppend { batch, partition, mark, expect_last, claim: None, evict: false, relayed: true };
        let outcome = match self.topic.append_batch(MANUAL.now_ns(), append) {
            Ok(receipt) => AckProgress::ByOwner(receipt),
            Err(refused) => AckProgress::Failed(refused),
        };
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        self.outcomes.lock().unwrap().insert(ticket, outcome);
        Ok(ticket)
    }

    fn outcome(&self, ticket: u64, _waiter: &Arc<Waiter>, _token: u32) -> AckProgress {
        self.outcomes.lock().unwrap().remove(&ticket).unwrap()
    }

    fn leave(&self, _waiter: &Arc<Waiter>) {}

    /// There is always room for further batches.
    fn await_room(&self, waiter: &Arc<Waiter>) {
        waiter.notify(Waiter::ROOM);
    }

    fn start_feed(&self, log: &Arc<Log>, _start: Start) {
        log.feed_from(self.topic.logs()[0].last());
    }

    fn private_mirror(&self, log: &Arc<Log>, start: Start, _: bool, _: bool) -> Option<Arc<Log>> {
        if self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        let private = Log::private_mirror(log, 1 << 20);
        let mut subscriber = subscriber(&self.topic, &from(start));
        feed(&mut subscriber, &private);
        Some(private)
    }
}

fn mirror_of(owner: &Arc<Owner>, config: TopicConfig) -> Arc<Topic> {
    let upstream: Arc<dyn Upstream> = owner.clone();
    let no_reducer = |_: &ReducerConfig| -> Result<Box<dyn Reducer>, ReducerError> { unreachable!() };
    let mirror = Topic::mirrored("t", Arc::new(config), &budget(), MANUAL, 1, no_reducer, &upstream);
    Arc::new(mirror.unwrap())
}

/// Feeds the mirror `log` with all events that are available to the subscriber `from`.
fn feed(from: &mut Subscriber, log: &Log) {
    while let Some(event) = from.try_next().unwrap() {
        match event {
            Event::Record(record) => {
                let mut bytes = Vec::new();
                record.frame.append_to(&mut bytes);
                let batch = CheckedBatch::check(&bytes, 1, 1 << 20).unwrap();
                log.feed(record.position, record.prev_seq, batch).unwrap();
            }
            Event::Notice(Notice::Gap(gap)) => log.feed_gap(Position { epoch: gap.epoch, seq: gap.last }),
            Event::Notice(Notice::EpochChanged(changed)) => log.feed_epoch(&changed),
            Event::Notice(_) => {}
        }
    }
}

/// Reads all available events, and returns each of them as a text.
fn read_events(subscriber: &mut Subscriber) -> Vec<String> {
    let mut events = Vec::new();
    while let Some(event) = subscriber.try_next().unwrap() {
        events.push(match event {
            Event::Record(record) => {
                format!("{} {}", record.position, String::from_utf8_lossy(record.payload()))
            }
            Event::Notice(Notice::Gap(gap)) => format!("gap {}: {}-{}", gap.epoch, gap.first, gap.last),
            Event::Notice(Notice::EpochChanged(changed)) => format!(
                "{} after {} of {:?} becomes {}",
                changed.old, changed.last_seen, changed.known_through, changed.new_first
            ),
            Event::Notice(other) => format!("{other:?}"),
        });
    }
    events
}

fn publish(topic: &Arc<Topic>, payloads: &[&str]) {
    let mut publisher = topic.publisher("t");
    for payload in payloads {
        publisher.publish(*payload).unwrap();
    }
}

#[test]
fn mirrored_records_keep_the_positions_and_times_of_the_owner() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    publish(&owned, &["before"]);
    let mut reader = subscriber(&mirror, &from(Start::Latest));
    let mut owner_reader = subscriber(&owned, &from(Start::After(Position { epoch: 1, seq: 1 })));
    publish(&owned, &["a", "b"]);
    feed(&mut owner_reader, &mirror.logs()[0]);
    assert_eq!(read_events(&mut reader), ["1-2 a", "1-3 b"]);
    let (first, second) = (owned.logs()[0].read(2, stamp), mirror.logs()[0].read(2, stamp));
    assert!(first.is_some() && first == second, "down to the time of the append");
}

fn stamp(record: Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.frame.append_to(&mut bytes);
    bytes
}

#[test]
fn records_missing_from_a_mirror_are_a_gap_for_each_subscriber() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    let mut quick = subscriber(&mirror, &from(Start::Latest));
    let mut slow = subscriber(&mirror, &from(Start::Latest));
    let mut owner_reader = subscriber(&owned, &earliest());
    publish(&owned, &["1", "2"]);
    feed(&mut owner_reader, &mirror.logs()[0]);
    assert_eq!(read_events(&mut quick), ["1-1 1", "1-2 2"]);
    mirror.logs()[0].feed_gap(Position { epoch: 1, seq: 5 });
    publish(&owned, &["3", "4", "5", "6"]);
    feed(&mut owner_reader, &mirror.logs()[0]);
    assert_eq!(read_events(&mut quick), ["gap 1: 3-5", "1-6 6"]);
    assert_eq!(read_events(&mut slow), ["1-1 1", "1-2 2", "gap 1: 3-5", "1-6 6"]);
}

#[test]
fn metric_counts_lost_records_of_a_mirror_once() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    let reports = Arc::<LossReports>::default();
    mirror.report_losses_to(&reports);
    let mut readers = [0, 1].map(|_| subscriber(&mirror, &from(Start::Latest)));
    let mut owner_reader = subscriber(&owned, &earliest());
    publish(&owned, &["1", "2"]);
    feed(&mut owner_reader, &mirror.logs()[0]);
    mirror.logs()[0].feed_gap(Position { epoch: 1, seq: 5 });
    for reader in &mut readers {
        assert_eq!(read_events(reader), ["1-1 1", "1-2 2", "gap 1: 3-5"]);
    }
    for LossTotals { cause, ranges, records } in reports.totals() {
        let expected = if cause == LossCause::Mirror { (1, 3) } else { (0, 0) };
        assert_eq!((ranges, records), expected, "{cause:?}");
    }
    let taken = reports.take();
    assert_eq!((taken.len(), taken[0].first, taken[0].last), (1, Position { epoch: 1, seq: 3 }, Some(5)));
    assert!(reports.take().is_empty());
}

#[test]
fn metric_counts_lost_records_of_a_restarted_topic() {
    let topic = Topic::new("t", Arc::new(config(64 << 10)), &budget(), MANUAL, 2).unwrap();
    let reports = Arc::<LossReports>::default();
    topic.report_losses_to(&reports);
    // The first subscriber has read record 5 of the former epoch. The second has not read records 4 and 5.
    for (seq, records) in [(5, 0), (3, 2), (3, 2)] {
        let mut reader = subscriber(&topic, &from(Start::After(Position { epoch: 1, seq })));
        assert_eq!(read_events(&mut reader).len(), 1, "a notice of the new epoch");
        let restart = reports.totals().into_iter().find(|totals| totals.cause == LossCause::Restart);
        assert_eq!(restart.map(|totals| totals.records), Some(records), "after {seq}");
    }
    let taken = reports.take();
    assert_eq!((taken[0].first, taken[0].last), (Position { epoch: 1, seq: 4 }, None));
}

/// A node finds damage before it knows the topic.
#[test]
fn losses_recorded_before_reporting_starts_are_counted() {
    const RANGES: u64 = 200;
    let topic = Topic::new("t", Arc::new(config(64 << 10)), &budget(), MANUAL, 2).unwrap();
    for seq in (1..).step_by(3).take(RANGES as usize) {
        topic.logs()[0].record_loss(LossCause::Damaged, Position { epoch: 1, seq }, Some(seq + 1));
    }
    let reports = Arc::<LossReports>::default();
    topic.report_losses_to(&reports);
    let damaged = reports.totals().into_iter().find(|totals| totals.cause == LossCause::Damaged).unwrap();
    assert_eq!((damaged.ranges, damaged.records), (RANGES, 2 * RANGES));
    let taken = reports.take();
    assert_eq!((taken.len(), taken[0].first.seq, taken[0].last), (1, 1, Some(3 * RANGES - 1)));
}

#[test]
fn records_published_to_a_mirror_are_appended_by_the_owner() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    publish(&owned, &["1"]);
    let mark = ProducerMark { producer: 7, producer_epoch: 1, producer_seq: 1 };
    let mut publisher = mirror.publisher("t").with_producer(mark);
    let receipt = publisher.publish("2").unwrap();
    assert_eq!(receipt.position, Position { epoch: 1, seq: 2 });
    assert_eq!((receipt.acknowledged, receipt.duplicate), (AckLevel::Memory, false));
    let again = mirror.publisher("t").with_producer(mark).publish("2").unwrap();
    assert_eq!((again.position, again.duplicate), (receipt.position, true));
    let moved = mirror.publisher("t").publish_expecting(1, "late");
    assert_eq!(moved, Err(PublishError::SeqMoved { expected: 1, last_seq: 2 }));
    publisher.send("3").unwrap();
    publisher.send("4").unwrap();
    assert_eq!(publisher.flush().unwrap().unwrap().position.seq, 4);
    assert_eq!(read_events(&mut subscriber(&owned, &earliest())), ["1-1 1", "1-2 2", "1-3 3", "1-4 4"]);
}

#[test]
fn flush_returns_an_error_for_each_refused_record() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    let mut publisher = mirror.publisher("t");
    for payload in ["1", "2", "3"] {
        publisher.send(payload).unwrap();
    }
    let refused = |ticket: u64| PublishError::OwnerAway(format!("refused {ticket}"));
    for ticket in [0, 2] {
        owner.outcomes.lock().unwrap().insert(ticket, AckProgress::Failed(refused(ticket)));
    }
    assert_eq!(publisher.flush(), Err(refused(0)));
    assert_eq!(publisher.flush(), Err(refused(2)));
    assert_eq!(publisher.flush(), Ok(None));
}

#[test]
fn sequence_that_restarts_at_1_ends_the_epoch_of_a_mirror() {
    let owned = small_topic();
    let mirror = mirror_of(&Owner::of(&owned), config(64 << 10));
    let (mut quick, mut slow) =
        (subscriber(&mirror, &from(Start::Latest)), subscriber(&mirror, &from(Start::Latest)));
    publish(&owned, &["1", "2", "3"]);
    let log = &mirror.logs()[0];
    feed(&mut subscriber(&owned, &earliest()), log);
    assert_eq!(read_events(&mut quick).len(), 3);
    let next = Topic::new("t", Arc::new(config(64 << 10)), &budget(), MANUAL, 8).unwrap();
    let next = Arc::new(next);
    publish(&next, &["new"]);
    feed(&mut subscriber(&next, &from(Start::After(log.fed_through().unwrap()))), log);
    assert_eq!(read_events(&mut quick), ["1 after 3 of None becomes 8-1", "8-1 new"]);
    assert_eq!(read_events(&mut slow), ["1 after 0 of Some(3) becomes 8-1", "8-1 new"]);
}

#[test]
fn deletion_at_an_unknown_position_hides_no_later_record() {
    let owned = small_topic();
    let mirror = mirror_of(&Owner::of(&owned), config(64 << 10));
    let (mut quick, mut slow) =
        (subscriber(&mirror, &from(Start::Latest)), subscriber(&mirror, &from(Start::Latest)));
    publish(&owned, &["1", "2"]);
    let log = &mirror.logs()[0];
    feed(&mut subscriber(&owned, &earliest()), log);
    assert_eq!(read_events(&mut quick), ["1-1 1", "1-2 2"]);
    log.close_unfed(1);
    let read_to_end = |reader: &mut Subscriber| {
        let mut positions = Vec::new();
        loop {
            match reader.try_next().unwrap().expect("the log is closed") {
                Event::Record(record) => positions.push(record.position),
                Event::Notice(Notice::EpochChanged(changed)) => {
                    assert_eq!(changed.known_through, None);
                    positions.push(changed.new_first);
                }
                Event::Notice(Notice::Deleted { last, .. }) => return (positions, last),
                Event::Notice(other) => panic!("{other:?}"),
            }
        }
    };
    let at = |epoch, seq| Position { epoch, seq };
    assert_eq!(read_to_end(&mut quick), (vec![at(2, 1)], at(2, 0)));
    assert_eq!(read_to_end(&mut slow), (vec![at(1, 1), at(1, 2), at(2, 1)], at(2, 0)));
    let later = Arc::new(Topic::new("t", Arc::new(config(64 << 10)), &budget(), MANUAL, 2).unwrap());
    publish(&later, &["a", "b", "c"]);
    let mut resumed = subscriber(&later, &from(Start::After(at(2, 0))));
    assert_eq!(read_events(&mut resumed), ["2-1 a", "2-2 b", "2-3 c"]);
}

#[test]
fn owner_supplies_records_that_precede_the_start_of_a_mirror() {
    let owned = small_topic();
    let mirror = mirror_of(&Owner::of(&owned), config(64 << 10));
    publish(&owned, &["1", "2", "3"]);
    let _keeps_it_fed = subscriber(&mirror, &from(Start::Latest));
    let all = ["1-1 1", "1-2 2", "1-3 3"];
    assert_eq!(read_events(&mut subscriber(&mirror, &earliest())), all);
    let after_first = from(Start::After(Position { epoch: 1, seq: 1 }));
    assert_eq!(read_events(&mut subscriber(&mirror, &after_first)), all[1..]);
    assert!(mirror.logs()[0].read(1, |_| ()).is_none(), "the mirror does not have it");
}

#[test]
fn mirror_delivers_older_records_of_the_owner_or_reports_a_gap() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    publish(&owned, &["1", "2", "3"]);
    let after_first = from(Start::After(Position { epoch: 1, seq: 1 }));
    let mirror = mirror_of(&owner, config(64 << 10));
    assert_eq!(
        read_events(&mut subscriber(&mirror, &after_first)),
        ["1-2 2", "1-3 3"],
        "it is the first to read"
    );
    assert_eq!(read_events(&mut subscriber(&mirror, &after_first)), ["1-2 2", "1-3 3"], "and the second");
    owner.is_full.store(true, Ordering::Relaxed);
    let mirror = mirror_of(&owner, config(64 << 10));
    for _ in 0..2 {
        assert_eq!(read_events(&mut subscriber(&mirror, &after_first)), ["gap 1: 2-3"]);
    }
}

#[test]
fn mirror_without_subscribers_is_emptied_and_refilled_later() {
    let owned = small_topic();
    let mirror = mirror_of(&Owner::of(&owned), config(64 << 10));
    let mut reader = subscriber(&mirror, &from(Start::Latest));
    let log = &mirror.logs()[0];
    publish(&owned, &["1", "2"]);
    feed(&mut subscriber(&owned, &earliest()), log);
    assert_eq!(read_events(&mut reader).len(), 2);
    drop(reader);
    assert!(!log.has_subscribers());
    log.clear_mirror();
    assert_eq!((log.info().bytes, log.is_positioned()), (0, false));
    publish(&owned, &["3"]);
    let mut reader = subscriber(&mirror, &from(Start::Latest));
    let mut owner_reader = subscriber(&owned, &from(Start::After(Position { epoch: 1, seq: 3 })));
    publish(&owned, &["4"]);
    feed(&mut owner_reader, log);
    assert_eq!(read_events(&mut reader), ["1-4 4"]);
}

#[test]
fn restarted_mirror_gives_all_records_or_a_gap() {
    let owned = small_topic();
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    let log = &mirror.logs()[0];
    publish(&owned, &["0"]);
    let readers = || [(); 2].map(|()| subscriber(&mirror, &from(Start::Latest)));
    let restart_mirror = |readers: &mut [Subscriber], lost: &str, next: &str| {
        let mut owner_reader = subscriber(&owned, &from(Start::After(log.fed_through().unwrap())));
        publish(&owned, &["read"]);
        feed(&mut owner_reader, log);
        readers.iter_mut().for_each(|reader| assert_eq!(read_events(reader).len(), 1));
        log.clear_mirror();
        publish(&owned, &[lost]);
        log.feed_from(owned.logs()[0].last());
        let mut owner_reader = subscriber(&owned, &from(Start::After(owned.logs()[0].last())));
        publish(&owned, &[next]);
        feed(&mut owner_reader, log);
    };
    let mut two = readers();
    restart_mirror(&mut two, "lost", "next");
    let events_without_warnings = |reader: &mut Subscriber| {
        let mut events = read_events(reader);
        events.retain(|event| !event.starts_with("Lagging"));
        events
    };
    for reader in &mut two {
        assert_eq!(events_without_warnings(reader), ["1-3 lost", "1-4 next"], "the owner still has it");
    }
    drop(two);
    owner.is_full.store(true, Ordering::Relaxed);
    let mut two = readers();
    restart_mirror(&mut two, "lost", "next");
    for reader in &mut two {
        assert_eq!(events_without_warnings(reader), ["gap 1: 6-6", "1-7 next"]);
    }
}

/// Returns a mirror whose feed begins in the middle of epoch 8, with its owner and a subscriber. The sequence numbers
/// have restarted at 1 since epoch 1.
fn mirror_fed_mid_epoch() -> (Arc<Owner>, Arc<Topic>, Subscriber) {
    let owned = Arc::new(Topic::new("t", Arc::new(config(64 << 10)), &budget(), MANUAL, 8).unwrap());
    let owner = Owner::of(&owned);
    let mirror = mirror_of(&owner, config(64 << 10));
    publish(&owned, &["a", "b", "c"]);
    let newest = subscriber(&mirror, &from(Start::Latest));
    (owner, mirror, newest)
}

#[test]
fn subscriber_resumed_in_an_old_epoch_gets_all_records_or_a_gap() {
    let (owner, mirror, mut newest) = mirror_fed_mid_epoch();
    let ninth_of_the_first = from(Start::After(Position { epoch: 1, seq: 9 }));
    let all = ["1 after 9 of None becomes 8-1", "8-1 a", "8-2 b", "8-3 c"];
    assert_eq!(read_events(&mut subscriber(&mirror, &ninth_of_the_first)), all);
    owner.is_full.store(true, Ordering::Relaxed);
    let lost = [all[0], "gap 8: 1-3"];
    assert_eq!(
        read_events(&mut subscriber(&mirror, &ninth_of_the_first)),
        lost,
        "no private mirror is available"
    );
    assert!(read_events(&mut newest).is_empty(), "it requested none of these records");
}

#[test]
fn mirror_refilled_from_a_requested_position_has_no_gap() {
    let owned = small_topic();
    let mirror = mirror_of(&Owner::of(&owned), config(64 << 10));
    let log = &mirror.logs()[0];
    let reader = subscriber(&mirror, &from(Start::Latest));
    publish(&owned, &["1", "2", "3"]);
    feed(&mut subscriber(&owned, &earliest()), log);
    drop(reader);
    log.clear_mirror();
    let after_first = Position { epoch: 1, seq: 1 };
    log.feed_from(after_first);
    feed(&mut subscriber(&owned, &from(Start::After(after_first))), log);
    assert_eq!(read_events(&mut subscriber(&mirror, &from(Start::After(after_first)))), ["1-2 2", "1-3 3"]);
}

#[test]
fn mirror_refuses_local_reads_that_start_before_its_records() {
    let (owner, mirror, _newest) = mirror_fed_mid_epoch();
    let subscribe_locally = |mirror: &Arc<Topic>, start| {
        let cursor = Cursor::new(
            Arc::clone(&mirror.logs()[0]),
            &SubscribeOptions { local_only: true, ..from(start) },
            None,
            ConsumeMode::Reads,
        );
        cursor.map(drop)
    };
    let is_refused = |outcome| matches!(outcome, Err(SubscribeError::OwnerAway(_)));
    let unpositioned = mirror_of(&owner, config(64 << 10));
    let after = |epoch, seq| Start::After(Position { epoch, seq });
    for start in [Start::Latest, Start::Earliest, after(1, 0), after(8, 3)] {
        assert!(is_refused(subscribe_locally(&unpositioned, start)), "{start:?}");
    }
    for start in [Start::Earliest, Start::Time(1), after(1, 9), after(8, 2)] {
        assert!(is_refused(subscribe_locally(&mirror, start)), "{start:?}");
    }
    for start in [Start::Latest, after(8, 3), after(8, 7)] {
        assert_eq!(subscribe_locally(&mirror, start), Ok(()), "{start:?}");
    }
    mirror.logs()[0].take_over(9, false);
    mirror.logs()[0].hand_over(false, Some(10));
    assert_eq!(subscribe_locally(&mirror, after(1, 9)), Ok(()), "it was the owner and has all records");
}

#[test]
fn mirror_gives_no_lag_warning_while_the_owner_retains_records() {
    let owned = Arc::new(Topic::new("t", Arc::new(config(1 << 20)), &budget(), MANUAL, 1).unwrap());
    let durable = DurableOptions { memory_bytes: 64 << 10, ..DurableOptions::default() };
    let mirror = mirror_of(&Owner::of(&owned), TopicConfig { durable: Some(durable), ..config(1 << 20) });
    let mut reader = subscriber(&mirror, &from(Start::Latest));
    let payload = "x".repeat(100);
    publish(&owned, &[payload.as_str(); 2_000]);
    let log = &mirror.logs()[0];
    feed(&mut subscriber(&owned, &earliest()), log);
    assert!(log.info().oldest_seq > 1_000, "the mirror has dropped more than half of the records");
    let events = read_events(&mut reader);
    assert!(events.iter().all(|event| event.starts_with("1-")), "{:?}", events.first());
    assert_eq!(events.len(), 2_000);
}

#[test]
fn private_mirror_passes_on_the_lag_warning_of_the_owner() {
    let owned = small_topic();
    let mirror = mirror_of(&Owner::of(&owned), config(64 << 10));
    let private = Log::private_mirror(&mirror.logs()[0], 1 << 20);
    private.feed_from(Position { epoch: 1, seq: 1_000 });
    let mut cursor = Cursor::new(Arc::clone(&private), &earliest(), None, ConsumeMode::Reads).unwrap();
    private.feed_lagging(900, 1_000);
    match cursor.fill() {
        ReadOutcome::Notice(Notice::Lagging(lagging)) => {
            assert_eq!((lagging.behind, lagging.retained), (900, 1_000));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(cursor.fill(), ReadOutcome::Empty), "one warning");
    publish(&owned, &["x"]);
    let mut bytes = Vec::new();
    match subscriber(&owned, &earliest()).try_next().unwrap() {
        Some(Event::Record(record)) => {
            record.frame.append_to(&mut bytes);
        }
        other => panic!("{other:?}"),
    }
    let batch = CheckedBatch::check(&bytes, 1, 1 << 20).unwrap();
    private.feed(Position { epoch: 1, seq: 1_001 }, 1_000, batch).unwrap();
    assert!(matches!(cursor.fill(), ReadOutcome::Records), "the warning is not repeated");
}

#[test]
fn subscriber_of_a_private_mirror_is_listed_with_its_lag() {
    let owned = small_topic();
    publish(&owned, &["1", "2", "3"]);
    let mirror = mirror_of(&Owner::of(&owned), config(64 << 10));
    let listed = || -> Vec<(String, u64)> {
        mirror.subscribers().into_iter().map(|one| (one.name, one.lag)).collect()
    };
    let mut reader = subscriber(&mirror, &SubscribeOptions { name: "old".to_owned(), ..earliest() });
    assert_eq!(listed(), [("old".to_owned(), 3)]);
    assert_eq!(read_events(&mut reader), ["1-1 1", "1-2 2", "1-3 3"]);
    assert_eq!(listed(), [("old".to_owned(), 0)]);
    drop(reader);
    assert!(listed().is_empty());
}

#[test]
fn shared_mirror_keeps_no_history_for_a_private_mirror() {
    let limits = LogLimits { pending_bytes_max: 1 << 20, ..LogLimits::default() };
    let owned = Arc::new(Topic::new("t", Arc::new(config(1 << 20)), &budget(), MANUAL, 1).unwrap());
    let mirror = mirror_of(&Owner::of(&owned), TopicConfig { limits, ..config(64 << 10) });
    let log = &mirror.logs()[0];
    let _shares = subscriber(&mirror, &from(Start::Latest));
    let private = Log::private_mirror(log, 1 << 20);
    let options = SubscribeOptions { keeps_history: true, ..earliest() };
    let _progress = private.list_subscriber(&options, false, Position { epoch: 1, seq: 0 });
    let payload = "x".repeat(100);
    publish(&owned, &[payload.as_str(); 2_000]);
    feed(&mut subscriber(&owned, &earliest()), log);
    assert_eq!((log.last().seq, log.pressure()), (2_000, 0));
    assert!(log.info().bytes <= 64 << 10, "{} bytes", log.info().bytes);
}
