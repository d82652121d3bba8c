//! Implements a disk in memory, for data that need not outlive the process. This disk never fails: for faults, see
//! [`FakeDisk`](super::FakeDisk).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DirLock, Disk, DiskFile};

/// A [`Disk`] in memory, for tests and for nodes without a data directory. Clones refer to the same disk.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    files: Mutex<BTreeMap<PathBuf, Content>>,
    locked: Mutex<BTreeSet<PathBuf>>,
    identities: AtomicU64,
}

type Content = Arc<Mutex<Vec<u8>>>;

/// The number of free bytes that the disk reports, although it reserves no memory for them.
const FREE_BYTES: u64 = 1 << 50;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryDisk {
    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Content>> {
        lock(&self.0.files)
    }
}

impl Disk for MemoryDisk {
    /// Does nothing: every directory exists on this disk.
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let files = self.files();
        let inside = files.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut files = self.files();
        if files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let content = Content::default();
        files.insert(path.to_owned(), Arc::clone(&content));
        Ok(Box::new(File { content, write: true }))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>> {
        let content = self.files().get(path).map(Arc::clone).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(File { content, write }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files();
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files().remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(FREE_BYTES)
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        let is_new = lock(&self.0.locked).insert(dir.to_owned());
        Ok(is_new.then(|| Box::new(HeldDirLock { disk: self.clone(), dir: dir.to_owned() }) as _))
    }

    fn identity(&self) -> u64 {
        self.0.identities.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[derive(Debug)]
struct HeldDirLock {
    disk: MemoryDisk,
    dir: PathBuf,
}

impl DirLock for HeldDirLock {}

impl Drop for HeldDirLock {
    fn drop(&mut self) {
        lock(&self.disk.0.locked).remove(&self.dir);
    }
}

#[derive(Debug)]
struct File {
    content: Content,
    write: bool,
}

impl File {
    fn for_writing(&self) -> io::Result<MutexGuard<'_, Vec<u8>>> {
        if self.write { Ok(lock(&self.content)) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl DiskFile for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(lock(&self.content).len() as u64)
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let content = lock(&self.content);
        let rest = content.get(at as usize..).unwrap_or(&[]);
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()> {
        let mut content = self.for_writing()?;
        let mut at = at as usize;
        for part in parts {
            let end = at + part.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[at..end].copy_from_slice(part);
            at = end;
        }
        Ok(())
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        let mut content = self.for_writing()?;
        content.resize(bytes as usize, 0);
        content.shrink_to_fit();
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
