//! Computes the inputs of the autoscaler.
//!
//! A task counts as startable if an additional worker could start it now. The caller may describe the additional worker
//! ([`WorkerShape`]). Without a description, the additional worker is assumed to be like one of the existing workers.
//! If there are no workers either, it is assumed to be able to run every task.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::lane::Lane;
use crate::layout::layout;
use crate::state::SchedulerState;
use crate::task::{StoredLabel, TaskStage};
use crate::view::WorkerView;
use crate::worker::ServedSet;

layout! {
    /// The input of the autoscaler: the scheduler's tasks and workers at one moment.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Signals {
        /// Number of tasks that an additional worker could start now. Such a task is ready, within its tenant's quota,
        /// and small enough for the worker. Tasks that wait for a limit, for another task or for their start time do
        /// not count.
        pub startable: u64,
        /// Longest waiting time of a startable task, ms.
        pub oldest_ms: u64,
        /// Number of tasks that workers hold.
        pub held: u64,
        /// Number of further tasks that the workers can take.
        pub credit: u64,
        /// Number of workers that are not draining.
        pub workers: u64,
        /// The idle workers, each with the time since which it is idle. The longest idle come first; at most a
        /// thousand are listed.
        pub idle: Vec<(u64, u64)>,
        /// Startable tasks by kind.
        pub kinds: Vec<KindSignals>,
        /// Longest timeout of a held task, ms. A worker needs up to this time to drain.
        pub grace_ms: u64,
    }
}

layout! {
    /// The startable tasks of one kind and the workers for the kind, as an input of the autoscaler.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct KindSignals {
        /// The kind.
        pub kind: Arc<[u8]>,
        /// Number of tasks that an additional worker could start now.
        pub startable: u64,
        /// Number of workers that can run the kind.
        pub workers: u64,
    }
}

const IDLE_MAX: usize = 1_000;

/// The kinds, queues, labels and resources of a worker that the autoscaler could add.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WorkerShape {
    /// Kinds that the worker could run.
    pub kinds: Vec<Arc<[u8]>>,
    /// Queues that the worker would serve; empty for all.
    pub queues: Vec<Arc<[u8]>>,
    /// Labels of the worker.
    pub labels: Vec<StoredLabel>,
    /// Tenants whose tasks the worker would take; empty for all.
    pub tenants: Vec<Arc<[u8]>>,
    /// Thousandths of a processor and bytes of memory that the worker would have. A number is 0 if the worker would not
    /// state it.
    pub capacity: [u64; 2],
}

impl From<&WorkerView> for WorkerShape {
    fn from(worker: &WorkerView) -> WorkerShape {
        let WorkerView { kinds, queues, labels, tenants, capacity, .. } = worker;
        let (kinds, queues) = (kinds.clone(), queues.clone());
        WorkerShape { kinds, queues, labels: labels.clone(), tenants: tenants.clone(), capacity: *capacity }
    }
}

/// A worker shape with numbers in place of names.
struct NamedShape {
    serves: Arc<ServedSet>,
    /// Thousandths of a processor and bytes of memory; `u64::MAX` for each that the worker does not state.
    capacity: [u64; 2],
}

/// The number for the name of a kind or queue that the scheduler does not know.
const NO_NAME: u32 = u32::MAX;

impl SchedulerState {
    /// Signals for an additional worker that is like one of the existing workers. Looks at every tenant, lane and
    /// worker.
    pub fn signals(&self) -> Signals {
        let mut pools: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
        for (_, worker) in self.workers.iter_from(0) {
            let most = pools.entry(worker.pool).or_default();
            *most = std::array::from_fn(|part| most[part].max(unbounded(worker.capacity[part])));
        }
        let shape = |(pool, capacity): (u32, _)| NamedShape {
            serves: self.pools[pool as usize].serves.clone(),
            capacity,
        };
        self.compute_signals(&pools.into_iter().map(shape).collect::<Vec<_>>())
    }

