//! Operations in any order, played on a topic and on a plain list beside it.
//!
//! The list keeps every record for ever. What the topic may forget is checked from outside: a reader is given the
//! list's records in order, except those it was told it lost, which must be out of the history and must not have gone
//! early. Used by the random tests here and by the fuzz target `topic`.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use dunlin_topic::*;

use crate::stage::*;

const RETENTION_BYTES: u64 = 16 << 10;
const BY_REF_BYTES_MIN: usize = 2_000;
const READERS_MAX: usize = 6;

/// One thing that somebody does.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Publish { bytes: usize, by_ref: bool, expires_ms: Option<u64> },
    Batch { count: usize, bytes: usize },
    Expect { right: bool },
    Subscribe { start: u8, on_gap: OnGap },
    Take { reader: usize },
    Drain { reader: usize, max: usize },
    Sleep { reader: usize },
    Leave { reader: usize },
    Pass { ms: u64 },
    Expire,
    Close,
}

/// Any four bytes are an operation, so that whatever makes bytes makes operations.
impl From<[u8; 4]> for Operation {
    fn from([kind, a, b, c]: [u8; 4]) -> Operation {
        let reader = usize::from(a) % READERS_MAX;
        let bytes = 8 + usize::from(b) * if c.is_multiple_of(16) { 64 } else { 4 };
        match kind % 64 {
            0..20 => Operation::Publish {
                bytes,
                by_ref: a.is_multiple_of(3),
                expires_ms: a.is_multiple_of(5).then(|| u64::from(c) * 10),
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
            59..61 => Operation::Pass { ms: u64::from(b) * 5 },
            61..63 => Operation::Expire,
            _ if (a, b % 8) == (7, 0) => Operation::Close,
            _ => Operation::Drain { reader, max: usize::MAX },
        }
    }
}

/// Plays all of `operations` and looks that every promise is kept.
pub fn play(operations: impl IntoIterator<Item = Operation>) {
    let mut play = Play::new();
    for operation in operations {
        play.step(operation);
    }
    play.end();
}

/// A record as the list keeps it.
#[derive(Debug)]
struct Written {
    bytes: usize,
    appended_ns: u64,
    expires_ns: u64,
}

struct Reader {
    subscriber: Subscriber,
    /// The first record it was neither given nor told of.
    next: u64,
    from_ns: u64,
    on_gap: OnGap,
    warned: bool,
    asleep: bool,
    ended: bool,
}

struct Play {
    topic: Arc<Topic>,
    budget: Arc<Budget>,
    publisher: Publisher,
    list: Vec<Written>,
    readers: [Option<Reader>; READERS_MAX],
    woken: Arc<Mutex<Vec<usize>>>,
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

/// What record `seq` holds.
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
        let topic = topic_of(config, &budget, MANUAL);
        let publisher = topic.publisher("t");
        Play {
            topic,
            budget,
            publisher,
            list: Vec::new(),
            readers: Default::default(),
            woken: Arc::default(),
            oldest: 1,
            closed: false,
        }
    }

    fn step(&mut self, operation: Operation) {
        match operation {
            Operation::Publish { bytes, by_ref, expires_ms } => self.publish(bytes, by_ref, expires_ms),
            Operation::Batch { count, bytes } => self.publish_batch(count, bytes),
            Operation::Expect { right } => self.publish_expecting(right),
            Operation::Subscribe { start, on_gap } => self.subscribe(start, on_gap),
            Operation::Take { reader } => self.with(reader, Reader::take),
            Operation::Drain { reader, max } => self.with(reader, |reader, truth| reader.drain(max, truth)),
            Operation::Sleep { reader } => self.sleep(reader),
            Operation::Leave { reader } => self.readers[reader] = None,
            Operation::Pass { ms } => pass(Duration::from_millis(ms)),
            Operation::Expire => self.topic.expire(MANUAL.now_ns()),
            Operation::Close => {
                self.topic.close();
                self.closed = true;
            }
        }
        self.run_woken();
        self.check_log();
    }

