//! Dropping the oldest files: what retention or a snapshot has made needless.
//!
//! Whole files go, oldest first, one at a time, each gone from the disk before the next: a crash leaves no hole.
//! The last file is never dropped.

use super::Journal;
use crate::error::{AppendError, DiskError};
use crate::position::Position;

impl Journal {
    /// Drops the files that hold nothing but records before this position; gives how many.
    pub fn truncate_before(&mut self, position: Position) -> Result<usize, AppendError> {
        let needless = {
            let files = self.shared.files();
            // A file is needless when the next one begins at or before the position.
            files.all.partition_point(|file| file.name.first <= position).saturating_sub(1)
        };
        self.drop_oldest(needless)
    }

    /// Drops what is beyond the configured bytes and age; gives how many files went. Cheap when none is due.
    ///
    /// The log of a fold is cut with [`Journal::save_snapshot`] and [`Journal::truncate_before`] instead: what its
    /// snapshot does not contain must stay.
    pub fn retain(&mut self, now_ns: u64) -> Result<usize, AppendError> {
        self.retain_after(now_ns, None)
    }

    /// [`retain`](Journal::retain) of a log whose fold was saved after the record at `saved`: what lies behind that stays.
    pub fn retain_saved(&mut self, now_ns: u64, saved: Position) -> Result<usize, AppendError> {
        self.retain_after(now_ns, Some(saved))
    }

    /// Whether its oldest file holds only what is older than the configured age: of a fold's log it can go when the fold
    /// was saved.
    pub fn has_aged(&self, now_ns: u64) -> bool {
        let aged = self.aged(now_ns);
        self.shared.files().all.get(1).is_some_and(|second| second.first_time_ns < aged)
    }

    /// What was appended before is too old.
    fn aged(&self, now_ns: u64) -> u64 {
        self.config.retain_ns.map_or(0, |most| now_ns.saturating_sub(most))
    }

    fn retain_after(&mut self, now_ns: u64, saved: Option<Position>) -> Result<usize, AppendError> {
        let mut excess = self.config.retain_bytes.map_or(0, |most| self.bytes().saturating_sub(most));
        let aged = self.aged(now_ns);
        let due = {
            let files = self.shared.files();
            let pairs = files.all.iter().zip(files.all.iter().skip(1));
            let due = pairs.take_while(|(file, next)| {
                let too_much = excess > 0;
                excess = excess.saturating_sub(file.readable());
                // All records of a file are older than the first of the next.
                let needless =
                    saved.is_none_or(|saved| next.name.first <= Position::new(saved.epoch, saved.seq + 1));
                needless && (too_much || next.first_time_ns < aged)
            });
            due.count()
        };
        self.drop_oldest(due)
    }

    fn drop_oldest(&mut self, count: usize) -> Result<usize, AppendError> {
        self.check_alive()?;
        if count == 0 {
            return Ok(0);
        }
        if self.current.as_ref().is_some_and(|current| current.at_rest) {
            self.see_to_room(crate::layout::MARK_BYTES as u64)?;
            self.begin()?;
        }
        for dropped in 0..count {
            let Some(oldest) = self.shared.files().all.first().cloned() else { return Ok(dropped) };
            let (disk, dir) = (&*self.shared.disk, &self.shared.dir);
            // When this fails, the file is still there, and still the oldest.
            disk.remove(&oldest.path).map_err(DiskError::of("remove", &oldest.path))?;
            self.shared.forget(&oldest);
            if let Err(error) = disk.sync_dir(dir).map_err(DiskError::of("sync", dir)) {
                return Err(self.end(error));
            }
        }
        Ok(count)
    }
}
