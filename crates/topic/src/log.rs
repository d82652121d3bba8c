//! The log of one partition: an ordered history of records. New records are appended at one end, and old records are
//! dropped at the other end.
//!
//! Records are checked, appended and committed inside the log's lock. A subscriber takes this lock only in three cases:
//! at the end of a segment, after the record at its position was dropped, and before it sleeps.
//!
//! Invariants:
//! - Within an epoch, each record's sequence number is 1 higher than that of the record before. Append times never
//!   decrease.
//! - A batch is appended as a whole or not at all, inside one segment.
//! - Only whole segments are dropped, the oldest first.
//!
//! Limits: `retention`, `record_bytes_max`, [`BATCH_BYTES_MAX`], and the memory budget.

mod ack_waiters;
mod append;
mod durable_lookup;
mod losses;
mod mirror;
#[cfg(all(test, loom))]
mod model;
mod publishers;
mod registered;
mod retain;
mod sleeper_index;
mod sleepers;
mod staged;
mod stateful;
mod stored;
mod succession;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::config::{Clock, TopicConfig};
use crate::event::{LogName, Position};
use crate::lock::{LogGuard, LogLock};
use crate::memory::MemoryBudget;
use crate::producer::{DuplicateVerdict, ProducerLimits, Producers};
use crate::progress::SubscriberList;
use crate::segment::{Segment, SegmentWriter};
use crate::store::{RecoveredLog, Store};
use crate::subscribers::LogSubscribers;
use crate::upstream::Upstream;

pub(crate) use append::{AppendOptions, AppendOutcome};
pub use append::{BATCH_BYTES_MAX, ProducerMark};
use losses::LogLosses;
pub use losses::{LossCause, LossReport, LossReports, LossTotals};
use mirror::Mirror;
pub use mirror::MirrorFeedError;
use publishers::PresenceTime;
pub(crate) use publishers::{PublisherCount, PublisherKind, ReportedPresence};
use registered::RegisteredSubscribers;
pub(crate) use registered::{Lookup, SubscriberId};
use sleeper_index::SleeperIndex;
pub(crate) use sleeper_index::{ANYWHERE, ASLEEP, ResumeSeq};
use sleepers::Sleepers;
pub(crate) use sleepers::{SleeperId, SleepingCursor};
pub use staged::{StagedBatch, StagedProducer, StagedRecords};
use stateful::ReducerState;
pub use stateful::StateInfo;
pub(crate) use stateful::{CatchUp, CatchUpRequest, MergedRecord, Visibility};
use stored::DiskProgress;
pub use stored::{AckProgress, StorageInfo};
pub use succession::TopicLiveness;

static LOGS: AtomicU64 = AtomicU64::new(0);

/// The log of one partition of a topic: its records, its subscribers and, for a state topic, its state.
#[derive(Debug)]
pub struct Log {
    pub(crate) name: Arc<LogName>,
    number: u64,
    pub(crate) clock: Clock,
    config: Arc<TopicConfig>,
    /// The largest amount of memory that the log's history may use, bytes.
    memory_bytes: u64,
    is_durable: bool,
    budget: Arc<MemoryBudget>,
    /// A subscriber whose next record is before this sequence number receives a lag warning. 0 until the log drops
    /// records.
    warn_before: AtomicU64,
    pressure: AtomicU64,
    /// Whether several processes hold copies of the same records; see [`Log::set_replicated`].
    is_replicated: AtomicBool,
    /// Whether a deleted topic with the same name may still have subscribers.
    follows_deleted: AtomicBool,
    pub(crate) listed_subscribers: SubscriberList,
    pub(crate) subscribers: LogSubscribers,
    pub(crate) publishers: Arc<PublisherCount>,
    publisher_presence: PresenceTime,
    /// The way to the log's owner. Set if another process may own the log.
    pub(crate) upstream: OnceLock<Arc<dyn Upstream>>,
    /// The records that were lost. Set at the first loss.
    lost: OnceLock<Arc<LogLosses>>,
    /// Where the log reports losses.
    loss_reports: OnceLock<Arc<LossReports>>,
    state: LogLock<LogContents>,
}