    /// What can be seen of the log from outside.
    fn check_log(&mut self) {
        let info = self.topic.logs()[0].info();
        assert_eq!(info.next_seq, self.list.len() as u64 + 1);
        assert!(info.bytes <= self.budget.used(), "what is held is charged");
        let asleep = self.readers.iter().flatten().filter(|reader| reader.asleep).count();
        assert_eq!(info.waiting, asleep, "all that sleep, and nobody else, wait");
        let oldest = std::mem::replace(&mut self.oldest, info.oldest_seq);
        if let Some(lost) = self.list[oldest as usize - 1..info.oldest_seq as usize - 1].last() {
            let aged = lost.appended_ns + 2_000_000_000 < MANUAL.now_ns();
            let since: usize =
                self.list[oldest as usize - 1..].iter().map(|written| written.bytes + 16).sum();
            assert!(
                aged || since as u64 >= RETENTION_BYTES / 8,
                "{oldest} was given up early: {since} bytes"
            );
        }
    }

    fn publish(&mut self, bytes: usize, by_ref: bool, expires_ms: Option<u64>) {
        let content = content(self.list.len() as u64 + 1, bytes);
        let mut draft =
            if by_ref { Draft::from(Bytes::from(content.clone())) } else { Draft::from(content.as_slice()) };
        let expires_ns = expires_ms.map(|ms| MANUAL.now_ns() + ms * 1_000_000);
        draft.meta.expires_ns = expires_ns;
        let outcome = self.publisher.publish(draft);
        self.written(outcome, &[bytes], expires_ns.unwrap_or(u64::MAX));
    }

    fn publish_batch(&mut self, count: usize, bytes: usize) {
        let first = self.list.len() as u64 + 1;
        let contents: Vec<Vec<u8>> = (0..count as u64).map(|n| content(first + n, bytes)).collect();
        let drafts: Vec<Draft<'_>> = contents.iter().map(|content| Draft::from(content.as_slice())).collect();
        let outcome = self.publisher.publish_batch(&drafts);
        if count == 0 {
            assert!(matches!(outcome, Err(PublishError::Batch(_))));
        } else {
            self.written(outcome, &vec![bytes; count], u64::MAX);
        }
    }

    fn publish_expecting(&mut self, right: bool) {
        let last = self.list.len() as u64;
        let content = content(last + 1, 8);
        let outcome = self.publisher.publish_expecting(last + u64::from(!right), content.as_slice());
        if right || self.closed {
            self.written(outcome, &[8], u64::MAX);
        } else {
            assert_eq!(outcome, Err(PublishError::SeqMoved { expected: last + 1, last_seq: last }));
        }
    }

    /// Takes what was acknowledged, and nothing else, into the list.
    fn written(&mut self, outcome: Result<Receipt, PublishError>, sizes: &[usize], expires_ns: u64) {
        if self.closed {
            assert_eq!(outcome, Err(PublishError::Closed));
            return;
        }
        let appended_ns = MANUAL.now_ns();
        self.list.extend(sizes.iter().map(|&bytes| Written { bytes, appended_ns, expires_ns }));
        assert_eq!(outcome.unwrap().position, Position { epoch: 1, seq: self.list.len() as u64 });
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

    fn with(&mut self, reader: usize, act: impl FnOnce(&mut Reader, &Truth<'_>)) {
        let Some(reader) = &mut self.readers[reader] else { return };
        if reader.asleep {
            // A task that sleeps does nothing else.
            return;
        }
        let info = self.topic.logs()[0].info();
        act(reader, &Truth { list: &self.list, info, closed: self.closed });
    }

    fn sleep(&mut self, index: usize) {
        let Some(reader) = &mut self.readers[index] else { return };
        let waker = Waker::from(Arc::new(Task { reader: index, woken: Arc::clone(&self.woken) }));
        match reader.subscriber.poll_ready(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => outcome.unwrap(),
            Poll::Pending => {
                assert!(!self.closed, "nobody waits on a topic that is closed");
                reader.asleep = true;
            }
        }
    }

    /// Runs every task that was woken, and those that it wakes in turn.
    fn run_woken(&mut self) {
        loop {
            let woken = std::mem::take(&mut *self.woken.lock().unwrap());
            if woken.is_empty() {
                return;
            }
            for index in woken {
                let Some(reader) = &mut self.readers[index] else { continue };
                assert!(std::mem::take(&mut reader.asleep), "whoever is woken slept");
                assert!(reader.subscriber.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
            }
        }
    }

    /// Everybody reads to the end and leaves; then nothing is left.
    fn end(mut self) {
        for index in 0..READERS_MAX {
            if let Some(reader) = &mut self.readers[index] {
                reader.asleep = false;
            }
            self.with(index, |reader, truth| reader.drain(usize::MAX, truth));
        }
        let Play { topic, budget, publisher, readers, .. } = self;
        drop((readers, publisher, topic));
        assert_eq!(budget.used(), 0, "all memory is given back");
    }
}

/// What an event is judged by.
struct Truth<'a> {
    list: &'a [Written],
    info: LogInfo,
    closed: bool,
}

impl Truth<'_> {
    fn written(&self, seq: u64) -> &Written {
        &self.list[seq as usize - 1]
    }
}

impl Reader {
    fn take(&mut self, truth: &Truth<'_>) {
        let Ok(ready) = self.subscriber.ready() else { return self.check_end(truth) };
        if ready {
            // Borrowed from the subscriber, as the event is: judged on a copy of the rest.
            let mut judge = self.judge();
            judge.saw(self.subscriber.take(), truth);
            self.apply(judge);
        } else {
            self.check_caught_up(truth);
        }
    }

