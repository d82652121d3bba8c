//! Tasks of the cluster: submitted, looked at, ended; and workers that do them.
//!
//! Invariants:
//! - What changes something is sent once. Where its answer is lost it is [`Unknown`](TasksError::Unknown): a task that was submitted with an
//!   idempotency key may be submitted again, and is the same. Questions are asked again on the next connection.
//! - A worker ([`Attachment`], [`Worker`]) outlives connections: it attaches again by itself, and sends its answers again.

mod asking;
mod attachment;
mod error;
mod given;
mod line;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use dunlin_tasks::{
    Command, Found, ListFilter, NewTask, Query, QueueView, Reply, Signals, Taken, TaskView, Tenant,
    TenantView, WorkerView,
};
use dunlin_wire::TasksKind;

use crate::client::{Client, Shared};
pub use asking::TasksAsking;
pub use attachment::{Attachment, AttachmentLoad, WorkerOptions};
pub use error::TasksError;
pub use given::{Given, Used};
pub(crate) use line::Line;
pub use worker::{Task, TaskFailed, Worker, WorkerStop};

/// Tasks of the cluster that the node is part of. Cloning costs little.
#[derive(Debug, Clone)]
pub struct Tasks {
    shared: Arc<Shared>,
    questions: TasksKind,
}

/// What came of tasks that were submitted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// In the order in which they were given.
    pub tasks: Vec<Taken>,
    /// Much waits already: submit so much more slowly.
    pub slow_down: Duration,
}

/// Some of the tasks that fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPage {
    /// They.
    pub tasks: Vec<TaskView>,
    /// From where the next page goes on; none where there is none.
    pub next: Option<u32>,
    /// The cluster's own count of milliseconds, which is that of the tasks' times.
    pub now_ms: u64,
}

impl Client {
    /// Tasks of the cluster, and workers.
    pub fn tasks(&self) -> Tasks {
        Tasks { shared: Arc::clone(&self.shared), questions: TasksKind::Question }
    }
}

impl Tasks {
    /// Questions are answered as the node has it, which may be late, and without a word to the others.
    pub fn stale(&self) -> Tasks {
        Tasks { questions: TasksKind::StaleQuestion, ..self.clone() }
    }

    /// Submits a task of a tenant; empty for the user's own.
    pub fn submit(&self, tenant: &str, task: NewTask<'_>) -> Result<Taken, TasksError> {
        let submitted = self.submit_all(tenant, vec![task])?;
        submitted.tasks.first().copied().ok_or_else(TasksError::odd)
    }

    /// Submits tasks of a tenant, all or none.
    pub fn submit_all(&self, tenant: &str, tasks: Vec<NewTask<'_>>) -> Result<Submitted, TasksError> {
        match self.command(&Command::Submit { tenant: tenant.as_bytes(), tasks })? {
            Reply::Submitted { tasks, slow_down_ms } => {
                Ok(Submitted { tasks, slow_down: Duration::from_millis(slow_down_ms.into()) })
            }
            _ => Err(TasksError::odd()),
        }
    }

    /// All of a task.
    pub fn get(&self, task: u64) -> Result<TaskView, TasksError> {
        self.get_at(task).map(|(task, _)| task)
    }

    /// All of a task, and the cluster's own count of milliseconds, which is that of the task's times.
    pub fn get_at(&self, task: u64) -> Result<(TaskView, u64), TasksError> {
        match self.question(&Query::Get { task })? {
            Found::Task { task, now_ms } => Ok((task, now_ms)),
            _ => Err(TasksError::odd()),
        }
    }

    /// Tasks that fit, from a place on, 0 for the first page, at most so many, 0 for as many as may be; with their payloads and results where
    /// `whole` is said.
    pub fn list(
        &self,
        filter: &ListFilter<'_>,
        from: u32,
        limit: u32,
        whole: bool,
    ) -> Result<TaskPage, TasksError> {
        match self.question(&Query::List { filter: filter.clone(), from, limit, whole })? {
            Found::Tasks { tasks, next, now_ms } => Ok(TaskPage { tasks, next, now_ms }),
            _ => Err(TasksError::odd()),
        }
    }

    /// Why a task does not run, or what it does, in one sentence.
    pub fn why(&self, task: u64) -> Result<String, TasksError> {
        match self.question(&Query::Why { task })? {
            Found::Why { why } => Ok(why),
            _ => Err(TasksError::odd()),
        }
    }

    /// What waits, by tenant, queue and kind; of one tenant, or of all where that is empty.
    pub fn queues(&self, tenant: &str) -> Result<Vec<QueueView>, TasksError> {
        match self.question(&Query::Queues { tenant: tenant.as_bytes() })? {
            Found::Queues { queues } => Ok(queues),
            _ => Err(TasksError::odd()),
        }
    }

