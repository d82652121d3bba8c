//! One log of a durable topic on disk. Connects the [`Log`] in memory to the [`Journal`], which writes the files.
//! Staged records are appended records that are to be written next.

mod restore;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError, Weak};

use dunlin_journal::{
    AppendBatch, AppendError, BLOCK_HEADER_BYTES, Disk, Journal, ReadError, Reader, lacks_resource,
};
use dunlin_topic::{
    BATCH_BYTES_MAX, CheckedBatch, DiskContent, Log, LossCause, Position, Snapshot, StagedRecords, Store,
    TopicConfig,
};

use super::doubt::Doubt;
use super::error::StorageError;
use super::loaded::Cache;
use super::note;
use super::stored_position::{self, FileOrigin, Marks, StoredPosition};
use super::worker::StoreQueue;
use super::{StorageContext, TopicOrigin, catalogue, lock};
use crate::clock::now_ns;

/// How many bytes are read from disk at once. A block that is larger than this is read as a whole.
const LOAD_BYTES: usize = 256 << 10;
/// The approximate number of files into which a log's history is divided. Retention removes one file at a time.
const FILES_PER_HISTORY: u64 = 8;
const FILE_BYTES_MIN: u64 = 64 << 10;
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The minimum disk space that is reserved after a log's last record, in bytes.
const AHEAD_BYTES_MIN: u64 = 64 << 10;
/// If the disk has less free space than this, in bytes, a log reserves room before it accepts its first record. Besides
/// the records, a new file needs several blocks of the file system.
const NEW_FILE_ROOM: u64 = 2 * AHEAD_BYTES_MIN;
/// The maximum number of bytes that an append writes in addition to the records.
const APPEND_BYTES_EXTRA: u64 = 4 * BLOCK_HEADER_BYTES as u64;
/// A waiting publisher may store a log's records itself. If publishers have done so at least this often in a row, the
/// storing thread leaves the log's records to them.
const CONSECUTIVE_HELPS_MIN: u32 = 8;
/// A log's records that are accepted and not stored yet may take the free disk space divided by this number, or the
/// room that is reserved for the log, whichever is larger.
const FREE_SHARE: u64 = 4;
/// The maximum size of a record in a file, in bytes.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// The part of a durable topic's log that is on disk.
#[derive(Debug)]
pub(super) struct DiskLog {
    self_ref: Weak<DiskLog>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    topic_path: PathBuf,
    /// The path of the position file, which says up to which position the log was stored.
    position_path: PathBuf,
    /// The pattern of the topic.
    pattern: String,
    /// If this start has found that stored records are missing: the position up to which the log was stored.
    missing: Option<StoredPosition>,
    /// Epochs that may have had more records than those on disk.
    uncertain_epochs: Vec<u32>,
    /// The reason why the log may have had more records than the files contain, if there is one.
    doubt: Option<Doubt>,
    reader: Reader,
    cache: Arc<Cache>,
    queue: Arc<StoreQueue>,
    log: OnceLock<Weak<Log>>,
    bytes: AtomicU64,
    unstored_bytes_max: u64,
    aging: bool,
    /// If the log's files are larger than this, in bytes, a snapshot of the topic's state is saved.
    save_state_bytes: u64,
    /// How many times a waiting publisher has stored the log's staged records itself.
    helped: AtomicU64,
    /// Like `helped`, but reset to 0 whenever the storing thread finds `helped` unchanged since its last visit.
    consecutive_helps: AtomicU32,
    /// The value that `helped` had at the storing thread's last visit.
    helped_before: AtomicU64,
    /// Whether the log is in the list of logs that the storing thread visits later, in case publishers do not store the
    /// log's records themselves.
    later: AtomicBool,
    /// Whether subscribers have to wait before they read from disk again. Set if the process lacked a resource for a
    /// read, until the storing thread allows reads again.
    defers_reads: AtomicBool,
    has_failed: AtomicBool,
    writing: Mutex<Writing>,
}

