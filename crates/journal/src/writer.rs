//! Writes a log. A [`Journal`] has no thread or clock of its own: one thread calls its methods.
//!
//! Invariants:
//! - [`Journal::append`] writes a block or changes nothing. [`Journal::sync`] makes the written blocks durable. Records
//!   up to [`Journal::durable`] survive any crash, unless the disk itself is damaged.
//! - A failed write or sync ends the log. A retry would not be safe, because the operating system's cache may differ
//!   from the disk after the failure. There is one exception: if a write fails because the disk is full, or because
//!   file descriptors or memory are lacking, the log is unchanged and continues.
//! - Within an epoch, each sequence number follows the previous one. If the log was not closed properly, the next
//!   record needs a higher epoch.
//! - Every file has reserved room for its marks.

mod ahead;
mod append;
mod close;
mod discard;
mod recover;
mod retain;
mod roll;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{DirLock, Disk, DiskFile};
use crate::error::{AppendError, DiskError, OpenError};
use crate::files::{LogFile, SharedLog};
use crate::layout::{BlockKind, Mark};
use crate::limits::JournalConfig;
use crate::position::Position;
use crate::reader::Reader;
use crate::snapshot::{self, Snapshot};

pub use append::AppendBatch;
pub use recover::{Damage, RecoveredLog, TornTail};

/// A log on disk that is open for writing.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<SharedLog>,
    config: JournalConfig,
    current: Option<Current>,
    tail: Tail,
    must_begin_file: bool,
    /// Whether a removed file still requires a sync of the directory, because the process lacked a resource for the
    /// sync at that time.
    must_sync_dir: bool,
    /// The path and the size in bytes of a file of zeros that will become the next file.
    next_file: Option<(PathBuf, u64)>,
    /// The reason why the log accepts no more records; `None` while it accepts them.
    ended: Option<String>,
    /// A buffer in which the parts of a small batch are joined before they are written.
    joined: Vec<u8>,
    _lock: Box<dyn DirLock>,
}

/// The last file of the log, to which the journal appends blocks.
#[derive(Debug)]
struct Current {
    log: Arc<LogFile>,
    file: Box<dyn DiskFile>,
    /// Offset of the next block.
    end: u64,
    /// The offset up to which the file has blocks or preallocated zeros.
    prepared: u64,
    synced: u64,
    blocks: u64,
    records: u64,
    /// Whether a mark at the end says that the log was closed or repaired, and the log was not changed since.
    is_marked_closed: bool,
}

/// The end of the log: its last record, and the lowest epoch that the next record may have.
#[derive(Debug, Clone, Copy, Default)]
struct Tail {
    last: Option<Position>,
    last_time_ns: u64,
    /// The lowest epoch that the next record may have.
    epoch_least: u32,
}

impl Journal {
    /// Opens the log in `dir`, or creates a new one. Repairs the log after a crash, and reports in which state it was.
    ///
    /// The directory must contain only this log, and is locked while the journal exists. If a journal is dropped
    /// without [`Journal::close`], the log is in the same state as after a crash of the process.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        name: &str,
        config: JournalConfig,
    ) -> Result<(Journal, RecoveredLog), OpenError> {
        recover::open(disk, dir, name, config.bounded())
    }

    /// Creates a reader of this log, which any thread may use. The reader returns only synced records.
    pub fn reader(&self) -> Reader {
        Reader { shared: self.shared.clone() }
    }

    /// The position of the last record that was appended.
    pub fn appended(&self) -> Option<Position> {
        self.tail.last
    }

    /// The position of the last synced record.
    pub fn durable(&self) -> Option<Position> {
        self.shared.files().durable
    }

    /// Size of all files, bytes, including preallocated zeros.
    pub fn bytes(&self) -> u64 {
        let files = self.shared.files();
        let ended: u64 = files.all.iter().map(|file| file.readable()).sum();
        let ahead = self.current.as_ref().map_or(0, |current| current.prepared - current.log.readable());
        ended + ahead
    }

    /// Saves `bytes`, the state after the record at `position`, as a snapshot, and removes older snapshots.
    ///
    /// Records up to `position` may then be dropped: see [`Journal::truncate_before`].
    pub fn save_snapshot(&mut self, position: Position, bytes: &[u8]) -> Result<(), AppendError> {
        self.check_not_ended()?;
        let bytes_max = crate::JournalLimits::SNAPSHOT_BYTES_MAX;
        if bytes.len() as u64 > bytes_max {
            return Err(AppendError::TooLarge { bytes: bytes.len() as u64, bytes_max });
        }
        match snapshot::save(&*self.shared.disk, &self.shared.dir, position, bytes) {
            Ok(()) => Ok(()),
            // The older snapshots remain, and the log is unchanged.
            Err(error) if error.is_full() => Err(self.full(bytes.len() as u64)),
            Err(error) => Err(AppendError::classify_disk_error(error)),
        }
    }

    /// The newest snapshot; `None` if none was saved.
    pub fn latest_snapshot(&self) -> Result<Option<Snapshot>, crate::ReadError> {
        snapshot::latest(&*self.shared.disk, &self.shared.dir)
    }

    fn check_not_ended(&self) -> Result<(), AppendError> {
        match &self.ended {
            Some(why) => Err(AppendError::Ended(why.clone())),
            None => Ok(()),
        }
    }

    /// Ends the log after a disk failure, so that it accepts no more records.
    fn end(&mut self, error: DiskError) -> AppendError {
        self.ended = Some(error.to_string());
        AppendError::Disk(error)
    }

    fn full(&self, need: u64) -> AppendError {
        let free = self.shared.disk.free_bytes(&self.shared.dir).unwrap_or(0);
        AppendError::Full { need, free }
    }
}

impl Current {
    /// Creates a mark: a block that states how far the log has come, and how many blocks and records this file has.
    fn mark(
        &self,
        kind: BlockKind,
        next: Position,
        oldest: Position,
        next_identity: u64,
        time_ns: u64,
    ) -> Mark {
        Mark {
            kind,
            next,
            file_blocks: self.blocks,
            file_records: self.records,
            oldest,
            next_identity,
            time_ns,
            synced: self.synced,
        }
    }

    fn write_mark(&mut self, mark: &Mark) -> Result<(), DiskError> {
        let bytes = mark.encode(self.log.name.identity, self.end);
        self.file.write_at(&[&bytes], self.end).map_err(DiskError::of("write", &self.log.path))?;
        self.file.sync().map_err(DiskError::of("sync", &self.log.path))?;
        self.end += bytes.len() as u64;
        self.prepared = self.prepared.max(self.end);
        self.synced = self.end;
        self.log.set_readable(self.end);
        Ok(())
    }

    fn remove_ahead(&mut self) -> Result<(), DiskError> {
        self.file.set_bytes(self.end).map_err(DiskError::of("truncate", &self.log.path))?;
        self.prepared = self.end;
        Ok(())
    }

    /// Removes the preallocated zeros at the end of the file, except the room for marks.
    fn release_ahead(&mut self) -> Result<(), DiskError> {
        let kept_bytes = self.end + ahead::MARKS_BYTES;
        if self.prepared > kept_bytes {
            self.file.set_bytes(kept_bytes).map_err(DiskError::of("truncate", &self.log.path))?;
            self.prepared = kept_bytes;
        }
        Ok(())
    }

    fn next_seq(&self) -> u64 {
        self.log.name.first.seq + self.records
    }
}
