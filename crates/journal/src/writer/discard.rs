//! Removes the records that were appended last, for example the part of a snapshot for which the disk had no room.

use std::sync::Arc;

use super::{Current, Journal};
use crate::error::{AppendError, DiskError};
use crate::files::{self, LogFile};
use crate::layout::{FILE_HEADER_BYTES, FileHeader};
use crate::position::Position;

impl Journal {
    /// Removes all records after `last`, which must be the last record of its file, and frees their room. The next file
    /// is emptied but kept, and all files after it are removed. The next append in the epoch of the emptied file uses
    /// that file.
    ///
    /// No reader may read the removed records during the call. If a crash interrupts the removal, the next start may
    /// report the removed records as damaged.
    pub fn discard_after(&mut self, last: Option<Position>) -> Result<(), AppendError> {
        self.check_not_ended()?;
        let index = {
            let files = self.shared.files();
            files.all.partition_point(|file| last.is_some_and(|last| file.name.first <= last))
        };
        let Some(emptied) = self.shared.files().all.get(index).cloned() else { return Ok(()) };
        let file = match self.current.take_if(|current| current.log.name == emptied.name) {
            Some(current) => current.file,
            None => files::open(&*self.shared.disk, &emptied.path, true)
                .map_err(AppendError::classify_disk_error)?,
        };
        let start = FILE_HEADER_BYTES as u64;
        let cut = file.set_bytes(start).map_err(DiskError::of("truncate", &emptied.path));
        let cut = cut.and_then(|()| file.sync().map_err(DiskError::of("sync", &emptied.path)));
        if let Err(error) = cut {
            return Err(self.end(error));
        }
        let header = FileHeader {
            identity: emptied.name.identity,
            previous: 0,
            first: emptied.name.first,
            first_time_ns: emptied.first_time_ns,
            name: self.shared.name.clone(),
        };
        let log = Arc::new(LogFile::new(&self.shared.dir, &header, start));
        let removed = {
            let mut files = self.shared.files();
            let kept = files.all.len().min(index + 1);
            let removed = files.all.split_off(kept);
            files.all.pop();
            files.all.push(Arc::clone(&log));
            files.durable = last;
            removed
        };
        let mut current = Current {
            log,
            file,
            end: start,
            prepared: start,
            synced: start,
            blocks: 0,
            records: 0,
            is_marked_closed: false,
        };
        // If this file has no room for its marks now, the next file will give up some of its own room for these marks.
        let _ = current.prepare(start + super::ahead::MARKS_BYTES);
        self.current = Some(current);
        (self.tail.last, self.tail.last_time_ns) = (last, emptied.first_time_ns);
        self.must_begin_file = false;
        for file in removed.iter().rev() {
            let removed = self.shared.disk.remove(&file.path);
            removed.map_err(DiskError::of("remove", &file.path)).map_err(AppendError::classify_disk_error)?;
        }
        let synced = self.shared.disk.sync_dir(&self.shared.dir);
        synced.map_err(DiskError::of("sync", &self.shared.dir)).map_err(AppendError::classify_disk_error)
    }
}