/// The state of storing records, behind a lock. The lock's holder, which is the storing thread or a publisher, stores
/// the records.
#[derive(Debug)]
struct Writing {
    journal: Option<Journal>,
    /// Staged records that could not be written, because the disk was full or the process lacked file descriptors.
    waiting: Option<StagedRecords>,
    /// Records that were written but not synced.
    written: Option<StagedRecords>,
    note: Vec<u8>,
    /// A snapshot of the topic's state. It is saved once the last record that it contains is synced.
    snapshot: Option<Snapshot>,
    /// Whether publishers are refused, because the disk was full.
    full: bool,
    /// The position that the position file contains, as far as it is known.
    written_position: Option<StoredPosition>,
    written_file: Option<dunlin_journal::Position>,
}

/// When the storing thread visits the log again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextVisit {
    OnRequest,
    /// After a pause.
    Retry(Shortage),
}

/// The reason why records cannot be stored now, from the mildest to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum Shortage {
    /// Publishers wait, as for a slow disk.
    #[error(
        "records of durable topics are not stored yet: the process or the machine lacks file descriptors or \
         memory; raise the limit of open files (ulimit -n; LimitNOFILE in a systemd unit) and restart the \
         node"
    )]
    Resource,
    /// Publishers are refused.
    #[error("no room for records of durable topics; free room on the disk of the data directory")]
    Room,
}

impl DiskLog {
    pub(super) fn open(
        context: &StorageContext,
        (id, topic): (u64, &str),
        partition: u16,
        config: &TopicConfig,
        topic_origin: TopicOrigin,
        queue: &Arc<StoreQueue>,
    ) -> Result<(Arc<DiskLog>, dunlin_journal::RecoveredLog), StorageError> {
        let dir = context.log_dir(id, partition);
        let name = format!("{topic}/{partition}");
        let (disk, topic_path) = (&*context.disk, catalogue::path(&context.dir, id));
        // Look at the files before the log is opened: opening creates missing files and changes existing ones.
        let unlisted = |error| StorageError::disk("list", &dir)(error);
        let changed_ns = stored_position::changed_ns(disk, &dir).map_err(unlisted)?;
        let marks = Marks::of(disk, &topic_path, &dir).map_err(unlisted)?;
        let opened = Journal::open(Arc::clone(&context.disk), &dir, &name, journal_config(config));
        let (journal, mut report) =
            opened.map_err(|error| StorageError::Log { topic: topic.to_owned(), error })?;
        let position_path = stored_position::path(&context.dir, id, partition);
        let mut written_position = match StoredPosition::read(disk, &position_path) {
            Err(error) if lacks_resource(&error) => {
                return Err(StorageError::disk("read", &position_path)(error));
            }
            // Treat an unreadable position file as missing. It will be replaced.
            found => found.unwrap_or_default(),
        };
        let pattern = config.pattern.clone().unwrap_or_else(|| topic.to_owned());
        let of_state = report.snapshot.map(|at| StoredPosition::from_state(at, &report));
        let furthest =
            written_position.iter().cloned().chain(of_state).rev().max_by_key(|it| (it.epoch, it.through));
        let missing = furthest.filter(|written_position| written_position.exceeds(&report));
        if let Some(missing) = &missing {
            missing.amend(&mut report, missing.is_original(&marks));
        }
        // If records are known to be missing, the log begins a new epoch in any case.
        let doubt = match missing {
            Some(_) => None,
            None => Doubt::of(topic_origin, &report, written_position.as_ref(), changed_ns, &marks),
        };
        let mut uncertain_epochs = written_position
            .as_ref()
            .map_or_else(Vec::new, |written_position| written_position.uncertain_epochs.clone());
        uncertain_epochs
            .extend(report.holes.iter().filter(|hole| hole.last.is_none()).map(|hole| hole.first.epoch));
        if doubt.is_some() {
            // The last known epoch or, for a log without records, the epoch in which the topic was created.
            let epoch = report.last.map(|last| last.epoch).or(topic_origin.epoch());
            report.clean = false;
            report.epoch_least = report.epoch_least.max(epoch.unwrap_or(0).saturating_add(1));
            uncertain_epochs.extend(epoch);
        }
        uncertain_epochs.sort_unstable();
        uncertain_epochs.dedup();
        if doubt.is_some() {
            let (epoch, through) =
                report.last.map_or((topic_origin.epoch().unwrap_or(0), 0), |last| (last.epoch, last.seq));
            let begins = journal.reader().epochs();
            let first_seq = begins.iter().find(|begin| begin.epoch == epoch).map_or(1, |begin| begin.seq);
            let origin = FileOrigin::of(disk, &topic_path, &dir).map_err(unlisted)?;
            let (closed, changed_ns, uncertain_epochs, pattern) =
                (false, None, uncertain_epochs.clone(), Some(pattern.clone()));
            // Write the position now. It stays correct even if the node is killed before the position is written again.
            let now = StoredPosition {
                epoch,
                first_seq,
                through,
                closed,
                pattern,
                uncertain_epochs,
                changed_ns,
                origin,
            };
            let _ = now.write(disk, &position_path);
            written_position = Some(now);
        }
        let log = Arc::new_cyclic(|self_ref| DiskLog {
            self_ref: self_ref.clone(),
            disk: Arc::clone(&context.disk),
            dir,
            topic_path,
            position_path,
            pattern,
            missing,
            uncertain_epochs,
            doubt,
            reader: journal.reader(),
            cache: Arc::clone(&context.cache),
            queue: Arc::clone(queue),
            log: OnceLock::new(),
            bytes: AtomicU64::new(journal.bytes()),
            unstored_bytes_max: context
                .unstored_bytes_max
                .max(config.record_bytes_max.into())
                .max(BATCH_BYTES_MAX as u64),
            aging: config.retention.age.is_some(),
            save_state_bytes: config.retention.bytes.max(2 * journal_config(config).file_bytes),
            helped: AtomicU64::new(0),
            consecutive_helps: AtomicU32::new(0),
            helped_before: AtomicU64::new(0),
            later: AtomicBool::new(false),
            defers_reads: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            writing: Mutex::new(Writing {
                journal: Some(journal),
                waiting: None,
                written: None,
                note: Vec::new(),
                snapshot: None,
                full: false,
                written_position,
                written_file: None,
            }),
        });
        Ok((log, report))
    }

