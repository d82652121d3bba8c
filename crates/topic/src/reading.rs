//! Who reads a log, and how far each has come: what operators look at.
//!
//! In process, every subscriber that has a name is shown; a door shows those of its clients. Whoever reads writes where it
//! is, without a lock; whoever asks may see it a moment late.
//!
//! Limit: one entry for each reader that lives, kept outside the log's lock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::config::Clock;
use crate::event::Position;
use crate::log::Log;
use crate::subscribe::SubscribeOptions;

/// One reader of one log, kept up to date by who reads. It is forgotten when it is dropped.
#[derive(Debug)]
pub struct Reading {
    name: String,
    door: &'static str,
    registered: bool,
    clock: Clock,
    epoch: AtomicU32,
    seq: AtomicU64,
    lost: AtomicU64,
    lagging_ns: AtomicU64,
    lost_ns: AtomicU64,
    keeps_history: AtomicBool,
    /// Where it was when the log last looked for how far readers have come, and since when, as far as it looked.
    looked_seq: AtomicU64,
    looked_ns: AtomicU64,
}

/// How far readers have come that cannot be told of a loss.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pending {
    /// The first record that one of them has yet to read.
    pub(crate) first: Option<u64>,
    /// The same, without those that have read nothing for [`STALLED_NS`].
    pub(crate) first_of_moving: Option<u64>,
}

/// A reader that has read nothing for so long stands still.
const STALLED_NS: u64 = 500_000_000;

/// What operators see of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderInfo {
    /// The subscription's name.
    pub name: String,
    /// The partition it reads.
    pub partition: u16,
    /// The last record it was given.
    pub position: Position,
    /// Records it has yet to read.
    pub behind: u64,
    /// Records that were lost to it.
    pub lost: u64,
    /// When it was last warned that half of the history lay ahead of it, ns since the Unix epoch; 0 for never.
    pub lagging_ns: u64,
    /// When it last lost records, ns since the Unix epoch; 0 for never.
    pub lost_ns: u64,
    /// The door it came through; empty in process.
    pub door: &'static str,
    /// Whether publishers wait for it.
    pub registered: bool,
}

/// The readers of one log. Most logs have none to show.
#[derive(Debug, Default)]
pub(crate) struct Readings(OnceLock<Box<Mutex<Vec<Weak<Reading>>>>>);

impl Log {
    /// Lets operators see a reader that was given everything through `at`.
    pub fn show_reader(&self, options: &SubscribeOptions, registered: bool, at: Position) -> Arc<Reading> {
        let reading = Arc::new(Reading {
            name: options.name.clone(),
            door: options.door,
            registered,
            clock: self.clock,
            epoch: AtomicU32::new(at.epoch),
            seq: AtomicU64::new(at.seq),
            lost: AtomicU64::new(0),
            lagging_ns: AtomicU64::new(0),
            lost_ns: AtomicU64::new(0),
            keeps_history: AtomicBool::new(false),
            looked_seq: AtomicU64::new(at.seq),
            looked_ns: AtomicU64::new(0),
        });
        let mut readings = lock(self.readings.0.get_or_init(Box::default));
        if readings.len() == readings.capacity() {
            readings.retain(|other| other.strong_count() > 0);
        }
        readings.push(Arc::downgrade(&reading));
        reading
    }

    /// How far readers of this epoch have come that cannot be told of a loss.
    #[cold]
    pub(crate) fn pending(&self, epoch: u32, now_ns: u64) -> Pending {
        let mut pending = Pending::default();
        let Some(readings) = self.readings.0.get() else { return pending };
        for reading in lock(readings).iter().filter_map(Weak::upgrade) {
            let keeps = reading.keeps_history.load(Ordering::Relaxed);
            if !keeps || reading.epoch.load(Ordering::Relaxed) != epoch {
                continue;
            }
            let seq = reading.seq.load(Ordering::Relaxed);
            let least = |first: Option<u64>| Some(first.map_or(seq + 1, |first| first.min(seq + 1)));
            pending.first = least(pending.first);
            if reading.looked_seq.swap(seq, Ordering::Relaxed) != seq {
                reading.looked_ns.store(now_ns, Ordering::Relaxed);
            }
            if now_ns.saturating_sub(reading.looked_ns.load(Ordering::Relaxed)) < STALLED_NS {
                pending.first_of_moving = least(pending.first_of_moving);
            }
        }
        pending
    }

    /// The readers that are shown.
    pub fn readers(&self) -> Vec<ReaderInfo> {
        let Some(readings) = self.readings.0.get() else { return Vec::new() };
        let readings: Vec<Arc<Reading>> = {
            let mut readings = lock(readings);
            readings.retain(|reading| reading.strong_count() > 0);
            readings.iter().filter_map(Weak::upgrade).collect()
        };
        let (partition, last) = (self.name().partition, self.last());
        readings.iter().map(|reading| reading.info(partition, last)).collect()
    }
}

impl Reading {
    /// It was given the record at this position.
    #[inline]
    pub fn at(&self, position: Position) {
        self.epoch.store(position.epoch, Ordering::Relaxed);
        self.seq.store(position.seq, Ordering::Relaxed);
    }

    /// So many records were lost to it.
    pub fn lost(&self, records: u64) {
        self.lost.fetch_add(records, Ordering::Relaxed);
        self.lost_ns.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    /// It cannot be told of a loss: the log keeps history for it, as far as its limits say.
    pub fn keep_history(&self) {
        self.keeps_history.store(true, Ordering::Relaxed);
    }

    /// It was warned that records may soon be lost to it.
    pub fn lagging(&self) {
        self.lagging_ns.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    fn info(&self, partition: u16, last: Position) -> ReaderInfo {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let position = Position { epoch, seq: self.seq.load(Ordering::Relaxed) };
        ReaderInfo {
            name: self.name.clone(),
            partition,
            position,
            behind: if last.epoch == epoch { last.seq.saturating_sub(position.seq) } else { last.seq },
            lost: self.lost.load(Ordering::Relaxed),
            lagging_ns: self.lagging_ns.load(Ordering::Relaxed),
            lost_ns: self.lost_ns.load(Ordering::Relaxed),
            registered: self.registered,
            door: self.door,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
