//! Selects the shards of a cluster's tasks for a command or query, and joins their results.
//!
//! Commands about a tenant or a task go to its shard. Commands about workers go to all shards, each of which
//! has a part of a worker's slots.

use crate::command::Command;
use crate::query::{CommandOutcome, Found, Query};
use crate::reply::CommandReply;
use crate::shard::{mark_of, shard_of_id, shard_of_tenant};

/// Shards that a command or query goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardRoute {
    /// This shard.
    One(u8),
    /// All shards; [`CommandOutcome::join`] and [`Found::join`] join their results.
    All,
}

impl ShardRoute {
    fn of_tenant(tenant: &[u8], shards: u8) -> ShardRoute {
        ShardRoute::One(shard_of_tenant(tenant, shards))
    }

    /// An id that no shard assigned goes to the first shard, which does not know it either.
    fn of_task(task: u64, shards: u8) -> ShardRoute {
        ShardRoute::One(Some(shard_of_id(task)).filter(|shard| *shard < shards).unwrap_or(0))
    }
}

impl Command<'_> {
    /// Selects the shards for this command.
    pub fn route(&self, shards: u8) -> ShardRoute {
        match *self {
            Command::Tenant { ref tenant } => ShardRoute::of_tenant(tenant.name, shards),
            Command::Submit { tenant, .. }
            | Command::Redrive { tenant, .. }
            | Command::RedriveSafe { tenant, .. }
            | Command::Discard { tenant, .. }
            | Command::Schedule { tenant, .. }
            | Command::Unschedule { tenant, .. }
            | Command::Found { tenant } => ShardRoute::of_tenant(tenant, shards),
            Command::Cancel { task }
            | Command::Retry { task }
            | Command::Progress { task, .. }
            | Command::Unpublished { task, .. }
            | Command::Extend { task, .. } => ShardRoute::of_task(task, shards),
            Command::Complete { answer, .. } | Command::Fail { answer, .. } => {
                ShardRoute::of_task(answer.task, shards)
            }
            Command::Published { ref tasks } => {
                ShardRoute::of_task(tasks.first().copied().unwrap_or(0), shards)
            }
            // A worker joins in the first shard, from which its slots are allocated.
            Command::Join { .. } | Command::Pull { .. } | Command::Slots { .. } => ShardRoute::One(0),
            Command::Beat { .. }
            | Command::Drain { .. }
            | Command::Leave { .. }
            | Command::Enlist { .. }
            | Command::Clock { .. }
            | Command::BeginRestored { .. }
            | Command::Limit { .. } => ShardRoute::All,
        }
    }
}

impl Query<'_> {
    /// Selects the shards for this query. Lists go from shard to shard; the start of a page names the shard.
    pub fn route(&self, shards: u8) -> ShardRoute {
        match *self {
            Query::Get { task } | Query::Why { task } => ShardRoute::of_task(task, shards),
            Query::List { ref filter, .. } if !filter.tenant.is_empty() => {
                ShardRoute::of_tenant(filter.tenant, shards)
            }
            Query::List { from, .. } => ShardRoute::One(shard_of_id(u64::from(from))),
            Query::Queues { tenant } | Query::Tenants { tenant } if !tenant.is_empty() => {
                ShardRoute::of_tenant(tenant, shards)
            }
            Query::Queues { .. } | Query::Tenants { .. } => ShardRoute::All,
            Query::Workers | Query::Signals | Query::Status => ShardRoute::All,
        }
    }

    /// Converts a query to one for a single shard, which knows of no others.
    #[must_use]
    pub fn within(self, shard: u8) -> Self {
        match self {
            Query::List { filter, from, limit, whole } => {
                let from = if shard_of_id(u64::from(from)) == shard { from ^ mark_of(shard) } else { from };
                Query::List { filter, from, limit, whole }
            }
            other => other,
        }
    }
}

impl Found {
    /// Converts a shard's result of [`Query::within`] back: a list continues in the same shard, or in the
    /// next if the list is of all tenants.
    #[must_use]
    pub fn from_within(self, shard: u8, shards: u8, query: &Query<'_>) -> Found {
        match (self, query) {
            (Found::Tasks { tasks, next, now_ms }, Query::List { filter, .. }) => {
                let after = (filter.tenant.is_empty() && shard + 1 < shards).then(|| mark_of(shard + 1));
                let next = next.map(|at| at | mark_of(shard)).or(after);
                Found::Tasks { tasks, next, now_ms }
            }
            (found, _) => found,
        }
    }
}

impl CommandOutcome {
    /// Joins the outcomes of all shards, in their order, for a command that went to all. A worker that one shard
    /// does not know must attach again. Otherwise the first shard's outcome counts, because workers join there.
    /// `None` without outcomes.
    pub fn join(parts: Vec<CommandOutcome>) -> Option<CommandOutcome> {
        let mut parts = parts.into_iter();
        let mut first = parts.next()?;
        if let CommandOutcome::Done { reply: CommandReply::Beaten { gone } } = &mut first {
            for part in parts {
                let CommandOutcome::Done { reply: CommandReply::Beaten { gone: also } } = part else {
                    return Some(part);
                };
                gone.extend(also);
            }
            gone.sort_unstable();
            gone.dedup();
        }
        Some(first)
    }
}
