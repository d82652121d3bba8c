//! Reserves disk space for a log with a file of zeros. When the disk is full, the log gives this file up.
//!
//! The log uses the space for operations that free more space, such as deletions and compactions, and for changes of
//! the leader. The zeros must really be written, because a file with a length but without data reserves nothing.
//!
//! The reserve has the configured size, but is filled only if twice this size is free. The reserve alone therefore
//! never fills the disk.
//!
//! On a full disk, any program can take space as soon as it is freed. [`Journal::begin_file_in`](crate::Journal)
//! therefore turns the reserve's file into the journal's next file, so that the space is never free. If the process
//! ends before the journal writes to this file, the next start makes the file the reserve again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::error::DiskError;

/// The suffix that the reserve file's name gets when the file is handed over to a journal. The name keeps this suffix
/// until the journal first writes to the file.
const PENDING_SUFFIX: &str = ".next";
/// A journal that takes over the reserve's file may shorten this file by at most this many bytes, because the journal's
/// previous file needs the space for its marks. The number equals two blocks of a file system.
pub(crate) const LINK_BYTES: u64 = 8 << 10;
/// The zeros that are written with one call to fill the reserve.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A file of zeros that keeps disk space for a log. When the disk is full, the log uses this space.
#[derive(Debug)]
pub struct DiskReserve {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    path: PathBuf,
    bytes: u64,
    /// The size of the file when it is filled, bytes. This is slightly less than `bytes` if a journal has shortened the
    /// file.
    file_bytes: u64,
    is_filled: bool,
}

