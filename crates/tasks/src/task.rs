//! A task as the state keeps it, and the lists through tasks.
//!
//! A task is in one list at most, by its stage: its lane's, its worker's, that of what is over, or its tenant's dead letters.
//! What few tasks have lies in [`Extra`].

use std::sync::Arc;

use crate::command::After;
use crate::effects::Failure;
use crate::layout::{choice, layout};
use crate::quota::Amounts;
use crate::slab::{NONE, Slab};

/// The highest priority.
pub const PRIORITY_MAX: u8 = 9;
/// What a task takes besides its payload, roughly: its slot, the payload's own header, its timer.
pub(crate) const TASK_BYTES: u64 = 256;
/// Never.
pub(crate) const NEVER_MS: u64 = u64::MAX;

choice! {
    /// How far a task is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Stage {
        /// Waits for other tasks.
        Blocked = 1,
        /// Waits for its time: the one it names, or that of its next attempt.
        Delayed = 2,
        /// Waits until fewer tasks with one of its keys run.
        Limited = 3,
        /// Waits for its turn and a worker.
        Ready = 4,
        /// A worker has it, or it is being published.
        Running = 5,
        /// Cancelled, and the worker has yet to say so.
        Stopping = 6,
        /// Done.
        Completed = 7,
        /// Will never be done.
        Cancelled = 8,
        /// A dead letter: it failed for good, and people may begin it anew.
        Dead = 9,
    }
}

impl Stage {
    /// Whether a worker has it.
    pub fn is_held(self) -> bool {
        matches!(self, Stage::Running | Stage::Stopping)
    }

    /// Whether nothing becomes of it any more by itself.
    pub fn is_over(self) -> bool {
        matches!(self, Stage::Completed | Stage::Cancelled | Stage::Dead)
    }

    /// Whether it counts towards what may wait.
    pub(crate) fn is_queued(self) -> bool {
        self <= Stage::Ready
    }
}

layout! {
    /// What is known of a task.
    #[derive(Debug, Clone)]
    pub struct Task {
        pub stage: Stage,
        pub priority: u8,
        /// Attempts begun since it was submitted or redriven, those whose worker died not among them.
        pub attempts: u16,
        pub policy: u16,
        /// Workers that died under it.
        pub lost: u16,
        pub tenant: u32,
        pub lane: u32,
        /// Its neighbours in the list it is in.
        pub prev: u32,
        pub next: u32,
        /// Who has it; `NONE` while it is being published.
        pub worker: u32,
        pub timeout_ms: u32,
        /// The delay before its last retry.
        pub delay_ms: u32,
        /// What its tenant was charged when it started.
        pub charged_us: u32,
        /// How many tasks it waits for.
        pub waits_for: u32,
        /// The limit, of its tenant's, that it waits for.
        pub limited_by: u32,
        pub submitted_ms: u64,
        /// Since when it could start, as far as that is a matter of time.
        pub since_ms: u64,
        /// When its last attempt began.
        pub started_ms: u64,
        /// By the cluster's count.
        pub deadline_ms: u64,
        /// When something becomes of it by itself.
        pub due_ms: u64,
        /// Of its last start.
        pub token: u64,
        pub payload: Arc<[u8]>,
        pub extra: Option<Arc<Extra>>,
        pub outcome: Option<Arc<Outcome>>,
    }
}

layout! {
    /// What few tasks have.
    #[derive(Debug, Clone, Default)]
    pub struct Extra {
        pub idempotency_key: Option<Arc<[u8]>>,
        pub labels: Vec<Labelled>,
        pub after: Vec<u64>,
        /// Those that wait for it.
        pub before: Vec<u64>,
        pub cpu_milli: u32,
        pub memory_bytes: u64,
        pub subject: Option<Arc<[u8]>>,
        /// How far it said it is, in thousandths, and in words.
        pub permille: u16,
        pub note: Option<Arc<[u8]>>,
    }
}

layout! {
    /// A label, kept.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Labelled {
        /// As what.
        pub key: Arc<[u8]>,
        /// As which.
        pub value: Arc<[u8]>,
    }
}

layout! {
    /// What came of a task, or of its last attempt.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Outcome {
        /// Its result, or why it failed.
        pub bytes: Arc<[u8]>,
        /// Why, where it failed.
        pub failure: Option<Failure>,
        /// When, by the cluster's count.
        pub at_ms: u64,
        /// How long it ran.
        pub run_us: u64,
        /// Of a processor.
        pub cpu_us: u64,
        /// The most it took.
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

    /// The lower, the sooner: who waits `ageing_ms` longer counts as one priority higher.
    pub(crate) fn rank(&self, ageing_ms: u32) -> i64 {
        // What begins in the far future does so after all else, and overflows nothing.
        (self.since_ms.min(1 << 60) as i64) - i64::from(self.priority) * i64::from(ageing_ms)
    }

    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        Arc::make_mut(self.extra.get_or_insert_default())
    }

    /// A dead letter because workers died under it.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.failure == Some(Failure::Poisoned))
    }

    pub(crate) fn is_published(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.subject.is_some())
    }

    /// Completed or cancelled.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Completed | Stage::Cancelled)
    }

    /// What it is counted as, in bytes.
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
    /// A list of tasks, from one to the next.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct List {
        pub head: u32,
        pub tail: u32,
        pub len: u32,
    }
}

impl Default for List {
    fn default() -> List {
        List { head: NONE, tail: NONE, len: 0 }
    }
}

impl List {
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
                let (here, task) = (at, &tasks[at]);
                at = task.next;
                (here, task)
            })
        })
    }
}

/// The tasks that a batch's task waits for, as ids, once all of the batch have theirs.
pub(crate) fn ids_of(after: &[After], batch: &[u64]) -> Vec<u64> {
    after
        .iter()
        .map(|after| match *after {
            After::Task { task } => task,
            After::Batch { index } => batch[index as usize],
        })
        .collect()
}
