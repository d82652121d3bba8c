//! Runs any sequence of operations on a topic and on a plain list, and compares the results.
//!
//! The list keeps every record. A subscriber must receive the records of the list in order. A record that is reported
//! as lost must have left the topic's history. A retry by a producer must receive the expected response. Every record
//! of a group must be settled exactly once. The random tests in `model.rs` and the fuzz target `topic` use this module.

mod group;
mod producers;
mod readers;
mod share;
mod work;

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use dunlin_topic::*;

use crate::fixture::*;
use producers::Producers;
use readers::{ExpectedLog, Reader};
use share::Sharers;
use work::{ClaimAction, Workers};

const RETENTION_BYTES: u64 = 16 << 10;
const BY_REF_BYTES_MIN: usize = 2_000;
const READERS_MAX: usize = 6;
/// The limits are small, so that random operations reach all of them.
const LIMITS: LogLimits = LogLimits {
    producers_max: 2,
    producer_outcomes_max: 3,
    pending_bytes_max: 0,
    group_members_max: 3,
    group_lost_ranges_max: 16,
    share_in_flight_max: 20,
    work_claims_max: 5,
    work_member_claims_max: 3,
    work_look_ahead_max: 12,
    work_keys_blocked_max: 2,
};

/// An operation on the topic, and on the list with which the topic is compared.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Publish {
        bytes: usize,
        by_ref: bool,
        expires_ms: Option<u64>,
        key: Option<u8>,
    },
    Batch {
        count: usize,
        bytes: usize,
    },
    Expect {
        right: bool,
    },
    Subscribe {
        start: u8,
        on_gap: OnGap,
    },
    Take {
        reader: usize,
    },
    Drain {
        reader: usize,
        max: usize,
    },
    Sleep {
        reader: usize,
    },
    Leave {
        reader: usize,
    },
    AdvanceTime {
        ms: u64,
    },
    Expire,
    Close,
    /// Publishes `count` records of a producer. `from_next` is by how much the number of the first record differs from
    /// the number that the producer should use next; `epoch_step` is by how much the producer's epoch changes.
    Produce {
        producer: u64,
        epoch_step: i32,
        from_next: i64,
        count: u64,
    },
    JoinShare,
    LeaveShare {
        member: usize,
    },
    Share {
        member: usize,
        max: usize,
    },
    Confirm {
        member: usize,
        back: u64,
    },
    JoinWork,
    LeaveWork {
        member: usize,
        departure: MemberDeparture,
    },
    Claim {
        member: usize,
        max: usize,
    },
    /// Ends or renews a claim that was made before. `claim` is 0 for the newest claim, 1 for the one before, and so on.
    Settle {
        claim: usize,
        how: ClaimAction,
    },
    TakeDeadLetters,
}

/// Decodes any four bytes to an operation, so that a fuzzer can choose operations.
impl From<[u8; 4]> for Operation {
    fn from([kind, a, b, c]: [u8; 4]) -> Operation {
        let reader = usize::from(a) % READERS_MAX;
        let bytes = 8 + usize::from(b) * if c.is_multiple_of(16) { 64 } else { 4 };
        if kind >= 160 {
            return Operation::of_members(kind - 160, [a, b, c]);
        }
        match kind % 64 {
            0..20 => Operation::Publish {
                bytes,
                by_ref: a.is_multiple_of(3),
                expires_ms: a.is_multiple_of(5).then(|| u64::from(c) * 10),
                key: (kind >= 64).then_some(c % 4),
            },
            20..28 => Operation::Batch { count: usize::from(a) % 40, bytes },
            28..30 => Operation::Expect { right: a.is_multiple_of(2) },
            30..36 => Operation::Subscribe {
                start: b,
                on_gap: [OnGap::Oldest, OnGap::Oldest, OnGap::Newest, OnGap::Fail][usize::from(c) % 4],
            },
            36..42 => Operation::Take { reader },
            42..50 => Operation::Drain { reader, max: if b > 200 { usize::MAX } else { b.into() } },
            50..57 => Operation::Sleep { reader },
            57..59 => Operation::Leave { reader },
            59..61 => Operation::AdvanceTime { ms: u64::from(b) * 5 },
            61..63 => Operation::Expire,
            _ if (a, b % 8) == (7, 0) => Operation::Close,
            _ => Operation::Drain { reader, max: usize::MAX },
        }
    }
}

