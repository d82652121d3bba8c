//! Tests of replicas with different options, while records of order books are published. At the end, every replica must
//! equal the oracle: a state to which the test has applied the same records.

use std::num::NonZeroU32;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use dunlin_feed::{Book, BookEntry, OrderEntry, Orders, Replica, ReplicaCounts, Scale, Side, make_reducer};
use dunlin_topic::*;
use dunlin_wait::Deadline;

use crate::record::RecordFrame;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
const CLOCK: Clock = Clock::new(|| 1_000_000_000 + START.elapsed().as_nanos() as u64);

const BURSTS: usize = 200;
const BURST: usize = 100;

fn topic(kind: &str) -> Arc<Topic> {
    let config = TopicConfig {
        retention: Retention { bytes: 64 << 10, ..Retention::default() },
        reducer: Some(ReducerConfig { kind: kind.to_owned(), ..ReducerConfig::default() }),
        ..TopicConfig::default()
    };
    let make = |config: &ReducerConfig| {
        make_reducer(&config.kind, &config.options).map_err(|error| ReducerError(error.to_string()))
    };
    let budget = MemoryBudget::node(1 << 30, 1 << 20);
    Arc::new(Topic::stateful("md.TEST", Arc::new(config), &budget, CLOCK, 1, make).unwrap())
}

