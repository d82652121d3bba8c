//! Who reads through doors, and how far each has come: what operators look at.
//!
//! Limit: one entry for each log that a session reads, so `channels_max` of the server times its sessions.
//!
//! Not here: subscribers of this process, whose positions are nobody's but their own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dunlin_topic::{Log, Position, Topic};

use crate::node::Node;

/// One reader of one log, kept up to date by its door. It is forgotten when it is dropped.
#[derive(Debug)]
pub struct Reading {
    name: String,
    log: Arc<Log>,
    registered: bool,
    epoch: AtomicU32,
    seq: AtomicU64,
    lost: AtomicU64,
}

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
    /// Whether publishers wait for it.
    pub registered: bool,
}

/// The readers of a node, by the addresses of their logs.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<HashMap<usize, Vec<Weak<Reading>>>>);

impl Node {
    /// Lets operators see a reader.
    pub fn show_reader(&self, name: &str, log: &Arc<Log>, registered: bool, at: Position) -> Arc<Reading> {
        let reading = Arc::new(Reading {
            name: name.to_owned(),
            log: Arc::clone(log),
            registered,
            epoch: AtomicU32::new(at.epoch),
            seq: AtomicU64::new(at.seq),
            lost: AtomicU64::new(0),
        });
        let mut readers = self.readers_of_node().lock();
        let of_log = readers.entry(address(log)).or_default();
        if of_log.len() == of_log.capacity() {
            of_log.retain(|other| other.strong_count() > 0);
        }
        of_log.push(Arc::downgrade(&reading));
        reading
    }

    /// The readers of a topic through doors, those with the most records ahead first.
    pub fn readers(&self, topic: &Topic) -> Vec<ReaderInfo> {
        let readings: Vec<Arc<Reading>> = {
            let readers = self.readers_of_node().lock();
            let of_topic = topic.logs().iter().filter_map(|log| readers.get(&address(log)));
            of_topic.flatten().filter_map(Weak::upgrade).collect()
        };
        let mut readers: Vec<_> = readings.iter().map(|reading| reading.info()).collect();
        readers.sort_by_key(|reader| std::cmp::Reverse(reader.behind));
        readers
    }
}

impl Readers {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Vec<Weak<Reading>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets logs that nobody reads any more.
    pub(crate) fn tidy(&self) {
        self.lock().retain(|_, of_log| {
            of_log.retain(|reading| reading.strong_count() > 0);
            !of_log.is_empty()
        });
    }
}

impl Reading {
    /// It was given the record at this position.
    pub fn at(&self, position: Position) {
        self.epoch.store(position.epoch, Ordering::Relaxed);
        self.seq.store(position.seq, Ordering::Relaxed);
    }

    /// So many records were lost to it.
    pub fn lost(&self, records: u64) {
        self.lost.fetch_add(records, Ordering::Relaxed);
    }

    fn info(&self) -> ReaderInfo {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let position = Position { epoch, seq: self.seq.load(Ordering::Relaxed) };
        let last = self.log.last();
        ReaderInfo {
            name: self.name.clone(),
            partition: self.log.name().partition,
            position,
            behind: if last.epoch == epoch { last.seq.saturating_sub(position.seq) } else { last.seq },
            lost: self.lost.load(Ordering::Relaxed),
            registered: self.registered,
        }
    }
}

/// A log stays where it is as long as anybody reads it.
fn address(log: &Arc<Log>) -> usize {
    Arc::as_ptr(log) as usize
}