impl Operation {
    /// Decodes the operations of producers and of group members.
    fn of_members(kind: u8, [a, b, c]: [u8; 3]) -> Operation {
        let member = usize::from(a) % LIMITS.group_members_max as usize;
        let max = 1 + usize::from(b) % 8;
        let settle = |how| Operation::Settle { claim: usize::from(a) % 16, how };
        match kind {
            0..22 => Operation::Produce {
                producer: u64::from(a) % 3 + 1,
                epoch_step: [0, 0, 0, 0, 0, 0, 1, -1][usize::from(b) % 8],
                from_next: if c.is_multiple_of(2) { 0 } else { i64::from(c % 16) - 13 },
                count: 1 + u64::from(b / 8) % 5,
            },
            22..25 => Operation::JoinShare,
            25..27 => Operation::LeaveShare { member },
            27..37 => Operation::Share { member, max },
            37..43 => Operation::Confirm { member, back: u64::from(b) % 8 },
            43..46 => Operation::JoinWork,
            46 => Operation::LeaveWork { member, departure: MemberDeparture::Left },
            47 => Operation::LeaveWork { member, departure: MemberDeparture::Died },
            48..66 => Operation::Claim { member, max },
            66..78 => settle(ClaimAction::Ack),
            78..84 => settle(ClaimAction::Nack { delay_ms: if b < 128 { 0 } else { u64::from(b) * 4 } }),
            84..90 => settle(ClaimAction::Renew),
            _ => Operation::TakeDeadLetters,
        }
    }
}

/// Runs `operations`, and checks after each of them everything that a topic promises.
pub fn play(operations: impl IntoIterator<Item = Operation>) {
    let mut play = Play::new();
    for operation in operations {
        play.step(operation);
    }
    play.end();
}

/// A record in the plain list.
#[derive(Debug)]
struct Written {
    bytes: usize,
    appended_ns: u64,
    expires_ns: u64,
    key: Option<u8>,
}

struct Play {
    topic: Arc<Topic>,
    budget: Arc<MemoryBudget>,
    publisher: Publisher,
    list: Vec<Written>,
    readers: [Option<Reader>; READERS_MAX],
    woken: Arc<Mutex<Vec<usize>>>,
    producers: Producers,
    sharers: Sharers,
    workers: Workers,
    oldest: u64,
    closed: bool,
}

struct Task {
    reader: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap().push(self.reader);
    }
}

/// The payload of record `seq`, with `bytes` bytes.
fn content(seq: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![seq as u8; bytes];
    content[..8].copy_from_slice(&seq.to_le_bytes());
    content
}

impl Play {
    fn new() -> Play {
        let budget = budget();
        let mut config = config(RETENTION_BYTES);
        config.retention.age = Some(Duration::from_secs(2));
        config.by_ref_bytes_min = BY_REF_BYTES_MIN as u32;
        config.limits = LIMITS;
        let topic = topic_of(config, &budget, MANUAL);
        let publisher = topic.publisher("t");
        Play {
            budget,
            publisher,
            list: Vec::new(),
            readers: Default::default(),
            woken: Arc::default(),
            producers: Producers::default(),
            sharers: Sharers::of(&topic),
            workers: Workers::of(&topic),
            topic,
            oldest: 1,
            closed: false,
        }
    }

    fn step(&mut self, operation: Operation) {
        match operation {
            Operation::Publish { bytes, by_ref, expires_ms, key } => {
                self.publish(bytes, by_ref, expires_ms, key)
            }
            Operation::Batch { count, bytes } => self.publish_batch(count, bytes),
            Operation::Expect { right } => self.publish_expecting(right),
            Operation::Subscribe { start, on_gap } => self.subscribe(start, on_gap),
            Operation::Take { reader } => self.with_reader(reader, Reader::take),
            Operation::Drain { reader, max } => {
                self.with_reader(reader, |reader, expected| reader.drain(max, expected))
            }
            Operation::Sleep { reader } => self.sleep(reader),
            Operation::Leave { reader } => self.readers[reader] = None,
            Operation::Produce { producer, epoch_step, from_next, count } => {
                self.produce(producer, epoch_step, from_next, count);
            }
            Operation::JoinShare => self.sharers.join(),
            Operation::LeaveShare { member } => self.sharers.leave(member),
            Operation::Share { member, max } => {
                self.sharers.take(member, max, &ExpectedLog::of(&self.topic, &self.list, self.closed));
            }
            Operation::Confirm { member, back } => self.sharers.confirm(member, back),
            Operation::JoinWork => self.workers.join(),
            Operation::LeaveWork { member, departure } => self.workers.leave(member, departure),
            Operation::Claim { member, max } => {
                self.workers.claim(member, max, &ExpectedLog::of(&self.topic, &self.list, self.closed));
            }
            Operation::Settle { claim, how } => self.workers.settle(claim, how),
            Operation::TakeDeadLetters => self.workers.take_dead_letters(),
            Operation::AdvanceTime { ms } => advance_clock(Duration::from_millis(ms)),
            Operation::Expire => self.topic.expire(MANUAL.now_ns()),
            Operation::Close => {
                self.topic.close();
                self.closed = true;
            }
        }
        self.run_woken();
        self.check_log();
        self.sharers.check();
        self.workers.check(self.oldest);
    }

