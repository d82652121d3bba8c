//! Starts this node's membership in the Raft group for keys, leases and locks, when a key, lease or lock is first used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dunlin_journal::{Disk, lacks_resource};

use super::cluster_directory::{RESTORE_MEMBER, refuse_cluster_log};
use super::{ControlError, ControlGroup};
use crate::node::Node;
use crate::storage::{Storage, part_mark};

/// The subdirectory of the data directory that contains the log of keys, leases and locks.
const DIR: &str = "control";
/// The pause after a start that failed because the disk was full, or because the process lacked file descriptors or
/// memory. Requests that arrive during the pause are refused at once.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The node's membership in the Raft group for keys, leases and locks, once it was started.
#[derive(Debug, Default)]
pub(crate) struct LazyControl {
    control: OnceLock<Arc<ControlGroup>>,
    /// A lock that is held while a thread starts the membership.
    starting: Mutex<()>,
    failure: StartFailure,
}

/// The error of the last attempt to start a membership in a Raft group, if that attempt failed.
#[derive(Debug, Default)]
pub(crate) struct StartFailure(Mutex<Option<FailedStart>>);

#[derive(Debug)]
struct FailedStart {
    error: ControlError,
    at: Instant,
    /// Whether the files that the attempt found were, or may have been, restored from a copy.
    is_restored: bool,
}

impl FailedStart {
    /// Whether the error is temporary, so that a later start may succeed: the disk was full, or the process lacked file
    /// descriptors or memory.
    fn is_temporary(&self) -> bool {
        matches!(self.error, ControlError::DiskFull(_) | ControlError::LacksResource(_))
    }
}

impl StartFailure {
    /// Stores the result of the latest start. `failed` is the error, if the start failed. `is_restored` says whether
    /// the files that the start found were, or may have been, restored from a copy.
    pub(crate) fn record(&self, failed: Option<ControlError>, is_restored: bool) {
        *self.lock() = failed.map(|error| FailedStart { error, at: Instant::now(), is_restored });
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.lock().as_ref().map(|failed| failed.error.to_string())
    }

    /// The error of the last start, if this error was temporary and the pause before the next attempt has not passed;
    /// otherwise `None`.
    pub(crate) fn temporary_error(&self) -> Option<ControlError> {
        let failed = self.lock();
        let recent =
            failed.as_ref().filter(|failed| failed.is_temporary() && failed.at.elapsed() < RETRY_PAUSE);
        recent.map(|failed| failed.error.clone())
    }

    /// Whether the last start failed for a temporary reason and had found no restored files. The files that the failed
    /// start left are then this node's own, although they lack the node's mark (module `part_mark`). Files that were
    /// restored from a copy may also lack this mark.
    fn has_own_files(&self) -> bool {
        self.lock().as_ref().is_some_and(|failed| failed.is_temporary() && !failed.is_restored)
    }

    /// Whether the last start failed for a temporary reason, and the pause before the next attempt has passed.
    fn is_retry_due(&self) -> bool {
        self.lock().as_ref().is_some_and(|failed| failed.is_temporary() && failed.at.elapsed() >= RETRY_PAUSE)
    }

    /// Starts a single node's keys or tasks, with files in the directory `part` of the data directory. The argument of
    /// `start` says whether the files were, or may have been, restored from a copy. Returns the result, and whether the
    /// files were, or may have been, restored.
    pub(crate) fn start_part<T, E: From<ControlError>>(
        &self,
        (disk, dir): (&Arc<dyn Disk>, &Path),
        part: &str,
        part_dirs: &[PathBuf],
        start: impl FnOnce(bool) -> Result<T, E>,
    ) -> (Result<T, E>, bool) {
        let has_own_files = self.has_own_files();
        // Until the next check succeeds, assume that the files may be restored ones.
        let mut is_restored = !has_own_files;
        let is_unchanged = part_mark::is_unchanged(&**disk, dir, part, part_dirs);
        let failed = |error| E::from(ControlError::from_start_error(error));
        let started = is_unchanged.map_err(failed).and_then(|is_unchanged| {
            is_restored = !has_own_files && !is_unchanged;
            // This part is either keys or tasks. If its log is new, or may have been restored from a copy, check the
            // directory's logs of both parts.
            if is_restored || !dunlin_raft::is_begun(&**disk, &dir.join(part)) {
                refuse_cluster_log(disk, dir)?;
            }
            start(is_restored)
        });
        (started.inspect(|_| part_mark::write_open(&**disk, dir, part, part_dirs)), is_restored)
    }

    fn lock(&self) -> MutexGuard<'_, Option<FailedStart>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Returns the node's membership in the Raft group for keys, leases and locks. If [`Node::set_control`] has not
    /// been called, the first call starts a cluster of one: in the data directory, or in memory if there is none.
    pub fn control(&self) -> Result<&Arc<ControlGroup>, ControlError> {
        if let Some(control) = self.lazy_control().control.get() {
            return Ok(control);
        }
        let _one_at_a_time = self.lazy_control().starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(control) = self.lazy_control().control.get() {
            return Ok(control);
        }
        if let Some(why) = self.missing_cluster_reason() {
            return Err(ControlError::Start(why));
        }
        if let Some(error) = self.lazy_control().failure.temporary_error() {
            return Err(error);
        }
        let limits = self.config().limits.control;
        let (started, is_restored) = match self.storage().map(Storage::disk_and_dir) {
            Some((disk, dir)) => {
                let log_dir = dir.join(DIR);
                let start = |is_restored| {
                    let directory = Some((Arc::clone(disk), &*log_dir));
                    ControlGroup::start_single_node(&self.unguarded(), directory, limits, is_restored)
                };
                let logs = std::slice::from_ref(&log_dir);
                self.lazy_control().failure.start_part((disk, dir), DIR, logs, start)
            }
            None => (ControlGroup::start_single_node(&self.unguarded(), None, limits, false), false),
        };
        self.lazy_control().failure.record(started.as_ref().err().cloned(), is_restored);
        let control = started?;
        Ok(self.lazy_control().control.get_or_init(|| control))
    }

