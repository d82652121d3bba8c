//! Tasks of the cluster, and the workers that run them.
//!
//! Invariants:
//! - A command is sent once. If its response is lost, the result is [`Unknown`](TasksError::Unknown). A task with an
//!   idempotency key can be submitted again, and still runs only once. Queries are sent again on the next connection.
//! - After a lost connection, a worker ([`Attachment`], [`Worker`]) attaches again, and resends all results that have
//!   no response.

mod assigned;
mod attachment;
mod error;
mod pending_commands;
mod worker;
mod worker_inbox;

use std::sync::Arc;
use std::time::Duration;

use dunlin_tasks::{
    AttemptFailure, CommandReply, ListFilter, NewTask, QueueView, SchedulerLimits, Signals, SubmittedTask,
    TaskCommand, TaskQuery, TaskQueryResult, TaskStage, TaskView, TenantSettings, TenantView, WorkerView,
};
use dunlin_wire::TasksKind;

use crate::client::{Client, SharedClient};
pub use assigned::{AssignedTask, TaskUsage};
pub use attachment::{Attachment, AttachmentLoad, WorkerOptions};
pub use error::TasksError;
pub use pending_commands::PendingTaskCommands;
pub use worker::{Task, TaskFailure, Worker, WorkerStopHandle};
pub(crate) use worker_inbox::WorkerInbox;

/// A handle to submit, list and change the tasks of the node's cluster. Clones share the client's connection.
#[derive(Debug, Clone)]
pub struct Tasks {
    shared: Arc<SharedClient>,
    query_kind: TasksKind,
}

/// The result of submitting tasks: one result for each task, and a pause that the cluster asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The result for each task, in the order of the submitted tasks.
    pub tasks: Vec<SubmittedTask>,
    /// How long the cluster asks the client to wait before it submits more tasks.
    pub slow_down: Duration,
}

/// One page of a list of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPage {
    /// The tasks on this page.
    pub tasks: Vec<TaskView>,
    /// The place at which the next page begins; `None` if this is the last page.
    pub next: Option<u32>,
    /// The present time of the cluster's clock in ms. All times in the tasks are times of this clock.
    pub now_ms: u64,
}

impl Client {
    /// Returns a handle for tasks and workers.
    pub fn tasks(&self) -> Tasks {
        Tasks { shared: Arc::clone(&self.shared), query_kind: TasksKind::Query }
    }
}

impl Tasks {
    /// Returns a handle with stale reads: the node answers them from its own state and does not ask the leader.
    pub fn stale(&self) -> Tasks {
        Tasks { query_kind: TasksKind::StaleQuery, ..self.clone() }
    }

    /// Submits a task for `tenant`. An empty `tenant` means the user's own tenant.
    pub fn submit(&self, tenant: &str, task: NewTask<'_>) -> Result<SubmittedTask, TasksError> {
        let submitted = self.submit_all(tenant, vec![task])?;
        submitted.tasks.first().copied().ok_or_else(TasksError::unexpected_response)
    }

    /// Submits tasks for `tenant`. The cluster accepts all of them or none. An empty `tenant` means the user's own
    /// tenant.
    pub fn submit_all(&self, tenant: &str, tasks: Vec<NewTask<'_>>) -> Result<Submission, TasksError> {
        match self.command(&TaskCommand::Submit { tenant: tenant.as_bytes(), tasks })? {
            CommandReply::Submitted { tasks, slow_down_ms } => {
                Ok(Submission { tasks, slow_down: Duration::from_millis(slow_down_ms.into()) })
            }
            _ => Err(TasksError::unexpected_response()),
        }
    }

    /// Reads a task.
    pub fn get(&self, task: u64) -> Result<TaskView, TasksError> {
        self.get_at(task).map(|(task, _)| task)
    }

    /// Reads a task, and the present time of the cluster's clock in ms. All times in the task are times of this clock.
    pub fn get_at(&self, task: u64) -> Result<(TaskView, u64), TasksError> {
        match self.query(&TaskQuery::Get { task })? {
            TaskQueryResult::Task { task, now_ms } => Ok((task, now_ms)),
            _ => Err(TasksError::unexpected_response()),
        }
    }