impl DiskReserve {
    /// Opens the reserve in the file `name` of a directory. The reserve counts as filled if its file has the full size,
    /// or a few kilobytes less because a journal has shortened it. A smaller or larger file is removed. If the file was
    /// handed over to a journal, but not used by it, the file becomes the reserve again. A reserve of 0 bytes has no
    /// file.
    ///
    /// If there is a journal in the directory, open the journal first.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, name: &str, bytes: u64) -> Result<DiskReserve, DiskError> {
        disk.create_dir(dir).map_err(DiskError::of("create", dir))?;
        let path = dir.join(name);
        let mut reserve =
            DiskReserve { disk, dir: dir.to_owned(), path, bytes, file_bytes: bytes, is_filled: false };
        match reserve.measure(&reserve.path)? {
            Some(found) if found <= bytes && reserve.is_usable(found) => {
                (reserve.is_filled, reserve.file_bytes) = (true, found);
            }
            Some(_) => reserve.remove()?,
            None => {}
        }
        reserve.take_back()?;
        Ok(reserve)
    }

    /// The size of a file, bytes; `None` if the file does not exist.
    fn measure(&self, path: &Path) -> Result<Option<u64>, DiskError> {
        let measured = self.disk.open(path, false).and_then(|file| file.bytes());
        match measured.map_err(DiskError::of("open", path)) {
            Err(error) if error.is_missing() => Ok(None),
            measured => measured.map(Some),
        }
    }

    /// Whether a file of `found` bytes is large enough to be the reserve: at most [`LINK_BYTES`] may be lacking.
    fn is_usable(&self, found: u64) -> bool {
        self.bytes > 0 && found + LINK_BYTES >= self.bytes && found > self.bytes / 2
    }

    /// Looks for a file that was handed over before the process last ended, and that no journal has used. Makes this
    /// file the reserve again.
    fn take_back(&mut self) -> Result<(), DiskError> {
        let pending = self.pending_path();
        let Some(found) = self.measure(&pending)? else { return Ok(()) };
        if self.is_filled || !self.is_usable(found) {
            self.disk.remove(&pending).map_err(DiskError::of("remove", &pending))?;
            return self.sync_dir();
        }
        if found > self.bytes {
            let file = self.disk.open(&pending, true).map_err(DiskError::of("open", &pending))?;
            file.set_bytes(self.bytes).map_err(DiskError::of("truncate", &pending))?;
        }
        let is_whole = found >= self.bytes || enlarge(&*self.disk, &pending, found, self.bytes)?;
        self.file_bytes = if is_whole { self.bytes } else { found };
        self.disk.rename(&pending, &self.path).map_err(DiskError::of("rename", &pending))?;
        self.is_filled = true;
        self.sync_dir()
    }

    fn pending_path(&self) -> PathBuf {
        let mut pending = self.path.clone().into_os_string();
        pending.push(PENDING_SUFFIX);
        PathBuf::from(pending)
    }

    /// The configured size of the reserve, bytes, even if the reserve is not filled.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the reserve is configured, but not filled.
    pub fn needs_fill(&self) -> bool {
        self.bytes > 0 && !self.is_filled
    }

    /// Whether the reserve is filled.
    pub fn is_filled(&self) -> bool {
        self.is_filled
    }

    /// Fills the reserve if twice its size is free. Returns whether the reserve is filled now.
    pub fn fill(&mut self) -> Result<bool, DiskError> {
        if !self.needs_fill() {
            return Ok(true);
        }
        let free = self.disk.free_bytes(&self.dir);
        if free.map_err(DiskError::of("query the free space of", &self.dir))? < 2 * self.bytes {
            return Ok(false);
        }
        match self.write() {
            Ok(()) => (self.is_filled, self.file_bytes) = (true, self.bytes),
            Err(error) if error.is_full() => self.remove()?,
            Err(error) => {
                // The next attempt creates the file again.
                let _ = self.disk.remove(&self.path);
                return Err(error);
            }
        }
        Ok(self.is_filled)
    }

    /// Removes the reserve's file. Returns whether the reserve was filled.
    pub fn release(&mut self) -> Result<bool, DiskError> {
        if std::mem::take(&mut self.is_filled) {
            return self.remove().map(|()| true);
        }
        Ok(false)
    }

    /// Renames the reserve's file, so that it can become a file of the log. Enlarges the file first if it is smaller
    /// than `need` bytes. Returns its new path and its size.
    ///
    /// Returns `None`, and keeps the reserve, if the reserve is not filled, or if there is no room to enlarge the file.
    pub(crate) fn hand_over(&mut self, need: u64) -> Result<Option<(PathBuf, u64)>, DiskError> {
        let bytes = self.file_bytes.max(need);
        if !self.is_filled
            || (bytes > self.file_bytes && !enlarge(&*self.disk, &self.path, self.file_bytes, bytes)?)
        {
            return Ok(None);
        }
        let pending = self.pending_path();
        self.disk.rename(&self.path, &pending).map_err(DiskError::of("rename", &self.path))?;
        self.is_filled = false;
        Ok(Some((pending, bytes)))
    }

    fn write(&self) -> Result<(), DiskError> {
        let file = self.disk.create(&self.path).map_err(DiskError::of("create", &self.path))?;
        write_zeros(&*file, &self.path, 0, self.bytes)?;
        self.disk.sync_dir(&self.dir).map_err(DiskError::of("sync", &self.dir))
    }

    fn remove(&self) -> Result<(), DiskError> {
        match self.disk.remove(&self.path).map_err(DiskError::of("remove", &self.path)) {
            Err(error) if !error.is_missing() => return Err(error),
            _ => {}
        }
        self.sync_dir()
    }

    /// Syncs the directory after a file was renamed or removed. Does nothing if the process lacks a file descriptor for
    /// this.
    fn sync_dir(&self) -> Result<(), DiskError> {
        match self.disk.sync_dir(&self.dir).map_err(DiskError::of("sync", &self.dir)) {
            // Ignores the error. A power cut can now undo the renaming or the removal. In that case, the next start
            // finds the file under its earlier name, and uses or removes it.
            Err(error) if error.lacks_resource() => Ok(()),
            synced => synced,
        }
    }
}

/// Enlarges a file of zeros from `from` to `to` bytes. If there is no room, returns `false`, and the file keeps its
/// size.
pub(crate) fn enlarge(disk: &dyn Disk, path: &Path, from: u64, to: u64) -> Result<bool, DiskError> {
    let file = disk.open(path, true).map_err(DiskError::of("open", path))?;
    match write_zeros(&*file, path, from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.is_full() => {
            file.set_bytes(from).map_err(DiskError::of("truncate", path))?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn write_zeros(file: &dyn DiskFile, path: &Path, from: u64, to: u64) -> Result<(), DiskError> {
    let mut written = from;
    while written < to {
        let count = (to - written).min(ZEROS.len() as u64);
        file.write_at(&[&ZEROS[..count as usize]], written)
            .map_err(DiskError::of("allocate space in", path))?;
        written += count;
    }
    file.sync().map_err(DiskError::of("sync", path))
}
