//! Lists the subscribers of a log and their positions for operators.
//!
//! The list contains every named subscriber in this process, and a listener lists the subscribers of its clients.
//! Subscribers update their position without a lock, so a listing may be slightly out of date. A private mirror shares
//! the list of its log.
//!
//! Limit: one entry for each live subscriber and each private mirror, kept outside the log's lock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::config::Clock;
use crate::event::Position;
use crate::log::Log;
use crate::subscribe::SubscribeOptions;

/// The reading position of a subscriber in one log. The list for operators contains this position until the value is
/// dropped.
#[derive(Debug)]
pub struct SubscriberProgress {
    name: String,
    protocol: &'static str,
    registered: bool,
    /// The number of the log in which the subscriber began.
    log: u64,
    clock: Clock,
    epoch: AtomicU32,
    seq: AtomicU64,
    missed: AtomicU64,
    lagging_ns: AtomicU64,
    missed_ns: AtomicU64,
    keeps_history: AtomicBool,
    /// The value of `seq` when the log last checked the subscribers that cannot receive gaps.
    checked_seq: AtomicU64,
    /// The time at which the log last found that `seq` had changed since its previous check, ns.
    changed_ns: AtomicU64,
}

/// The oldest unread record of the subscribers of a log that cannot receive gaps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OldestUnread {
    /// The oldest record that one of these subscribers has not read.
    pub(crate) first: Option<u64>,
    /// Like `first`, but without the subscribers that have read nothing for [`STALLED_NS`].
    pub(crate) first_of_active: Option<u64>,
}

/// A subscriber that has read nothing for this long counts as stalled, ns.
const STALLED_NS: u64 = 500_000_000;

/// The position, lag and losses of a subscriber, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberInfo {
    /// The subscription's name.
    pub name: String,
    /// The partition that the subscriber reads.
    pub partition: u16,
    /// The last delivered record.
    pub position: Position,
    /// Number of unread records.
    pub lag: u64,
    /// Number of missed records.
    pub missed: u64,
    /// Time of the last lag warning, ns since the Unix epoch; 0 for never.
    pub lagging_ns: u64,
    /// Time of the last gap, ns since the Unix epoch; 0 for never.
    pub missed_ns: u64,
    /// The listener of the subscription; empty in process.
    pub protocol: &'static str,
    /// Whether publishers wait for the subscriber.
    pub registered: bool,
}

/// The listed subscribers of one log and of its private mirrors. Most logs have none.
#[derive(Debug, Default)]
pub(crate) struct SubscriberList(OnceLock<Arc<Mutex<Listed>>>);

#[derive(Debug, Default)]
struct Listed {
    subscribers: Vec<Weak<SubscriberProgress>>,
    private_mirrors: Vec<Weak<Log>>,
}

impl SubscriberList {
    /// The list for a new private mirror of this list's log.
    pub(crate) fn share(&self) -> SubscriberList {
        SubscriberList(Arc::clone(self.0.get_or_init(Arc::default)).into())
    }

    /// Adds a private mirror that has a [shared](SubscriberList::share) list.
    pub(crate) fn add_private_mirror(&self, private: &Arc<Log>) {
        let mut listed = lock(self.0.get_or_init(Arc::default));
        push_live(&mut listed.private_mirrors, Arc::downgrade(private));
    }

    fn private_mirrors(&self) -> Vec<Arc<Log>> {
        let Some(listed) = self.0.get() else { return Vec::new() };
        lock(listed).private_mirrors.iter().filter_map(Weak::upgrade).collect()
    }

    /// Number of sleeping cursors in private mirrors.
    pub(crate) fn waiting_in_private_mirrors(&self) -> usize {
        self.private_mirrors().iter().map(|log| log.info().waiting).sum()
    }
}

/// Adds an item, and first removes dropped items if the list is full.
fn push_live<T>(list: &mut Vec<Weak<T>>, item: Weak<T>) {
    if list.len() == list.capacity() {
        list.retain(|other| other.strong_count() > 0);
    }
    list.push(item);
}

