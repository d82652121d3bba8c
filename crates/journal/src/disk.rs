//! The interface through which a log uses a disk.
//!
//! Assumptions about a disk: after a power failure, a 512-byte sector that was being written holds old or new bytes,
//! and the bytes that the write did not change are intact. After [`DiskFile::sync`] returned, earlier writes to the
//! file are stored. After [`Disk::sync_dir`] returned, the names of the directory's files are stored. Unsynced writes
//! and names may be stored or not, in any order.

mod fake;
mod memory;
mod real;
mod replace;

use std::io;
use std::path::Path;

pub use fake::{FakeDisk, Faults};
pub use memory::MemoryDisk;
pub use real::RealDisk;
pub use replace::replace_file;

/// A file system in which logs are stored: on a real disk, in memory, or with injected faults for tests.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Creates a directory and its parents, and stores their names durably.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// The names of the files in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Creates an empty file. Fails if the file exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading, or for reading and writing.
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file within its directory. A file that already has the new name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Stores the names of the directory's files durably.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// The number of free bytes on the file system that contains the directory.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
    /// Locks a directory against other processes until the guard is dropped; `None` if the directory is locked
    /// already.
    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn DirLock>>>;
    /// The time of the last change of a file's content or metadata, ns since 1970. A copy of the file has a later time,
    /// even if the copy keeps the modification time. 0 if the disk records no such times.
    fn changed_ns(&self, _path: &Path) -> io::Result<u64> {
        Ok(0)
    }
    /// The file system's number of a file (its inode). The number stays the same when the file is changed or renamed; a
    /// copy of the file has another number. 0 if the disk has no such numbers.
    fn file_number(&self, _path: &Path) -> io::Result<u64> {
        Ok(0)
    }
    /// The number of files that the process may have open; `None` if there is no limit.
    fn open_files_max(&self) -> Option<u64> {
        None
    }
    /// A new random number that identifies one file on this disk.
    fn identity(&self) -> u64;
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send + Sync + std::fmt::Debug {
    /// The length of the file, bytes.
    fn bytes(&self) -> io::Result<u64>;
    /// Reads from `at` into `out` up to the end of the file. Returns the number of bytes read.
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes the parts one after another, from offset `at` on. After an error, any part of the bytes may have been
    /// written.
    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()>;
    /// Sets the file's length: truncates the file, or extends it with zeros.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;
    /// Stores all writes durably. After a failure, earlier writes may be lost even if a later call succeeds; the
    /// caller must not write again.
    fn sync(&self) -> io::Result<()>;
}

/// An exclusive lock on a directory. Dropping the lock unlocks the directory.
pub trait DirLock: Send + Sync + std::fmt::Debug {}
