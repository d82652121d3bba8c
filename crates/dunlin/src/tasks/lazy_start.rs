//! Starts the node's membership in the groups of its cluster's tasks, at the first use of tasks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Tasks, TasksError, check_shards};
use crate::control::{ControlError, StartFailure, refuse_log_of_cluster};
use crate::node::Node;
use crate::storage::{Storage, made};

/// The node's membership in the groups of its cluster's tasks, once it was started.
#[derive(Debug, Default)]
pub(crate) struct LazyTasks {
    tasks: OnceLock<Arc<Tasks>>,
    /// A lock that is held while the membership is started.
    starting: Mutex<()>,
    pub(crate) failure: StartFailure,
}

/// The subdirectory of the data directory with the cluster's tasks.
const DIR: &str = "tasks";

impl Node {
    /// Returns the node's membership in the groups of its cluster's tasks. Without [`Node::set_tasks`], the first call
    /// starts a cluster of one: in the data directory, or in memory if there is none.
    pub fn tasks(&self) -> Result<&Arc<Tasks>, TasksError> {
        if let Some(tasks) = self.tasks_place().tasks.get() {
            return Ok(tasks);
        }
        let _one_at_a_time = self.tasks_place().starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = self.tasks_place().tasks.get() {
            return Ok(tasks);
        }
        if let Some(why) = self.awaits_cluster() {
            return Err(ControlError::Start(why).into());
        }
        if let Some(full) = self.tasks_place().failure.full_disk() {
            return Err(full.into());
        }
        let limits = self.config().limits.tasks;
        let mut is_put_back = false;
        let started = match self.storage().map(Storage::place) {
            Some((disk, dir)) => {
                let shards = dirs(dir, limits.shards);
                is_put_back = !self.tasks_place().failure.left_own_files()
                    && !made::is_unchanged(&**disk, dir, DIR, &shards);
                let place = dir.join(DIR);
                // The other logs are read only if this one is new, or may have been restored from a copy.
                let checked = match is_put_back || !dunlin_raft::is_begun(&**disk, &place) {
                    true => refuse_log_of_cluster(disk, dir).map_err(TasksError::from),
                    false => Ok(()),
                };
                let at = Some((Arc::clone(disk), &*place));
                let tasks = checked.and_then(|()| Tasks::alone(&self.unguarded(), at, limits, is_put_back));
                tasks.inspect(|_| made::note(&**disk, dir, DIR, &shards))
            }
            None => Tasks::alone(&self.unguarded(), None, limits, false),
        };
        let failed = started.as_ref().err().map(|error| match error {
            TasksError::Agreeing(error) => error.clone(),
            other => ControlError::Start(other.to_string()),
        });
        self.tasks_place().failure.record(failed, is_put_back);
        let tasks = started?;
        Ok(self.tasks_place().tasks.get_or_init(|| tasks))
    }

    /// Ends the membership. A single node then records the modification times of its files.
    pub(crate) fn stop_tasks(&self) {
        let Some(tasks) = self.tasks_if_any() else { return };
        tasks.stop();
        if let Some((disk, dir)) = self.storage().map(Storage::place).filter(|_| !self.is_of_cluster()) {
            made::note_closed(&**disk, dir, DIR, &dirs(dir, tasks.limits().shards));
        }
    }

    /// Whether the data directory contains tasks of a cluster of one.
    pub(crate) fn has_tasks(&self) -> bool {
        let place = self.storage().map(Storage::place);
        !self.is_of_cluster()
            && place.is_some_and(|(disk, dir)| dunlin_raft::is_begun(&**disk, &dir.join(DIR)))
    }

    /// Returns an error if the configured number of shards differs from the directory's.
    pub(crate) fn check_shards(&self) -> io::Result<()> {
        match self.storage().map(Storage::place).filter(|_| !self.is_of_cluster()) {
            Some((disk, dir)) => check_shards(&**disk, &dir.join(DIR), self.config().limits.tasks.shards),
            None => Ok(()),
        }
    }

    /// Sets the node's membership in the groups of its cluster's tasks. Returns `false` if the node already has one.
    pub fn set_tasks(&self, tasks: Arc<Tasks>) -> bool {
        let _one_at_a_time = self.tasks_place().starting.lock().unwrap_or_else(PoisonError::into_inner);
        self.tasks_place().tasks.set(tasks).is_ok()
    }

    /// The node's membership in the groups of its cluster's tasks, if it was started.
    pub fn tasks_if_any(&self) -> Option<&Arc<Tasks>> {
        self.tasks_place().tasks.get()
    }
}

/// The directories of all shards in a node's data directory.
fn dirs(dir: &Path, shards: u8) -> Vec<PathBuf> {
    (0..shards).map(|shard| Tasks::dir_of(&dir.join(DIR), shard)).collect()
}
