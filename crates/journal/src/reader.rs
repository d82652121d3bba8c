//! Reads a log's records: while it is being written, and when nobody writes it.
//!
//! Invariants:
//! - Records come in order, each at most once, and only those that are on the disk (in a log that is written by this
//!   process) or that are sound (in any other).
//! - What is missing between two records is told as a [`Hole`], with its exact bounds where anybody can know them.
//!
//! Not here: whether a recording is whole. A torn tail just ends what is read; [`verify`](crate::verify) complains of it.

mod load;
mod scan;

use std::path::Path;
use std::sync::Arc;

use dunlin_frame::Frame;

use crate::disk::Disk;
use crate::error::{OpenError, ReadError};
use crate::files::{self, Files, Shared};
use crate::position::Position;
use crate::snapshot::{self, Snapshot};

pub use load::{Loaded, LoadedRecords};
pub use scan::{Item, Records, Scan};

/// Reads a log; clones read the same one.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(crate) shared: Arc<Shared>,
}

impl Reader {
    /// Opens the log of a directory for reading only; nothing is repaired, no lock is taken.
    ///
    /// The files are those that are there now: what another process adds later is not seen.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Reader, OpenError> {
        let listed = files::list(&*disk, dir)?;
        let Some(name) = listed.iter().find_map(|file| Some(file.header.as_ref().ok()?.name.clone())) else {
            files::check(&listed, dir, None)?;
            return Err(OpenError::NoLog(dir.to_owned()));
        };
        files::check(&listed, dir, Some(&name))?;
        let files = Files { all: files::as_log_files(&listed, dir, &name), durable: None };
        Ok(Reader { shared: Arc::new(Shared::new(disk, dir, &name, false, files)) })
    }

    /// The log's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The oldest position held; `None` before anything was appended.
    pub fn oldest(&self) -> Option<Position> {
        self.shared.files().all.first().map(|file| file.name.first)
    }

    /// The random number of the oldest file, which no other log has; `None` before anything was appended.
    pub fn identity(&self) -> Option<u64> {
        self.shared.files().all.first().map(|file| file.name.identity)
    }

    /// Where each epoch of which something is held begins, ascending; of the oldest, where its oldest file does.
    pub fn epochs(&self) -> Vec<Position> {
        let mut firsts: Vec<Position> = self.shared.files().all.iter().map(|file| file.name.first).collect();
        firsts.dedup_by_key(|first| first.epoch);
        firsts
    }

    /// Where the last file begins.
    pub fn newest(&self) -> Option<Position> {
        self.shared.files().all.last().map(|file| file.name.first)
    }

    /// The last record on the disk, of a log that is written by this process; `None` for others.
    pub fn durable(&self) -> Option<Position> {
        self.shared.files().durable
    }

    /// Reads from the first record at or behind a position.
    pub fn scan(&self, from: Position) -> Scan {
        Scan::new(self.shared.clone(), from)
    }

    /// The position of the first record that was appended at this time or later; `None` if there is none yet.
    pub fn position_at(&self, time_ns: u64) -> Result<Option<Position>, ReadError> {
        let start = {
            // The record is in the last file that began before the time, or the next one's first.
            let files = self.shared.files();
            let later = files.all.partition_point(|file| file.first_time_ns < time_ns);
            files.all.get(later.saturating_sub(1)).cloned()
        };
        let Some(file) = start else { return Ok(None) };
        let mut scan = Scan::at_time(self.shared.clone(), file, time_ns);
        while let Some(item) = scan.next()? {
            if let Item::Records(records) = item
                && records.last_time_ns >= time_ns
            {
                return Ok(Some(first_from(&records, time_ns)));
            }
        }
        Ok(None)
    }

    /// The newest snapshot of a fold, if any was saved.
    pub fn latest_snapshot(&self) -> Result<Option<Snapshot>, ReadError> {
        snapshot::latest(&*self.shared.disk, &self.shared.dir)
    }
}

/// The first record of a block that was appended at this time or later; one is.
fn first_from(records: &Records<'_>, time_ns: u64) -> Position {
    let mut seq = records.first_seq;
    let mut rest = records.frames;
    while let Some((frame, taken)) = Frame::split(rest) {
        if frame.append_time_ns() >= time_ns || seq == records.last_seq() {
            break;
        }
        rest = &rest[taken..];
        seq += 1;
    }
    Position::new(records.epoch, seq)
}
