//! Begins a new file of the log when the last file is full, or when a new epoch begins.
//!
//! The new file has a temporary name until its header is synced. It is then renamed, and the old file receives a mark
//! that names it. Only after this are records written to the new file. Therefore, after a crash, a file with an invalid
//! header is damaged rather than unfinished, and a file that the previous file does not name has no records.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::ahead::MARKS_BYTES;
use super::{AppendBatch, Current, Journal};
use crate::disk::DiskFile;
use crate::error::{AppendError, DiskError};
use crate::files::LogFile;
use crate::layout::{BlockKind, FILE_HEADER_BYTES, FileHeader, FileName, TEMPORARY_SUFFIX};
use crate::position::Position;
use crate::reserve::{DiskReserve, LINK_BYTES};

/// Minimum size of a new file, bytes: its header and room for marks.
pub(super) const NEW_FILE_BYTES_MIN: u64 = 1024;

impl Journal {
    /// Makes the next append begin a new file, so that all earlier files can be dropped. Frees the preallocated space
    /// of the last file. If the disk has no room for a new file even then, the next append continues the last file.
    pub fn end_file(&mut self) -> Result<(), AppendError> {
        self.check_not_ended()?;
        let Some(current) = self.current.as_mut().filter(|current| current.records > 0) else {
            return Ok(());
        };
        self.must_begin_file = true;
        match current.release_ahead() {
            Ok(()) => Ok(()),
            Err(error) => Err(self.end(error)),
        }
    }

    /// Makes the next append begin a new file in the reserve's file, so that no other program can take the reserve's
    /// space. The new file has at least `need` bytes, including its header and marks.
    ///
    /// Returns `false`, and keeps the reserve, in two cases: the reserve is not filled, or the reserve is smaller than
    /// `need` and the disk has no room for the rest. If the last file has no records, the next append uses that file
    /// instead, and the reserve's space becomes free.
    pub fn begin_file_in(&mut self, reserve: &mut DiskReserve, need: u64) -> Result<bool, AppendError> {
        self.check_not_ended()?;
        if self.current.as_ref().is_some_and(|current| current.records == 0) && self.can_continue_file() {
            return reserve.release().map_err(AppendError::classify_disk_error);
        }
        match reserve.hand_over(need) {
            Ok(None) => return Ok(false),
            Ok(next_file) => self.next_file = next_file,
            // Renaming failed: even a new name can need space in the directory. Or an operator has removed the
            // reserve's file, so that its space is free already.
            Err(error) if error.is_full() || error.is_missing() => {
                return reserve.release().map_err(AppendError::classify_disk_error);
            }
            Err(error) => return Err(AppendError::classify_disk_error(error)),
        }
        self.end_file()?;
        match self.prepare_marks() {
            // The next append tries again.
            Err(error) if error.is_full() || error.lacks_resource() => Ok(true),
            Err(error) => Err(self.end(error)),
            Ok(()) => Ok(true),
        }
    }

