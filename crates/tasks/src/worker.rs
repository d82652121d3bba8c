//! Workers, and pools of workers that serve the same tasks.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::lane::Class;
use crate::layout::layout;
use crate::quota::Amounts;
use crate::task::{StoredLabel, TaskList};

layout! {
    /// The stored state of a worker in the scheduler: its lease, resources and tasks.
    #[derive(Debug, Clone)]
    pub struct Worker {
        pub name: Arc<[u8]>,
        pub pool: u32,
        /// Number of further tasks that the worker can take.
        pub credit: u32,
        pub ttl_ms: u64,
        /// Time at which the worker counts as dead.
        pub end_ms: u64,
        pub joined_ms: u64,
        /// Time since which the worker holds no task.
        pub idle_ms: u64,
        pub is_draining: bool,
        pub held: TaskList,
        /// Thousandths of a processor and bytes of memory that the worker has; 0 if not stated.
        pub capacity: [u64; 2],
        /// Thousandths of a processor and bytes of memory that the worker's tasks need.
        pub used: [u64; 2],
        /// If the worker is one of its pool's idle workers: the number of held tasks by which it is ordered among them.
        /// Otherwise `None`.
        pub idle: Option<u32>,
        pub done: u64,
    }
}

impl Worker {
    pub(crate) fn fits(&self, need: &Amounts) -> bool {
        (0..2).all(|at| self.capacity[at] == 0 || self.used[at] + need[at + 1] <= self.capacity[at])
    }

    /// Whether the worker's total capacity is at least `need`, regardless of the tasks that it holds.
    pub(crate) fn is_as_large(&self, need: &Amounts) -> bool {
        (0..2).all(|at| self.capacity[at] == 0 || need[at + 1] <= self.capacity[at])
    }

    pub(crate) fn accepts_tasks(&self) -> bool {
        self.credit > 0 && !self.is_draining
    }
}

/// A pool: all workers that have the same labels and serve the same kinds, queues and tenants.
#[derive(Debug, Clone)]
pub(crate) struct WorkerPool {
    pub(crate) serves: Arc<ServedSet>,
    /// The classes that these workers serve.
    pub(crate) classes: Arc<Vec<u32>>,
    /// Workers that can take further tasks. The workers with the fewest tasks come first.
    pub(crate) idle: OrdSet<(u32, u32)>,
    /// Workers that may be given a task ahead, by the predicted end of their running task.
    pub(crate) soon: OrdSet<(u64, u32)>,
    pub(crate) workers: u64,
    pub(crate) credit: u64,
    /// Capacities of the workers, each with the number of workers that have it.
    sizes: OrdMap<[u64; 2], u64>,
}

impl WorkerPool {
    pub(crate) fn new(serves: Arc<ServedSet>) -> WorkerPool {
        let (idle, soon) = (OrdSet::new(), OrdSet::new());
        WorkerPool {
            serves,
            classes: Arc::default(),
            idle,
            soon,
            workers: 0,
            credit: 0,
            sizes: OrdMap::new(),
        }
    }

    /// Adds a worker of this capacity to the counts.
    pub(crate) fn add_worker(&mut self, capacity: [u64; 2]) {
        self.workers += 1;
        *self.sizes.entry(capacity).or_default() += 1;
    }

    /// Removes a worker of this capacity from the counts.
    pub(crate) fn remove_worker(&mut self, capacity: [u64; 2]) {
        self.workers -= 1;
        match self.sizes.get_mut(&capacity) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.sizes.remove(&capacity)),
        }
    }

    /// Whether a worker of the pool has a total capacity of at least `need`. A worker without stated capacity has
    /// enough.
    pub(crate) fn has_worker_for(&self, need: &Amounts) -> bool {
        self.sizes
            .keys()
            .any(|capacity| (0..2).all(|part| capacity[part] == 0 || need[part + 1] <= capacity[part]))
    }

    /// Whether at least one worker of the pool has a total capacity of at least `other`. The capacity 0 means that the
    /// worker did not state it; it counts as unlimited.
    pub(crate) fn has_worker_as_large(&self, other: &[u64; 2]) -> bool {
        let is_enough = |capacity: u64, other: u64| capacity == 0 || other != 0 && other <= capacity;
        self.sizes.keys().any(|capacity| (0..2).all(|part| is_enough(capacity[part], other[part])))
    }
}

/// The kinds, queues and tenants that workers serve, and the workers' labels. Kinds and queues are stored as numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct ServedSet {
    pub(crate) kinds: BTreeSet<u32>,
    /// Queues that the workers serve; empty for all.
    pub(crate) queues: BTreeSet<u32>,
    /// Labels of the workers.
    pub(crate) labels: BTreeSet<StoredLabel>,
    /// Tenants whose tasks the workers take; empty for all.
    pub(crate) tenants: BTreeSet<Arc<[u8]>>,
}

impl ServedSet {
    pub(crate) fn can_run(&self, class: &Class) -> bool {
        self.accepts_class(class) && self.has_labels(&class.needs)
    }

    /// Whether the workers serve the queue and the kind of a class. Does not check needed labels or capacity.
    pub(crate) fn accepts_class(&self, class: &Class) -> bool {
        self.kinds.contains(&class.kind) && (self.queues.is_empty() || self.queues.contains(&class.queue))
    }

    pub(crate) fn has_labels(&self, needs: &[StoredLabel]) -> bool {
        needs.iter().all(|need| self.labels.contains(need))
    }

    pub(crate) fn accepts_tenant(&self, tenant: &[u8]) -> bool {
        self.tenants.is_empty() || self.tenants.contains(tenant)
    }

    /// The key by which pools are ordered before they are tried. Pools for only some tenants come first. Among these
    /// and among the others, pools with fewer labels come first.
    pub(crate) fn rank(&self) -> (bool, usize) {
        (self.tenants.is_empty(), self.labels.len())
    }
}
