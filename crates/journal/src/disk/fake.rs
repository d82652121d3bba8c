//! A disk in memory that tests can break: seeded, so that the same seed breaks it in the same way.
//!
//! It keeps two states of every file, what programs see and what is on the disk, and of the sectors in which the two
//! may differ. What it does:
//! - [`FakeDisk::crash`]: of each sector that was not synced the old bytes stay, or the new ones are there, or it is torn
//!   somewhere in between; a length that was not synced may be lost; each name that was not synced is there or not.
//!   Files that were open fail from then on, locks are let go.
//! - [`FakeDisk::flip_bits`]: damage at rest, in what was synced.
//! - [`Faults::sync_fails`]: a sync that fails, puts some sectors on the disk, and takes the rest for written, as
//!   Linux does; the next succeeds without them.
//! - [`FakeDisk::set_room`]: a disk that fills up; a write is cut short where it is full.
//!
//! Not here: bytes that change in a sector that no write touched, other than by `flip_bits`; a disk that lies about a sync.

mod crash;
mod file;
mod handle;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DirLock, Disk, DiskFile};
use file::FakeFile;
use handle::{Handle, count_down};

/// A disk in memory that tests can break. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct FakeDisk {
    state: Arc<Mutex<State>>,
}

/// What the disk is to do wrong from now on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Syncs that succeed before one fails; `None`: none fails.
    pub sync_fails: Option<u32>,
    /// Writes that succeed before one fails with an error of the device.
    pub write_fails: Option<u32>,
    /// Names made, changed, removed or synced before one of these fails.
    pub names_fail: Option<u32>,
}

#[derive(Debug)]
struct State {
    files: Vec<FakeFile>,
    /// Names as programs see them.
    names: BTreeMap<PathBuf, usize>,
    /// Names as they are on the disk.
    names_synced: BTreeMap<PathBuf, usize>,
    locks: BTreeMap<PathBuf, u64>,
    /// Grows at each crash: handles of an earlier life fail.
    life: u64,
    /// Bytes that all files together may hold.
    room: u64,
    faults: Faults,
    random: u64,
}

impl FakeDisk {
    /// An empty disk whose misfortunes follow from the seed.
    pub fn new(seed: u64) -> FakeDisk {
        let state = State {
            files: Vec::new(),
            names: BTreeMap::new(),
            names_synced: BTreeMap::new(),
            locks: BTreeMap::new(),
            life: 0,
            room: u64::MAX,
            faults: Faults::default(),
            random: seed,
        };
        FakeDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// How many bytes all files together may hold from now on.
    pub fn set_room(&self, bytes: u64) {
        self.state().room = bytes;
    }

    /// Bytes that all files hold together.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// What is to go wrong from now on; counted anew.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Cuts the power and starts again: what was not synced is there, or not, or torn.
    pub fn crash(&self) {
        self.state().crash();
    }

    /// The content of a file as programs see it.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).map(|&file| state.files[file].seen.clone())
    }

    /// Puts these bytes into a file, on the disk and at once, as damage or a careless hand would; makes it if need be.
    pub fn overwrite(&self, path: &Path, content: Vec<u8>) {
        let mut state = self.state();
        let file = FakeFile::synced(content);
        state.files.push(file);
        let index = state.files.len() - 1;
        state.names.insert(path.to_owned(), index);
        state.names_synced.insert(path.to_owned(), index);
    }

    /// Flips so many bits of a file, each somewhere between the two places.
    pub fn flip_bits(&self, path: &Path, count: u32, from: u64, to: u64) {
        let mut state = self.state();
        let Some(&index) = state.names.get(path) else { return };
        for _ in 0..count {
            let span = to.min(state.files[index].seen.len() as u64).saturating_sub(from);
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
        self.names.values().map(|&file| self.files[file].seen.len() as u64).sum()
    }

    fn next(&mut self) -> u64 {
        // SplitMix64, so that no seed is a bad one.
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
    /// Directories are always there.
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
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.files.push(FakeFile::default());
        let index = state.files.len() - 1;
        state.names.insert(path.to_owned(), index);
        Ok(Box::new(Handle { disk: self.clone(), index, life: state.life, write: true }))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>> {
        let state = self.state();
        let index = state.index_of(path)?;
        Ok(Box::new(Handle { disk: self.clone(), index, life: state.life, write }))
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
        state.index_of(path)?;
        state.names.remove(path);
        Ok(())
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        count_down(&mut state.faults.names_fail)?;
        let inside = |path: &PathBuf| path.parent() == Some(dir);
        state.names_synced.retain(|path, _| !inside(path));
        let now: Vec<_> =
            state.names.iter().filter(|(path, _)| inside(path)).map(|(p, &i)| (p.clone(), i)).collect();
        state.names_synced.extend(now);
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        let state = self.state();
        Ok(state.room.saturating_sub(state.used()))
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        let mut state = self.state();
        let life = state.life;
        if state.locks.get(dir) == Some(&life) {
            return Ok(None);
        }
        state.locks.insert(dir.to_owned(), life);
        Ok(Some(Box::new(Held { disk: self.clone(), dir: dir.to_owned(), life })))
    }

    fn identity(&self) -> u64 {
        self.state().next()
    }
}

#[derive(Debug)]
struct Held {
    disk: FakeDisk,
    dir: PathBuf,
    life: u64,
}

impl DirLock for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.locks.get(&self.dir) == Some(&self.life) {
            state.locks.remove(&self.dir);
        }
    }
}
