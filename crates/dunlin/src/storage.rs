//! Stores durable topics on disk: their files, their logs, and the thread that writes records. The files are:
//!
//! ```text
//!  DIR/lock                        locked by the node that uses the directory
//!  DIR/topics/ID.topic             a topic's name and configuration (module `catalogue`)
//!  DIR/topics/ID.deleted           the mark of a topic that is being deleted
//!  DIR/topics/ID-PARTITION.stored  the position up to which a log was stored (module `stored_position`)
//!  DIR/logs/ID-PARTITION           the log of one partition (crate `journal`)
//!  DIR/control.made                file times of DIR/control of a single node (module `part_mark`)
//!  DIR/tasks.made                  file times of DIR/tasks of a single node
//! ```
//!
//! Invariants:
//! - A topic exists while its file in `topics` exists. The file is written after the logs were opened. When the topic
//!   is deleted, the file becomes a deletion mark before the logs are removed. If a log has records, but its topic has
//!   neither a file nor a deletion mark, the node did not delete the topic. Such logs remain on disk.
//! - Only this module, and the journals that it opens, change the files.
//! - If a log was not closed properly, it continues in a new epoch, because the disk may have lost synced records.
//!
//! Limits: [`NodeLimits::unstored_bytes_max`](crate::NodeLimits),
//! [`NodeLimits::loaded_bytes_max`](crate::NodeLimits) and [`NodeLimits::reserved_files`](crate::NodeLimits).

mod catalogue;
mod checksum;
mod disk_log;
mod doubt;
mod error;
mod loaded;
mod note;
mod open_files;
pub(crate) mod part_mark;
mod recover;
mod stored_position;
mod strays;
mod worker;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_journal::{DirLock, Disk, lacks_resource};
use dunlin_topic::{MemoryBudget, Topic, TopicConfig};

use crate::clock::CLOCK;
use crate::config::NodeLimits;
use crate::error::TopicError;
use crate::node::make_reducer;
pub(crate) use catalogue::{decode_config, encode_config};
use disk_log::{DiskLog, Shortage};
use loaded::Cache;
use worker::{Removal, StoreWorker};

pub use error::StorageError;
pub use recover::{RecoveredTopic, RefusedTopic};

/// All durable topics of a data directory.
#[derive(Debug)]
pub(crate) struct Storage {
    context: StorageContext,
    topics: Mutex<Topics>,
    worker: StoreWorker,
    _lock: Box<dyn DirLock>,
}

/// The disk, the directory, and the limits and the cache that all logs share.
#[derive(Debug)]
struct StorageContext {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    cache: Arc<Cache>,
    unstored_bytes_max: u64,
    /// The number of file descriptors that durable topics leave to the rest of the process.
    reserved_files: u64,
    /// The limits of each log of a durable topic.
    limits: dunlin_topic::LogLimits,
}

#[derive(Debug, Default)]
struct Topics {
    by_name: HashMap<String, StoredTopic>,
    /// The topics on disk that are not open: their files could not be opened, or they were set aside.
    refused: Vec<RefusedTopic>,
    /// Closed topics whose files stay on disk, although this node must not serve the topics.
    set_aside_topics: Vec<StoredTopic>,
    id_last: u64,
}

#[derive(Debug)]
struct StoredTopic {
    id: u64,
    logs: Vec<Arc<DiskLog>>,
}

/// Whether a topic is being created or comes from the disk, and the epoch in which it was created.
#[derive(Debug, Clone, Copy)]
enum TopicOrigin {
    /// The topic is being created, in this epoch.
    Created(u32),
    /// The topic was created before this start, in this epoch. `None` if an older version of Dunlin created the topic
    /// without storing the epoch.
    Existing(Option<u32>),
}

impl TopicOrigin {
    fn epoch(self) -> Option<u32> {
        match self {
            TopicOrigin::Created(epoch) => Some(epoch),
            TopicOrigin::Existing(epoch) => epoch,
        }
    }
}