    /// Compares the log's public information with the list.
    fn check_log(&mut self) {
        let info = self.topic.logs()[0].info();
        assert_eq!(info.next_seq, self.list.len() as u64 + 1);
        assert!(info.bytes <= self.budget.used(), "retained bytes are charged");
        let asleep = self.readers.iter().flatten().filter(|reader| reader.asleep).count();
        assert_eq!(info.waiting, asleep, "exactly the sleeping readers wait");
        let oldest = std::mem::replace(&mut self.oldest, info.oldest_seq);
        if let Some(lost) = self.list[oldest as usize - 1..info.oldest_seq as usize - 1].last() {
            let aged = lost.appended_ns + 2_000_000_000 < MANUAL.now_ns();
            let since: usize =
                self.list[oldest as usize - 1..].iter().map(|written| written.bytes + 16).sum();
            assert!(aged || since as u64 >= RETENTION_BYTES / 8, "{oldest} was dropped early: {since} bytes");
        }
    }

    fn publish(&mut self, bytes: usize, by_ref: bool, expires_ms: Option<u64>, key: Option<u8>) {
        let content = content(self.list.len() as u64 + 1, bytes);
        let mut draft =
            if by_ref { Draft::from(Bytes::from(content.clone())) } else { Draft::from(content.as_slice()) };
        let expires_ns = expires_ms.map(|ms| MANUAL.now_ns() + ms * 1_000_000);
        draft.meta.expires_ns = expires_ns;
        let key_bytes = key.map(|key| [key]);
        draft.meta.key = key_bytes.as_ref().map(|key| key.as_slice());
        let outcome = self.publisher.publish(draft);
        self.record_appended(outcome, &[bytes], expires_ns.unwrap_or(u64::MAX), key);
    }

    fn publish_batch(&mut self, count: usize, bytes: usize) {
        let first = self.list.len() as u64 + 1;
        let contents: Vec<Vec<u8>> = (0..count as u64).map(|n| content(first + n, bytes)).collect();
        let drafts: Vec<Draft<'_>> = contents.iter().map(|content| Draft::from(content.as_slice())).collect();
        let outcome = self.publisher.publish_batch(&drafts);
        if count == 0 {
            assert!(matches!(outcome, Err(PublishError::Batch(_))));
        } else {
            self.record_appended(outcome, &vec![bytes; count], u64::MAX, None);
        }
    }

    fn publish_expecting(&mut self, right: bool) {
        let last = self.list.len() as u64;
        let content = content(last + 1, 8);
        let outcome = self.publisher.publish_expecting(last + u64::from(!right), content.as_slice());
        if right || self.closed {
            self.record_appended(outcome, &[8], u64::MAX, None);
        } else {
            assert_eq!(outcome, Err(PublishError::SeqMoved { expected: last + 1, last_seq: last }));
        }
    }

    /// Adds the records of a successful append to the list. Checks that an append to a closed topic was refused.
    fn record_appended(
        &mut self,
        outcome: Result<Receipt, PublishError>,
        sizes: &[usize],
        expires_ns: u64,
        key: Option<u8>,
    ) {
        if self.closed {
            assert_eq!(outcome, Err(PublishError::Closed));
            return;
        }
        let appended_ns = MANUAL.now_ns();
        self.list.extend(sizes.iter().map(|&bytes| Written { bytes, appended_ns, expires_ns, key }));
        assert_eq!(outcome.unwrap().position, Position { epoch: 1, seq: self.list.len() as u64 });
    }

