//! Reads a log. Meanwhile, this or another process may write the log.
//!
//! Invariants:
//! - Records are returned in order, each at most once. If this process writes the log, a reader returns only synced
//!   records; otherwise it returns all valid records.
//! - Missing records are reported as a [`Hole`]: a range whose end is unknown only if the files do not show it.
//!
//! A reader does not check whether the log is complete. If the log ends with an incomplete write, the reader stops
//! there without an error; use [`verify`](crate::verify) to detect this.

mod load;
mod scan;

use std::path::Path;
use std::sync::Arc;

use dunlin_frame::Frame;

use crate::disk::Disk;
use crate::error::{OpenError, ReadError};
use crate::files::{self, LogFiles, SharedLog};
use crate::position::Position;
use crate::snapshot::{self, Snapshot};

pub use load::{LoadOutcome, LoadedRecords};
pub use scan::{LogScan, Records, ScanItem};

/// Reads the records of a log on disk. Clones read the same log.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(crate) shared: Arc<SharedLog>,
}

impl Reader {
    /// Opens the log in `dir` for reading, without repairing or locking it.
    ///
    /// The reader sees the files that exist now, but not files that another process adds later.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Reader, OpenError> {
        let listed = files::list(&*disk, dir)?;
        let Some(name) = listed.iter().find_map(|file| Some(file.header.as_ref().ok()?.name.clone())) else {
            files::check(&listed, dir, None)?;
            return Err(OpenError::NoLog(dir.to_owned()));
        };
        files::check(&listed, dir, Some(&name))?;
        let files = LogFiles { all: files::as_log_files(&listed, dir, &name), durable: None };
        Ok(Reader { shared: Arc::new(SharedLog::new(disk, dir, &name, false, files)) })
    }

    /// The log's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The position at which the oldest file begins; `None` if nothing was appended yet.
    pub fn oldest(&self) -> Option<Position> {
        self.shared.files().all.first().map(|file| file.name.first)
    }

    /// The random identity of the oldest file. No other log has this identity. `None` if nothing was appended yet.
    pub fn identity(&self) -> Option<u64> {
        self.shared.files().all.first().map(|file| file.name.identity)
    }

    /// The positions at which the retained epochs begin, in ascending order. For the oldest epoch, this is the position
    /// at which the oldest file of the log begins.
    pub fn epochs(&self) -> Vec<Position> {
        let mut firsts: Vec<Position> = self.shared.files().all.iter().map(|file| file.name.first).collect();
        firsts.dedup_by_key(|first| first.epoch);
        firsts
    }

    /// The position at which the last file begins; `None` if nothing was appended yet.
    pub fn newest(&self) -> Option<Position> {
        self.shared.files().all.last().map(|file| file.name.first)
    }

    /// The position of the last synced record. `None` if no record is synced, or if another process writes the log.
    pub fn durable(&self) -> Option<Position> {
        self.shared.files().durable
    }

    /// Returns an iterator over the log, from the first record at or after `from` on.
    pub fn scan(&self, from: Position) -> LogScan {
        LogScan::new(self.shared.clone(), from)
    }

    /// The position of the first record that was appended at or after `time_ns`; `None` if there is no such record.
    pub fn position_at(&self, time_ns: u64) -> Result<Option<Position>, ReadError> {
        let start = {
            // The record is in the last file that begins before `time_ns`, or it is the first record of the file after
            // that one.
            let files = self.shared.files();
            let later = files.all.partition_point(|file| file.first_time_ns < time_ns);
            files.all.get(later.saturating_sub(1)).cloned()
        };
        let Some(file) = start else { return Ok(None) };
        let mut scan = LogScan::at_time(self.shared.clone(), file, time_ns);
        while let Some(item) = scan.next()? {
            if let ScanItem::Records(records) = item
                && records.last_time_ns >= time_ns
            {
                return Ok(Some(first_from(&records, time_ns)));
            }
        }
        Ok(None)
    }

    /// The newest snapshot; `None` if none was saved.
    pub fn latest_snapshot(&self) -> Result<Option<Snapshot>, ReadError> {
        snapshot::latest(&*self.shared.disk, &self.shared.dir)
    }
}

/// The position of the first record in the block that was appended at or after `time_ns`, or of the block's last record
/// if all were appended earlier.
fn first_from(records: &Records<'_>, time_ns: u64) -> Position {
    let mut seq = records.first_seq;
    let mut rest = records.frames;
    while let Some((frame, stride)) = Frame::split(rest) {
        if frame.append_time_ns() >= time_ns || seq == records.last_seq() {
            break;
        }
        rest = &rest[stride..];
        seq += 1;
    }
    Position::new(records.epoch, seq)
}
