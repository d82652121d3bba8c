//! Starts this node's membership in the Raft groups of the task scheduler's shards, when tasks are first used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Tasks, TasksError, check_shards};
use crate::control::{ControlError, StartFailure};
use crate::node::Node;
use crate::storage::{Storage, part_mark};

/// The node's membership in the shards of the task scheduler, once it was started.
#[derive(Debug, Default)]
pub(crate) struct LazyTasks {
    tasks: OnceLock<Arc<Tasks>>,
    /// A lock that is held while the membership is started.
    starting: Mutex<()>,
    pub(crate) failure: StartFailure,
}

/// The subdirectory of the data directory that contains the logs of the first shard.
const DIR: &str = "tasks";

impl Node {
    /// Returns the node's membership in the shards of the task scheduler. If [`Node::set_tasks`] has not been called,
    /// the first call starts a cluster of one: in the data directory, or in memory if there is none.
    pub fn tasks(&self) -> Result<&Arc<Tasks>, TasksError> {
        if let Some(tasks) = self.lazy_tasks().tasks.get() {
            return Ok(tasks);
        }
        let _one_at_a_time = self.lazy_tasks().starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = self.lazy_tasks().tasks.get() {
            return Ok(tasks);
        }
        if let Some(why) = self.missing_cluster_reason() {
            return Err(ControlError::Start(why).into());
        }
        if let Some(error) = self.lazy_tasks().failure.temporary_error() {
            return Err(error.into());
        }
        let limits = self.config().limits.tasks;
        let (started, is_restored) = match self.storage().map(Storage::disk_and_dir) {
            Some((disk, dir)) => {
                let start = |is_restored| {
                    let log_dir = dir.join(DIR);
                    let directory = Some((Arc::clone(disk), &*log_dir));
                    Tasks::start_single_node(&self.unguarded(), directory, limits, is_restored)
                };
                let shards = dirs(dir, limits.shards);
                self.lazy_tasks().failure.start_part((disk, dir), DIR, &shards, start)
            }
            None => (Tasks::start_single_node(&self.unguarded(), None, limits, false), false),
        };
        let failed = started.as_ref().err().map(|error| match error {
            TasksError::Agreeing(error) => error.clone(),
            other => ControlError::Start(other.to_string()),
        });
        self.lazy_tasks().failure.record(failed, is_restored);
        let tasks = started?;
        Ok(self.lazy_tasks().tasks.get_or_init(|| tasks))
    }

    /// Ends the membership in the shards. A single node then records the modification times of its files.
    pub(crate) fn stop_tasks(&self) {
        let Some(tasks) = self.tasks_if_any() else { return };
        tasks.stop();
        if let Some((disk, dir)) =
            self.storage().map(Storage::disk_and_dir).filter(|_| !self.is_cluster_member())
        {
            part_mark::write_closed(&**disk, dir, DIR, &dirs(dir, tasks.limits().shards));
        }
    }

    /// Whether the data directory contains the log of tasks of a single node.
    pub(crate) fn has_tasks(&self) -> bool {
        let disk_and_dir = self.storage().map(Storage::disk_and_dir);
        !self.is_cluster_member()
            && disk_and_dir.is_some_and(|(disk, dir)| dunlin_raft::is_begun(&**disk, &dir.join(DIR)))
    }

    /// Returns an error if the data directory has another number of shards than the configuration.
    pub(crate) fn check_shards(&self) -> io::Result<()> {
        match self.storage().map(Storage::disk_and_dir).filter(|_| !self.is_cluster_member()) {
            Some((disk, dir)) => check_shards(&**disk, &dir.join(DIR), self.config().limits.tasks.shards),
            None => Ok(()),
        }
    }

    /// Sets the node's membership in the shards of the task scheduler. Returns `false` if the node already has one.
    pub fn set_tasks(&self, tasks: Arc<Tasks>) -> bool {
        let _one_at_a_time = self.lazy_tasks().starting.lock().unwrap_or_else(PoisonError::into_inner);
        self.lazy_tasks().tasks.set(tasks).is_ok()
    }

    /// The node's membership in the shards of the task scheduler, if it was started.
    pub fn tasks_if_any(&self) -> Option<&Arc<Tasks>> {
        self.lazy_tasks().tasks.get()
    }
}

fn dirs(dir: &Path, shards: u8) -> Vec<PathBuf> {
    (0..shards).map(|shard| Tasks::dir_of(&dir.join(DIR), shard)).collect()
}