    /// Tenants, their quotas and what they have had; one, or all where that is empty.
    pub fn tenants(&self, tenant: &str) -> Result<Vec<TenantView>, TasksError> {
        match self.question(&Query::Tenants { tenant: tenant.as_bytes() })? {
            Found::Tenants { tenants } => Ok(tenants),
            _ => Err(TasksError::odd()),
        }
    }

    /// Workers.
    pub fn workers(&self) -> Result<Vec<WorkerView>, TasksError> {
        match self.question(&Query::Workers)? {
            Found::Workers { workers } => Ok(workers),
            _ => Err(TasksError::odd()),
        }
    }

    /// What a scaler goes by.
    pub fn signals(&self) -> Result<Signals, TasksError> {
        match self.question(&Query::Signals)? {
            Found::Signals { signals } => Ok(signals),
            _ => Err(TasksError::odd()),
        }
    }

    /// Makes a tenant, or changes its share, quotas and limits; they hold from the next start on.
    pub fn set_tenant(&self, tenant: Tenant<'_>) -> Result<(), TasksError> {
        self.command(&Command::Tenant { tenant }).map(drop)
    }

    /// Ends a task, and those that wait for it; one that runs is over when its worker has heard of it. How many were changed.
    pub fn cancel(&self, task: u64) -> Result<u64, TasksError> {
        self.changed(&Command::Cancel { task })
    }

    /// Begins a dead letter anew, with all its retries.
    pub fn retry(&self, task: u64) -> Result<u64, TasksError> {
        self.changed(&Command::Retry { task })
    }

    /// Does so with the oldest dead letters of a tenant, at most so many, 0 for as many as may be at once; how many, and whether
    /// there are more. Leaves out poisoned ones, under which workers died.
    pub fn redrive(&self, tenant: &str, count: u32) -> Result<(u64, bool), TasksError> {
        self.some_changed(&Command::RedriveSafe { tenant: tenant.as_bytes(), count })
    }

    /// The same, poisoned ones included.
    pub fn redrive_with_poisoned(&self, tenant: &str, count: u32) -> Result<(u64, bool), TasksError> {
        self.some_changed(&Command::Redrive { tenant: tenant.as_bytes(), count })
    }

    /// Lets go of the oldest dead letters of a tenant, and ends what waits for them; how many, and whether there are more.
    pub fn discard(&self, tenant: &str, count: u32) -> Result<(u64, bool), TasksError> {
        self.some_changed(&Command::Discard { tenant: tenant.as_bytes(), count })
    }

    /// Makes a schedule, or changes one: a task for each time that the cron expression names, in UTC.
    pub fn schedule(
        &self,
        tenant: &str,
        name: &str,
        cron: &str,
        task: NewTask<'_>,
    ) -> Result<(), TasksError> {
        let (tenant, name, cron) = (tenant.as_bytes(), name.as_bytes(), cron.as_bytes());
        self.command(&Command::Schedule { tenant, name, cron, task }).map(drop)
    }

    /// Ends a schedule; what it submitted stays.
    pub fn unschedule(&self, tenant: &str, name: &str) -> Result<(), TasksError> {
        let (tenant, name) = (tenant.as_bytes(), name.as_bytes());
        self.command(&Command::Unschedule { tenant, name }).map(drop)
    }

    /// Has a worker take nothing new, and go when it has done what it holds.
    pub fn drain_worker(&self, worker: u64) -> Result<(), TasksError> {
        self.command(&Command::Drain { worker }).map(drop)
    }

    /// Has the cluster take a command in; once.
    pub fn command(&self, command: &Command<'_>) -> Result<Reply, TasksError> {
        let mut answers = self.begin(std::slice::from_ref(command))?.wait()?;
        let answer = answers.pop().ok_or_else(TasksError::odd)?;
        answer.map_err(|refused| TasksError::from(refused).with_tenant(command.tenant()))
    }

    /// Asks what has no answer of its own here.
    pub fn question(&self, query: &Query<'_>) -> Result<Found, TasksError> {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        let answer = self.again_and_again(self.questions, &bytes)?;
        Ok(Found::decode(&answer)?)
    }

    fn changed(&self, command: &Command<'_>) -> Result<u64, TasksError> {
        self.some_changed(command).map(|(tasks, _)| tasks)
    }

    fn some_changed(&self, command: &Command<'_>) -> Result<(u64, bool), TasksError> {
        match self.command(command)? {
            Reply::Changed { tasks, more } => Ok((tasks, more)),
            Reply::Done => Ok((1, false)),
            _ => Err(TasksError::odd()),
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.shared.limits.answer_ms_max)
    }
}