    /// Lists the tasks that match the filter.
    ///
    /// A page has at most `limit` tasks; 0 means as many as possible. `from` is where the page begins: 0, or
    /// [`next`](TaskPage::next) of the page before. With `whole`, the tasks contain their payloads and results.
    pub fn list(
        &self,
        filter: &ListFilter<'_>,
        from: u32,
        limit: u32,
        whole: bool,
    ) -> Result<TaskPage, TasksError> {
        match self.query(&TaskQuery::List { filter: filter.clone(), from, limit, whole })? {
            TaskQueryResult::Tasks { tasks, next, now_ms } => Ok(TaskPage { tasks, next, now_ms }),
            _ => Err(TasksError::unexpected_response()),
        }
    }

    /// Returns a sentence that explains why a task is not running, or what a running task is doing.
    pub fn why(&self, task: u64) -> Result<String, TasksError> {
        match self.query(&TaskQuery::Why { task })? {
            TaskQueryResult::Why { why } => Ok(why),
            _ => Err(TasksError::unexpected_response()),
        }
    }

    /// Counts the waiting tasks of each tenant, queue and kind. An empty `tenant` means all tenants.
    pub fn queues(&self, tenant: &str) -> Result<Vec<QueueView>, TasksError> {
        match self.query(&TaskQuery::Queues { tenant: tenant.as_bytes() })? {
            TaskQueryResult::Queues { queues } => Ok(queues),
            _ => Err(TasksError::unexpected_response()),
        }
    }

    /// Lists tenants with their quotas and usage. An empty `tenant` means all tenants.
    pub fn tenants(&self, tenant: &str) -> Result<Vec<TenantView>, TasksError> {
        match self.query(&TaskQuery::Tenants { tenant: tenant.as_bytes() })? {
            TaskQueryResult::Tenants { tenants } => Ok(tenants),
            _ => Err(TasksError::unexpected_response()),
        }
    }

    /// Lists the workers.
    pub fn workers(&self) -> Result<Vec<WorkerView>, TasksError> {
        match self.query(&TaskQuery::Workers)? {
            TaskQueryResult::Workers { workers } => Ok(workers),
            _ => Err(TasksError::unexpected_response()),
        }
    }

    /// Reads the measurements from which the autoscaler decides how many workers run.
    pub fn signals(&self) -> Result<Signals, TasksError> {
        match self.query(&TaskQuery::Signals)? {
            TaskQueryResult::Signals { signals } => Ok(signals),
            _ => Err(TasksError::unexpected_response()),
        }
    }

    /// Creates a tenant, or changes its share, quotas and limits. The new values apply to tasks that start after this
    /// call.
    pub fn set_tenant(&self, tenant: TenantSettings<'_>) -> Result<(), TasksError> {
        self.command(&TaskCommand::Tenant { tenant }).map(drop)
    }

    /// Cancels a task and the tasks that depend on it. A running task ends only when its worker has stopped it. Returns
    /// the number of changed tasks.
    pub fn cancel(&self, task: u64) -> Result<u64, TasksError> {
        self.count_changed(&TaskCommand::Cancel { task })
    }

    /// Queues a dead letter again, with all its retries. Returns the number of changed tasks.
    pub fn retry(&self, task: u64) -> Result<u64, TasksError> {
        self.count_changed(&TaskCommand::Retry { task })
    }

    /// Queues the oldest dead letters of a tenant again, at most `count`; 0 means as many as one command can restart.
    /// Returns their number, and whether the tenant has more dead letters. Skips poisoned tasks: tasks that crashed
    /// their workers.
    pub fn redrive(&self, tenant: &str, count: u32) -> Result<(u64, bool), TasksError> {
        self.count_changed_with_more(&TaskCommand::RedriveSafe { tenant: tenant.as_bytes(), count })
    }

    /// Like [`redrive`](Self::redrive), but includes poisoned tasks.
    pub fn redrive_with_poisoned(&self, tenant: &str, count: u32) -> Result<(u64, bool), TasksError> {
        self.count_changed_with_more(&TaskCommand::Redrive { tenant: tenant.as_bytes(), count })
    }

