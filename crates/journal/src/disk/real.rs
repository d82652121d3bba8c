//! Implements the disk interface with the operating system's files.

use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::{DirLock, Disk, DiskFile};

/// Name of the file that a process locks while it writes to the directory.
const LOCK_FILE: &str = "lock";
/// Maximum number of buffers that Linux accepts in one write call.
const PARTS_MAX: usize = 1024;

/// A [`Disk`] that stores logs in the machine's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

/// The types (`f_type` of `statfs`) of tmpfs and ramfs, the file systems that Linux keeps in memory.
const IN_MEMORY_TYPES: [u64; 2] = [0x0102_1994, 0x8584_58f6];

impl RealDisk {
    /// Whether a directory is on a file system in memory (tmpfs, ramfs), whose files do not survive a restart of the
    /// machine.
    pub fn in_memory(&self, dir: &Path) -> io::Result<bool> {
        let fs_type = rustix::fs::statfs(dir)?.f_type as u64;
        Ok(IN_MEMORY_TYPES.contains(&(fs_type & 0xffff_ffff)))
    }
}

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            self.create_dir(parent)?;
        }
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => self.sync_dir(parent.unwrap_or(Path::new("."))),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            // Skips names that are not valid UTF-8, because no file of a log has such a name.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).create_new(true).open(path)?))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(open_file(OpenOptions::new().read(true).write(write), path)?))
    }

    fn changed_ns(&self, path: &Path) -> io::Result<u64> {
        let metadata = std::fs::metadata(path)?;
        Ok((metadata.ctime() as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add(metadata.ctime_nsec() as u64))
    }

    fn file_number(&self, path: &Path) -> io::Result<u64> {
        Ok(std::fs::metadata(path)?.ino())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        let mut options = OpenOptions::new();
        let file =
            open_file(options.read(true).write(true).create(true).truncate(false), &dir.join(LOCK_FILE))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(HeldDirLock { _file: file }))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn open_files_max(&self) -> Option<u64> {
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current
    }

    fn identity(&self) -> u64 {
        // Every new `RandomState` has other random keys, so its hash of nothing is a random number.
        RandomState::new().build_hasher().finish()
    }
}

/// Opens a regular file. Fails if the path is anything else, such as a pipe.
fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Without `NONBLOCK`, opening a pipe would wait until another process opens the pipe's other end.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = options.custom_flags(nonblocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path is a directory, a pipe, a socket or a device, not a file",
        ));
    }
    Ok(file)
}

impl DiskFile for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            match FileExt::read_at(self, &mut out[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, parts: &[&[u8]], mut at: u64) -> io::Result<()> {
        if let [part] = parts {
            return self.write_all_at(part, at);
        }
        for parts in parts.chunks(PARTS_MAX) {
            let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut rest = &mut slices[..];
            // Skips empty parts at the front: if all remaining parts were empty, the write would return 0, which counts
            // as an error below.
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                let count = match rustix::io::pwritev(self, rest, at) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => count,
                    Err(rustix::io::Errno::INTR) => 0,
                    Err(error) => return Err(error.into()),
                };
                at += count as u64;
                IoSlice::advance_slices(&mut rest, count);
            }
        }
        Ok(())
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The locked file. Dropping it closes the file, which releases the lock.
#[derive(Debug)]
struct HeldDirLock {
    _file: File,
}

impl DirLock for HeldDirLock {}
