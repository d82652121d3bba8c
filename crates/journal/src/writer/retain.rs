//! Drops old files that retention or a snapshot has made unnecessary.
//!
//! Whole files are removed, oldest first, one at a time and each durably before the next, so that a crash
//! leaves no hole. The last file always stays.

use super::Journal;
use crate::error::{AppendError, DiskError};
use crate::position::Position;

impl Journal {
    /// Drops the files that hold only records before this position. Returns the number of dropped files.
    pub fn truncate_before(&mut self, position: Position) -> Result<usize, AppendError> {
        let needless = {
            let files = self.shared.files();
            // A file can be dropped if the next file begins at or before the position.
            files.all.partition_point(|file| file.name.first <= position).saturating_sub(1)
        };
        self.drop_oldest(needless)
    }

    /// Drops files beyond the configured bytes and age. Returns the number of dropped files. The call is cheap if there
    /// is no file to drop.
    ///
    /// For a log with snapshots use [`Journal::save_snapshot`] and [`Journal::truncate_before`]: records after the
    /// snapshot must stay.
    pub fn retain(&mut self, now_ns: u64) -> Result<usize, AppendError> {
        self.retain_after(now_ns, None)
    }

    /// Like [`retain`](Journal::retain), but for a log with a snapshot at `saved`: later records stay.
    pub fn retain_saved(&mut self, now_ns: u64, saved: Position) -> Result<usize, AppendError> {
        self.retain_after(now_ns, Some(saved))
    }

    /// Whether all records of the oldest file exceed the configured age. The file can then be dropped after a snapshot.
    pub fn has_aged(&self, now_ns: u64) -> bool {
        let aged = self.aged(now_ns);
        self.shared.files().all.get(1).is_some_and(|second| second.first_time_ns < aged)
    }

    /// The time before which records exceed the configured age, ns.
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
                // All records of a file are older than the first record of the next file.
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
            self.ensure_room(crate::layout::MARK_BYTES as u64)?;
            self.begin()?;
        }
        for dropped in 0..count {
            let Some(oldest) = self.shared.files().all.first().cloned() else { return Ok(dropped) };
            let (disk, dir) = (&*self.shared.disk, &self.shared.dir);
            // If this fails, the file remains the oldest one.
            disk.remove(&oldest.path).map_err(DiskError::of("remove", &oldest.path))?;
            self.shared.forget(&oldest);
            if let Err(error) = disk.sync_dir(dir).map_err(DiskError::of("sync", dir)) {
                return Err(self.end(error));
            }
        }
        Ok(count)
    }
}