    fn drain(&mut self, max: usize, truth: &Truth<'_>) {
        let mut judge = self.judge();
        let drained = self.subscriber.drain(max, |event| judge.saw(event, truth));
        self.apply(judge);
        match drained {
            Ok(given) if given < max => self.check_caught_up(truth),
            Ok(given) => assert!(given <= max),
            Err(_) => self.check_end(truth),
        }
    }

    fn judge(&self) -> Judge {
        let Reader { next, from_ns, on_gap, warned, ended, .. } = *self;
        Judge { next, from_ns, on_gap, warned, ended }
    }

    fn apply(&mut self, judge: Judge) {
        (self.next, self.warned, self.ended) = (judge.next, judge.warned, judge.ended);
    }

    /// There was nothing more: so it has been given everything.
    fn check_caught_up(&mut self, truth: &Truth<'_>) {
        if !self.ended {
            assert!(!truth.closed, "the end is told");
            self.judge().check_skipped(truth.info.next_seq, truth);
            self.warned = false;
        }
    }

    fn check_end(&self, _truth: &Truth<'_>) {
        assert!(self.ended, "a subscription ends after it said why");
    }
}

/// What a reader was given so far.
struct Judge {
    next: u64,
    from_ns: u64,
    on_gap: OnGap,
    warned: bool,
    ended: bool,
}

impl Judge {
    fn saw(&mut self, event: Event<'_>, truth: &Truth<'_>) {
        assert!(!self.ended, "after the end: {event:?}");
        match event {
            Event::Record(record) => {
                let written = truth.written(record.seq());
                self.check_skipped(record.seq(), truth);
                assert_eq!(
                    record.payload(),
                    content(record.seq(), written.bytes),
                    "content of {}",
                    record.seq()
                );
                assert_eq!(record.frame.append_time_ns(), written.appended_ns);
                assert!(written.expires_ns > MANUAL.now_ns() && written.appended_ns >= self.from_ns);
                self.next = record.seq() + 1;
            }
            Event::Notice(Notice::Gap(gap)) => self.saw_gap(&gap, truth),
            Event::Notice(Notice::Lagging(lagging)) => {
                assert!(!std::mem::replace(&mut self.warned, true), "one warning until it has caught up");
                assert!(lagging.behind <= truth.info.next_seq);
            }
            Event::Notice(Notice::Deleted { last, .. }) => {
                assert!(truth.closed);
                assert_eq!(last.seq, truth.list.len() as u64);
                self.check_skipped(truth.info.next_seq, truth);
                self.ended = true;
            }
            Event::Notice(other) => panic!("unexpected {other:?}"),
        }
    }

    fn saw_gap(&mut self, gap: &Gap, truth: &Truth<'_>) {
        self.check_skipped(gap.first, truth);
        assert!(gap.first < truth.info.oldest_seq, "what is held is not lost");
        let go_on = if self.on_gap == OnGap::Newest { truth.info.next_seq } else { truth.info.oldest_seq };
        assert_eq!(gap.last + 1, go_on);
        self.next = gap.last + 1;
        self.ended = self.on_gap == OnGap::Fail;
    }

    /// Nothing between where it stood and `seq` was for it.
    fn check_skipped(&self, seq: u64, truth: &Truth<'_>) {
        assert!(seq >= self.next, "{seq} came again, {} was next", self.next);
        for skipped in self.next..seq {
            let written = truth.written(skipped);
            let unwanted = written.appended_ns < self.from_ns || written.expires_ns <= MANUAL.now_ns();
            assert!(unwanted, "{skipped} was skipped in silence");
        }
    }
}