    /// Ensures that the last file has room for the mark that names the next file. A file that was repaired at the start
    /// has no such room. If the disk is full, the next file gives up a part of its room.
    fn prepare_marks(&mut self) -> Result<(), DiskError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let end = current.end + MARKS_BYTES;
        let full = match current.prepare(end) {
            Err(error) if error.is_full() => error,
            prepared => return prepared,
        };
        let Some((path, bytes)) = self.next_file.clone() else { return Err(full) };
        match self.shared.disk.open(&path, true) {
            // An operator has removed the file, so its space is free already.
            Err(source) if source.kind() == io::ErrorKind::NotFound => self.next_file = None,
            opened => {
                let file = opened.map_err(DiskError::of("open", &path))?;
                let bytes = bytes.saturating_sub(LINK_BYTES);
                file.set_bytes(bytes).map_err(DiskError::of("truncate", &path))?;
                self.next_file = Some((path, bytes));
            }
        }
        current.prepare(end)
    }

    /// Ensures that the last file can take this batch, and begins a new file if it cannot.
    pub(super) fn ensure_file(&mut self, batch: &AppendBatch<'_>, need: u64) -> Result<(), AppendError> {
        let (fits, same_epoch, has_room) = match &self.current {
            None => (false, false, false),
            Some(current) => {
                let same_epoch = current.log.name.first.epoch == batch.epoch;
                let fits = current.records == 0
                    || (!self.must_begin_file && current.end + need <= self.config.file_bytes);
                (same_epoch && fits, same_epoch, same_epoch && current.room_left() >= need)
            }
        };
        if fits {
            return Ok(());
        }
        let was_requested = std::mem::take(&mut self.must_begin_file);
        let Err(error) = self.roll(batch, need) else { return Ok(()) };
        if error.lacks_resource() {
            // Nothing has changed, so the next append can try again.
            self.must_begin_file = was_requested;
            return if has_room { Ok(()) } else { Err(AppendError::LacksResource(error)) };
        }
        if let Some((zeros, _)) = self.next_file.take() {
            // Frees the space of the file of zeros. If the file cannot be removed, the next start makes it the reserve
            // again.
            let _ = self.shared.disk.remove(&zeros);
        }
        if !error.is_full() {
            return Err(self.end(error));
        }
        // The append can continue the old file if that file still has reserved room, or if a new file was begun only on
        // request.
        let continues = has_room || was_requested && same_epoch;
        if continues { Ok(()) } else { Err(self.full(need + NEW_FILE_BYTES_MIN)) }
    }

    fn roll(&mut self, batch: &AppendBatch<'_>, need: u64) -> Result<(), DiskError> {
        let header = FileHeader {
            identity: self.shared.disk.identity().max(1),
            previous: self.current.as_ref().map_or(0, |current| current.log.name.identity),
            first: Position::new(batch.epoch, batch.first_seq),
            first_time_ns: batch.first_time_ns,
            name: self.shared.name.clone(),
        };
        self.prepare_marks()?;
        // The new file must have at least as much room as was reserved in the old file.
        let promised = self.room_left();
        let new = self.create_file(&header, need.max(promised))?;
        if let Some(mut old) = self.current.take() {
            let linked = self.link_next(&mut old, header.identity);
            self.current = Some(old);
            linked.map_err(|error| self.remove_unlinked(&new, error))?;
        }
        let mut files = self.shared.files();
        files.durable = self.tail.last;
        files.all.push(new.log.clone());
        drop(files);
        self.current = Some(new);
        self.tail.epoch_least = batch.epoch;
        Ok(())
    }

    /// Removes a new file if there was no room or memory to write the mark that names it. If the file stayed, the old
    /// file's mark would later name another file, and the next start would find the unnamed file between those two.
    fn remove_unlinked(&self, new: &Current, cause: DiskError) -> DiskError {
        // After any other error, the log ends, and the mark may already be on the disk.
        if !cause.is_full() && !cause.lacks_resource() {
            return cause;
        }
        let path = &new.log.path;
        match self.shared.disk.remove(path) {
            Ok(()) => cause,
            // Because the file remains, the log must end. The error is changed so that it does not report a full disk,
            // which would allow a retry.
            Err(source) => {
                DiskError { action: "remove", path: path.clone(), source: io::Error::other(source) }
            }
        }
    }

    /// Ends the file `old` with a mark that names the next file. If an error reports a lack of room or memory, the mark
    /// was not written.
    fn link_next(&mut self, old: &mut Current, identity: u64) -> Result<(), DiskError> {
        let next = Position::new(old.log.name.first.epoch, old.next_seq());
        let mark = old.mark(BlockKind::Continued, next, self.oldest(), identity, self.tail.last_time_ns);
        // The sync in this call also stores the last records of the old file. If the sync fails, the log must end.
        old.write_mark(&mark).map_err(DiskError::without_retry_of_sync)?;
        match old.remove_ahead() {
            // The next start removes the zeros instead.
            Err(error) if error.is_full() || error.lacks_resource() => Ok(()),
            removed => removed,
        }
    }

    /// The position at which the oldest file begins.
    pub(super) fn oldest(&self) -> Position {
        self.shared.files().all.first().map_or(Position::default(), |file| file.name.first)
    }

    fn create_file(&mut self, header: &FileHeader, need: u64) -> Result<Current, DiskError> {
        let name = FileName { first: header.first, identity: header.identity };
        let temporary = self.shared.dir.join(format!("{name}{TEMPORARY_SUFFIX}"));
        let log = Arc::new(LogFile::new(&self.shared.dir, header, FILE_HEADER_BYTES as u64));
        let start = FILE_HEADER_BYTES as u64;
        let zeros = self.take_next_file(&temporary)?;
        let disk = &*self.shared.disk;
        let (file, prepared) = match zeros {
            Some((file, bytes)) => (file, bytes.max(start)),
            None => (disk.create(&temporary).map_err(DiskError::of("create", &temporary))?, start),
        };
        let mut current = Current {
            log,
            file,
            end: start,
            prepared,
            synced: start,
            blocks: 0,
            records: 0,
            is_marked_closed: false,
        };
        let created = current.initialize(header, need).and_then(|()| {
            let path = current.log.path.clone();
            disk.rename(&temporary, &path).map_err(DiskError::of("rename", &temporary))?;
            disk.sync_dir(&self.shared.dir).map_err(DiskError::of("sync", &self.shared.dir))
        });
        if created.is_err() {
            // Frees the file's disk space. If the file cannot be removed, the next start removes it.
            let _ = disk.remove(&temporary).or_else(|_| disk.remove(&current.log.path));
        }
        created.map(|()| current)
    }

    /// Opens the file of zeros that is to become the next file, and gives it the name `temporary`. Returns the open
    /// file and its size; `None` if there is no such file. After an error, the file is unchanged.
    fn take_next_file(&mut self, temporary: &Path) -> Result<Option<SizedFile>, DiskError> {
        let Some((zeros, bytes)) = self.next_file.clone() else { return Ok(None) };
        let disk = &*self.shared.disk;
        let file = match disk.open(&zeros, true) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => None,
            opened => Some((opened.map_err(DiskError::of("open", &zeros))?, bytes)),
        };
        if file.is_some() {
            disk.rename(&zeros, temporary).map_err(DiskError::of("rename", &zeros))?;
        }
        self.next_file = None;
        Ok(file)
    }
}

/// An open file, and its size in bytes.
type SizedFile = (Box<dyn DiskFile>, u64);

impl Current {
    fn initialize(&mut self, header: &FileHeader, need: u64) -> Result<(), DiskError> {
        self.file.write_at(&[&header.encode()], 0).map_err(DiskError::of("write", &self.log.path))?;
        self.prepare(self.end + need + NEW_FILE_BYTES_MIN)?;
        self.file.sync().map_err(DiskError::of("sync", &self.log.path))
    }
}
