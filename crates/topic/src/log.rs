//! One partition: an ordered history that is written at one end and given up at the other.
//!
//! One lock guards check, append and publish of the length; readers take it only when they come
//! to the end of a segment, lose their place, or go to sleep.
//!
//! Invariants:
//! - Sequences are `+1` each within an epoch; append times never go back.
//! - A batch is appended whole or not at all, inside one segment.
//! - What is given up is whole segments, oldest first; the last one written stays.
//!
//! Limits: `retention`, `record_bytes_max`, [`BATCH_BYTES_MAX`], and the budget.

mod append;
mod mirror;
#[cfg(all(test, loom))]
mod model;
mod narrow;
mod publishers;
mod readers;
mod recall;
mod retain;
mod sleepers;
mod staged;
mod stateful;
mod stored;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::config::{Clock, TopicConfig};
use crate::event::{LogName, Position};
use crate::listeners::Listeners;
use crate::lock::{LogGuard, LogLock};
use crate::memory::Budget;
use crate::producer::{ProducerLimits, Producers, Verdict};
use crate::reading::Readings;
use crate::segment::{Segment, Writer};
use crate::store::{Recovered, Store};
use crate::upstream::Upstream;

pub(crate) use append::{Append, Appended};
pub use append::{BATCH_BYTES_MAX, ProducerMark};
pub use mirror::FeedError;
use mirror::Mirror;
use narrow::Narrow;
pub(crate) use narrow::{ANYWHERE, ASLEEP, GoesOn};
use publishers::Liveness;
pub(crate) use publishers::{Counted, PublisherCount, Told};
use readers::Readers;
pub(crate) use readers::{Found, ReaderId};
use sleepers::Sleepers;
pub(crate) use sleepers::{Armed, SleeperId};
pub use staged::{Staged, StagedMark, StagedRun};
pub use stateful::FoldInfo;
use stateful::Folded;
pub(crate) use stateful::{CaughtUp, Merged, Owed, Shown};
use stored::Stored;
pub use stored::{StoredInfo, StoredState};

/// How many logs this process has made.
static LOGS: AtomicU64 = AtomicU64::new(0);

/// One partition of a topic.
#[derive(Debug)]
pub struct Log {
    pub(crate) name: Arc<LogName>,
    /// See [`Log::number`].
    number: u64,
    pub(crate) clock: Clock,
    config: Arc<TopicConfig>,
    /// History in memory.
    memory_bytes: u64,
    is_durable: bool,
    budget: Arc<Budget>,
    /// Readers that have yet to read this sequence are warned; 0 while nothing was given up.
    warn_before: AtomicU64,
    /// See [`Log::pressure`].
    pressure: AtomicU64,
    /// See [`Log::set_replicated`].
    is_replicated: AtomicBool,
    pub(crate) readings: Readings,
    pub(crate) listeners: Listeners,
    pub(crate) publishers: Arc<PublisherCount>,
    liveness: Liveness,
    /// Where another process may own it.
    pub(crate) upstream: OnceLock<Arc<dyn Upstream>>,
    state: LogLock<State>,
}

/// What is known of a log at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogInfo {
    /// The epoch.
    pub epoch: u32,
    /// The oldest record still held; equal to `next_seq` when there is none.
    pub oldest_seq: u64,
    /// The next record's sequence.
    pub next_seq: u64,
    /// Bytes of history in memory.
    pub bytes: u64,
    /// Bytes of all records that were appended in this process, those that were given up included.
    pub appended_bytes: u64,
    /// What became of readers that did not keep up.
    pub losses: Losses,
    /// Cursors that wait for the next record.
    pub waiting: usize,
    /// Registered readers of a reliable topic.
    pub registered: usize,
    /// When the last record was appended, ns since the Unix epoch.
    pub last_append_ns: u64,
    /// How far it is stored, where the topic is durable.
    pub stored: Option<StoredInfo>,
}

/// What readers were told that did not keep up, counted since the log was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Warnings that half of the history lies ahead.
    pub warnings: u64,
    /// Gaps.
    pub gaps: u64,
    /// Records that were lost to readers in them.
    pub records: u64,
}

impl Losses {
    /// Adds what other readers were told.
    pub fn add(&mut self, more: Losses) {
        self.warnings += more.warnings;
        self.gaps += more.gaps;
        self.records += more.records;
    }
}

