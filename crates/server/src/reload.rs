//! Reads settings from their files again while the node runs: on request ([`Server::reload`]), and after the files have
//! changed.
//!
//! If a file is invalid, its setting does not change, and the log reports the error once for each change of the file.
//!
//! [`Server::reload`]: crate::Server::reload

use std::fmt::Debug;
use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Pause between two checks whether files have changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A setting that a running node can read from its files again.
pub(crate) trait Reload: Debug + Send + Sync {
    /// The setting's name in log messages.
    fn name(&self) -> &'static str;

    /// The files from which the setting is read.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads the files and applies the setting. If that fails, the previous setting remains in use.
    fn reload(&self) -> Result<(), String>;
}

/// All settings that a running node can read from their files again.
#[derive(Debug, Default)]
pub(crate) struct Reloads(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    setting: Arc<dyn Reload>,
    stamps: Vec<Option<FileStamp>>,
}

/// The properties by which a change of a file is noticed: inode, size, and the modification time in seconds and
/// nanoseconds.
type FileStamp = (u64, u64, i64, i64);

impl Reloads {
    pub(crate) fn add(&self, setting: Arc<dyn Reload>) {
        let stamps = file_stamps(&*setting);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Entry { setting, stamps });
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Reads all settings again. Returns whether all files were valid.
    pub(crate) fn reload_all(&self) -> bool {
        self.reload(|_| true)
    }

    /// Reads those settings again whose files have changed since the last check.
    fn reload_changed(&self) {
        self.reload(|entry| file_stamps(&*entry.setting) != entry.stamps);
    }

    fn reload(&self, needs_reload: impl Fn(&Entry) -> bool) -> bool {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all_valid = true;
        for entry in entries.iter_mut().filter(|entry| needs_reload(entry)) {
            // The stamps are taken before the files are read. If a file changes during the read, the next check
            // therefore reads it again.
            entry.stamps = file_stamps(&*entry.setting);
            let name = entry.setting.name();
            match entry.setting.reload() {
                Ok(()) => tracing::info!("{name}: reloaded"),
                Err(error) => {
                    all_valid = false;
                    tracing::error!("cannot reload {name}; the previous content stays in force: {error}");
                }
            }
        }
        all_valid
    }
}

fn file_stamps(setting: &dyn Reload) -> Vec<Option<FileStamp>> {
    setting.files().iter().map(|path| file_stamp(path)).collect()
}

fn file_stamp(path: &Path) -> Option<FileStamp> {
    let file = metadata(path).ok()?;
    Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

/// Checks periodically for changed files, until the task is aborted.
pub(crate) async fn watch(reloads: Arc<Reloads>) {
    while !reloads.is_empty() {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let reloads = Arc::clone(&reloads);
        // The check runs on another thread, because a slow disk must not delay sessions.
        let _ = tokio::task::spawn_blocking(move || reloads.reload_changed()).await;
    }
}