    /// Signals for an additional worker of one of these shapes. If `shapes` is empty, the worker is assumed to be able
    /// to start every task.
    pub fn signals_for(&self, shapes: &[WorkerShape]) -> Signals {
        let named =
            |names: &[Arc<[u8]>]| names.iter().map(|name| self.names.find(name).unwrap_or(NO_NAME)).collect();
        let shape = |shape: &WorkerShape| {
            let serves = ServedSet {
                kinds: named(&shape.kinds),
                queues: named(&shape.queues),
                labels: shape.labels.iter().cloned().collect(),
                tenants: shape.tenants.iter().cloned().collect(),
            };
            NamedShape { serves: Arc::new(serves), capacity: shape.capacity.map(unbounded) }
        };
        self.compute_signals(&shapes.iter().map(shape).collect::<Vec<_>>())
    }

    fn compute_signals(&self, shapes: &[NamedShape]) -> Signals {
        let mut able: HashMap<u32, Vec<&NamedShape>> = HashMap::new();
        let mut signals = Signals { credit: self.free[0], ..Signals::default() };
        let mut by_kind: std::collections::BTreeMap<u32, (u64, u64)> = std::collections::BTreeMap::new();
        for tenant in self.tenants.iter() {
            let [quota, ..] = tenant.quotas;
            let mut room = quota.most().map_or(u64::MAX, |most| most.saturating_sub(tenant.used[0].now));
            for &lane in &tenant.lanes {
                let lane = &self.lanes[lane as usize];
                if lane.len == 0 {
                    continue;
                }
                let able = able.entry(lane.class).or_insert_with(|| {
                    let class = &self.classes[lane.class as usize];
                    shapes.iter().filter(|shape| shape.serves.can_run(class)).collect()
                });
                if !shapes.is_empty() && !self.can_start(able, &tenant.name, lane) {
                    continue;
                }
                let startable = u64::from(lane.len).min(room);
                room -= startable;
                signals.startable += startable;
                by_kind.entry(self.classes[lane.class as usize].kind).or_default().0 += startable;
                if let Some((_, first)) =
                    lane.first(&self.tasks, self.limits.ageing_ms).filter(|_| startable > 0)
                {
                    signals.oldest_ms = signals.oldest_ms.max(self.now_ms - self.tasks[first].since_ms);
                }
            }
        }
        self.add_worker_signals(&mut signals);
        for pool in self.pools.iter() {
            pool.serves.kinds.iter().for_each(|kind| by_kind.entry(*kind).or_default().1 += pool.workers);
        }
        signals.kinds = by_kind
            .into_iter()
            .map(|(kind, (startable, workers))| KindSignals {
                kind: self.names.get(kind).clone(),
                startable,
                workers,
            })
            .collect();
        signals
    }

    /// Whether a worker of one of these shapes could start a lane's first task.
    fn can_start(&self, shapes: &[&NamedShape], tenant: &[u8], lane: &Lane) -> bool {
        let first = lane.first(&self.tasks, self.limits.ageing_ms);
        let Some(need) = first.map(|(_, at)| self.tasks[at].need()) else { return false };
        let is_enough = |capacity: &[u64; 2]| (0..2).all(|part| need[part + 1] <= capacity[part]);
        shapes.iter().any(|shape| shape.serves.accepts_tenant(tenant) && is_enough(&shape.capacity))
    }

    fn add_worker_signals(&self, signals: &mut Signals) {
        for (at, worker) in self.workers.iter_from(0) {
            signals.held += u64::from(worker.held.len);
            let held = worker.held.iter(&self.tasks).filter(|(_, task)| task.stage == TaskStage::Running);
            let grace_ms = held.map(|(_, task)| u64::from(task.timeout_ms)).max().unwrap_or(0);
            signals.grace_ms = signals.grace_ms.max(grace_ms);
            if worker.is_draining {
                continue;
            }
            signals.workers += 1;
            if worker.held.len == 0 {
                signals.idle.push((worker.idle_ms, self.worker_id(at)));
            }
        }
        signals.idle.sort_unstable();
        signals.idle.truncate(IDLE_MAX);
        signals.idle.iter_mut().for_each(|(since_ms, id)| (*since_ms, *id) = (*id, *since_ms));
    }
}

/// The capacity, or `u64::MAX` if the worker does not state its capacity (0).
fn unbounded(capacity: u64) -> u64 {
    if capacity == 0 { u64::MAX } else { capacity }
}
