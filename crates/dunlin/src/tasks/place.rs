//! A node's part in its cluster's tasks, from when somebody asks for it.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Tasks, TasksError, check_shards};
use crate::control::{ControlError, StartFailure};
use crate::node::Node;
use crate::storage::Storage;

/// Where a node keeps it.
#[derive(Debug, Default)]
pub(crate) struct Place {
    tasks: OnceLock<Arc<Tasks>>,
    /// Taken by who starts it.
    starting: Mutex<()>,
    pub(crate) failure: StartFailure,
}

/// Of the node's data directory.
const DIR: &str = "tasks";

impl Node {
    /// Its part in its cluster's tasks. Where nobody has said which ([`Node::set_tasks`]), it is a cluster of one from the first
    /// time that it is asked for: in its data directory, or in memory where it has none.
    pub fn tasks(&self) -> Result<&Arc<Tasks>, TasksError> {
        if let Some(tasks) = self.tasks_place().tasks.get() {
            return Ok(tasks);
        }
        let _one_at_a_time = self.tasks_place().starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = self.tasks_place().tasks.get() {
            return Ok(tasks);
        }
        if self.is_of_cluster() {
            let why = "this node is one of a cluster, and has not taken its part in the tasks yet";
            return Err(ControlError::Start(why.to_owned()).into());
        }
        let limits = self.config().limits.tasks;
        let started = match self.storage().map(Storage::place) {
            Some((disk, dir)) => {
                Tasks::alone(&self.unguarded(), Some((Arc::clone(disk), &dir.join(DIR))), limits)
            }
            None => Tasks::alone(&self.unguarded(), None, limits),
        };
        self.tasks_place().failure.record(&started);
        let tasks = started?;
        Ok(self.tasks_place().tasks.get_or_init(|| tasks))
    }

    /// There is something in its directory of tasks that it had alone.
    pub(crate) fn has_tasks(&self) -> bool {
        let place = self.storage().map(Storage::place);
        !self.is_of_cluster()
            && place.is_some_and(|(disk, dir)| dunlin_raft::is_begun(&**disk, &dir.join(DIR)))
    }

    /// Refuses another number of shards than those that it had alone.
    pub(crate) fn check_shards(&self) -> io::Result<()> {
        match self.storage().map(Storage::place).filter(|_| !self.is_of_cluster()) {
            Some((disk, dir)) => check_shards(&**disk, &dir.join(DIR), self.config().limits.tasks.shards),
            None => Ok(()),
        }
    }

    /// It takes this part in its cluster's tasks; `false` where it has one.
    pub fn set_tasks(&self, tasks: Arc<Tasks>) -> bool {
        let _one_at_a_time = self.tasks_place().starting.lock().unwrap_or_else(PoisonError::into_inner);
        self.tasks_place().tasks.set(tasks).is_ok()
    }

    /// Its part in its cluster's tasks, if it has one by now.
    pub fn tasks_if_any(&self) -> Option<&Arc<Tasks>> {
        self.tasks_place().tasks.get()
    }
}
