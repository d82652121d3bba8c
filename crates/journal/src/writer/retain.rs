//! Drops old files that are not needed any more because of retention or a snapshot.
//!
//! Only complete files are removed, oldest first. Each removal is synced before the next one, so that a crash cannot
//! leave a hole in the log. The last file always stays.

use super::Journal;
use crate::error::{AppendError, DiskError};
use crate::position::Position;

impl Journal {
    /// Drops the files in which all records are before `position`. Returns the number of dropped files.
    pub fn truncate_before(&mut self, position: Position) -> Result<usize, AppendError> {
        let count = {
            let files = self.shared.files();
            // A file can be dropped if the file after it begins at or before `position`.
            files.all.partition_point(|file| file.name.first <= position).saturating_sub(1)
        };
        self.drop_oldest(count)
    }

    /// Drops the oldest files while the log exceeds the configured size or age. Returns the number of dropped files.
    /// The call is cheap if there is nothing to drop.
    ///
    /// In a log with snapshots, records after the snapshot must stay: call [`Journal::retain_after_snapshot`] instead.
    pub fn retain(&mut self, now_ns: u64) -> Result<usize, AppendError> {
        self.drop_excess(now_ns, None)
    }

    /// Like [`retain`](Journal::retain), but keeps all records after the position `snapshot`, at which a snapshot was
    /// saved.
    pub fn retain_after_snapshot(&mut self, now_ns: u64, snapshot: Position) -> Result<usize, AppendError> {
        self.drop_excess(now_ns, Some(snapshot))
    }

    /// Whether all records of the oldest file exceed the configured age, so that the file could be dropped after a
    /// snapshot.
    pub fn has_aged(&self, now_ns: u64) -> bool {
        let oldest_ns = self.oldest_allowed_ns(now_ns);
        self.shared.files().all.get(1).is_some_and(|second| second.first_time_ns < oldest_ns)
    }

    /// The time before which records exceed the configured age, ns since 1970.
    fn oldest_allowed_ns(&self, now_ns: u64) -> u64 {
        self.config.retain_ns.map_or(0, |retain_ns| now_ns.saturating_sub(retain_ns))
    }

    fn drop_excess(&mut self, now_ns: u64, snapshot: Option<Position>) -> Result<usize, AppendError> {
        let mut excess =
            self.config.retain_bytes.map_or(0, |retain_bytes| self.bytes().saturating_sub(retain_bytes));
        let oldest_ns = self.oldest_allowed_ns(now_ns);
        let due = {
            let files = self.shared.files();
            let pairs = files.all.iter().zip(files.all.iter().skip(1));
            let due = pairs.take_while(|(file, next)| {
                let is_excess = excess > 0;
                excess = excess.saturating_sub(file.readable());
                // All records of `file` are before the first record of `next`.
                let is_unneeded = snapshot.is_none_or(|snapshot| {
                    next.name.first <= Position::new(snapshot.epoch, snapshot.seq + 1)
                });
                is_unneeded && (is_excess || next.first_time_ns < oldest_ns)
            });
            due.count()
        };
        self.drop_oldest(due)
    }

    fn drop_oldest(&mut self, count: usize) -> Result<usize, AppendError> {
        self.check_not_ended()?;
        if count == 0 {
            return Ok(0);
        }
        if self.current.as_ref().is_some_and(|current| current.is_marked_closed) {
            self.ensure_room(crate::layout::MARK_BYTES as u64)?;
            self.begin()?;
        }
        if self.must_sync_dir {
            self.sync_removal()?;
        }
        for dropped in 0..count {
            let Some(oldest) = self.shared.files().all.first().cloned() else { return Ok(dropped) };
            // If the file cannot be removed, it remains the log's oldest file. If somebody has replaced it by a
            // directory, only the directory remains.
            match self.shared.disk.remove(&oldest.path) {
                Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => {}
                removed => removed.map_err(DiskError::of("remove", &oldest.path))?,
            }
            self.shared.remove(&oldest);
            self.sync_removal()?;
        }
        Ok(count)
    }

    /// Syncs the directory after a file was removed. If the process lacks a resource for this, the next removal syncs
    /// first.
    fn sync_removal(&mut self) -> Result<(), AppendError> {
        let dir = &self.shared.dir;
        let synced = self.shared.disk.sync_dir(dir).map_err(DiskError::of("sync", dir));
        self.must_sync_dir = synced.is_err();
        match synced {
            Err(error) if error.lacks_resource() => Err(AppendError::LacksResource(error)),
            Err(error) => Err(self.end(error)),
            Ok(()) => Ok(()),
        }
    }
}