    fn produce(&mut self, producer: u64, epoch_step: i32, from_next: i64, count: u64) {
        let first_seq = self.list.len() as u64 + 1;
        let mark = self.producers.mark(producer, epoch_step, from_next);
        let contents: Vec<Vec<u8>> = (0..count).map(|n| content(first_seq + n, 8)).collect();
        let drafts: Vec<Draft<'_>> = contents.iter().map(|content| Draft::from(content.as_slice())).collect();
        let outcome = self.topic.publisher("t").with_producer(mark).publish_batch(&drafts);
        if self.closed {
            assert_eq!(outcome, Err(PublishError::Closed));
            return;
        }
        match self.producers.expected_outcome(mark, count) {
            Ok(None) => {
                self.producers.record_append(mark, count, first_seq);
                assert!(outcome.as_ref().is_ok_and(|receipt| !receipt.duplicate), "{mark:?}: {outcome:?}");
                self.record_appended(outcome, &vec![8; count as usize], u64::MAX, None);
            }
            Ok(Some(seq)) => {
                let receipt = outcome.unwrap();
                assert_eq!((receipt.position, receipt.duplicate), (Position { epoch: 1, seq }, true));
            }
            Err(error) => assert_eq!(outcome, Err(error), "{mark:?}"),
        }
    }

    fn subscribe(&mut self, start: u8, on_gap: OnGap) {
        let Some(free) = self.readers.iter_mut().find(|reader| reader.is_none()) else { return };
        let info = self.topic.logs()[0].info();
        let after = Position { epoch: 1, seq: u64::from(start) * (info.next_seq - 1) / 255 };
        let time = MANUAL.now_ns() - u64::from(start) * 10_000_000;
        let (start, next, from_ns) = match start % 4 {
            0 => (Start::Earliest, info.oldest_seq, 0),
            1 => (Start::Latest, info.next_seq, 0),
            2 => (Start::After(after), after.seq + 1, 0),
            _ => (Start::Time(time), info.oldest_seq, time),
        };
        let subscriber = subscriber(&self.topic, &SubscribeOptions { on_gap, ..from(start) });
        *free =
            Some(Reader { subscriber, next, from_ns, on_gap, warned: false, asleep: false, ended: false });
    }

    fn with_reader(&mut self, reader: usize, operation: impl FnOnce(&mut Reader, &ExpectedLog<'_>)) {
        let Some(reader) = &mut self.readers[reader] else { return };
        if reader.asleep {
            // A subscriber that sleeps does nothing until it is woken.
            return;
        }
        operation(reader, &ExpectedLog::of(&self.topic, &self.list, self.closed));
    }

    fn sleep(&mut self, index: usize) {
        let Some(reader) = &mut self.readers[index] else { return };
        let waker = Waker::from(Arc::new(Task { reader: index, woken: Arc::clone(&self.woken) }));
        match reader.subscriber.poll_ready(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => outcome.unwrap(),
            Poll::Pending => {
                assert!(!self.closed, "no reader waits on a closed topic");
                reader.asleep = true;
            }
        }
    }

    /// Runs all woken subscribers, and those that they wake.
    fn run_woken(&mut self) {
        loop {
            let woken = std::mem::take(&mut *self.woken.lock().unwrap());
            if woken.is_empty() {
                return;
            }
            for index in woken {
                let Some(reader) = &mut self.readers[index] else { continue };
                assert!(std::mem::take(&mut reader.asleep), "only a sleeping reader is woken");
                assert!(reader.subscriber.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
            }
        }
    }

    /// Lets all subscribers and groups read to the end, and drops everything. No memory may stay charged to the budget.
    fn end(mut self) {
        for index in 0..READERS_MAX {
            if let Some(reader) = &mut self.readers[index] {
                reader.asleep = false;
            }
            self.with_reader(index, |reader, expected| reader.drain(usize::MAX, expected));
        }
        self.sharers.finish(&ExpectedLog::of(&self.topic, &self.list, self.closed));
        self.workers.finish(&ExpectedLog::of(&self.topic, &self.list, self.closed));
        let Play { topic, budget, publisher, readers, sharers, workers, .. } = self;
        drop((readers, publisher, sharers, workers, topic));
        assert_eq!(budget.used(), 0, "all memory is released");
    }
}