#[derive(Debug)]
pub(crate) struct State {
    epoch: u32,
    next_seq: u64,
    last_append_ns: u64,
    closed: bool,
    /// From then on it takes no records, or not without asking whether it still may, ns by `shut_clock`; 0 where it is closed, or
    /// another's, and the largest number for never.
    shut_at_ns: u64,
    shut_clock: Clock,
    gave_up: bool,
    /// Size of the newest segment, from which the next one grows.
    capacity: usize,
    held: VecDeque<Held>,
    held_bytes: u64,
    /// Bytes of records in all segments that were ever sealed.
    sealed_bytes: u64,
    writer: Option<Writer>,
    /// Given up, but a read was in progress.
    lingering: Vec<Arc<Segment>>,
    sleepers: Sleepers,
    /// Those that wait for some subjects only; most logs have none.
    narrow: Option<Box<Narrow>>,
    limits: ProducerLimits,
    /// What few logs need.
    rare: Option<Box<Rare>>,
}

#[derive(Debug)]
struct Rare {
    producers: Producers,
    readers: Readers,
    /// Of a durable log.
    stored: Option<Box<Stored>>,
    fold: Option<Folded>,
    /// Of a log that another process owns, or did.
    mirror: Option<Box<Mirror>>,
    losses: Losses,
    /// Payloads by reference of segments that were given up, to be dropped outside of the lock.
    remains: Vec<Bytes>,
}

/// A sealed segment and what it weighs.
#[derive(Debug)]
struct Held {
    segment: Arc<Segment>,
    bytes: u64,
    last_append_ns: u64,
}

impl Log {
    pub(crate) fn new(
        name: LogName,
        config: Arc<TopicConfig>,
        budget: Arc<Budget>,
        clock: Clock,
        epoch: u32,
        publishers: &Arc<PublisherCount>,
    ) -> Log {
        let is_stateful = config.fold.is_some();
        let state = State {
            epoch,
            next_seq: 1,
            last_append_ns: 0,
            closed: false,
            shut_at_ns: u64::MAX,
            shut_clock: Clock(|| 0),
            gave_up: false,
            capacity: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            sealed_bytes: 0,
            writer: None,
            lingering: Vec::new(),
            sleepers: Sleepers::default(),
            narrow: None,
            limits: ProducerLimits::of(&config.limits),
            rare: None,
        };
        Log {
            name: Arc::new(name),
            number: LOGS.fetch_add(1, Ordering::Relaxed),
            clock,
            memory_bytes: config.memory_bytes(),
            is_durable: config.durable.is_some(),
            config,
            budget,
            warn_before: AtomicU64::new(0),
            pressure: AtomicU64::new(0),
            is_replicated: AtomicBool::new(false),
            readings: Readings::default(),
            listeners: Listeners::default(),
            publishers: Arc::clone(publishers),
            liveness: if is_stateful { Liveness::none_since(clock.now_ns()) } else { Liveness::default() },
            upstream: OnceLock::new(),
            state: LogLock::new(state),
        }
    }

    /// Goes on from what the disk holds.
    pub(crate) fn durable(self, recovered: &Recovered, store: Arc<dyn Store>) -> Log {
        {
            let mut state = self.lock();
            state.epoch = recovered.epochs.last().map_or(state.epoch, |start| start.epoch);
            state.next_seq = recovered.next_seq;
            state.last_append_ns = recovered.last_append_ns;
            state.rare().stored = Some(Box::new(Stored::new(recovered, store)));
        }
        self
    }

    /// Takes note of who published records that the disk holds, oldest first: retries of them are found out.
    pub fn remember(&self, mark: &StagedMark, epoch: u32) {
        let mut state = self.lock();
        let first = Position { epoch, seq: mark.first_seq };
        let producers = &mut state.rare().producers;
        if producers.check(mark.mark, mark.count) == Ok(Verdict::Fresh) {
            producers.record(mark.mark, mark.count, first);
        }
    }

    /// Whether the same records come, under the same numbers, in several processes, some of which are behind others. A reader that has had more from another
    /// than there is here waits for it; of a log that is nowhere else it would wait for ever, and is refused.
    pub fn set_replicated(&self, is_replicated: bool) {
        self.is_replicated.store(is_replicated, Ordering::Relaxed);
    }

    /// Whether a reader that begins after this position waits until this process has come as far as another.
    pub fn awaits(&self, asked: Position) -> bool {
        self.is_replicated() && asked > self.last()
    }

    fn is_replicated(&self) -> bool {
        self.is_replicated.load(Ordering::Relaxed)
    }

    /// Topic and partition.
    pub fn name(&self) -> &Arc<LogName> {
        &self.name
    }

