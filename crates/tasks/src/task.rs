//! Tasks as the state stores them, and linked lists of tasks.
//!
//! A task is in at most one list. The task's stage decides which list this is: the list of its lane, of its worker, of
//! finished tasks, or of its tenant's dead letters. [`TaskExtra`] contains fields that few tasks have.

use std::sync::Arc;

use crate::command::TaskDependency;
use crate::effects::AttemptFailure;
use crate::layout::{choice, layout};
use crate::quota::Amounts;
use crate::slab::{NONE, Slab};

/// The highest priority.
pub const PRIORITY_MAX: u8 = 9;
/// Approximate size of a task without its payload, bytes. It includes the task's slot, the payload's header and the
/// task's timer.
pub(crate) const TASK_BYTES: u64 = 256;
/// The value that stands for a time that never comes.
pub(crate) const NEVER_MS: u64 = u64::MAX;

choice! {
    /// The stage of a task between submission and end, such as ready or running.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum TaskStage {
        /// The task waits for other tasks.
        Blocked = 1,
        /// The task waits for the time of its earliest start or of its next attempt.
        Delayed = 2,
        /// The task waits because a limit by key allows no further task to run or to start.
        Limited = 3,
        /// The task waits for its turn and for a worker.
        Ready = 4,
        /// A worker holds the task, or the task's payload is being published.
        Running = 5,
        /// The task was cancelled, but its worker has not confirmed the cancellation yet.
        Stopping = 6,
        /// The task was completed.
        Completed = 7,
        /// The task was cancelled.
        Cancelled = 8,
        /// The task is a dead letter: it is not retried by itself, but a user can restart it.
        Dead = 9,
    }
}

impl TaskStage {
    /// Whether a worker holds the task.
    pub fn is_held(self) -> bool {
        matches!(self, TaskStage::Running | TaskStage::Stopping)
    }

    /// Whether the task has ended. Only a user's command can still change the stage of such a task.
    pub fn is_over(self) -> bool {
        matches!(self, TaskStage::Completed | TaskStage::Cancelled | TaskStage::Dead)
    }

    /// Whether the task counts as waiting: it has not started, or waits for a retry.
    pub(crate) fn is_queued(self) -> bool {
        self <= TaskStage::Ready
    }
}

layout! {
    /// The stored state of a task in the scheduler, such as its stage and attempts.
    #[derive(Debug, Clone)]
    pub struct Task {
        pub stage: TaskStage,
        pub priority: u8,
        /// Number of attempts since the task was submitted or restarted, not counting attempts whose worker died.
        pub attempts: u16,
        pub policy: u16,
        /// Number of workers that died while they ran the task.
        pub lost: u16,
        pub tenant: u32,
        pub lane: u32,
        /// The previous and next task in the task's list.
        pub prev: u32,
        pub next: u32,
        /// Index of the task's worker; `NONE` while the task is being published.
        pub worker: u32,
        pub timeout_ms: u32,
        /// Delay before the task's last retry, ms.
        pub delay_ms: u32,
        /// The time that was charged to the task's tenant when the task started, µs.
        pub charged_us: u32,
        /// Number of tasks for which the task waits.
        pub waits_for: u32,
        /// Index of the tenant's limit whose group has no place for the task.
        pub limited_by: u32,
        pub submitted_ms: u64,
        /// Time from which the task may start.
        pub since_ms: u64,
        /// Start of the task's last attempt.
        pub started_ms: u64,
        /// Deadline, on the cluster's clock.
        pub deadline_ms: u64,
        /// Time of the task's timer; `NEVER_MS` if no timer is set.
        pub due_ms: u64,
        /// Token of the task's last start.
        pub token: u64,
        pub payload: Arc<[u8]>,
        pub extra: Option<Arc<TaskExtra>>,
        pub outcome: Option<Arc<AttemptOutcome>>,
    }
}

layout! {
    /// The rarely used fields of a [`Task`], stored separately: labels, dependencies, resources and progress.
    #[derive(Debug, Clone, Default)]
    pub struct TaskExtra {
        pub idempotency_key: Option<Arc<[u8]>>,
        pub labels: Vec<StoredLabel>,
        pub after: Vec<u64>,
        /// Tasks that wait until this task is done.
        pub before: Vec<u64>,
        pub cpu_milli: u32,
        pub memory_bytes: u64,
        pub subject: Option<Arc<[u8]>>,
        /// The last reported progress, in thousandths.
        pub permille: u16,
        /// The note of the last report of progress.
        pub note: Option<Arc<[u8]>>,
    }
}