/// Returns the name and the options of each replica, and how many bursts of records are published before each step in
/// which the replica reads. A replica for which this number is 1 also reads between these steps.
fn readers() -> [(&'static str, SubscribeOptions, usize); 6] {
    let from_snapshot = || SubscribeOptions {
        start: Start::Snapshot,
        on_gap: OnGap::Snapshot,
        ..SubscribeOptions::default()
    };
    let conflated = || SubscribeOptions { conflate: true, ..from_snapshot() };
    let test_loss_every = NonZeroU32::new(50);
    [
        ("plain", from_snapshot(), 1),
        ("lapped", from_snapshot(), 25),
        ("conflated", conflated(), 1),
        ("conflated and slow", conflated(), 2),
        ("losing", SubscribeOptions { test_loss_every, ..from_snapshot() }, 1),
        ("from the first record", SubscribeOptions { start: Start::Earliest, ..from_snapshot() }, 1),
    ]
}

struct ReplicaReader<F> {
    name: &'static str,
    replica: Replica<F, Subscriber>,
}

impl<F: Reducer> ReplicaReader<F> {
    fn step(&mut self) {
        self.replica.wait(Some(Duration::from_millis(10))).unwrap();
        self.replica.drain(CLOCK.now_ns(), 64, |_| ()).unwrap();
    }

    /// Reads once for each message that arrives in `turns`, until the channel is closed. With `eager`, also reads while
    /// no message is there.
    fn read_turns(mut self, turns: &Receiver<()>, eager: bool) -> Self {
        loop {
            let turn =
                if eager { turns.try_recv() } else { turns.recv().map_err(|_| TryRecvError::Disconnected) };
            match turn {
                Err(TryRecvError::Disconnected) => return self,
                Ok(()) | Err(TryRecvError::Empty) => self.step(),
            }
        }
    }

    fn read_to(mut self, log: &Arc<LogName>, oracle: &mut F, last: u64) -> (&'static str, ReplicaCounts) {
        let deadline = Deadline::new();
        while self.replica.state(log).is_none_or(|(at, _)| at.seq < last) {
            deadline.check(format_args!("{} comes to {last}: {:?}", self.name, self.replica.counts()));
            self.step();
        }
        let (_, state) = self.replica.state(log).unwrap();
        assert_eq!(
            (state.checksum(), state.entries()),
            (oracle.checksum(), oracle.entries()),
            "{}",
            self.name
        );
        let mut missing = Vec::new();
        assert!(state.changes_since(last, &mut missing) && missing.is_empty(), "{}", self.name);
        (self.name, self.replica.counts())
    }
}

/// Publishes the payloads while one replica for each entry of [`readers`] reads. Returns the name and the counters of
/// each replica.
fn run_readers<F: Reducer>(
    kind: &str,
    make: fn() -> F,
    payloads: &[Vec<u8>],
) -> Vec<(&'static str, ReplicaCounts)> {
    let topic = topic(kind);
    let log = topic.logs()[0].name().clone();
    let mut oracle = make();
    thread::scope(|scope| {
        let read = |(name, options, every): (_, SubscribeOptions, _)| {
            let cursor =
                Cursor::new(Arc::clone(&topic.logs()[0]), &options, None, ConsumeMode::Reads).unwrap();
            let subscriber = Subscriber::one(cursor, options.wait);
            let reader = ReplicaReader { name, replica: Replica::new(subscriber, move |_| make()) };
            let (turn, turns) = mpsc::sync_channel(0);
            (turn, every, scope.spawn(move || reader.read_turns(&turns, every == 1)))
        };
        let readers = readers().map(read);
        let mut publisher = topic.publisher(topic.name());
        for (payload, seq) in payloads.iter().zip(1..) {
            publisher.publish(payload.as_slice()).unwrap();
            oracle.apply(seq, &RecordFrame::new(payload).frame()).unwrap();
            let due = |every| seq % (BURST * every) as u64 == 0;
            for (turn, ..) in readers.iter().filter(|(_, every, _)| due(*every)) {
                turn.send(()).expect("a reader ended");
            }
        }
        let threads = readers.map(|(_, _, thread)| thread);
        let replica_readers = threads.map(|thread| thread.join().unwrap());
        let last = payloads.len() as u64;
        replica_readers.map(|reader| reader.read_to(&log, &mut oracle, last)).into()
    })
}

fn check_counts(counts_by_reader: &[(&'static str, ReplicaCounts)]) {
    for (name, counts) in counts_by_reader {
        assert_eq!((counts.divergent, counts.refused), (0, 0), "{name}: {counts:?}");
        match *name {
            "conflated and slow" => assert!(counts.conflated > 0 && counts.gaps == 0, "{counts:?}"),
            "losing" => assert!(counts.holes > 0, "{counts:?}"),
            _ => {}
        }
    }
}

/// A generator of pseudorandom numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn side(&mut self) -> Side {
        Side::BOTH[self.below(2) as usize]
    }
}

#[test]
fn replicas_of_a_price_level_book_converge_in_every_read_mode() {
    let mut random = Random(1);
    let payload = |_| {
        let mut payload = Vec::new();
        for _ in 0..=random.below(3) {
            let (side, price, size) = (random.side(), random.below(300) as i64, 1 + random.below(9) as i64);
            let entry = match random.below(10) {
                0..3 => BookEntry::Remove { side, price },
                _ => BookEntry::Set { side, price, size },
            };
            entry.encode(&mut payload);
        }
        payload
    };
    let payloads: Vec<_> = (0..BURSTS * BURST).map(payload).collect();
    check_counts(&run_readers("book", || Book::new(Scale::default()), &payloads));
}

#[test]
fn replicas_of_an_order_book_converge_in_every_read_mode() {
    let (mut random, mut open_ids) = (Random(2), Vec::new());
    let payload = |id: usize| {
        let mut payload = Vec::new();
        let (price, size) = (random.below(40) as i64, 1 + random.below(9) as i64);
        let entry = match random.below(10) {
            0..4 if !open_ids.is_empty() => {
                OrderEntry::Delete { id: open_ids.swap_remove(random.below(open_ids.len() as u64) as usize) }
            }
            4..6 if !open_ids.is_empty() => {
                OrderEntry::Change { id: open_ids[random.below(open_ids.len() as u64) as usize], price, size }
            }
            _ => {
                open_ids.push(id as u64);
                OrderEntry::Add { side: random.side(), id: id as u64, price, size }
            }
        };
        entry.encode(&mut payload);
        payload
    };
    let payloads: Vec<_> = (0..BURSTS * BURST).map(payload).collect();
    check_counts(&run_readers("orders", || Orders::new(Scale::default()), &payloads));
}

/// The owner must refuse records that do not fit the book, so that subscribers never receive them.
#[test]
fn refused_records_reach_neither_the_log_nor_its_readers() {
    let topic = topic("orders");
    let mut publisher = topic.publisher(topic.name());
    let entry = |entry: OrderEntry| {
        let mut payload = Vec::new();
        entry.encode(&mut payload);
        payload
    };
    let add = entry(OrderEntry::Add { side: Side::Bid, id: 1, price: 5, size: 5 });
    publisher.publish(add.as_slice()).unwrap();
    let refused = publisher.publish(add.as_slice()).unwrap_err();
    assert!(refused.to_string().contains("order 1 already exists"), "{refused}");
    let garbage = publisher.publish([9_u8; 33].as_slice()).unwrap_err();
    assert!(garbage.to_string().contains("must be zero"), "{garbage}");
    publisher.publish(entry(OrderEntry::Delete { id: 1 }).as_slice()).unwrap();

    let options = SubscribeOptions { start: Start::Earliest, ..SubscribeOptions::default() };
    let cursor = Cursor::new(Arc::clone(&topic.logs()[0]), &options, None, ConsumeMode::Reads).unwrap();
    let log = topic.logs()[0].name().clone();
    let mut replica = Replica::new(Subscriber::one(cursor, options.wait), |_| Orders::new(Scale::default()));
    replica.drain(CLOCK.now_ns(), 64, |_| ()).unwrap();
    let (at, state) = replica.state(&log).unwrap();
    assert_eq!((at.seq, state.entries(), state.checksum()), (2, 0, 0));
}