    /// Its place among all logs of this process, in the order in which they were made.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How its topic behaves.
    pub fn config(&self) -> &TopicConfig {
        &self.config
    }

    /// What is known of it now.
    pub fn info(&self) -> LogInfo {
        let state = self.lock();
        LogInfo {
            epoch: state.epoch,
            oldest_seq: state.oldest_seq(&self.config),
            next_seq: state.next_seq,
            bytes: state.bytes(),
            appended_bytes: state.sealed_bytes + state.writer.as_ref().map_or(0, written_bytes),
            losses: state.rare.as_ref().map_or_else(Losses::default, |rare| rare.losses),
            waiting: state.sleepers.len() + state.narrow.as_ref().map_or(0, |narrow| narrow.len()),
            registered: state.rare.as_ref().map_or(0, |rare| rare.readers.len()),
            last_append_ns: state.last_append_ns,
            stored: state.stored().map(Stored::info),
        }
    }

    /// A reader was told that so many records are lost to it.
    #[cold]
    pub(crate) fn count_gap(&self, records: u64) {
        let mut state = self.lock();
        let losses = &mut state.rare().losses;
        losses.gaps += 1;
        losses.records += records;
    }

    /// The number of the last record that this producer is known to have appended.
    pub fn last_of_producer(&self, producer: u64) -> Option<u64> {
        self.lock().rare.as_ref().and_then(|rare| rare.producers.last(producer))
    }

    /// The position of the last record that readers may see.
    pub fn last(&self) -> Position {
        let state = self.lock();
        Position { epoch: state.epoch, seq: state.visible_next() - 1 }
    }

    /// Bytes of history that a reader has yet to read which cannot be told of a loss, and which does read; about: it is
    /// looked at once for each segment.
    #[inline(always)]
    pub fn pressure(&self) -> u64 {
        self.pressure.load(Ordering::Relaxed)
    }

    /// Ends the log: publishers are refused, readers get what is left and then are told.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.lock();
            state.closed = true;
            state.shut_at_ns = 0;
            state.seal();
            state.wake_publishers();
            state.take_all_sleepers()
        };
        waiting.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
    }

    /// Whether a reader that is to read `next` now deserves a warning.
    #[inline(always)]
    pub(crate) fn should_warn(&self, next: u64) -> bool {
        next < self.warn_before.load(Ordering::Relaxed)
    }

    fn lock(&self) -> LogGuard<'_, State> {
        self.state.lock()
    }
}

/// Bytes of the records in a segment that is being written.
fn written_bytes(writer: &Writer) -> u64 {
    u64::from(writer.written().bytes) + writer.by_ref_bytes()
}

impl State {
    /// For whoever lets the lock go, to drop after that.
    #[inline(always)]
    fn take_remains(&mut self) -> Vec<Bytes> {
        self.rare.as_mut().map_or_else(Vec::new, |rare| std::mem::take(&mut rare.remains))
    }

    fn rare(&mut self) -> &mut Rare {
        let limits = self.limits;
        self.rare.get_or_insert_with(|| {
            Box::new(Rare {
                producers: Producers::new(limits),
                readers: Readers::default(),
                stored: None,
                fold: None,
                mirror: None,
                losses: Losses::default(),
                remains: Vec::new(),
            })
        })
    }

    fn bytes(&self) -> u64 {
        self.held_bytes + self.writer.as_ref().map_or(0, |w| w.segment().bytes_held() + w.by_ref_bytes())
    }

    /// The oldest sequence that is still in memory.
    fn oldest_held(&self) -> u64 {
        let held = self.held.front().map(|held| &held.segment);
        held.or(self.writer.as_ref().map(Writer::segment)).map_or(self.next_seq, |s| s.first_seq)
    }

    /// The oldest sequence a reader may still be given.
    fn oldest_seq(&self, config: &TopicConfig) -> u64 {
        let held = self.stored().map_or_else(|| self.oldest_held(), |stored| stored.oldest_seq);
        match config.retention.records {
            Some(records) => held.max(self.visible_next().saturating_sub(records)),
            None => held,
        }
    }

    /// The segment that holds `seq`, or will.
    fn segment_of(&self, seq: u64) -> Option<&Arc<Segment>> {
        if let Some(writer) = &self.writer
            && writer.segment().first_seq <= seq
        {
            return Some(writer.segment());
        }
        let after = self.held.partition_point(|held| held.segment.first_seq <= seq);
        let held = &self.held[after.checked_sub(1)?].segment;
        (held.first_seq + u64::from(held.commit().count) > seq).then_some(held)
    }
}
