//! Workers, and pools of those that serve the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdSet;

use crate::lane::Class;
use crate::layout::layout;
use crate::quota::Amounts;
use crate::task::{Labelled, List};

layout! {
    /// One that does tasks.
    #[derive(Debug, Clone)]
    pub struct Worker {
        pub name: Arc<[u8]>,
        pub pool: u32,
        /// How many more tasks it takes.
        pub credit: u32,
        pub ttl_ms: u64,
        /// When it is taken for dead.
        pub end_ms: u64,
        pub joined_ms: u64,
        /// Since when it holds nothing.
        pub idle_ms: u64,
        pub is_draining: bool,
        pub held: List,
        /// Thousandths of a processor and bytes of memory that it has; 0 where it does not say.
        pub has: [u64; 2],
        /// What its tasks need of that.
        pub used: [u64; 2],
        /// Its place among the idle of its pool: how many tasks it held.
        pub idle: Option<u32>,
        pub done: u64,
    }
}

impl Worker {
    pub(crate) fn fits(&self, need: &Amounts) -> bool {
        (0..2).all(|at| self.has[at] == 0 || self.used[at] + need[at + 1] <= self.has[at])
    }

    /// Whether it has so much in all.
    pub(crate) fn is_as_large(&self, need: &Amounts) -> bool {
        (0..2).all(|at| self.has[at] == 0 || need[at + 1] <= self.has[at])
    }

    pub(crate) fn takes(&self) -> bool {
        self.credit > 0 && !self.is_draining
    }
}

/// Workers that serve the same kinds and queues.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) serves: Arc<Serves>,
    /// The classes it serves.
    pub(crate) classes: Arc<Vec<u32>>,
    /// Workers that take more, those first that hold the fewest tasks.
    pub(crate) idle: OrdSet<(u32, u32)>,
    /// Workers that may be given a task ahead, by when they are foreseen to end.
    pub(crate) soon: OrdSet<(u64, u32)>,
    pub(crate) workers: u64,
    pub(crate) credit: u64,
}

impl Pool {
    pub(crate) fn new(serves: Arc<Serves>) -> Pool {
        let (idle, soon) = (OrdSet::new(), OrdSet::new());
        Pool { serves, classes: Arc::default(), idle, soon, workers: 0, credit: 0 }
    }
}

/// What workers serve: kinds and queues as numbers of names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Serves {
    pub(crate) kinds: BTreeSet<u32>,
    /// None for all.
    pub(crate) queues: BTreeSet<u32>,
    /// What they have.
    pub(crate) labels: BTreeSet<Labelled>,
    /// None for all.
    pub(crate) tenants: BTreeSet<Arc<[u8]>>,
}

impl Serves {
    pub(crate) fn covers(&self, class: &Class) -> bool {
        self.does(class) && self.has(&class.needs)
    }

    /// Whatever its tasks need.
    pub(crate) fn does(&self, class: &Class) -> bool {
        self.kinds.contains(&class.kind) && (self.queues.is_empty() || self.queues.contains(&class.queue))
    }

    pub(crate) fn has(&self, needs: &[Labelled]) -> bool {
        needs.iter().all(|need| self.labels.contains(need))
    }

    pub(crate) fn is_for(&self, tenant: &[u8]) -> bool {
        self.tenants.is_empty() || self.tenants.contains(tenant)
    }

    /// Who is asked first: those for some tenants only, then those that have the least to be kept for.
    pub(crate) fn rank(&self) -> (bool, usize) {
        (self.tenants.is_empty(), self.labels.len())
    }
}
