//! Preallocates space: writes zeros after the records, so that commits overwrite space that the file already has.
//!
//! If a commit does not enlarge its file, a sync need not change the file system's metadata, and is therefore faster.
//! Also, a full disk is noticed before a record gets its number. Measurements are in `docs/journal.md`.

use super::{Current, Journal};
use crate::error::{AppendError, DiskError};
use crate::layout::{FILE_HEADER_BYTES, MARK_BYTES};
use crate::reserve;

/// Room reserved in every file for marks, bytes.
pub(super) const MARKS_BYTES: u64 = 4 * MARK_BYTES as u64;
/// Size of the part of the next file that cannot hold records, bytes: the file's header and the room for marks.
const NEXT_FILE_BYTES_EXTRA: u64 = FILE_HEADER_BYTES as u64 + super::roll::NEW_FILE_BYTES_MIN;
/// Minimum number of zeros that are written to a file at once, bytes. The larger the file already is, the more zeros
/// are written, up to the configured size.
const STEP_BYTES_MIN: u64 = 64 << 10;
/// After a commit of at least 1/`LARGE_SHARE` of the configured preallocation, only the minimum number of zeros is
/// written. With more zeros, twice as many bytes would be written, with little gain.
const LARGE_SHARE: u64 = 8;
/// The zeros that one write call appends to a file.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Journal {
    /// Ensures that `bytes` more bytes can be written. The caller must count the frames, and
    /// [`BLOCK_HEADER_BYTES`](crate::BLOCK_HEADER_BYTES) for each append. After an error, nothing has changed.
    ///
    /// Before the first append of an epoch there is no file yet: only the disk's free space is checked, and
    /// [`Journal::room_left`] stays 0.
    pub fn reserve_room(&mut self, bytes: u64) -> Result<(), AppendError> {
        self.check_not_ended()?;
        if self.next_file.is_some() {
            return self.ensure_room_in_next_file(bytes);
        }
        if self.can_continue_file() {
            return self.ensure_room(bytes);
        }
        let free = self.shared.disk.free_bytes(&self.shared.dir);
        match free.map_err(DiskError::of("query the free space of", &self.shared.dir)) {
            Ok(free) if free < bytes + super::roll::NEW_FILE_BYTES_MIN => {
                Err(AppendError::Full { need: bytes, free })
            }
            Ok(_) => Ok(()),
            Err(error) => Err(AppendError::Disk(error)),
        }
    }

    /// Number of bytes, with block headers, that can be written even if the disk is full.
    pub fn room_left(&self) -> u64 {
        if let Some((_, bytes)) = self.next_file {
            return bytes.saturating_sub(NEXT_FILE_BYTES_EXTRA);
        }
        self.current.as_ref().filter(|_| self.can_continue_file()).map_or(0, Current::room_left)
    }

    /// Enlarges the file of zeros that will become the next file, if it is too small. Fails if the disk has no room.
    fn ensure_room_in_next_file(&mut self, need: u64) -> Result<(), AppendError> {
        let needed = need + NEXT_FILE_BYTES_EXTRA;
        let Some((path, bytes)) = self.next_file.as_mut().filter(|(_, bytes)| *bytes < needed) else {
            return Ok(());
        };
        // Callers retry often, so zeros are written only if the disk probably has room for all of them.
        let free = self.shared.disk.free_bytes(&self.shared.dir).unwrap_or(0);
        if free < needed - *bytes {
            return Err(AppendError::Full { need, free });
        }
        match reserve::enlarge(&*self.shared.disk, path, *bytes, needed) {
            Ok(true) => {
                *bytes = needed;
                Ok(())
            }
            Ok(false) => Err(self.full(need)),
            Err(error) if error.lacks_resource() => Err(AppendError::LacksResource(error)),
            Err(error) => Err(self.end(error)),
        }
    }

    /// Whether more records can be appended to the last file: they must be allowed to have its epoch.
    pub(super) fn can_continue_file(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.log.name.first.epoch >= self.tail.epoch_least)
    }

    pub(super) fn ensure_room(&mut self, need: u64) -> Result<(), AppendError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.room_left() >= need {
            return Ok(());
        }
        let step_min = STEP_BYTES_MIN.min(self.config.ahead_bytes);
        let step = match need {
            large if large >= self.config.ahead_bytes / LARGE_SHARE => step_min,
            _ => current.end.clamp(step_min, self.config.ahead_bytes),
        };
        let needed = current.end + need + MARKS_BYTES;
        // Allocates no more than the maximum size of a file, because the journal then begins the next file.
        let target = (needed + step).min((self.config.file_bytes + MARKS_BYTES).max(needed));
        let prepared = match current.prepare(target) {
            Err(error) if error.is_full() && target > needed => current.prepare(needed),
            other => other,
        };
        match prepared {
            Ok(()) => Ok(()),
            Err(error) if error.is_full() => Err(self.full(need)),
            Err(error) if error.lacks_resource() => Err(AppendError::LacksResource(error)),
            Err(error) => Err(self.end(error)),
        }
    }
}

impl Current {
    pub(super) fn room_left(&self) -> u64 {
        self.prepared.saturating_sub(self.end + MARKS_BYTES)
    }

    pub(super) fn prepare(&mut self, end: u64) -> Result<(), DiskError> {
        while self.prepared < end {
            let count = ZEROS.len().min((end - self.prepared) as usize);
            let zeros = &ZEROS[..count];
            self.file
                .write_at(&[zeros], self.prepared)
                .map_err(DiskError::of("allocate space in", &self.log.path))?;
            self.prepared += count as u64;
        }
        Ok(())
    }
}