/// A log's counters at one moment: its epoch, sequence numbers, sizes and subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogInfo {
    /// The present epoch.
    pub epoch: u32,
    /// Sequence number of the oldest retained record; equal to `next_seq` if there is none.
    pub oldest_seq: u64,
    /// Sequence number that the next record will have.
    pub next_seq: u64,
    /// Bytes that the log's history takes in memory.
    pub bytes: u64,
    /// Bytes of all records that were appended in this process, including records that were dropped since.
    pub appended_bytes: u64,
    /// Counters of the lag warnings and losses of subscribers.
    pub losses: LossCounters,
    /// Number of sleeping cursors, including those in private mirrors of the log.
    pub waiting: usize,
    /// Number of registered subscribers.
    pub registered: usize,
    /// Time at which the last record was appended, ns since the Unix epoch.
    pub last_append_ns: u64,
    /// How much is stored on disk, for a durable topic; otherwise `None`.
    pub stored: Option<StorageInfo>,
}

/// How many lag warnings and gaps the subscribers of a log received, and how many records they lost, since the log was
/// opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LossCounters {
    /// Number of lag warnings.
    pub warnings: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// Number of records that subscribers lost in these gaps.
    pub records: u64,
}

impl LossCounters {
    /// Adds the counts of `other` to these counters.
    pub fn add(&mut self, other: LossCounters) {
        self.warnings += other.warnings;
        self.gaps += other.gaps;
        self.records += other.records;
    }
}

/// The part of a log that the log's lock protects.
#[derive(Debug)]
pub(crate) struct LogContents {
    epoch: u32,
    next_seq: u64,
    last_append_ns: u64,
    closed: bool,
    /// The time, by `ownership_clock` in ns, until which this process owns the log. 0 if the log is closed or another
    /// node owns the log; `u64::MAX` if no other node can become the owner.
    owned_until_ns: u64,
    ownership_clock: Clock,
    /// Whether the log has dropped records. For a durable log, only records that were dropped from its disk count.
    has_dropped: bool,
    /// Size of the newest segment, bytes. The size of the next segment is computed from this size.
    capacity: usize,
    /// The sealed segments in memory, oldest first.
    retained: VecDeque<RetainedSegment>,
    retained_bytes: u64,
    /// Bytes of the records in all sealed segments, including segments that were dropped since.
    sealed_bytes: u64,
    writer: Option<SegmentWriter>,
    /// Dropped segments whose memory cannot be freed yet, because subscribers still read them.
    lingering: Vec<Arc<Segment>>,
    sleepers: Sleepers,
    /// The cursors that sleep until a record of their own subjects arrives. Most logs have none.
    sleeper_index: Option<Box<SleeperIndex>>,
    limits: ProducerLimits,
    /// Fields that only a few logs need.
    rare: Option<Box<Rare>>,
}

#[derive(Debug)]
struct Rare {
    producers: Producers,
    registered: RegisteredSubscribers,
    /// How far a durable log is stored on disk; `None` for other logs.
    stored: Option<Box<DiskProgress>>,
    reducer: Option<ReducerState>,
    /// The data of a mirror. Present only if another process owns the log, or has owned the log before.
    mirror: Option<Box<Mirror>>,
    losses: LossCounters,
    /// The position of the first record that this process appended as the owner, and the append time of the record
    /// before it.
    owned_from: (Position, u64),
    /// Payloads that were kept by reference in segments that are dropped now. They are freed after the lock is
    /// released.
    dropped_payloads: Vec<Bytes>,
}

/// A sealed segment that the log retains, with its size and the append time of its last record.
#[derive(Debug)]
struct RetainedSegment {
    segment: Arc<Segment>,
    bytes: u64,
    last_append_ns: u64,
}

impl Log {
    pub(crate) fn new(
        name: LogName,
        config: Arc<TopicConfig>,
        budget: Arc<MemoryBudget>,
        clock: Clock,
        epoch: u32,
        publishers: &Arc<PublisherCount>,
    ) -> Log {
        let is_stateful = config.reducer.is_some();
        let state = LogContents {
            epoch,
            next_seq: 1,
            last_append_ns: 0,
            closed: false,
            owned_until_ns: u64::MAX,
            ownership_clock: Clock::new(|| 0),
            has_dropped: false,
            capacity: 0,
            retained: VecDeque::new(),
            retained_bytes: 0,
            sealed_bytes: 0,
            writer: None,
            lingering: Vec::new(),
            sleepers: Sleepers::default(),
            sleeper_index: None,
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
            follows_deleted: AtomicBool::new(false),
            listed_subscribers: SubscriberList::default(),
            subscribers: LogSubscribers::default(),
            publishers: Arc::clone(publishers),
            publisher_presence: if is_stateful {
                PresenceTime::none_since(clock.now_ns())
            } else {
                PresenceTime::default()
            },
            upstream: OnceLock::new(),
            lost: OnceLock::new(),
            loss_reports: OnceLock::new(),
            state: LogLock::new(state),
        }
    }