impl Storage {
    /// Opens a data directory, or creates it. [`recover`](Storage::recover) then opens the topics in it.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        limits: &NodeLimits,
    ) -> Result<Storage, StorageError> {
        let failed = |action| StorageError::disk(action, dir);
        for part in ["topics", "logs"] {
            disk.create_dir(&dir.join(part)).map_err(failed("create"))?;
        }
        let lock = disk.lock(dir).map_err(failed("lock"))?;
        let lock = lock.ok_or_else(|| StorageError::InUse(dir.to_owned()))?;
        let context = StorageContext {
            disk,
            dir: dir.to_owned(),
            cache: Cache::new(limits.loaded_bytes_max),
            unstored_bytes_max: limits.unstored_bytes_max,
            reserved_files: limits.reserved_files,
            limits: limits.topic,
        };
        let worker = StoreWorker::start().map_err(StorageError::Thread)?;
        Ok(Storage { context, topics: Mutex::default(), worker, _lock: lock })
    }

    /// The reason why the storing thread could not store all records when it last wrote to logs; `None` if it stored
    /// all records.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        self.worker.shortage()
    }

    /// The names of open topics whose disk has failed. They accept no records until the next start.
    pub(crate) fn failed_topics(&self) -> Vec<String> {
        if !self.worker.has_failed() {
            return Vec::new();
        }
        let topics = self.topics();
        let failed =
            topics.by_name.iter().filter(|(_, stored)| stored.logs.iter().any(|log| log.has_failed()));
        failed.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn disk_and_dir(&self) -> (&Arc<dyn Disk>, &Path) {
        (&self.context.disk, &self.context.dir)
    }

    /// Returns an error if a topic with this number of partitions would need file descriptors that are reserved for the
    /// rest of the process.
    pub(crate) fn check_open_files(&self, partitions: u16) -> Result<(), TopicError> {
        let StorageContext { disk, reserved_files, .. } = &self.context;
        let Some(limit) = disk.open_files_max() else { return Ok(()) };
        let logs_open: usize = {
            let topics = self.topics();
            topics.by_name.values().chain(&topics.set_aside_topics).map(|stored| stored.logs.len()).sum()
        };
        open_files::check(limit, *reserved_files, logs_open as u64, partitions)
    }

    /// Creates a topic that begins in the epoch `epoch`. The caller ensures that only one topic is created at a time.
    pub(crate) fn create(
        &self,
        name: &str,
        config: &Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        epoch: u32,
    ) -> Result<Topic, TopicError> {
        self.check_open_files(config.partitions)?;
        // Release the lock of `topics` at once, so that other callers do not wait for the disk.
        let id = self.topics().id_last + 1;
        let (topic, logs, _) =
            self.open_topic(id, name, config, budget, TopicOrigin::Created(epoch), |_| epoch)?;
        let (disk, dir) = (&*self.context.disk, &*self.context.dir);
        catalogue::write(disk, dir, id, name, config, epoch)?;
        logs.iter().for_each(|log| log.write_new_position(epoch));
        if let Err(error) = catalogue::sync_dir(disk, dir) {
            // Remove the file again: otherwise, the next start would find this topic, whose creation fails here.
            let _ = disk.remove(&catalogue::path(dir, id));
            return Err(error.into());
        }
        let mut topics = self.topics();
        topics.id_last = id;
        topics.by_name.insert(name.to_owned(), StoredTopic { id, logs });
        Ok(topic)
    }

    /// Deletes a topic, which must be closed. Before the topic's subscribers receive the notice of its end, pending
    /// records are stored.
    pub(crate) fn delete(&self, topic: &Topic) -> Result<(), TopicError> {
        let Some(stored) = self.topics().by_name.remove(topic.name()) else { return Ok(()) };
        let (disk, dir) = (Arc::clone(&self.context.disk), self.context.dir.clone());
        let mark_result = catalogue::mark_deleted(&*disk, &dir, stored.id);
        // Even after an error, remove the logs: the topic's name is already free, and its publishers are refused.
        let logs = stored.logs.into_iter().zip(topic.logs().iter().cloned()).collect();
        self.worker.remove(Removal { disk, dir, id: stored.id, logs });
        Ok(mark_result?)
    }

    /// Frees the name of a closed topic, but keeps the topic's files on disk. Records that are not stored yet are
    /// stored first.
    pub(crate) fn set_aside(&self, topic: &Topic, why: String) {
        let mut topics = self.topics();
        let Some(stored) = topics.by_name.remove(topic.name()) else { return };
        stored.logs.iter().for_each(|log| self.worker.visit(log));
        topics.set_aside_topics.push(stored);
        let (name, pattern) = (topic.name().to_owned(), topic.pattern().to_owned());
        topics.refused.push(RefusedTopic { name, pattern, why, id: None });
    }

    /// Does the housekeeping, about once a second: lets the storing thread remove records that are too old.
    pub(crate) fn tick(&self) {
        let topics = self.topics();
        let aging = topics.by_name.values().flat_map(|stored| &stored.logs).filter(|log| log.is_aging());
        aging.for_each(|log| self.worker.visit(log));
    }

    /// Stores all pending records, and closes the logs. The topics must already be closed.
    pub(crate) fn stop(&self) {
        let logs: Vec<_> = {
            let mut topics = self.topics();
            let set_aside_topics = std::mem::take(&mut topics.set_aside_topics);
            let all = topics.by_name.drain().map(|(_, stored)| stored).chain(set_aside_topics);
            all.flat_map(|stored| stored.logs).collect()
        };
        logs.iter().for_each(|log| self.worker.visit(log));
        self.worker.stop();
        logs.iter().for_each(|log| log.close());
    }

    fn topics(&self) -> MutexGuard<'_, Topics> {
        lock(&self.topics)
    }

    /// Opens the logs of a topic, and creates the topic in memory.
    #[expect(clippy::type_complexity, reason = "the value is unpacked at once")]
    fn open_topic(
        &self,
        id: u64,
        name: &str,
        config: &Arc<TopicConfig>,
        budget: &Arc<MemoryBudget>,
        topic_origin: TopicOrigin,
        epoch: impl Fn(&dunlin_journal::RecoveredLog) -> u32,
    ) -> Result<(Topic, Vec<Arc<DiskLog>>, Vec<dunlin_journal::RecoveredLog>), StorageError> {
        let (mut logs, mut reports, mut disks) = (Vec::new(), Vec::new(), Vec::new());
        for partition in 0..config.partitions {
            let (log, report) = DiskLog::open(
                &self.context,
                (id, name),
                partition,
                config,
                topic_origin,
                self.worker.queue(),
            )?;
            disks.push((log.recovered(&report, topic_origin.epoch(), epoch(&report)), Arc::clone(&log) as _));
            logs.push(log);
            reports.push(report);
        }
        let topic = Topic::durable_stateful(name, Arc::clone(config), budget, CLOCK, disks, make_reducer);
        let topic = topic.map_err(|error| StorageError::Config { topic: name.to_owned(), error })?;
        for ((disk_log, log), report) in logs.iter().zip(topic.logs()).zip(&mut reports) {
            disk_log.attach(log);
            let damage = disk_log.restore(name, log, report)?;
            report.damage.extend(damage);
        }
        Ok((topic, logs, reports))
    }
}

impl StorageContext {
    fn log_dir(&self, id: u64, partition: u16) -> PathBuf {
        self.dir.join("logs").join(format!("{id:08x}-{partition}"))
    }
}

/// Returns the result of reading a file or directory, or `None` if it cannot be read. If the process or the machine
/// lacks file descriptors or memory, returns the error instead, because a later attempt may succeed.
fn optional<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if lacks_resource(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Reads a small file, at most its first `bytes_max` bytes.
fn read_file(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, false)?;
    let mut bytes = vec![0; file.bytes()?.min(bytes_max) as usize];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
