//! Which shards of a cluster's tasks a command or a question is for, and the answers of many as one.
//!
//! What is about a tenant or a task is for the shard where that lives. What is about workers is for all shards: each has its part of what a worker does.

use crate::command::Command;
use crate::query::{Answered, Found, Query};
use crate::reply::Reply;
use crate::shard::{mark_of, shard_of_id, shard_of_tenant};

/// Where to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To this shard.
    One(u8),
    /// To all of them; [`Answered::join`] and [`Found::join`] make one answer of what they say.
    All,
}

impl Route {
    fn of_tenant(tenant: &[u8], shards: u8) -> Route {
        Route::One(shard_of_tenant(tenant, shards))
    }

    /// An id that no shard gave is for the first, which does not know it either.
    fn of_task(task: u64, shards: u8) -> Route {
        Route::One(Some(shard_of_id(task)).filter(|shard| *shard < shards).unwrap_or(0))
    }
}

impl Command<'_> {
    /// For which of so many shards it is.
    pub fn route(&self, shards: u8) -> Route {
        match *self {
            Command::Tenant { ref tenant } => Route::of_tenant(tenant.name, shards),
            Command::Submit { tenant, .. }
            | Command::Redrive { tenant, .. }
            | Command::RedriveSafe { tenant, .. }
            | Command::Discard { tenant, .. }
            | Command::Schedule { tenant, .. }
            | Command::Unschedule { tenant, .. }
            | Command::Found { tenant } => Route::of_tenant(tenant, shards),
            Command::Cancel { task }
            | Command::Retry { task }
            | Command::Progress { task, .. }
            | Command::Unpublished { task, .. }
            | Command::Extend { task, .. } => Route::of_task(task, shards),
            Command::Complete { answer, .. } | Command::Fail { answer, .. } => {
                Route::of_task(answer.task, shards)
            }
            Command::Published { ref tasks } => Route::of_task(tasks.first().copied().unwrap_or(0), shards),
            // A worker joins in the first; and what it takes more is dealt from there.
            Command::Join { .. } | Command::Pull { .. } | Command::Slots { .. } => Route::One(0),
            Command::Beat { .. }
            | Command::Drain { .. }
            | Command::Leave { .. }
            | Command::Enlist { .. }
            | Command::Clock { .. }
            | Command::Limit { .. } => Route::All,
        }
    }
}

impl Query<'_> {
    /// For which of so many shards it is. All tasks are listed shard after shard: where a page goes on says in which.
    pub fn route(&self, shards: u8) -> Route {
        match *self {
            Query::Get { task } | Query::Why { task } => Route::of_task(task, shards),
            Query::List { ref filter, .. } if !filter.tenant.is_empty() => {
                Route::of_tenant(filter.tenant, shards)
            }
            Query::List { from, .. } => Route::One(shard_of_id(u64::from(from))),
            Query::Queues { tenant } | Query::Tenants { tenant } if !tenant.is_empty() => {
                Route::of_tenant(tenant, shards)
            }
            Query::Queues { .. } | Query::Tenants { .. } => Route::All,
            Query::Workers | Query::Signals | Query::Status => Route::All,
        }
    }

    /// As a shard itself is asked, which knows of no others.
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
    /// What a shard answered to a question as it was [`Query::within`] it: a list goes on there, or in the next one where it was of all tenants.
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

impl Answered {
    /// One answer of those of all shards, the first one's first, to a command that was for all: a worker that is gone from one is to come anew; else
    /// what the first says, where workers join. `None` where there are none.
    pub fn join(parts: Vec<Answered>) -> Option<Answered> {
        let mut parts = parts.into_iter();
        let mut first = parts.next()?;
        if let Answered::Done { reply: Reply::Beaten { gone } } = &mut first {
            for part in parts {
                let Answered::Done { reply: Reply::Beaten { gone: also } } = part else { return Some(part) };
                gone.extend(also);
            }
            gone.sort_unstable();
            gone.dedup();
        }
        Some(first)
    }
}
