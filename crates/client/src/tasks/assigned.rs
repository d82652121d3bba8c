//! A task that the cluster has assigned to a worker, and the resources that an attempt of the task used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin_tasks::TaskStart;

/// A task that the cluster has assigned to this worker. The worker must complete or fail it.
#[derive(Debug, Clone)]
pub struct AssignedTask {
    pub(super) start: TaskStart,
    pub(super) stopped: Arc<AtomicBool>,
}

/// The resources that one attempt of a task used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskUsage {
    /// The time from the start to the end of the attempt.
    pub run: Duration,
    /// The processor time of the attempt.
    pub cpu: Duration,
    /// The largest amount of memory that the attempt used at one time, in bytes.
    pub memory_bytes: u64,
}

impl AssignedTask {
    /// The task's number.
    pub fn task(&self) -> u64 {
        self.start.task
    }

    /// The fencing token, which grows with every start of the task. Send the token with each write to another service.
    /// This service has to refuse each token that is lower than the highest token that it has seen.
    pub fn token(&self) -> u64 {
        self.start.token
    }

    /// The name of the tenant to which the task belongs.
    pub fn tenant(&self) -> &[u8] {
        &self.start.tenant
    }

    /// The kind of the task.
    pub fn kind(&self) -> &[u8] {
        &self.start.kind
    }

    /// The task's input, as its submitter stated it.
    pub fn payload(&self) -> &[u8] {
        &self.start.payload
    }

    /// The number of the attempt, from 1. An attempt whose worker died is not counted.
    pub fn attempt(&self) -> u32 {
        self.start.attempt
    }

    /// How long the attempt may take. After this time, it counts as failed.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.start.timeout_ms.into())
    }

    /// Whether the task has to stop, because it was cancelled or went to another worker.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

impl TaskUsage {
    pub(super) fn micros(of: Duration) -> u64 {
        u64::try_from(of.as_micros()).unwrap_or(u64::MAX)
    }
}
