//! Joins the results that all shards return for one query.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::query::TaskQueryResult;
use crate::signals::{KindSignals, Signals};
use crate::view::WorkerView;

impl TaskQueryResult {
    /// Joins the results of all shards, in the order of the shards. Returns `None` if there are no results, or if
    /// results of this kind cannot be joined.
    pub fn join(parts: Vec<TaskQueryResult>) -> Option<TaskQueryResult> {
        let mut parts = parts.into_iter();
        let first = parts.next()?;
        parts.try_fold(first, TaskQueryResult::merge)
    }

    fn merge(self, other: TaskQueryResult) -> Option<TaskQueryResult> {
        Some(match (self, other) {
            (TaskQueryResult::Queues { mut queues }, TaskQueryResult::Queues { queues: more }) => {
                queues.extend(more);
                TaskQueryResult::Queues { queues }
            }
            (TaskQueryResult::Tenants { mut tenants }, TaskQueryResult::Tenants { tenants: more }) => {
                tenants.extend(more);
                TaskQueryResult::Tenants { tenants }
            }
            (TaskQueryResult::Workers { workers }, TaskQueryResult::Workers { workers: more }) => {
                TaskQueryResult::Workers { workers: join_workers(workers, more) }
            }
            (TaskQueryResult::Signals { signals }, TaskQueryResult::Signals { signals: more }) => {
                TaskQueryResult::Signals { signals: signals.merge(more) }
            }
            (
                TaskQueryResult::Status { tasks, bytes, now_ms, mut limits },
                TaskQueryResult::Status { tasks: more_tasks, bytes: more_bytes, limits: more, .. },
            ) => {
                limits.state_bytes_max = limits.state_bytes_max.saturating_add(more.state_bytes_max);
                TaskQueryResult::Status {
                    tasks: tasks + more_tasks,
                    bytes: bytes + more_bytes,
                    now_ms,
                    limits,
                }
            }
            _ => return None,
        })
    }
}

/// Joins the workers of two shards. The two entries of a worker differ only in the numbers of tasks, which are added
/// up.
fn join_workers(mut workers: Vec<WorkerView>, more: Vec<WorkerView>) -> Vec<WorkerView> {
    let mut more: BTreeMap<u64, WorkerView> =
        more.into_iter().map(|worker| (worker.worker, worker)).collect();
    for worker in &mut workers {
        let Some(part) = more.remove(&worker.worker) else { continue };
        worker.held += part.held;
        worker.credit += part.credit;
        worker.done += part.done;
        worker.used = std::array::from_fn(|at| worker.used[at] + part.used[at]);
        worker.is_draining |= part.is_draining;
        worker.left_ms = worker.left_ms.min(part.left_ms);
    }
    workers
}

impl Signals {
    /// Joins the signals of all shards. A worker is idle if it is idle in every shard.
    pub fn join(parts: impl IntoIterator<Item = Signals>) -> Signals {
        parts.into_iter().reduce(Signals::merge).unwrap_or_default()
    }

    fn merge(self, more: Signals) -> Signals {
        let also: BTreeMap<u64, u64> = more.idle.into_iter().collect();
        let idle =
            self.idle.into_iter().filter_map(|(id, since_ms)| Some((id, since_ms.max(*also.get(&id)?))));
        let mut idle: Vec<(u64, u64)> = idle.collect();
        idle.sort_by_key(|(id, since_ms)| (*since_ms, *id));
        let mut kinds: BTreeMap<Arc<[u8]>, KindSignals> =
            self.kinds.into_iter().map(|kind| (kind.kind.clone(), kind)).collect();
        for kind in more.kinds {
            match kinds.get_mut(&kind.kind) {
                Some(known) => {
                    known.startable += kind.startable;
                    known.workers = known.workers.max(kind.workers);
                }
                None => drop(kinds.insert(kind.kind.clone(), kind)),
            }
        }
        Signals {
            startable: self.startable + more.startable,
            oldest_ms: self.oldest_ms.max(more.oldest_ms),
            held: self.held + more.held,
            credit: self.credit + more.credit,
            workers: self.workers.max(more.workers),
            idle,
            kinds: kinds.into_values().collect(),
            grace_ms: self.grace_ms.max(more.grace_ms),
        }
    }
}
