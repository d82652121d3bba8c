//! Counts in advance how many tasks commands and timers will change.

use std::collections::BTreeMap;

use crate::command::TaskCommand;
use crate::slab::NONE;
use crate::state::{SchedulerState, TASK, WORKER};
use crate::task::TaskStage;

/// A count of the tasks that change together, up to a maximum.
pub(crate) struct WorkEstimate<'s> {
    state: &'s SchedulerState,
    /// The maximum. Counting may stop above this number.
    count_max: usize,
    count: usize,
    /// For each tenant, two values: the number of tasks that may become dead letters, and the dead letter that is
    /// discarded next if the tenant has too many.
    dead_letters: BTreeMap<u32, (u64, u32)>,
}

impl<'s> WorkEstimate<'s> {
    pub(crate) fn new(state: &'s SchedulerState, count_max: usize) -> WorkEstimate<'s> {
        WorkEstimate { state, count_max, count: 0, dead_letters: BTreeMap::new() }
    }

    /// Whether more than `count_max` tasks change.
    pub(crate) fn exceeds_max(&self) -> bool {
        self.count > self.count_max
    }

    /// Counts the tasks that wait for the tasks that an encoded command ends.
    pub(crate) fn add_command(&mut self, command: &[u8]) {
        if !TaskCommand::may_end_attempts(command) {
            return;
        }
        match TaskCommand::decode(command) {
            Ok(TaskCommand::Complete { report, .. }) => self.add_completed(report.task),
            Ok(TaskCommand::Published { tasks }) => tasks.iter().for_each(|&task| self.add_completed(task)),
            Ok(TaskCommand::Fail { report, .. }) => self.add_unsuccessful_id(report.task),
            Ok(TaskCommand::Unpublished { task, .. }) => self.add_unsuccessful_id(task),
            _ => {}
        }
    }

    /// Counts a due timer, and the tasks that change with it.
    pub(crate) fn add_timer(&mut self, kind: u8, at: u32) {
        self.count += 1;
        match kind {
            TASK => self.add_unsuccessful(at),
            WORKER => {
                let held = self.state.workers[at].held;
                for (task, _) in held.iter(&self.state.tasks) {
                    if self.exceeds_max() {
                        return;
                    }
                    self.count += 1;
                    self.add_unsuccessful(task);
                }
            }
            _ => {}
        }
    }

    fn add_completed(&mut self, task: u64) {
        if let Some(at) = self.state.tasks.find(task) {
            self.count += self.dependents(at).len();
        }
    }

    fn add_unsuccessful_id(&mut self, task: u64) {
        if let Some(at) = self.state.tasks.find(task) {
            self.add_unsuccessful(at);
        }
    }

    /// Counts the tasks that change if a task's attempt ends without success.
    fn add_unsuccessful(&mut self, at: u32) {
        let task = &self.state.tasks[at];
        if task.stage == TaskStage::Stopping {
            return self.add_cancelled_dependents(at);
        }
        let dead = self.state.tenants[task.tenant as usize].dead;
        let (count, next) = self.dead_letters.entry(task.tenant).or_insert((0, dead.head));
        *count += 1;
        if u64::from(dead.len) + *count <= self.state.limits.dead_max {
            return;
        }
        // Discarding a dead letter cancels the tasks that wait for it.
        let mut discarded = at;
        if *next != NONE {
            discarded = *next;
            *next = self.state.tasks[discarded].next;
        }
        self.add_cancelled_dependents(discarded);
    }

    /// Counts the tasks that wait for the task `at`, directly or through other tasks.
    fn add_cancelled_dependents(&mut self, at: u32) {
        let mut left = vec![at];
        while let Some(at) = left.pop() {
            let dependents = self.dependents(at);
            self.count += dependents.len();
            if self.exceeds_max() {
                return;
            }
            left.extend(dependents.iter().filter_map(|&id| self.state.tasks.find(id)));
        }
    }

    /// The tasks that wait for the task `at`.
    fn dependents(&self, at: u32) -> &'s [u64] {
        self.state.tasks[at].extra.as_ref().map_or(&[][..], |extra| &extra.before[..])
    }
}
