//! What a log asks of a disk.
//!
//! What is assumed of it, and of nothing more: a sector of 512 bytes that is being written when the power fails holds
//! old or new bytes afterwards, and bytes that the write did not change stay as they were; after [`DiskFile::sync`]
//! returned, what was written before it is there; after [`Disk::sync_dir`] returned, names are. Writes and names that
//! were not synced may be there or not, in any order.

mod fake;
mod memory;
mod real;

use std::io;
use std::path::Path;

pub use fake::{FakeDisk, Faults};
pub use memory::MemoryDisk;
pub use real::RealDisk;

/// A disk: files by path. The real one is [`RealDisk`]; [`FakeDisk`] is one that tests can break, [`MemoryDisk`] keeps
/// nothing beyond the process.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Makes a directory and those it lies in, so that they outlive a power cut.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// The names of the files in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes a new, empty file; fails where there is one.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading, or for reading and writing.
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file a new name in the same directory; what had that name is gone.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Returns once the directory's names are on the disk.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Bytes that could still be written.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
    /// Keeps every other process out of a directory until the guard is dropped; `None` if another is in.
    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn DirLock>>>;
    /// When a file, or what the system notes about it, was changed last, ns since 1970. A copy of the file has a later time,
    /// even one that keeps the times of its content. 0 on a disk that cannot tell.
    fn changed_ns(&self, _path: &Path) -> io::Result<u64> {
        Ok(0)
    }
    /// The file system's number of a file (its inode). It stays when the file is changed or renamed; a copy of the file has another
    /// one. 0 on a disk that cannot tell.
    fn file_number(&self, _path: &Path) -> io::Result<u64> {
        Ok(0)
    }
    /// A number that no other file on this disk was given.
    fn identity(&self) -> u64;
}

/// A file that is open.
pub trait DiskFile: Send + Sync + std::fmt::Debug {
    /// How long it is.
    fn bytes(&self) -> io::Result<u64>;
    /// Fills `out` from `at` on, as far as the file reaches; gives how much that was.
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all parts one after another, the first at `at`. What of it got there when it fails is unknown.
    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()>;
    /// Cuts the file, or extends it with zeros.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;
    /// Returns once what was written is on the disk. When it fails, what was written before may be lost although a
    /// later call succeeds: whoever called it must write no more.
    fn sync(&self) -> io::Result<()>;
}

/// Holds a directory; dropping it lets go.
pub trait DirLock: Send + Sync + std::fmt::Debug {}
