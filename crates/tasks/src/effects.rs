//! The effects of commands, besides their replies: orders to workers, payloads to publish, and events for watchers.

use std::sync::Arc;

use crate::error::TaskDecodeError;
use crate::layout::{choice, decode, encode, layout};

/// The effects of a command, apart from the command's reply. Examples are orders to workers. The caller must carry out
/// these effects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskEffects {
    /// Orders for workers.
    pub orders: Vec<WorkerOrder>,
    /// Payloads to publish. The caller confirms each publication with
    /// [`TaskCommand::Published`](crate::TaskCommand::Published). If the caller does not confirm a payload in time, a
    /// later command lists this payload again, with the same task id.
    pub publishes: Vec<TaskPublication>,
    /// Events for watchers.
    pub events: Vec<TaskEvent>,
}

impl TaskEffects {
    /// Removes all effects.
    pub fn clear(&mut self) {
        self.orders.clear();
        self.publishes.clear();
        self.events.clear();
    }
}

/// An order to a worker: start a task, stop a task, or end the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerOrder {
    /// Start a task.
    Start(TaskStart),
    /// Stop a task; the worker replies with [`TaskCommand::Fail`](crate::TaskCommand::Fail) or the task's result.
    Stop {
        /// Id of the worker.
        worker: u64,
        /// Id of the task.
        task: u64,
        /// Token of the task's last start.
        token: u64,
    },
    /// The drained worker holds no task and may end.
    Drained {
        /// Id of the worker.
        worker: u64,
    },
}

impl WorkerOrder {
    /// The worker that receives the order.
    pub fn worker(&self) -> u64 {
        match self {
            WorkerOrder::Start(start) => start.worker,
            WorkerOrder::Stop { worker, .. } | WorkerOrder::Drained { worker } => *worker,
        }
    }
}

layout! {
    /// An order to start a task, with everything that the worker needs to run it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TaskStart {
        /// Id of the worker.
        pub worker: u64,
        /// Id of the task.
        pub task: u64,
        /// Token that every report of the worker must contain. The token grows with each start, so that receivers can
        /// refuse reports and requests of older starts.
        pub token: u64,
        /// Name of the tenant.
        pub tenant: Arc<[u8]>,
        /// Kind of work.
        pub kind: Arc<[u8]>,
        /// Payload of the task.
        pub payload: Arc<[u8]>,
        /// Number of the attempt, from 1. An attempt whose worker died is not counted.
        pub attempt: u32,
        /// Timeout of the attempt, ms.
        pub timeout_ms: u32,
    }
}

/// The payload of a task, to be published to the task's destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPublication {
    /// Id of the task; repeated publications have the same id.
    pub task: u64,
    /// The destination, an encoded [`Destination`](crate::Destination).
    pub subject: Arc<[u8]>,
    /// The payload.
    pub payload: Arc<[u8]>,
}

layout! {
    /// An event of a task for watchers, such as the start of an attempt.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TaskEvent {
        /// Id of the task.
        pub task: u64,
        /// Number of the tenant, for [`SchedulerState::tenant_name`](crate::SchedulerState::tenant_name).
        pub tenant: u32,
        /// Time at which the event happened, on the cluster's clock.
        pub at_ms: u64,
        /// The kind of the event.
        pub kind: TaskEventKind,
    }
}

choice! {
    /// The kind of a task's event, such as its start or its end.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TaskEventKind {
        /// The task was submitted.
        Submitted = 1,
        /// The task was given to a worker.
        Started { /// Id of the worker.
            worker: u64, /// Token of the start.
            token: u64 } = 2,
        /// The worker reported progress.
        Progressed { /// Progress in thousandths.
            permille: u16 } = 3,
        /// The task is done.
        Completed { /// Processor time, µs.
            cpu_us: u64, /// Run time, µs.
            run_us: u64 } = 4,
        /// An attempt failed, and a retry follows.
        Retrying { /// Reason of the failure.
            why: AttemptFailure, /// Delay before the retry, ms.
            delay_ms: u32 } = 5,
        /// The worker died, and the task waits for another worker.
        Lost { /// Number of workers that have died while they ran the task.
            times: u32 } = 6,
        /// The task became a dead letter.
        Dead { /// Reason of the failure.
            why: AttemptFailure } = 7,
        /// The task was cancelled.
        Cancelled = 8,
        /// The dead letter was restarted.
        Redriven = 9,
        /// The dead letter was discarded.
        Discarded = 10,
    }
}

choice! {
    /// The reason why an attempt of a task failed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AttemptFailure {
        /// The worker reported an error.
        Failed = 1,
        /// The attempt exceeded its timeout.
        TimedOut = 2,
        /// The task's deadline passed.
        Deadline = 3,
        /// Too many workers died while they ran the task.
        Poisoned = 4,
    }
}

impl TaskEvent {
    /// Appends the encoded event.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes an event.
    pub fn decode(bytes: &[u8]) -> Result<TaskEvent, TaskDecodeError> {
        decode(bytes)
    }
}
