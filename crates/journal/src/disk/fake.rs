//! Simulates a disk that fails on purpose. A seed determines all random choices, so that a test can be repeated.
//!
//! For every file, the disk keeps the content that programs see, the content on the medium, and the sectors in which
//! these two may differ. It simulates these faults:
//! - [`FakeDisk::crash`]: each unsynced sector keeps its old bytes, gets the new ones, or is torn; unsynced lengths and
//!   names may be lost. Files that are open at that time return errors afterwards, and locks are released.
//! - [`FakeDisk::flip_bits`]: damages synced bytes.
//! - [`Faults::sync_fails`]: a sync stores some sectors and fails. As on Linux, the remaining sectors then count as
//!   written, so the next sync succeeds without storing them.
//! - [`FakeDisk::set_capacity`]: when the disk is full, only a part of a write is done.
//!
//! Two faults are not simulated: sectors that change by themselves (only `flip_bits` changes sectors in this way), and
//! disks that report a sync as done without doing it.

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

/// A simulated [`Disk`] that injects faults for tests. Clones refer to the same disk.
#[derive(Debug, Clone)]
pub struct FakeDisk {
    state: Arc<Mutex<State>>,
}

/// The faults that a [`FakeDisk`] injects, and when it injects them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// The number of syncs that still succeed before one fails. `None`: no sync fails.
    pub sync_fails: Option<u32>,
    /// Whether the sync that fails reports a full disk, as a sync can on a network file system.
    pub sync_reports_full: bool,
    /// Whether files cannot be opened, because the process has too many open files.
    pub opens_fail: bool,
    /// Whether files cannot be created and directories cannot be synced, because the process has too many open files.
    pub creates_fail: bool,
    /// The number of writes that still succeed before one fails with a device error. `None`: no write fails.
    pub write_fails: Option<u32>,
    /// Whether the write that fails reports a full disk. File systems that copy on write (btrfs, ZFS) do so even if the
    /// write overwrites an existing range.
    pub write_reports_full: bool,
    /// The number of file creations, renames, removals and directory syncs that still succeed before one of them fails.
    /// `None`: none of them fails.
    pub names_fail: Option<u32>,
    /// Whether other programs immediately use the room of every file that is removed.
    pub freed_room_is_taken: bool,
}

#[derive(Debug)]
struct State {
    files: Vec<FakeFile>,
    /// The file names that programs see, each with the file's index in `files`.
    names: BTreeMap<PathBuf, usize>,
    /// The synced file names, each with the file's index in `files`.
    names_synced: BTreeMap<PathBuf, usize>,
    /// The locked directories. Each has the number of crashes at the time of the lock, because a crash releases all
    /// locks.
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

    /// Sets the value that [`Disk::open_files_max`] returns. The disk itself does not enforce this limit.
    pub fn set_open_files_max(&self, files: u64) {
        self.state().open_files_max = Some(files);
    }

    /// The number of bytes in use.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Replaces the faults to inject. The counts in `faults` begin now.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Simulates a power failure and a restart: each unsynced write is kept, lost or torn.
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

    /// Flips `count` random bits of a file, at offsets from `from` up to, but not including, `to`.
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
        // SplitMix64, a random number generator that works with any seed.
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