    /// Queues the oldest dead letters of a tenant again, at most `count`, with as many commands as needed. Returns
    /// their number.
    ///
    /// Skips poisoned tasks unless `poisoned` is set. A task that fails again during this call stays a dead letter,
    /// unless another client restarts or removes dead letters at the same time.
    pub fn redrive_many(&self, tenant: &str, count: u64, poisoned: bool) -> Result<u64, TasksError> {
        // No task is restarted twice: if there are several commands, they restart at most as many tasks as there are
        // dead letters now. The cluster restarts dead letters in the order in which they failed, so tasks that fail
        // again during this call are last. Poisoned tasks that are skipped are not counted; otherwise, as many other
        // tasks could be restarted twice.
        let has_one_step = count <= u64::from(SchedulerLimits::default().batch_max);
        let count = match has_one_step {
            true => count,
            false => count.min(self.count_dead_letters(tenant, poisoned)?),
        };
        let mut restarted = 0;
        while restarted < count {
            let left = u32::try_from(count - restarted).unwrap_or(u32::MAX);
            let (tasks, more) = match poisoned {
                true => self.redrive_with_poisoned(tenant, left)?,
                false => self.redrive(tenant, left)?,
            };
            restarted += tasks;
            if !more || tasks == 0 {
                break;
            }
        }
        Ok(restarted)
    }

    /// Counts the dead letters of a tenant. Poisoned tasks are included only if `poisoned` is set.
    fn count_dead_letters(&self, tenant: &str, poisoned: bool) -> Result<u64, TasksError> {
        let stage = Some(TaskStage::Dead);
        let filter = ListFilter { tenant: tenant.as_bytes(), stage, ..ListFilter::default() };
        let is_poisoned = |task: &TaskView| {
            task.outcome.as_ref().is_some_and(|outcome| outcome.failure == Some(AttemptFailure::Poisoned))
        };
        let (mut count, mut from) = (0, Some(0));
        while let Some(start) = from {
            let page = self.list(&filter, start, 0, false)?;
            count += page.tasks.iter().filter(|task| poisoned || !is_poisoned(task)).count() as u64;
            from = page.next;
        }
        Ok(count)
    }

    /// Removes the oldest dead letters of a tenant, at most `count`, and cancels the tasks that depend on them. Returns
    /// the number of removed dead letters, and whether the tenant has more.
    pub fn discard(&self, tenant: &str, count: u32) -> Result<(u64, bool), TasksError> {
        self.count_changed_with_more(&TaskCommand::Discard { tenant: tenant.as_bytes(), count })
    }

    /// Creates a schedule, or changes it. The schedule submits a task at each time that its cron expression describes,
    /// in UTC.
    pub fn schedule(
        &self,
        tenant: &str,
        name: &str,
        cron: &str,
        task: NewTask<'_>,
    ) -> Result<(), TasksError> {
        let (tenant, name, cron) = (tenant.as_bytes(), name.as_bytes(), cron.as_bytes());
        self.command(&TaskCommand::Schedule { tenant, name, cron, task }).map(drop)
    }

    /// Removes a schedule. Tasks that it has submitted stay.
    pub fn unschedule(&self, tenant: &str, name: &str) -> Result<(), TasksError> {
        let (tenant, name) = (tenant.as_bytes(), name.as_bytes());
        self.command(&TaskCommand::Unschedule { tenant, name }).map(drop)
    }

    /// Drains a worker: it receives no new tasks, and detaches as soon as its tasks are done.
    pub fn drain_worker(&self, worker: u64) -> Result<(), TasksError> {
        self.command(&TaskCommand::Drain { worker }).map(drop)
    }

    /// Sends a command of any kind once, and waits for its response.
    pub fn command(&self, command: &TaskCommand<'_>) -> Result<CommandReply, TasksError> {
        let mut answers = self.begin(std::slice::from_ref(command))?.wait()?;
        let answer = answers.pop().ok_or_else(TasksError::unexpected_response)?;
        answer.map_err(|refused| TasksError::from(refused).with_tenant(command.tenant()))
    }

    /// Sends a query of any kind, and waits for its response.
    pub fn query(&self, query: &TaskQuery<'_>) -> Result<TaskQueryResult, TasksError> {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        let answer = self.retry_until_answered(self.query_kind, &bytes)?;
        Ok(TaskQueryResult::decode(&answer)?)
    }

    fn count_changed(&self, command: &TaskCommand<'_>) -> Result<u64, TasksError> {
        self.count_changed_with_more(command).map(|(tasks, _)| tasks)
    }

    fn count_changed_with_more(&self, command: &TaskCommand<'_>) -> Result<(u64, bool), TasksError> {
        match self.command(command)? {
            CommandReply::Changed { tasks, more } => Ok((tasks, more)),
            CommandReply::Done => Ok((1, false)),
            _ => Err(TasksError::unexpected_response()),
        }
    }

    fn response_timeout(&self) -> Duration {
        Duration::from_millis(self.shared.limits.answer_ms_max)
    }
}
