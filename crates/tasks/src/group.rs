//! Limits by key. Such a limit applies to each group of tasks. A group consists of all tasks of a tenant that have the
//! same value of a key, such as the same queue.
//!
//! A place in a group is a permit of a counting semaphore: a group has as many places as the limit allows tasks to run
//! at the same time. A task takes a place in its group when it becomes ready, not when it starts. A lane therefore
//! never holds more tasks of a group than may run, and the scheduler never has to skip the first task of a lane because
//! of a limit. When the task neither runs nor is ready to run, it gives its place back. Limits on starts (`rate`) work
//! in a similar way: a task reserves a token when it becomes ready, and takes the token when it starts. Tasks without a
//! place wait in a list of the group, which is ordered by priority and age.
//!
//! Invariant: if no worker could run a task that has a place, the task gives the place to a waiting task that a worker
//! could run.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use crate::rate::Bucket;
use crate::task::NEVER_MS;
use crate::tenant::StoredKeyLimit;

/// The key of a group: the tenant's number, the index of the tenant's limit, and the value of the limited key.
pub(crate) type GroupKey = (u32, u32, Arc<[u8]>);

/// Counted size of a group in addition to the length of the limited key's value, bytes.
const GROUP_BYTES: u64 = 192;

/// The properties of a task that decide which workers can run it: its lane, and the thousandths of a processor and the
/// bytes of memory that it needs. Tasks of one sort have equal properties.
pub(crate) type TaskSort = (u32, u64, u64);

/// The tasks of a group, ordered by sort, rank and index. Each entry has these three values.
pub(crate) type RankedTasks = OrdSet<(TaskSort, i64, u32)>;

/// The first task of each sort among the members of a group.
pub(crate) fn first_of_each_sort(members: &RankedTasks) -> impl Iterator<Item = (TaskSort, i64, u32)> {
    let mut next = members.get_min().copied();
    std::iter::from_fn(move || {
        let found = next?;
        let after_sort = (Bound::Excluded((found.0, i64::MAX, u32::MAX)), Bound::Unbounded);
        next = members.range(after_sort).next().copied();
        Some(found)
    })
}

/// A group of one tenant's tasks: those that have the same value of a key, such as the same queue.
#[derive(Debug, Clone)]
pub(crate) struct TaskGroup {
    /// Number of taken places: one for each task that is ready or held by a worker.
    pub(crate) places: u32,
    /// Number of ready tasks that reserve a token; counted only for limits with a rate.
    pub(crate) ready: u32,
    pub(crate) bucket: Bucket,
    /// Time at which a token becomes available, or at which the group can be forgotten.
    pub(crate) due_ms: u64,
    /// Tasks that wait for a place.
    pub(crate) waiting: RankedTasks,
    /// Ready tasks that have a place but no worker.
    pub(crate) ready_members: RankedTasks,
}

impl Default for TaskGroup {
    fn default() -> TaskGroup {
        let (waiting, ready_members) = (OrdSet::new(), OrdSet::new());
        TaskGroup { places: 0, ready: 0, bucket: Bucket::default(), due_ms: NEVER_MS, waiting, ready_members }
    }
}

impl TaskGroup {
    /// Whether the group can be forgotten: it has no tasks, and its token bucket is full.
    pub(crate) fn is_empty(&self, limit: &StoredKeyLimit, now_ms: u64) -> bool {
        let is_full = limit.rate.is_none_or(|rate| self.bucket.missing(&rate, now_ms) == 0);
        self.places == 0 && self.waiting.is_empty() && is_full
    }

    /// Whether one more task may become ready.
    pub(crate) fn has_place(&self, limit: &StoredKeyLimit, now_ms: u64) -> bool {
        self.places < limit.running_max && self.has_token(limit, now_ms)
    }

    /// Whether a ready task of the group could give up its place to another task.
    pub(crate) fn has_displaceable_place(&self, limit: &StoredKeyLimit, now_ms: u64) -> bool {
        let is_covered = |rate| u64::from(self.ready) <= self.bucket.tokens(&rate, now_ms);
        self.places <= limit.running_max && limit.rate.is_none_or(is_covered)
    }

    pub(crate) fn has_token(&self, limit: &StoredKeyLimit, now_ms: u64) -> bool {
        limit.rate.is_none_or(|rate| u64::from(self.ready) < self.bucket.tokens(&rate, now_ms))
    }

    /// The next time at which the group changes without a command: a waiting task gets a token, or the group is
    /// forgotten. Returns `NEVER_MS` if only a command can change the group.
    pub(crate) fn next_due_ms(&self, limit: &StoredKeyLimit) -> u64 {
        let Some(rate) = &limit.rate else { return NEVER_MS };
        if !self.waiting.is_empty() && self.places < limit.running_max && self.ready < rate.burst {
            self.bucket.due_ms(rate, u64::from(self.ready) + 1)
        } else if self.waiting.is_empty() && self.places == 0 {
            self.bucket.full_ms(rate)
        } else {
            NEVER_MS
        }
    }
}

/// The bytes by which a group counts towards its tenant's memory: a fixed part, and the length of the limited key's
/// value.
pub(crate) fn group_bytes(key: &GroupKey) -> u64 {
    GROUP_BYTES + key.2.len() as u64
}