    /// Connects the log in memory whose records this log stores.
    pub(super) fn attach(&self, log: &Arc<Log>) {
        let _ = self.log.set(Arc::downgrade(log));
    }

    /// The reason why the log may have had more records than the files contain, if there is one. In this case, the log
    /// has begun a new epoch.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// Whether the topic's retention has a limit on the records' age.
    pub(super) fn is_aging(&self) -> bool {
        self.aging
    }

    fn log(&self) -> Option<Arc<Log>> {
        self.log.get().and_then(Weak::upgrade)
    }

    /// Writes staged records. Does nothing while earlier records are written but not synced.
    pub(super) fn write(&self) {
        if let Some(log) = self.log() {
            let helped = self.helped();
            if self.helped_before.swap(helped, Ordering::Relaxed) == helped {
                self.consecutive_helps.store(0, Ordering::Relaxed);
            }
            self.write_staged(&log, &mut lock(&self.writing));
        }
    }

    /// How many times a waiting publisher has stored the log's staged records itself.
    pub(super) fn helped(&self) -> u64 {
        self.helped.load(Ordering::Relaxed)
    }

    pub(super) fn is_being_stored(&self) -> bool {
        matches!(self.writing.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Called when the storing thread removes the log from its list of logs to visit later, in order to visit it now.
    pub(super) fn remove_from_later(&self) {
        self.consecutive_helps.store(0, Ordering::Relaxed);
        self.later.swap(false, Ordering::AcqRel);
    }

    fn write_staged(&self, log: &Log, writing: &mut Writing) {
        let Writing { journal: Some(journal), waiting, written: written @ None, note, full, .. } = writing
        else {
            return;
        };
        let Some(staged) = waiting.take().or_else(|| log.stage()) else { return };
        match append(journal, &staged, note) {
            Ok(()) => {
                log.mark_written(&staged);
                *written = Some(staged);
            }
            Err(why) if why.allows_retry() => {
                *waiting = Some(staged);
                report_shortage(log, full, &why, 0);
            }
            Err(why) => self.fail(log, &why.to_string()),
        }
    }

    /// Reports to the log's publishers and subscribers, and to the node's health checks, that the disk has failed.
    fn fail(&self, log: &Log, why: &str) {
        log.fail(why);
        self.has_failed.store(true, Ordering::Relaxed);
        self.queue.record_failure();
    }

    /// Whether the disk has failed, so that the log accepts no further records.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Writes and syncs staged records. If earlier records are written but not synced, syncs them first.
    fn store_staged(&self, log: &Log, writing: &mut Writing) -> NextVisit {
        if writing.written.is_some() {
            self.sync_written(log, writing);
        }
        self.write_staged(log, writing);
        self.sync_written(log, writing)
    }

    /// Syncs written records, tells the log which records are synced, grants publishers room for more, and applies
    /// retention.
    pub(super) fn sync(&self) -> NextVisit {
        let Some(log) = self.log() else { return NextVisit::OnRequest };
        self.sync_written(&log, &mut lock(&self.writing))
    }

    fn sync_written(&self, log: &Log, writing: &mut Writing) -> NextVisit {
        let Writing {
            journal: Some(journal),
            waiting,
            written,
            snapshot,
            full,
            written_position,
            written_file,
            ..
        } = writing
        else {
            return NextVisit::OnRequest;
        };
        if let Some(staged) = written.take() {
            match journal.sync() {
                Ok(_) => {
                    log.mark_synced(staged, self.grant(journal));
                    self.write_position_per_file(journal, written_position, written_file);
                }
                Err(why) => {
                    self.fail(log, &why.to_string());
                    return NextVisit::OnRequest;
                }
            }
        }
        if self.retain(log, journal, snapshot).is_ok_and(|dropped| dropped > 0)
            && let Some(oldest) = self.reader.oldest()
        {
            log.drop_stored_before(oldest.seq);
        }
        self.bytes.store(journal.bytes(), Ordering::Relaxed);
        if waiting.is_some() {
            return NextVisit::Retry(if *full { Shortage::Room } else { Shortage::Resource });
        }
        let wanted_bytes = log.requested_bytes();
        match journal.reserve_room(AHEAD_BYTES_MIN.max(wanted_bytes + APPEND_BYTES_EXTRA)) {
            Ok(()) if !std::mem::take(full) && wanted_bytes == 0 => NextVisit::OnRequest,
            Ok(()) => {
                log.grant(self.grant(journal).max(wanted_bytes), None);
                NextVisit::OnRequest
            }
            Err(why) if why.allows_retry() => {
                NextVisit::Retry(report_shortage(log, full, &why, guaranteed_bytes(journal)))
            }
            Err(_) => NextVisit::OnRequest,
        }
    }

    /// Removes the oldest files that the topic's retention does not keep, and returns the number of removed files. If
    /// the topic keeps a state, a snapshot that replaces the records in these files is saved first.
    fn retain(
        &self,
        log: &Log,
        journal: &mut Journal,
        snapshot: &mut Option<Snapshot>,
    ) -> Result<usize, AppendError> {
        if !log.is_stateful() {
            return journal.retain(now_ns());
        }
        let now_ns = now_ns();
        if snapshot.is_none() && (journal.bytes() > self.save_state_bytes || journal.has_aged(now_ns)) {
            *snapshot = log.snapshot();
        }
        match snapshot.take() {
            Some(taken) if taken.position.seq <= log.last().seq => {
                let at = dunlin_journal::Position::new(taken.position.epoch, taken.position.seq);
                journal.save_snapshot(at, &taken.bytes)?;
                journal.retain_after_snapshot(now_ns, at)
            }
            later => {
                *snapshot = later;
                Ok(0)
            }
        }
    }

    /// The number of bytes that publishers may append before the next sync: the reserved room, or a part of the free
    /// disk space.
    fn grant(&self, journal: &Journal) -> u64 {
        let free = self.disk.free_bytes(&self.dir).unwrap_or(0);
        self.unstored_bytes_max.min(guaranteed_bytes(journal).max(free / FREE_SHARE))
    }

    /// If the log has begun a new file since the last call, writes to the position file up to which position the log is
    /// stored.
    fn write_position_per_file(
        &self,
        journal: &Journal,
        written_position: &mut Option<StoredPosition>,
        written_file: &mut Option<dunlin_journal::Position>,
    ) {
        let newest = self.reader.newest();
        if *written_file == newest {
            return;
        }
        if let Some(last) = journal.durable() {
            *written_file = newest;
            self.write_position(last, None, written_position);
        }
    }

    /// Writes to the position file up to which position the log is stored. If the log is closed, `closed_ns` is the
    /// modification time of the log's last file.
    fn write_position(
        &self,
        last: dunlin_journal::Position,
        closed_ns: Option<u64>,
        written_position: &mut Option<StoredPosition>,
    ) {
        let begins = self.reader.epochs();
        let begin = begins.iter().find(|begin| begin.epoch == last.epoch);
        let first_seq = begin.map_or(last.seq, |begin| begin.seq);
        // If the log still has record 1, keep all uncertain epochs, because earlier epochs may have lost all of their
        // records. Otherwise, drop the epochs before the oldest one on disk.
        let oldest = begins.first().filter(|begin| begin.seq > 1).map_or(0, |begin| begin.epoch);
        let uncertain_epochs =
            self.uncertain_epochs.iter().copied().filter(|epoch| *epoch >= oldest).collect();
        let pattern = Some(self.pattern.clone());
        let (epoch, through, closed) = (last.epoch, last.seq, closed_ns.is_some());
        // On an error, keep the position file, whose position is still correct.
        let Ok(origin) = FileOrigin::of(&*self.disk, &self.topic_path, &self.dir) else { return };
        let now = Some(StoredPosition {
            epoch,
            first_seq,
            through,
            closed,
            pattern,
            uncertain_epochs,
            changed_ns: closed_ns,
            origin,
        });
        if *written_position != now
            && now.iter().all(|now| now.write(&*self.disk, &self.position_path).is_ok())
        {
            *written_position = now;
        }
    }

    /// Writes a position file which says that the log was created in this epoch and has no record. If the node finds an
    /// empty log without such a file at its next start, records were removed. The caller syncs the directory.
    pub(super) fn write_new_position(&self, epoch: u32) {
        // Ignore an error. If the log has no record at the next start, the node then reports that records may be lost.
        let Ok(origin) = FileOrigin::of(&*self.disk, &self.topic_path, &self.dir) else { return };
        let pattern = Some(self.pattern.clone());
        let (uncertain_epochs, changed_ns) = (Vec::new(), None);
        let new = StoredPosition {
            epoch,
            first_seq: 1,
            through: 0,
            closed: false,
            pattern,
            uncertain_epochs,
            changed_ns,
            origin,
        };
        if new.put(&*self.disk, &self.position_path).is_ok() {
            lock(&self.writing).written_position = Some(new);
        }
    }

    /// Closes the log on disk. Later records are not stored.
    pub(super) fn close(&self) {
        let mut writing = lock(&self.writing);
        if let Some(journal) = writing.journal.take() {
            let last = journal.appended();
            // Ignore an error: the next start reports that the log was not closed.
            if journal.close().is_ok()
                && let Some(last) = last
            {
                let closed_ns = stored_position::changed_ns(&*self.disk, &self.dir);
                let closed_ns = closed_ns.ok().flatten().unwrap_or(0);
                self.write_position(last, Some(closed_ns), &mut writing.written_position);
            }
        }
    }

    /// Called when the topic is deleted. Stores the remaining records, for subscribers that still read them from disk,
    /// and removes the files. Returns whether all files of the log were removed.
    pub(super) fn finish(&self, log: &Log) -> bool {
        {
            let mut writing = lock(&self.writing);
            self.store_staged(log, &mut writing);
            writing.journal = None;
            (writing.waiting, writing.written) = (None, None);
        }
        log.fail("the topic was deleted");
        self.cache.remove_log(self.key());
        // Ignore an error: the next start removes files that remain.
        let is_removed = super::recover::remove_log(&*self.disk, &self.dir).is_ok();
        let _ = self.disk.remove(&self.position_path);
        is_removed
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn read(&self, at: Position) -> DiskContent {
        let from = dunlin_journal::Position::new(at.epoch, at.seq);
        match self.reader.load(from, LOAD_BYTES) {
            Ok(Some(dunlin_journal::LoadOutcome::Records(records))) if records.epoch == at.epoch => {
                if records.first_seq > at.seq {
                    return DiskContent::Lost { through: records.first_seq - 1 };
                }
                let batch = CheckedBatch::check(&records.frames, records.count, FRAME_BYTES_MAX);
                let kept = batch
                    .ok()
                    .and_then(|batch| self.cache.add(self.key(), records.epoch, records.first_seq, batch));
                match kept {
                    Some(segment) => DiskContent::Segment(segment),
                    None => DiskContent::Lost { through: records.first_seq + u64::from(records.count) - 1 },
                }
            }
            Ok(Some(dunlin_journal::LoadOutcome::Hole(hole))) if hole.first.epoch == at.epoch => {
                DiskContent::Lost { through: hole.last.unwrap_or(u64::MAX) }
            }
            // The journal has no records of this epoch at or after the position.
            Ok(_) => DiskContent::Lost { through: u64::MAX },
            Err(ReadError::Gone { oldest, .. }) if oldest.epoch == at.epoch => {
                DiskContent::Lost { through: oldest.seq - 1 }
            }
            Err(ReadError::Gone { .. }) => DiskContent::Lost { through: u64::MAX },
            Err(ReadError::Disk(error)) if error.lacks_resource() => {
                self.defer_reads();
                DiskContent::Later
            }
            Err(_) => DiskContent::Lost { through: at.seq },
        }
    }

    /// Counts the records from `first` to `through` as lost to damage, unless retention has removed them.
    fn record_damage(&self, first: Position, through: u64) {
        let at = dunlin_journal::Position::new(first.epoch, first.seq);
        let is_retained = self.reader.oldest().is_some_and(|oldest| at >= oldest);
        if let Some(log) = self.log().filter(|_| is_retained) {
            log.record_loss(LossCause::Damaged, first, (through < u64::MAX).then_some(through));
        }
    }

    /// Makes subscribers wait until the storing thread calls `retry_reads`. Otherwise, they would repeat a failing read
    /// without a pause.
    fn defer_reads(&self) {
        if !self.defers_reads.swap(true, Ordering::AcqRel) {
            self.queue.add_deferred(Weak::clone(&self.self_ref));
        }
    }

    /// Lets subscribers read from disk again. Wakes the subscribers that wait; a subscriber that is about to wait
    /// notices the change before it sleeps.
    pub(super) fn retry_reads(&self) {
        self.defers_reads.store(false, Ordering::Release);
        if let Some(log) = self.log() {
            log.retry_reads();
        }
    }
}

impl Store for DiskLog {
    fn store_staged(&self) {
        let Some(log) = self.log() else { return };
        // The holder of the lock, which is the storing thread or a publisher, stores all records that are staged by
        // now. Records that are staged afterwards are stored by the next holder.
        let mut writing = lock(&self.writing);
        self.helped.fetch_add(1, Ordering::Relaxed);
        self.consecutive_helps.fetch_add(1, Ordering::Relaxed);
        if matches!(self.store_staged(&log, &mut writing), NextVisit::Retry(_))
            && let Some(self_ref) = self.self_ref.upgrade()
        {
            self.queue.add(self_ref);
        }
    }

    fn notify_staged(&self) {
        let helped = self.consecutive_helps.load(Ordering::Relaxed) >= CONSECUTIVE_HELPS_MIN;
        // If the log is already in the list of logs to visit later, the storing thread will find the new record at that
        // visit.
        if helped && self.later.swap(true, Ordering::AcqRel) {
            return;
        }
        match self.self_ref.upgrade() {
            Some(self_ref) if helped => self.queue.add_later(self_ref),
            Some(self_ref) => self.queue.add(self_ref),
            None => {}
        }
    }

    fn free_room(&self) -> u64 {
        let free = self.disk.free_bytes(&self.dir).unwrap_or(0);
        if free < NEW_FILE_ROOM { 0 } else { free / FREE_SHARE }
    }

    fn load(&self, at: Position) -> DiskContent {
        match self.cache.get(self.key(), at.epoch, at.seq) {
            Some(segment) => DiskContent::Segment(segment),
            None if self.defers_reads.load(Ordering::Acquire) => DiskContent::Later,
            None => {
                let content = self.read(at);
                if let DiskContent::Lost { through } = &content {
                    self.record_damage(at, *through);
                }
                content
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn seek_time(&self, ns: u64) -> Option<Position> {
        // If the search fails, start at the oldest record. The subscriber then reads all records before the time `ns`,
        // and skips them.
        let at = self.reader.position_at(ns).unwrap_or_else(|_| self.reader.oldest())?;
        Some(Position { epoch: at.epoch, seq: at.seq })
    }
}

/// Sets `full` to whether the disk is full. If the disk is full, the log's publishers may append `bytes` more bytes,
/// and are then refused. If the disk is not full, publishers wait for room, as for a slow disk.
fn report_shortage(log: &Log, full: &mut bool, why: &AppendError, bytes: u64) -> Shortage {
    let was_full = std::mem::replace(full, matches!(why, AppendError::Full { .. }));
    if *full {
        log.grant(bytes, Some(&why.to_string()));
        return Shortage::Room;
    }
    // If publishers were not refused before, do not call `grant`: it would discard the requests of publishers that wait
    // for room. The storing thread tries again to fulfil these requests.
    if was_full {
        log.grant(bytes, None);
    }
    Shortage::Resource
}

/// The number of bytes of records that can be appended even if the disk is full.
fn guaranteed_bytes(journal: &Journal) -> u64 {
    journal.room_left().saturating_sub(APPEND_BYTES_EXTRA)
}

fn append(journal: &mut Journal, staged: &StagedRecords, note: &mut Vec<u8>) -> Result<(), AppendError> {
    let frames: Vec<_> = staged.batches().iter().map(|run| run.frames()).collect();
    let parts: Vec<&[u8]> = frames.iter().map(|frames| &frames[..]).collect();
    let Some(first) = staged.batches().first() else { return Ok(()) };
    note::encode(staged.marks(), note);
    let batch = AppendBatch {
        epoch: staged.epoch(),
        first_seq: first.first_seq(),
        count: staged.batches().iter().map(|run| run.count()).sum(),
        first_time_ns: first.first_append_ns(),
        last_time_ns: staged.last_append_ns(),
        frames: &parts,
    };
    journal.append_with_note(&batch, note)
}

fn journal_config(config: &TopicConfig) -> dunlin_journal::JournalConfig {
    let file_bytes = (config.retention.bytes / FILES_PER_HISTORY).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
    dunlin_journal::JournalConfig {
        file_bytes,
        ahead_bytes: (file_bytes / 4).min(dunlin_journal::JournalConfig::default().ahead_bytes),
        retain_bytes: Some(config.retention.bytes),
        retain_ns: config.retention.age.map(|age| age.as_nanos().try_into().unwrap_or(u64::MAX)),
    }
}