    /// Makes the log durable. The log continues after the last record on disk.
    pub(crate) fn durable(self, recovered: &RecoveredLog, store: Arc<dyn Store>) -> Log {
        {
            let mut state = self.lock();
            state.epoch = recovered.epochs.last().map_or(state.epoch, |start| start.epoch);
            state.next_seq = recovered.next_seq;
            state.last_append_ns = recovered.last_append_ns;
            let first = Position { epoch: state.epoch, seq: state.next_seq };
            state.rare().owned_from = (first, recovered.last_append_ns);
            state.rare().stored = Some(Box::new(DiskProgress::new(recovered, store)));
        }
        self
    }

    /// Restores the producer of records that were read from disk, so that the log recognizes retries of these records.
    /// Must be called for the oldest records first.
    pub fn restore_producer(&self, mark: &StagedProducer, epoch: u32) {
        let mut state = self.lock();
        let first = Position { epoch, seq: mark.first_seq };
        let producers = &mut state.rare().producers;
        if producers.check(mark.mark, mark.count) == Ok(DuplicateVerdict::Fresh) {
            producers.record(mark.mark, mark.count, first);
        }
    }

    /// Sets whether several processes hold copies of the same records. If so, this process may lag behind another one.
    /// A subscriber may then start after a position that this process has not reached yet, and waits. If not, such a
    /// subscriber would wait for ever, and is refused.
    pub fn set_replicated(&self, is_replicated: bool) {
        self.is_replicated.store(is_replicated, Ordering::Relaxed);
    }

    /// Whether a subscriber that starts after this position has to wait until this process has reached the position.
    pub fn must_catch_up_to(&self, start: Position) -> bool {
        self.is_replicated() && start > self.last()
    }

    /// Whether several processes hold copies of the same records, as set by [`Log::set_replicated`].
    pub fn is_replicated(&self) -> bool {
        self.is_replicated.load(Ordering::Relaxed)
    }

    /// The log's topic and partition.
    pub fn name(&self) -> &Arc<LogName> {
        &self.name
    }

    /// The pattern of the subjects that the log's topic owns.
    pub fn pattern(&self) -> &str {
        self.config.pattern.as_deref().unwrap_or(&self.name.topic)
    }

    /// Number of the log in this process: logs are numbered in the order of their creation. A private mirror has the
    /// number of the log that it mirrors.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The topic's configuration.
    pub fn config(&self) -> &TopicConfig {
        &self.config
    }

    /// Returns the log's counters at this moment.
    pub fn info(&self) -> LogInfo {
        let waiting_in_private_mirrors =
            if self.is_private() { 0 } else { self.listed_subscribers.waiting_in_private_mirrors() };
        let state = self.lock();
        LogInfo {
            epoch: state.epoch,
            oldest_seq: state.oldest_seq(&self.config),
            next_seq: state.next_seq,
            bytes: state.bytes(),
            appended_bytes: state.sealed_bytes + state.writer.as_ref().map_or(0, written_bytes),
            losses: state.rare.as_ref().map_or_else(LossCounters::default, |rare| rare.losses),
            waiting: state.sleepers.len()
                + state.sleeper_index.as_ref().map_or(0, |index| index.len())
                + waiting_in_private_mirrors,
            registered: state.rare.as_ref().map_or(0, |rare| rare.registered.len()),
            last_append_ns: state.last_append_ns,
            stored: state.stored().map(DiskProgress::info),
        }
    }

    /// The number that this producer gave to its last record, if the log still knows the producer.
    pub fn last_producer_seq(&self, producer: u64) -> Option<u64> {
        self.lock().rare.as_ref().and_then(|rare| rare.producers.last(producer))
    }

    /// Position of the last record that subscribers can receive.
    pub fn last(&self) -> Position {
        let state = self.lock();
        Position { epoch: state.epoch, seq: state.visible_next() - 1 }
    }

    /// Position of the first record of the present epoch that this process has appended, or of the next record if there
    /// is none. A durable log may continue an epoch after a restart; records from before the restart do not count.
    pub fn process_start(&self) -> Position {
        let state = self.lock();
        let start = state.epoch_start();
        let opened_at = state.stored().map_or(0, |stored| stored.opened_at);
        Position { seq: start.seq.max(opened_at), ..start }
    }