    /// Starts keys and tasks again if their start failed for a temporary reason.
    pub(crate) fn retry_starts(&self) {
        if self.lazy_control().failure.is_retry_due() {
            let _ = self.control();
        }
        if self.lazy_tasks().failure.is_retry_due() {
            let _ = self.tasks();
        }
    }

    /// Ends the membership in the Raft group for keys, leases and locks. A single node then records the modification
    /// times of its files.
    pub(crate) fn stop_control(&self) {
        let Some(control) = self.control_if_any() else { return };
        control.stop();
        if let Some((disk, dir)) =
            self.storage().map(Storage::disk_and_dir).filter(|_| !self.is_cluster_member())
        {
            part_mark::write_closed(&**disk, dir, DIR, &[dir.join(DIR)]);
        }
    }

    /// Says which of keys and tasks failed to start or have stopped because of an error, each with the reason. The node
    /// refuses all requests for a part that is listed here.
    pub fn failed_parts(&self) -> Vec<String> {
        let not_started = |failure: &StartFailure| self.missing_cluster_reason().or_else(|| failure.reason());
        let ended = |why: String| format!("this part of the node has ended; restart the node: {why}");
        let keys = match self.control_if_any() {
            Some(control) => control.status().ok().and_then(|status| status.stopped).map(ended),
            None => not_started(&self.lazy_control().failure),
        };
        let tasks = match self.tasks_if_any() {
            Some(tasks) => tasks.shards().iter().find_map(|shard| shard.status().ok()?.stopped).map(ended),
            None => not_started(&self.lazy_tasks().failure),
        };
        let failed = [("keys", keys), ("tasks", tasks)];
        failed.into_iter().filter_map(|(part, why)| Some(format!("{part}: {}", why?))).collect()
    }

    /// If this node belongs to a cluster, explains why it has no keys and tasks: it is not connected to the cluster
    /// yet. `None` for a single node.
    pub(crate) fn missing_cluster_reason(&self) -> Option<String> {
        if !self.is_cluster_member() {
            return None;
        }
        let files = match self.cluster_files() {
            Some(Err(error)) if lacks_resource(&error) => {
                return Some(format!("this node cannot read the files of its cluster now: {error}; retry"));
            }
            files => files.and_then(Result::ok).unwrap_or_default(),
        };
        let has = |name: &str| files.iter().any(|file| file == name);
        // The node creates its certificate after its identity file. If only the certificate exists, the identity file
        // was lost.
        let lacks_identity = has("node.pem") && !has("identity.json");
        Some(match lacks_identity {
            true => format!("the directory belongs to a member of a cluster; {RESTORE_MEMBER}"),
            false => {
                "this node is a member of a cluster, but does not take part in it: start the node with the \
                 address at which the other members reach it (dunlin serve --cluster-listen)"
                    .to_owned()
            }
        })
    }

    /// Whether the node is configured as a member of a cluster, or has the data directory of a member. Such a node must
    /// not start as a single node, because its log would then differ from the cluster's. The result is also `true`
    /// while the process or the machine lacks file descriptors or memory for reading the directory.
    pub(crate) fn is_cluster_member(&self) -> bool {
        let may_have_files = |files: io::Result<Vec<String>>| match files {
            Ok(files) => !files.is_empty(),
            Err(error) => lacks_resource(&error),
        };
        self.config().is_cluster_member || self.cluster_files().is_some_and(may_have_files)
    }

    /// The names of the files that describe this node's membership in a cluster; `None` without a data directory.
    fn cluster_files(&self) -> Option<io::Result<Vec<String>>> {
        let (disk, dir) = self.storage().map(Storage::disk_and_dir)?;
        Some(disk.list(&dir.join("cluster")))
    }

    /// Whether the data directory contains the log of keys of a single node.
    pub(crate) fn has_control(&self) -> bool {
        let disk_and_dir = self.storage().map(Storage::disk_and_dir);
        !self.is_cluster_member()
            && disk_and_dir.is_some_and(|(disk, dir)| dunlin_raft::is_begun(&**disk, &dir.join(DIR)))
    }

    /// Sets the node's membership in the Raft group for keys, leases and locks. Returns `false` if the node already has
    /// one.
    pub fn set_control(&self, control: Arc<ControlGroup>) -> bool {
        let _one_at_a_time = self.lazy_control().starting.lock().unwrap_or_else(PoisonError::into_inner);
        self.lazy_control().control.set(control).is_ok()
    }

    /// If the disk has no room for keys, tasks or durable topics, or the process or the machine lacks file descriptors
    /// or memory, returns a text that names the data concerned and the error. As long as the shortage lasts, requests
    /// that make these data larger are refused, or wait.
    pub fn lacks_room(&self) -> Option<String> {
        let keys = self.control_if_any().and_then(|control| control.lacks_room());
        let tasks = || self.tasks_if_any().and_then(|tasks| tasks.lacks_room());
        let topics = || Some(self.storage()?.shortage()?.to_string());
        keys.or_else(tasks).or_else(topics)
    }

    /// The node's membership in the Raft group for keys, leases and locks, if it was started.
    pub fn control_if_any(&self) -> Option<&Arc<ControlGroup>> {
        self.lazy_control().control.get()
    }
}
