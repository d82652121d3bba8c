//! Code that several tests share: clocks, topics, subscribers, and a checker of the events that a subscriber receives.

use std::cell::Cell;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use dunlin_topic::*;
pub use dunlin_wait::{Deadline, PATIENCE, until};

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(1_000_000_000_000) };
    static STEADY_NS: Cell<u64> = const { Cell::new(0) };
}

/// A clock that changes only when a test calls [`advance_clock`] or [`set_clock_back`]. Each test thread has its own
/// time.
pub const MANUAL: Clock = Clock::new(|| NOW_NS.get());

/// A clock that changes only when a test calls [`advance_clock`], and that cannot be set back.
pub const STEADY: Clock = Clock::new(|| STEADY_NS.get());

/// A clock that runs by itself, for tests with several threads.
pub const RUNNING: Clock = Clock::new(|| {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    1_000_000_000 + START.elapsed().as_nanos() as u64
});

/// Advances both clocks of this thread, [`MANUAL`] and [`STEADY`].
pub fn advance_clock(time: Duration) {
    NOW_NS.set(NOW_NS.get() + time.as_nanos() as u64);
    STEADY_NS.set(STEADY_NS.get() + time.as_nanos() as u64);
}

/// Sets this thread's [`MANUAL`] clock back by this time.
pub fn set_clock_back(time: Duration) {
    NOW_NS.set(NOW_NS.get() - time.as_nanos() as u64);
}

/// A memory budget that is large enough for every test.
pub fn budget() -> Arc<MemoryBudget> {
    MemoryBudget::node(1 << 30, 1 << 20)
}

pub fn config(retention_bytes: u64) -> TopicConfig {
    TopicConfig {
        retention: Retention { bytes: retention_bytes, ..Retention::default() },
        ..TopicConfig::default()
    }
}

pub fn topic_of(config: TopicConfig, budget: &Arc<MemoryBudget>, clock: Clock) -> Arc<Topic> {
    Arc::new(Topic::new("t", Arc::new(config), budget, clock, 1).unwrap())
}

/// A topic that retains 64 KiB, with the clock [`MANUAL`].
pub fn small_topic() -> Arc<Topic> {
    topic_of(config(64 << 10), &budget(), MANUAL)
}

/// A topic that retains all records that a test publishes.
pub fn large_topic(clock: Clock) -> Arc<Topic> {
    topic_of(config(64 << 20), &budget(), clock)
}

pub fn from(start: Start) -> SubscribeOptions {
    SubscribeOptions { start, wait: WaitStrategy::Parked, ..SubscribeOptions::default() }
}

pub fn earliest() -> SubscribeOptions {
    from(Start::Earliest)
}

pub fn cursor(topic: &Topic, options: &SubscribeOptions) -> Cursor {
    Cursor::new(Arc::clone(&topic.logs()[0]), options, None, ConsumeMode::Reads).unwrap()
}

pub fn subscriber(topic: &Topic, options: &SubscribeOptions) -> Subscriber {
    Subscriber::one(cursor(topic, options), options.wait)
}

/// Publishes records, and counts them. The payload of each record begins with the record's sequence number, in 8 bytes.
pub struct NumberedPublisher {
    pub publisher: Publisher,
    pub published: u64,
}

impl NumberedPublisher {
    pub fn of(topic: &Arc<Topic>) -> NumberedPublisher {
        NumberedPublisher { publisher: topic.publisher("t"), published: 0 }
    }

    /// Publishes `count` more records, each with a payload of `payload_bytes` bytes, or 8 if that is more.
    pub fn publish(&mut self, count: u64, payload_bytes: usize) {
        let mut payload = vec![0; payload_bytes.max(8)];
        for _ in 0..count {
            payload[..8].copy_from_slice(&(self.published + 1).to_le_bytes());
            let receipt = self.publisher.publish(payload.as_slice()).unwrap();
            self.published += 1;
            assert_eq!(receipt.position.seq, self.published);
        }
    }
}

/// The number in the first 8 bytes of a payload.
pub fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload[..8].try_into().unwrap())
}

/// Checks that every sequence number is either delivered or reported as missing, exactly once and in order.
#[derive(Debug)]
pub struct DeliveryChecker {
    /// The sequence number that must be delivered or reported next.
    pub next: u64,
    pub records: u64,
    pub missing: u64,
    pub gaps: Vec<Gap>,
    pub lagging: Vec<Lagging>,
    pub epochs: Vec<EpochChanged>,
    pub deleted: Option<Position>,
}

impl DeliveryChecker {
    pub fn from_seq(next: u64) -> DeliveryChecker {
        DeliveryChecker {
            next,
            records: 0,
            missing: 0,
            gaps: Vec::new(),
            lagging: Vec::new(),
            epochs: Vec::new(),
            deleted: None,
        }
    }

    /// Checks one event. Payloads must begin with the record's sequence number.
    pub fn check(&mut self, event: Event<'_>) {
        assert!(self.deleted.is_none(), "after the end: {event:?}");
        match event {
            Event::Record(record) => {
                assert_eq!(record.seq(), self.next, "records are contiguous");
                assert_eq!(number(record.payload()), self.next, "a record has its own content");
                self.next += 1;
                self.records += 1;
            }
            Event::Notice(Notice::Gap(gap)) => {
                assert_eq!(gap.first, self.next, "a gap begins at the next expected record");
                assert!(gap.last >= gap.first);
                self.next = gap.last + 1;
                self.missing += gap.records();
                self.gaps.push(gap);
            }
            Event::Notice(Notice::EpochChanged(changed)) => {
                self.next = changed.new_first.seq;
                self.epochs.push(changed);
            }
            Event::Notice(Notice::Lagging(lagging)) => self.lagging.push(lagging),
            Event::Notice(Notice::Deleted { last, .. }) => self.deleted = Some(last),
            Event::Notice(other) => panic!("unexpected {other:?}"),
        }
    }

    /// Reads and checks all available events. Returns their number.
    pub fn drain(&mut self, subscriber: &mut Subscriber) -> usize {
        subscriber.drain(usize::MAX, |event| self.check(event)).unwrap()
    }

    /// Reads and checks events until all records up to `seq` were delivered or reported as missing.
    pub fn follow(&mut self, subscriber: &mut Subscriber, seq: u64) {
        while self.next <= seq {
            assert!(subscriber.wait(Some(PATIENCE)).unwrap(), "no news of {seq} in {PATIENCE:?}: {self:?}");
            self.drain(subscriber);
        }
    }
}
