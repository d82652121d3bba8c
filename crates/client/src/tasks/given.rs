//! A task that a worker was given, and what it took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin_tasks::Start;

/// A task that this worker was given: it is to be completed or failed.
#[derive(Debug, Clone)]
pub struct Given {
    pub(super) start: Start,
    pub(super) stopped: Arc<AtomicBool>,
}

/// What a task took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// How long it ran.
    pub run: Duration,
    /// Of a processor.
    pub cpu: Duration,
    /// The most memory that it took, bytes.
    pub memory_bytes: u64,
}

impl Given {
    /// Which task.
    pub fn task(&self) -> u64 {
        self.start.task
    }

    /// Grows from start to start of a task, and among tasks: whatever the task writes to refuses a lower one than it was shown before.
    pub fn token(&self) -> u64 {
        self.start.token
    }

    /// Whose it is.
    pub fn tenant(&self) -> &[u8] {
        &self.start.tenant
    }

    /// What is to be done.
    pub fn kind(&self) -> &[u8] {
        &self.start.kind
    }

    /// With what.
    pub fn payload(&self) -> &[u8] {
        &self.start.payload
    }

    /// The how manieth attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.start.attempt
    }

    /// How long an attempt may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.start.timeout_ms.into())
    }

    /// Whether it is to be stopped: it was cancelled, or it is not this worker's any more.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

impl Used {
    pub(super) fn micros(of: Duration) -> u64 {
        u64::try_from(of.as_micros()).unwrap_or(u64::MAX)
    }
}
