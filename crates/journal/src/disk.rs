//! Defines the interface through which a log uses a disk.
//!
//! A log relies on the following. If the power fails while a 512-byte sector is written, each byte that the write
//! changes has its old or its new value, and all other bytes of the sector are intact. Once [`DiskFile::sync`] has
//! returned, earlier writes to the file are stored. Once [`Disk::sync_dir`] has returned, the names of the directory's
//! files are stored. Unsynced writes and names may be stored or not, in any order.

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

/// A file system in which logs are stored. It may be on a real disk, in memory, or simulated with injected faults for
/// tests.
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
    /// The number of free bytes on the file system to which the directory belongs.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
    /// Locks a directory against other processes until the returned guard is dropped. Returns `None` if the directory
    /// is locked already.
    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn DirLock>>>;
    /// The time when a file's content or metadata last changed, ns since 1970; 0 if the disk records no such times. A
    /// copy of the file has a later time, even if it keeps the original's modification time.
    fn changed_ns(&self, _path: &Path) -> io::Result<u64> {
        Ok(0)
    }
    /// The number that the file system gives to a file (its inode); 0 if there are no such numbers. The number stays
    /// the same when the file is changed or renamed. A copy of the file has another number.
    fn file_number(&self, _path: &Path) -> io::Result<u64> {
        Ok(0)
    }
    /// The number of files that the process may have open at the same time; `None` if there is no limit.
    fn open_files_max(&self) -> Option<u64> {
        None
    }
    /// Returns a new number with which one file of a log is identified. On a real disk, the number is random.
    fn identity(&self) -> u64;
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send + Sync + std::fmt::Debug {
    /// The length of the file, bytes.
    fn bytes(&self) -> io::Result<u64>;
    /// Reads bytes from offset `at` on until `out` is full or the file ends. Returns the number of bytes read.
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes `parts` one after another, from offset `at` on. After an error, any of these bytes may have been written.
    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()>;
    /// Sets the file's length: truncates the file, or extends it with zeros.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;
    /// Stores all earlier writes durably. After an error, writes may be lost even if a later sync succeeds, so the
    /// caller must not write again.
    fn sync(&self) -> io::Result<()>;
}

/// An exclusive lock on a directory, held until this value is dropped.
pub trait DirLock: Send + Sync + std::fmt::Debug {}
