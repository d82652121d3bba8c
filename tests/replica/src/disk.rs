//! A simulated disk that loses power when the process that uses it ends. Written bytes stay in the process's memory
//! until a sync; if the process ends before, they are lost. A test can therefore cut the power by killing the process.
//!
//! Commands make syncs slow, let syncs fail, make the disk full, or cut the power during a sync. If the power fails
//! during a sync, only some sectors of this sync are written, and some of the written sectors may be corrupt. Data of
//! earlier syncs stay intact.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin_journal::{DirLock, Disk, DiskFile, RealDisk};

use crate::seed::SeededRandom;

const SECTOR: usize = 512;

/// The disk faults that commands have requested.
#[derive(Debug, Default)]
pub struct DiskFaults {
    /// The time that every sync takes, in ms.
    slow_ms: AtomicU64,
    /// Whether writes fail because the disk is full.
    full: AtomicBool,
    /// Whether syncs fail.
    broken: AtomicBool,
    /// If not 0, the power fails during the next sync that has bytes to write. The number is a seed that determines
    /// which sectors are still written.
    tear: AtomicU64,
}

impl DiskFaults {
    /// Sets the faults from a command: `slow MS`, `full`, `broken`, `tear SEED` or `well`. The command `well` ends
    /// `slow` and `full`.
    pub fn apply(&self, command: &str) {
        let (what, number) = command.split_once(' ').unwrap_or((command, "0"));
        let number = number.parse().unwrap_or(0);
        match what {
            "slow" => self.slow_ms.store(number, Ordering::Relaxed),
            "full" => self.full.store(true, Ordering::Relaxed),
            "broken" => self.broken.store(true, Ordering::Relaxed),
            "tear" => self.tear.store(number.max(1), Ordering::Relaxed),
            _ => {
                self.slow_ms.store(0, Ordering::Relaxed);
                self.full.store(false, Ordering::Relaxed);
            }
        }
    }

    fn check_room(&self, growth: bool) -> io::Result<()> {
        let full = growth && self.full.load(Ordering::Relaxed);
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

/// A disk that loses its power when the process ends. All unsynced data is then lost.
#[derive(Debug, Default)]
pub struct PowerLossDisk {
    faults: Arc<DiskFaults>,
    unsynced: Mutex<HashMap<PathBuf, Arc<Mutex<Writes>>>>,
}

/// The unsynced writes of a file, in order: the offset of each write in the file, and its bytes.
type Writes = Vec<(u64, Vec<u8>)>;

#[derive(Debug)]
struct PowerLossFile {
    file: Box<dyn DiskFile>,
    writes: Arc<Mutex<Writes>>,
    faults: Arc<DiskFaults>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PowerLossDisk {
    /// Creates a disk with these faults. The faults can change later.
    pub fn new(faults: Arc<DiskFaults>) -> PowerLossDisk {
        PowerLossDisk { faults, unsynced: Mutex::default() }
    }

    fn file(&self, path: &Path, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let writes = Arc::clone(lock(&self.unsynced).entry(path.to_owned()).or_default());
        Box::new(PowerLossFile { file, writes, faults: Arc::clone(&self.faults) })
    }
}

impl Disk for PowerLossDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.faults.check_room(true)?;
        let file = RealDisk.create(path)?;
        lock(&self.unsynced).remove(path);
        Ok(self.file(path, file))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>> {
        // Opens the file for writing if possible, even if `write` is `false`. All handles of a file share its unsynced
        // writes, so a sync of any handle must be able to write them.
        let file = RealDisk.open(path, true).or_else(|_| RealDisk.open(path, write))?;
        Ok(self.file(path, file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)?;
        let mut unsynced = lock(&self.unsynced);
        if let Some(writes) = unsynced.remove(from) {
            unsynced.insert(to.to_owned(), writes);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        lock(&self.unsynced).remove(path);
        RealDisk.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.remove_dir(dir)
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        if self.faults.full.load(Ordering::Relaxed) { Ok(0) } else { RealDisk.free_bytes(dir) }
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        RealDisk.lock(dir)
    }

    fn identity(&self) -> u64 {
        RealDisk.identity()
    }
}

impl DiskFile for PowerLossFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(written_end(&lock(&self.writes)).max(self.file.bytes()?))
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let writes = lock(&self.writes);
        let mut filled = self.file.read_at(out, at)?;
        let reach = written_end(&writes).saturating_sub(at).min(out.len() as u64) as usize;
        if reach > filled {
            out[filled..reach].fill(0);
            filled = reach;
        }
        for (from, bytes) in writes.iter() {
            let (start, end) = ((*from).max(at), (from + bytes.len() as u64).min(at + filled as u64));
            if start < end {
                let part = &bytes[(start - from) as usize..(end - from) as usize];
                out[(start - at) as usize..(end - at) as usize].copy_from_slice(part);
            }
        }
        Ok(filled)
    }

    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()> {
        let bytes = parts.concat();
        let end = at + bytes.len() as u64;
        self.faults.check_room(end > self.bytes()?)?;
        lock(&self.writes).push((at, bytes));
        Ok(())
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.faults.check_room(bytes > self.bytes()?)?;
        let mut writes = lock(&self.writes);
        writes.retain(|(at, _)| *at < bytes);
        writes.iter_mut().for_each(|(at, part)| part.truncate((bytes - *at) as usize));
        self.file.set_bytes(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let slow_ms = self.faults.slow_ms.load(Ordering::Relaxed);
        if slow_ms > 0 {
            std::thread::sleep(Duration::from_millis(slow_ms));
        }
        if self.faults.broken.load(Ordering::Relaxed) {
            return Err(io::Error::other("the disk was ordered to fail"));
        }
        let mut writes = lock(&self.writes);
        if !writes.is_empty() && self.faults.tear.load(Ordering::Relaxed) > 0 {
            self.tear(&writes);
        }
        for (at, bytes) in writes.drain(..) {
            self.file.write_at(&[&bytes], at)?;
        }
        // The real file needs no sync. In a test only the process ends, not the machine, so bytes that were written to
        // the real file remain.
        Ok(())
    }
}

impl PowerLossFile {
    /// Simulates a power failure during a sync: writes a random selection of the sectors, flips a bit in some of them,
    /// and ends the process.
    fn tear(&self, writes: &Writes) -> ! {
        let mut seed = SeededRandom::new(self.faults.tear.load(Ordering::Relaxed));
        let reached = seed.between(0, 100);
        for (at, bytes) in writes {
            let mut from = 0;
            while from < bytes.len() {
                let sector_end = SECTOR - (*at as usize + from) % SECTOR;
                let to = (from + sector_end).min(bytes.len());
                let mut part = bytes[from..to].to_vec();
                if seed.between(0, 99) < reached {
                    if seed.between(0, 19) == 0 {
                        part[0] ^= 0x10;
                    }
                    let _ = self.file.write_at(&[&part], at + from as u64);
                }
                from = to;
            }
        }
        std::process::abort()
    }
}

fn written_end(writes: &Writes) -> u64 {
    writes.iter().map(|(at, bytes)| at + bytes.len() as u64).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