    /// Position of the first known record in the epochs after `epoch`; `None` if `epoch` has not ended.
    pub fn first_after_epoch(&self, epoch: u32) -> Option<Position> {
        let state = self.lock();
        let known = match (state.stored(), state.mirror()) {
            (Some(stored), _) => stored.first_after(epoch),
            (None, Some(mirror)) => mirror.first_after(epoch, || state.oldest(&self.config)),
            (None, None) => None,
        };
        (epoch < state.epoch).then(|| known.unwrap_or_else(|| state.epoch_start()))
    }

    /// Approximate number of bytes that the slowest subscriber has not read. A subscriber counts only if it cannot
    /// receive gaps and has read something recently. Updated each time a segment is created.
    #[inline(always)]
    pub fn pressure(&self) -> u64 {
        self.pressure.load(Ordering::Relaxed)
    }

    /// Closes the log. Publishers are refused; subscribers receive the remaining records and then the end.
    pub fn close(&self) {
        let armed = {
            let mut state = self.lock();
            state.closed = true;
            state.owned_until_ns = 0;
            state.seal();
            state.wake_publishers();
            state.take_all_sleepers()
        };
        armed.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
    }

    /// Whether the log was closed: it accepts no more records.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether a subscriber whose next record is `next` is so far behind that it must receive a lag warning.
    #[inline(always)]
    pub(crate) fn should_warn(&self, next: u64) -> bool {
        next < self.warn_before.load(Ordering::Relaxed)
    }

    fn lock(&self) -> LogGuard<'_, LogContents> {
        self.state.lock()
    }
}

fn written_bytes(writer: &SegmentWriter) -> u64 {
    u64::from(writer.written().bytes) + writer.by_ref_bytes()
}

impl LogContents {
    /// Takes the payloads that are to be freed. The caller must drop them after it has unlocked the log.
    #[inline(always)]
    fn take_dropped_payloads(&mut self) -> Vec<Bytes> {
        self.rare.as_mut().map_or_else(Vec::new, |rare| std::mem::take(&mut rare.dropped_payloads))
    }

    fn rare(&mut self) -> &mut Rare {
        let limits = self.limits;
        self.rare.get_or_insert_with(|| {
            Box::new(Rare {
                producers: Producers::new(limits),
                registered: RegisteredSubscribers::default(),
                stored: None,
                reducer: None,
                mirror: None,
                losses: LossCounters::default(),
                owned_from: (Position::default(), 0),
                dropped_payloads: Vec::new(),
            })
        })
    }

    fn bytes(&self) -> u64 {
        self.retained_bytes
            + self.writer.as_ref().map_or(0, |w| w.segment().buffer_bytes() + w.by_ref_bytes())
    }

    fn epoch_start(&self) -> Position {
        let seq = match (self.stored(), self.mirror()) {
            (Some(stored), _) => stored.first_of(self.epoch).unwrap_or(self.next_seq),
            (None, Some(mirror)) => mirror.first_seq(),
            (None, None) => 1,
        };
        Position { epoch: self.epoch, seq }
    }

    fn oldest_in_memory(&self) -> u64 {
        let oldest = self.retained.front().map(|retained| &retained.segment);
        oldest.or(self.writer.as_ref().map(SegmentWriter::segment)).map_or(self.next_seq, |s| s.first_seq)
    }

    /// Sequence number of the oldest record that subscribers can read.
    fn oldest_seq(&self, config: &TopicConfig) -> u64 {
        let oldest = self.stored().map_or_else(|| self.oldest_in_memory(), |stored| stored.oldest_seq);
        match config.retention.records {
            Some(records) => oldest.max(self.visible_next().saturating_sub(records)),
            None => oldest,
        }
    }

    /// The segment that contains record `seq`. If `seq` is the next record, the segment to which this record will be
    /// written. `None` if record `seq` is not in memory.
    fn segment_of(&self, seq: u64) -> Option<&Arc<Segment>> {
        if let Some(writer) = &self.writer
            && writer.segment().first_seq <= seq
        {
            return Some(writer.segment());
        }
        let after = self.retained.partition_point(|retained| retained.segment.first_seq <= seq);
        let segment = &self.retained[after.checked_sub(1)?].segment;
        (segment.first_seq + u64::from(segment.commit().count) > seq).then_some(segment)
    }
}
