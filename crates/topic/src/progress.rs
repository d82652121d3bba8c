//! The list of a log's subscribers and their positions, which operators can see.
//!
//! The list has every subscriber of this process that has a name. Subscribers of clients are added by the listener to
//! which the client is connected. Subscribers update their positions without a lock, so a position in the list may be
//! slightly out of date. A log shares its list with its private mirrors.
//!
//! Limit: one entry for each live subscriber and each private mirror. The log's lock is not needed for the list.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::config::Clock;
use crate::event::Position;
use crate::log::Log;
use crate::subscribe::SubscribeOptions;

/// The position and the losses of a subscriber in one log. Operators see the subscriber in the list until this value is
/// dropped.
#[derive(Debug)]
pub struct SubscriberProgress {
    name: String,
    protocol: &'static str,
    registered: bool,
    /// The address of the log from which the subscriber read at first. The log's number would not do, because a private
    /// mirror has the same number as the log that it mirrors.
    log: usize,
    clock: Clock,
    epoch: AtomicU32,
    seq: AtomicU64,
    missed: AtomicU64,
    lagging_ns: AtomicU64,
    missed_ns: AtomicU64,
    /// Whether the log keeps history for this subscriber, within its limits.
    keeps_history: bool,
    /// The value of `seq` when the log last checked the subscribers that cannot receive gaps.
    checked_seq: AtomicU64,
    /// The log checks from time to time whether `seq` has changed. This is the time of the last check that found a
    /// change, ns.
    changed_ns: AtomicU64,
}

/// The oldest record of a log that is unread by a subscriber that cannot receive gaps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OldestUnread {
    /// Sequence number of the oldest record that one of these subscribers has not read; `None` without such
    /// subscribers.
    pub(crate) first: Option<u64>,
    /// Like `first`, but only for subscribers that are not stalled: they have read something within [`STALLED_NS`].
    pub(crate) first_of_active: Option<u64>,
}

/// A subscriber that has read nothing for this time counts as stalled, ns.
const STALLED_NS: u64 = 500_000_000;

/// The position, the lag and the losses of a subscriber, as operators see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberInfo {
    /// The subscription's name.
    pub name: String,
    /// The partition that the subscriber reads.
    pub partition: u16,
    /// Position of the last record that the subscriber received or skipped.
    pub position: Position,
    /// Number of records that the subscriber has not read.
    pub lag: u64,
    /// Number of records that the subscriber missed in gaps.
    pub missed: u64,
    /// Time of the last lag warning, ns since the Unix epoch; 0 if there was none.
    pub lagging_ns: u64,
    /// Time of the last gap, ns since the Unix epoch; 0 if there was none.
    pub missed_ns: u64,
    /// The protocol of the listener to which the subscriber is connected; empty for a subscriber in this process.
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
    /// The list for a new private mirror of this log: the same list.
    pub(crate) fn share(&self) -> SubscriberList {
        SubscriberList(Arc::clone(self.0.get_or_init(Arc::default)).into())
    }

    /// Adds a private mirror whose list was created with [`share`](SubscriberList::share).
    pub(crate) fn add_private_mirror(&self, private: &Arc<Log>) {
        let mut listed = lock(self.0.get_or_init(Arc::default));
        push_live(&mut listed.private_mirrors, Arc::downgrade(private));
    }

    fn private_mirrors(&self) -> Vec<Arc<Log>> {
        let Some(listed) = self.0.get() else { return Vec::new() };
        lock(listed).private_mirrors.iter().filter_map(Weak::upgrade).collect()
    }

    /// Number of sleeping cursors in all private mirrors of the log.
    pub(crate) fn waiting_in_private_mirrors(&self) -> usize {
        self.private_mirrors().iter().map(|log| log.info().waiting).sum()
    }
}

/// Adds an item. If the list has no spare capacity, first removes the items that no longer exist.
fn push_live<T>(list: &mut Vec<Weak<T>>, item: Weak<T>) {
    if list.len() == list.capacity() {
        list.retain(|other| other.strong_count() > 0);
    }
    list.push(item);
}

impl Log {
    /// Adds a subscriber to the list. The subscriber has received all records up to `at`.
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
            log: self.address(),
            clock: self.clock,
            epoch: AtomicU32::new(at.epoch),
            seq: AtomicU64::new(at.seq),
            missed: AtomicU64::new(0),
            lagging_ns: AtomicU64::new(0),
            missed_ns: AtomicU64::new(0),
            keeps_history: options.needs_history(),
            checked_seq: AtomicU64::new(at.seq),
            changed_ns: AtomicU64::new(0),
        });
        let mut listed = lock(self.listed_subscribers.0.get_or_init(Arc::default));
        push_live(&mut listed.subscribers, Arc::downgrade(&progress));
        progress
    }

    /// Finds the oldest unread record of the subscribers that began in this log, are in this epoch and cannot receive
    /// gaps.
    #[cold]
    pub(crate) fn oldest_unread(&self, epoch: u32, now_ns: u64) -> OldestUnread {
        let mut oldest = OldestUnread::default();
        let Some(listed) = self.listed_subscribers.0.get() else { return oldest };
        for progress in lock(listed).subscribers.iter().filter_map(Weak::upgrade) {
            let keeps_history = progress.log == self.address() && progress.keeps_history;
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

    /// The subscribers in the list, including those of the log's private mirrors.
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

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Position of the newest record that the log or one of its private mirrors has received. A private mirror without
    /// records does not count: its position may be the start that its subscriber requested.
    fn last_known(&self) -> Position {
        let private_mirrors = self.listed_subscribers.private_mirrors();
        let infos = private_mirrors.iter().map(|log| log.info());
        let received = infos.filter(|info| info.oldest_seq < info.next_seq);
        let last_of = received.map(|info| Position { epoch: info.epoch, seq: info.next_seq - 1 });
        last_of.fold(self.last(), Ord::max)
    }
}

impl SubscriberProgress {
    /// Stores that the subscriber has received or skipped all records up to `position`.
    #[inline]
    pub fn set_position(&self, position: Position) {
        self.epoch.store(position.epoch, Ordering::Relaxed);
        self.seq.store(position.seq, Ordering::Relaxed);
    }

    /// Counts `records` records that the subscriber missed in a gap.
    pub fn record_missed(&self, records: u64) {
        self.missed.fetch_add(records, Ordering::Relaxed);
        self.missed_ns.store(self.clock.now_ns(), Ordering::Relaxed);
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