layout! {
    /// The stored form of a label of a task or worker: its key and value.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    pub struct StoredLabel {
        /// Key of the label.
        pub key: Arc<[u8]>,
        /// Value of the label.
        pub value: Arc<[u8]>,
    }
}

layout! {
    /// The result or failure of a task's last attempt, with its times and memory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AttemptOutcome {
        /// Result, or error text.
        pub bytes: Arc<[u8]>,
        /// Reason, if the attempt failed.
        pub failure: Option<AttemptFailure>,
        /// End of the attempt, on the cluster's clock.
        pub at_ms: u64,
        /// Run time, µs.
        pub run_us: u64,
        /// Processor time, µs.
        pub cpu_us: u64,
        /// Peak memory, bytes.
        pub memory_bytes: u64,
    }
}

impl Task {
    pub(crate) fn need(&self) -> Amounts {
        match &self.extra {
            Some(extra) => [1, u64::from(extra.cpu_milli), extra.memory_bytes],
            None => [1, 0, 0],
        }
    }

    /// Rank of the task; the lowest rank is next. Each `ageing_ms` of waiting counts as one level of priority.
    pub(crate) fn rank(&self, ageing_ms: u32) -> i64 {
        // Times in the far future are clamped, so that nothing overflows.
        (self.since_ms.min(1 << 60) as i64) - i64::from(self.priority) * i64::from(ageing_ms)
    }

    pub(crate) fn extra_mut(&mut self) -> &mut TaskExtra {
        Arc::make_mut(self.extra.get_or_insert_default())
    }

    /// Whether the task is a dead letter because workers died while they ran it.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.failure == Some(AttemptFailure::Poisoned))
    }

    pub(crate) fn is_published(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.subject.is_some())
    }

    /// Whether the task is completed or cancelled.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.stage, TaskStage::Completed | TaskStage::Cancelled)
    }

    /// Counted size, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let extra = self.extra.as_ref().map_or(0, |extra| {
            let labels =
                extra.labels.iter().map(|label| label.key.len() + label.value.len() + 64).sum::<usize>();
            let key = extra.idempotency_key.as_ref().map_or(0, |key| key.len() + 96);
            let note = extra.note.as_ref().map_or(0, |note| note.len());
            let subject = extra.subject.as_ref().map_or(0, |subject| subject.len());
            (200 + labels + key + note + subject + extra.after.len() * 16) as u64
        });
        let outcome = self.outcome.as_ref().map_or(0, |outcome| 80 + outcome.bytes.len() as u64);
        TASK_BYTES + self.payload.len() as u64 + extra + outcome
    }
}

layout! {
    /// A doubly linked list of tasks, stored as its first task, its last task and its length.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TaskList {
        pub head: u32,
        pub tail: u32,
        pub len: u32,
    }
}

impl Default for TaskList {
    fn default() -> TaskList {
        TaskList { head: NONE, tail: NONE, len: 0 }
    }
}

impl TaskList {
    pub(crate) fn push_back(&mut self, tasks: &mut Slab<Task>, at: u32) {
        let task = &mut tasks[at];
        (task.prev, task.next) = (self.tail, NONE);
        match self.tail {
            NONE => self.head = at,
            tail => tasks[tail].next = at,
        }
        self.tail = at;
        self.len += 1;
    }

    pub(crate) fn push_front(&mut self, tasks: &mut Slab<Task>, at: u32) {
        let task = &mut tasks[at];
        (task.prev, task.next) = (NONE, self.head);
        match self.head {
            NONE => self.tail = at,
            head => tasks[head].prev = at,
        }
        self.head = at;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, tasks: &mut Slab<Task>, at: u32) {
        let (prev, next) = (tasks[at].prev, tasks[at].next);
        match prev {
            NONE => self.head = next,
            prev => tasks[prev].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => tasks[next].prev = prev,
        }
        self.len -= 1;
    }

    pub(crate) fn iter<'s>(&self, tasks: &'s Slab<Task>) -> impl Iterator<Item = (u32, &'s Task)> + use<'s> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            (at != NONE).then(|| {
                let (current, task) = (at, &tasks[at]);
                at = task.next;
                (current, task)
            })
        })
    }
}

/// Converts dependencies to task ids. `batch` has the ids of the tasks in the batch.
pub(crate) fn ids_of(after: &[TaskDependency], batch: &[u64]) -> Vec<u64> {
    after
        .iter()
        .map(|after| match *after {
            TaskDependency::Task { task } => task,
            TaskDependency::Batch { index } => batch[index as usize],
        })
        .collect()
}
