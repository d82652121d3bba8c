//! Selects the shards of the task scheduler to which a command or query goes, and joins the results of the shards.
//!
//! A command about a tenant or a task goes to the shard to which the tenant or task belongs. A command about workers
//! goes to all shards, because each shard has a part of a worker's slots.

use crate::command::TaskCommand;
use crate::query::{TaskCommandOutcome, TaskQuery, TaskQueryResult};
use crate::reply::CommandReply;
use crate::shard::{mark_of, shard_of_id, shard_of_tenant};

/// The destination of a command or query about tasks: one shard of the scheduler, or all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardRoute {
    /// The command or query goes only to this shard.
    One(u8),
    /// The command or query goes to all shards; [`TaskCommandOutcome::join`] and [`TaskQueryResult::join`] join the
    /// results.
    All,
}

impl ShardRoute {
    fn of_tenant(tenant: &[u8], shards: u8) -> ShardRoute {
        ShardRoute::One(shard_of_tenant(tenant, shards))
    }

    /// Selects the shard of a task. If the id is not one that a shard has assigned, selects the first shard, which
    /// refuses the command.
    fn of_task(task: u64, shards: u8) -> ShardRoute {
        ShardRoute::One(Some(shard_of_id(task)).filter(|shard| *shard < shards).unwrap_or(0))
    }
}

impl TaskCommand<'_> {
    /// Selects the shards for this command.
    pub fn route(&self, shards: u8) -> ShardRoute {
        match *self {
            TaskCommand::Tenant { ref tenant } => ShardRoute::of_tenant(tenant.name, shards),
            TaskCommand::Submit { tenant, .. }
            | TaskCommand::Redrive { tenant, .. }
            | TaskCommand::RedriveSafe { tenant, .. }
            | TaskCommand::Discard { tenant, .. }
            | TaskCommand::Schedule { tenant, .. }
            | TaskCommand::Unschedule { tenant, .. }
            | TaskCommand::EnsureTenant { tenant } => ShardRoute::of_tenant(tenant, shards),
            TaskCommand::Cancel { task }
            | TaskCommand::Retry { task }
            | TaskCommand::Progress { task, .. }
            | TaskCommand::Unpublished { task, .. }
            | TaskCommand::Extend { task, .. } => ShardRoute::of_task(task, shards),
            TaskCommand::Complete { report, .. } | TaskCommand::Fail { report, .. } => {
                ShardRoute::of_task(report.task, shards)
            }
            TaskCommand::Published { ref tasks } => {
                ShardRoute::of_task(tasks.first().copied().unwrap_or(0), shards)
            }
            // A worker always joins in the first shard, which has all of the worker's slots at first.
            TaskCommand::Join { .. } | TaskCommand::Pull { .. } | TaskCommand::Slots { .. } => {
                ShardRoute::One(0)
            }
            TaskCommand::Renew { .. }
            | TaskCommand::Drain { .. }
            | TaskCommand::Leave { .. }
            | TaskCommand::Enlist { .. }
            | TaskCommand::Clock { .. }
            | TaskCommand::BeginRestored { .. }
            | TaskCommand::Limit { .. } => ShardRoute::All,
        }
    }
}

impl TaskQuery<'_> {
    /// Selects the shards for this query. A list is read shard after shard; the start of a page contains the shard's
    /// number.
    pub fn route(&self, shards: u8) -> ShardRoute {
        match *self {
            TaskQuery::Get { task } | TaskQuery::Why { task } => ShardRoute::of_task(task, shards),
            TaskQuery::List { ref filter, .. } if !filter.tenant.is_empty() => {
                ShardRoute::of_tenant(filter.tenant, shards)
            }
            TaskQuery::List { from, .. } => ShardRoute::One(shard_of_id(u64::from(from))),
            TaskQuery::Queues { tenant } | TaskQuery::Tenants { tenant } if !tenant.is_empty() => {
                ShardRoute::of_tenant(tenant, shards)
            }
            TaskQuery::Queues { .. } | TaskQuery::Tenants { .. } => ShardRoute::All,
            TaskQuery::Workers | TaskQuery::Signals | TaskQuery::Status => ShardRoute::All,
        }
    }

    /// Converts a query for one shard: removes the shard's number from the start of a page.
    #[must_use]
    pub fn within(self, shard: u8) -> Self {
        match self {
            TaskQuery::List { filter, from, limit, whole } => {
                let from = if shard_of_id(u64::from(from)) == shard { from ^ mark_of(shard) } else { from };
                TaskQuery::List { filter, from, limit, whole }
            }
            other => other,
        }
    }
}

impl TaskQueryResult {
    /// Completes a shard's result for a query that [`TaskQuery::within`] converted: adds the shard's number to the
    /// position at which the next page starts. If this was the shard's last page of a list of tasks of all tenants, the
    /// next page starts in the next shard.
    #[must_use]
    pub fn from_within(self, shard: u8, shards: u8, query: &TaskQuery<'_>) -> TaskQueryResult {
        match (self, query) {
            (TaskQueryResult::Tasks { tasks, next, now_ms }, TaskQuery::List { filter, .. }) => {
                let after = (filter.tenant.is_empty() && shard + 1 < shards).then(|| mark_of(shard + 1));
                let next = next.map(|at| at | mark_of(shard)).or(after);
                TaskQueryResult::Tasks { tasks, next, now_ms }
            }
            (found, _) => found,
        }
    }
}

impl TaskCommandOutcome {
    /// Joins the outcomes of a command that went to all shards. The outcomes must be in the order of the shards. For
    /// renewals, joins the lists of missing workers, because a worker that is missing in any shard must attach again.
    /// For other commands, returns the outcome of the first shard, in which all workers join. Returns `None` if there
    /// are no outcomes.
    pub fn join(parts: Vec<TaskCommandOutcome>) -> Option<TaskCommandOutcome> {
        let mut parts = parts.into_iter();
        let mut first = parts.next()?;
        if let TaskCommandOutcome::Done { reply: CommandReply::Renewed { gone } } = &mut first {
            for part in parts {
                let TaskCommandOutcome::Done { reply: CommandReply::Renewed { gone: more } } = part else {
                    return Some(part);
                };
                gone.extend(more);
            }
            gone.sort_unstable();
            gone.dedup();
        }
        Some(first)
    }
}