impl Log {
    /// Lists a subscriber that has received everything through `at`.
    pub fn list_subscriber(
        &self,
        options: &SubscribeOptions,
        registered: bool,
        at: Position,
    ) -> Arc<SubscriberProgress> {
        let progress = Arc::new(SubscriberProgress {
            name: options.name.clone(),
            protocol: options.protocol,
            registered,
            log: self.number(),
            clock: self.clock,
            epoch: AtomicU32::new(at.epoch),
            seq: AtomicU64::new(at.seq),
            missed: AtomicU64::new(0),
            lagging_ns: AtomicU64::new(0),
            missed_ns: AtomicU64::new(0),
            keeps_history: AtomicBool::new(false),
            checked_seq: AtomicU64::new(at.seq),
            changed_ns: AtomicU64::new(0),
        });
        let mut listed = lock(self.listed_subscribers.0.get_or_init(Arc::default));
        push_live(&mut listed.subscribers, Arc::downgrade(&progress));
        progress
    }

    /// The progress, in this epoch, of all subscribers that began in this log and cannot receive gaps.
    #[cold]
    pub(crate) fn oldest_unread(&self, epoch: u32, now_ns: u64) -> OldestUnread {
        let mut oldest = OldestUnread::default();
        let Some(listed) = self.listed_subscribers.0.get() else { return oldest };
        for progress in lock(listed).subscribers.iter().filter_map(Weak::upgrade) {
            let keeps_history =
                progress.log == self.number() && progress.keeps_history.load(Ordering::Relaxed);
            if !keeps_history || progress.epoch.load(Ordering::Relaxed) != epoch {
                continue;
            }
            let seq = progress.seq.load(Ordering::Relaxed);
            let min = |first: Option<u64>| Some(first.map_or(seq + 1, |first| first.min(seq + 1)));
            oldest.first = min(oldest.first);
            if progress.checked_seq.swap(seq, Ordering::Relaxed) != seq {
                progress.changed_ns.store(now_ns, Ordering::Relaxed);
            }
            if now_ns.saturating_sub(progress.changed_ns.load(Ordering::Relaxed)) < STALLED_NS {
                oldest.first_of_active = min(oldest.first_of_active);
            }
        }
        oldest
    }

    /// The listed subscribers, with those of the log's private mirrors.
    pub fn subscribers(&self) -> Vec<SubscriberInfo> {
        let Some(listed) = self.listed_subscribers.0.get() else { return Vec::new() };
        let subscribers: Vec<Arc<SubscriberProgress>> = {
            let mut listed = lock(listed);
            listed.subscribers.retain(|progress| progress.strong_count() > 0);
            listed.subscribers.iter().filter_map(Weak::upgrade).collect()
        };
        let (partition, last) = (self.name().partition, self.last_known());
        subscribers.iter().map(|progress| progress.info(partition, last)).collect()
    }

    /// Position of the last record that the log or one of its private mirrors has received. A private mirror without
    /// records does not count, because its position may be one that its subscriber named.
    fn last_known(&self) -> Position {
        let private_mirrors = self.listed_subscribers.private_mirrors();
        let infos = private_mirrors.iter().map(|log| log.info());
        let received = infos.filter(|info| info.oldest_seq < info.next_seq);
        let last_of = received.map(|info| Position { epoch: info.epoch, seq: info.next_seq - 1 });
        last_of.fold(self.last(), Ord::max)
    }
}

impl SubscriberProgress {
    /// Stores that the subscriber received everything up to `position`.
    #[inline]
    pub fn set_position(&self, position: Position) {
        self.epoch.store(position.epoch, Ordering::Relaxed);
        self.seq.store(position.seq, Ordering::Relaxed);
    }

    /// Counts `records` missed records.
    pub fn record_missed(&self, records: u64) {
        self.missed.fetch_add(records, Ordering::Relaxed);
        self.missed_ns.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    /// Keeps history for this subscriber within the log's limits, because the subscriber, or a subscriber of the mirror
    /// that it feeds, cannot receive gaps.
    pub fn keep_history(&self) {
        self.keeps_history.store(true, Ordering::Relaxed);
    }

    /// Stores that the subscriber has received a lag warning.
    pub fn record_lag_warning(&self) {
        self.lagging_ns.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    fn info(&self, partition: u16, last: Position) -> SubscriberInfo {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let position = Position { epoch, seq: self.seq.load(Ordering::Relaxed) };
        SubscriberInfo {
            name: self.name.clone(),
            partition,
            position,
            lag: if last.epoch == epoch { last.seq.saturating_sub(position.seq) } else { last.seq },
            missed: self.missed.load(Ordering::Relaxed),
            lagging_ns: self.lagging_ns.load(Ordering::Relaxed),
            missed_ns: self.missed_ns.load(Ordering::Relaxed),
            registered: self.registered,
            protocol: self.protocol,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
