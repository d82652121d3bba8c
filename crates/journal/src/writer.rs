//! The writer of a log: a state machine that one thread drives, without a thread or clock of its own.
//!
//! Invariants:
//! - [`Journal::append`] either writes a block or changes nothing; [`Journal::sync`] makes the block durable. Records
//!   up to [`Journal::durable`] survive any crash, unless the disk itself is damaged.
//! - A failed write or sync ends the log. A failed operation is never retried, because the state of the system's cached
//!   pages is unknown. Exception: a write that fails for a full disk, or for lack of file descriptors or memory, leaves
//!   the log unchanged and does not end the log.
//! - Sequence numbers continue within an epoch; after an unclean end only a higher epoch is accepted.
//! - Every file has room for marks.

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
    /// Whether the directory must be synced because a file was removed, but the process lacked a resource for the sync.
    must_sync_dir: bool,
    /// A file of zeros that becomes the next file, and the size of this file, bytes.
    next_file: Option<(PathBuf, u64)>,
    /// The reason why the log has ended.
    ended: Option<String>,
    /// Buffer in which the parts of a small batch are joined before the write.
    joined: Vec<u8>,
    _lock: Box<dyn DirLock>,
}

/// The last file of the log, to which the journal writes.
#[derive(Debug)]
struct Current {
    log: Arc<LogFile>,
    file: Box<dyn DiskFile>,
    /// Offset of the next block.
    end: u64,
    /// The offset up to which the file contains blocks or preallocated zeros.
    prepared: u64,
    synced: u64,
    blocks: u64,
    records: u64,
    /// Whether the log was closed or cut at the offset `end`, and was not opened for writing since then.
    is_marked_closed: bool,
}

/// The last record of the log, and the lowest epoch of the next record.
#[derive(Debug, Clone, Copy, Default)]
struct Tail {
    last: Option<Position>,
    last_time_ns: u64,
    /// The lowest epoch that the next record may have.
    epoch_least: u32,
}

impl Journal {
    /// Opens or creates the log of a directory, repairs the log after a crash, and reports the log's state.
    ///
    /// The directory holds only this log and is locked while the journal lives. Dropping a journal without
    /// [`Journal::close`] has the same effect as a crash of the process.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        name: &str,
        config: JournalConfig,
    ) -> Result<(Journal, RecoveredLog), OpenError> {
        recover::open(disk, dir, name, config.bounded())
    }

    /// Creates a reader of this log, for any thread. The reader sees synced records only.
    pub fn reader(&self) -> Reader {
        Reader { shared: self.shared.clone() }
    }

    /// The last record appended.
    pub fn appended(&self) -> Option<Position> {
        self.tail.last
    }

    /// The last synced record.
    pub fn durable(&self) -> Option<Position> {
        self.shared.files().durable
    }

    /// Bytes of all files, including preallocated zeros.
    pub fn bytes(&self) -> u64 {
        let files = self.shared.files();
        let ended: u64 = files.all.iter().map(|file| file.readable()).sum();
        let ahead = self.current.as_ref().map_or(0, |current| current.prepared - current.log.readable());
        ended + ahead
    }

    /// Saves the state after the record at `position` and removes older snapshots.
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
            // Older snapshots remain, and the log is unchanged.
            Err(error) if error.is_full() => Err(self.full(bytes.len() as u64)),
            Err(error) => Err(AppendError::classify_disk_error(error)),
        }
    }

    /// The newest snapshot, if any was saved.
    pub fn latest_snapshot(&self) -> Result<Option<Snapshot>, crate::ReadError> {
        snapshot::latest(&*self.shared.disk, &self.shared.dir)
    }

    fn check_not_ended(&self) -> Result<(), AppendError> {
        match &self.ended {
            Some(why) => Err(AppendError::Ended(why.clone())),
            None => Ok(()),
        }
    }

    /// Ends the log after a disk failure.
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
    /// Creates a mark: a block that states the log's position, and how many blocks and records this file has.
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

    /// Removes the preallocated zeros, except the room for marks.
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
