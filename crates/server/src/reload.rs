//! What was read from files and is read again while the node runs: when somebody asks ([`Server::reload`]), and when the
//! files have changed.
//!
//! Whoever reads something anew keeps what was there if the files are not sound; that goes to the log, once for each
//! change.
//!
//! [`Server::reload`]: crate::Server::reload

use std::fmt::Debug;
use std::fs::metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// What such a file may have.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The content of a file. What is none (a pipe, a device) is refused: to read it could take for ever.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let found = metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    std::fs::read(path)
}

/// Something that was read from files.
pub(crate) trait Reload: Debug + Send + Sync {
    /// What it is, for the log.
    fn what(&self) -> &'static str;

    /// Where it stands.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads it again; an error says why what was there stays.
    fn reload(&self) -> Result<(), String>;
}

/// Everything that is read again.
#[derive(Debug, Default)]
pub(crate) struct Reloads(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    what: Arc<dyn Reload>,
    seen: Vec<Option<Stamp>>,
}

/// A file as it was; `None` for one that was not there.
type Stamp = (u64, u64, i64, i64);

impl Reloads {
    pub(crate) fn add(&self, what: Arc<dyn Reload>) {
        let seen = stamps(&*what);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Entry { what, seen });
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Reads everything again; whether all of it was sound.
    pub(crate) fn all(&self) -> bool {
        self.reload(|_| true)
    }

    /// Reads again what has changed.
    fn changed(&self) {
        self.reload(|entry| stamps(&*entry.what) != entry.seen);
    }

    fn reload(&self, wanted: impl Fn(&Entry) -> bool) -> bool {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sound = true;
        for entry in entries.iter_mut().filter(|entry| wanted(entry)) {
            // First: what changes while it is read is read again.
            entry.seen = stamps(&*entry.what);
            let what = entry.what.what();
            match entry.what.reload() {
                Ok(()) => tracing::info!("{what}: read again"),
                Err(error) => {
                    sound = false;
                    tracing::error!("{what}: what was read before stays in force: {error}");
                }
            }
        }
        sound
    }
}

fn stamps(what: &dyn Reload) -> Vec<Option<Stamp>> {
    what.files().iter().map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = metadata(path).ok()?;
    Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

/// Looks at the files now and then, until the task is aborted.
pub(crate) async fn watch(reloads: Arc<Reloads>) {
    while !reloads.is_empty() {
        tokio::time::sleep(LOOK).await;
        let reloads = Arc::clone(&reloads);
        // A disk may take its time; the sessions of this thread do not.
        let _ = tokio::task::spawn_blocking(move || reloads.changed()).await;
    }
}
