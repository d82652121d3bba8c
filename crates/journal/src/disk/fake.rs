//! A simulated disk for fault injection. The seed determines every fault.
//!
//! For every file, the disk keeps the content that programs see, the content on the medium, and the list of sectors in
//! which the two contents may differ. Faults:
//! - [`FakeDisk::crash`]: each unsynced sector keeps its old bytes, gets the new ones, or is torn; unsynced lengths
//!   and names may be lost. Open files fail afterwards, and locks are released.
//! - [`FakeDisk::flip_bits`]: damages synced bytes.
//! - [`Faults::sync_fails`]: a sync fails after it stored some sectors, and treats the other sectors as written, as
//!   Linux does. The next sync succeeds without storing those other sectors.
//! - [`FakeDisk::set_capacity`]: writes to a full disk are incomplete.
//!
//! Not simulated: sectors that change without a write (except by `flip_bits`), and disks that report a sync without
//! doing it.

mod crash;
mod file;
mod handle;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DirLock, Disk, DiskFile};
use file::FakeFile;
use handle::{FakeFileHandle, count_down};

/// A simulated [`Disk`] that injects faults for tests. Clones share the files.
#[derive(Debug, Clone)]
pub struct FakeDisk {
    state: Arc<Mutex<State>>,
}

/// The faults that a [`FakeDisk`] injects, and when.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// The number of successful syncs before one fails. `None`: no sync fails.
    pub sync_fails: Option<u32>,
    /// Whether the sync that fails reports a full disk, as a network file system does.
    pub sync_reports_full: bool,
    /// Whether files cannot be opened, because the process has too many open files.
    pub opens_fail: bool,
    /// Whether files cannot be created and directories cannot be synced, because the process has too many open files.
    pub creates_fail: bool,
    /// The number of successful writes before one fails with a device error. `None`: no write fails.
    pub write_fails: Option<u32>,
    /// Whether the write that fails reports a full disk, as file systems that copy on write (btrfs, ZFS) do even if the
    /// written range exists.
    pub write_reports_full: bool,
    /// The number of successful creations, renames, removals and directory syncs before one of them fails. `None`: none
    /// of them fails.
    pub names_fail: Option<u32>,
    /// Whether other programs immediately use the room that a removed file frees.
    pub freed_room_is_taken: bool,
}

#[derive(Debug)]
struct State {
    files: Vec<FakeFile>,
    /// The file names that programs see, each with the file's index in `files`.
    names: BTreeMap<PathBuf, usize>,
    /// The synced file names, each with the file's index in `files`.
    names_synced: BTreeMap<PathBuf, usize>,
    /// The locked directories, each with the value of `crashes` when it was locked. A crash releases all locks.
    locks: BTreeMap<PathBuf, u64>,
    /// The number of crashes so far. A file handle that was opened before the last crash returns errors.
    crashes: u64,
    /// The capacity of the disk, bytes.
    capacity: u64,
    open_files_max: Option<u64>,
    faults: Faults,
    random: u64,
}

impl FakeDisk {
    /// Creates an empty disk. `seed` determines all random choices.
    pub fn new(seed: u64) -> FakeDisk {
        let state = State {
            files: Vec::new(),
            names: BTreeMap::new(),
            names_synced: BTreeMap::new(),
            locks: BTreeMap::new(),
            crashes: 0,
            capacity: u64::MAX,
            open_files_max: None,
            faults: Faults::default(),
            random: seed,
        };
        FakeDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Sets the capacity of the disk, bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Sets the number of files that the process may have open, as [`Disk::open_files_max`] returns it. The disk does
    /// not enforce this limit.
    pub fn set_open_files_max(&self, files: u64) {
        self.state().open_files_max = Some(files);
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Replaces the faults to inject. Earlier operations do not count towards the new faults.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Simulates a power failure and restart: unsynced writes are kept, lost or torn.
    pub fn crash(&self) {
        self.state().crash();
    }

    /// The content of a file as programs see it.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).map(|&file| state.files[file].content.clone())
    }

    /// Replaces the content of a file durably, to simulate damage. Creates the file if it does not exist.
    pub fn overwrite(&self, path: &Path, content: Vec<u8>) {
        let mut state = self.state();
        let file = FakeFile::synced(content);
        state.files.push(file);
        let index = state.files.len() - 1;
        state.names.insert(path.to_owned(), index);
        state.names_synced.insert(path.to_owned(), index);
    }

    /// Flips `count` random bits of a file, at offsets from `from` up to `to`.
    pub fn flip_bits(&self, path: &Path, count: u32, from: u64, to: u64) {
        let mut state = self.state();
        let Some(&index) = state.names.get(path) else { return };
        for _ in 0..count {
            let span = to.min(state.files[index].content.len() as u64).saturating_sub(from);
            if span > 0 {
                let at = (from + state.below(span)) as usize;
                let bit = 1 << state.below(8);
                state.files[index].flip(at, bit);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn used(&self) -> u64 {
        self.names.values().map(|&file| self.files[file].content.len() as u64).sum()
    }

    fn next(&mut self) -> u64 {
        // SplitMix64, which works with any seed.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn index_of(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for FakeDisk {
    /// Does nothing: every directory exists on this disk.
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        count_down(&mut state.faults.names_fail)?;
        if state.faults.creates_fail {
            return Err(rustix::io::Errno::MFILE.into());
        }
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.files.push(FakeFile::default());
        let index = state.files.len() - 1;
        state.names.insert(path.to_owned(), index);
        Ok(Box::new(FakeFileHandle { disk: self.clone(), index, crashes: state.crashes, write: true }))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>> {
        let state = self.state();
        if state.faults.opens_fail {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let index = state.index_of(path)?;
        Ok(Box::new(FakeFileHandle { disk: self.clone(), index, crashes: state.crashes, write }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        count_down(&mut state.faults.names_fail)?;
        let index = state.index_of(from)?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), index);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        count_down(&mut state.faults.names_fail)?;
        let index = state.index_of(path)?;
        state.names.remove(path);
        if state.faults.freed_room_is_taken {
            state.capacity -= state.files[index].content.len() as u64;
        }
        Ok(())
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        count_down(&mut state.faults.names_fail)?;
        if state.faults.creates_fail {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let is_inside = |path: &PathBuf| path.parent() == Some(dir);
        state.names_synced.retain(|path, _| !is_inside(path));
        let current: Vec<_> =
            state.names.iter().filter(|(path, _)| is_inside(path)).map(|(p, &i)| (p.clone(), i)).collect();
        state.names_synced.extend(current);
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        let state = self.state();
        Ok(state.capacity.saturating_sub(state.used()))
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        let mut state = self.state();
        let crashes = state.crashes;
        if state.locks.get(dir) == Some(&crashes) {
            return Ok(None);
        }
        state.locks.insert(dir.to_owned(), crashes);
        Ok(Some(Box::new(HeldDirLock { disk: self.clone(), dir: dir.to_owned(), crashes })))
    }

    fn open_files_max(&self) -> Option<u64> {
        self.state().open_files_max
    }

    fn identity(&self) -> u64 {
        self.state().next()
    }
}

#[derive(Debug)]
struct HeldDirLock {
    disk: FakeDisk,
    dir: PathBuf,
    crashes: u64,
}

impl DirLock for HeldDirLock {}

impl Drop for HeldDirLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.locks.get(&self.dir) == Some(&self.crashes) {
            state.locks.remove(&self.dir);
        }
    }
}
