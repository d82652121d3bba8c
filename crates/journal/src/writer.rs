//! Writes a log: a state machine that one thread drives, with no thread and no clock of its own.
//!
//! Invariants:
//! - [`Journal::append`] changes nothing, or it has written a block; [`Journal::sync`] then makes it last. What
//!   [`Journal::durable`] says was there is there after any crash, unless the disk itself is damaged.
//! - A write or sync that failed ends the log for writing: it is never tried again, because what the system did with
//!   the pages it held is unknown. A disk that is full is no failure: nothing was changed, and it may have room later.
//! - A record's sequence follows the last one's within an epoch; after an unclean end only a higher epoch is taken.
//! - Marks can always be written: room for them is kept.

mod ahead;
mod append;
mod close;
mod recover;
mod retain;
mod roll;

use std::path::Path;
use std::sync::Arc;

use crate::disk::{DirLock, Disk, DiskFile};
use crate::error::{AppendError, DiskError, OpenError};
use crate::files::{LogFile, Shared};
use crate::layout::{Kind, Mark};
use crate::limits::Config;
use crate::position::Position;
use crate::reader::Reader;
use crate::snapshot::{self, Snapshot};

pub use append::Batch;
pub use recover::{Cut, Damage, Recovered};

/// A log that is open for writing.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    config: Config,
    current: Option<Current>,
    tail: Tail,
    /// The next append begins a file.
    file_over: bool,
    /// Why nothing is taken any more.
    ended: Option<String>,
    /// The frames of a batch that are joined before they are written.
    joined: Vec<u8>,
    _lock: Box<dyn DirLock>,
}

/// The last file, which is being written.
#[derive(Debug)]
struct Current {
    log: Arc<LogFile>,
    file: Box<dyn DiskFile>,
    /// Where the next block goes.
    end: u64,
    /// How far the file was written with zeros or blocks.
    prepared: u64,
    /// How far it is on the disk.
    synced: u64,
    blocks: u64,
    records: u64,
    /// The log was closed or cut at `end`, and nothing has been said since.
    at_rest: bool,
}

/// What the last record of the log was, and what may follow.
#[derive(Debug, Clone, Copy, Default)]
struct Tail {
    last: Option<Position>,
    last_time_ns: u64,
    /// The least epoch that may follow.
    epoch_least: u32,
}

impl Journal {
    /// Opens the log of a directory, or makes one; repairs what a crash has left, and says what it found.
    ///
    /// The directory holds this one log and is locked as long as the journal lives. A journal that is dropped
    /// without [`Journal::close`] leaves the log as a crash would.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        name: &str,
        config: Config,
    ) -> Result<(Journal, Recovered), OpenError> {
        recover::open(disk, dir, name, config.bounded())
    }

    /// Reads this log, also from other threads, as far as it is on the disk.
    pub fn reader(&self) -> Reader {
        Reader { shared: self.shared.clone() }
    }

    /// The last record appended.
    pub fn appended(&self) -> Option<Position> {
        self.tail.last
    }

    /// The last record that is on the disk.
    pub fn durable(&self) -> Option<Position> {
        self.shared.files().durable
    }

    /// Bytes of all files, with what is kept ahead.
    pub fn bytes(&self) -> u64 {
        let files = self.shared.files();
        let ended: u64 = files.all.iter().map(|file| file.readable()).sum();
        let ahead = self.current.as_ref().map_or(0, |current| current.prepared - current.log.readable());
        ended + ahead
    }

    /// Saves a fold's state after the record at `position`, and removes the states saved before it.
    ///
    /// Records up to there may then be dropped: see [`Journal::truncate_before`].
    pub fn save_snapshot(&mut self, position: Position, bytes: &[u8]) -> Result<(), AppendError> {
        self.check_alive()?;
        let bytes_max = crate::Limits::SNAPSHOT_BYTES_MAX;
        if bytes.len() as u64 > bytes_max {
            return Err(AppendError::TooLarge { bytes: bytes.len() as u64, bytes_max });
        }
        match snapshot::save(&*self.shared.disk, &self.shared.dir, position, bytes) {
            Ok(()) => Ok(()),
            // The snapshots before it are still there and the log is untouched.
            Err(error) if error.is_full() => Err(self.full(bytes.len() as u64)),
            Err(error) => Err(AppendError::Disk(error)),
        }
    }

    /// The newest snapshot of a fold, if any was saved.
    pub fn latest_snapshot(&self) -> Result<Option<Snapshot>, crate::ReadError> {
        snapshot::latest(&*self.shared.disk, &self.shared.dir)
    }

    fn check_alive(&self) -> Result<(), AppendError> {
        match &self.ended {
            Some(why) => Err(AppendError::Ended(why.clone())),
            None => Ok(()),
        }
    }

    /// The disk failed: nothing is taken from now on.
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
    /// The mark that says where this file stands.
    fn mark(&self, kind: Kind, next: Position, oldest: Position, next_identity: u64, time_ns: u64) -> Mark {
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

    /// Writes a mark, waits until it and all before it is on the disk.
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

    /// Lets go of what was kept ahead.
    fn cut_ahead(&mut self) -> Result<(), DiskError> {
        self.file.set_bytes(self.end).map_err(DiskError::of("cut", &self.log.path))?;
        self.prepared = self.end;
        Ok(())
    }

    /// Lets go of what was kept ahead, marks apart.
    fn give_up_ahead(&mut self) -> Result<(), DiskError> {
        let keep = self.end + ahead::MARKS_BYTES;
        if self.prepared > keep {
            self.file.set_bytes(keep).map_err(DiskError::of("cut", &self.log.path))?;
            self.prepared = keep;
        }
        Ok(())
    }

    /// The sequence that comes next in this file.
    fn next_seq(&self) -> u64 {
        self.log.name.first.seq + self.records
    }
}
