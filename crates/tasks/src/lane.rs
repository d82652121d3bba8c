//! Lanes and classes of tasks, in which tasks wait for their turn.
//!
//! A class contains all tasks with the same queue, kind and needed labels. A worker that may run one task of a class
//! may therefore run all of them. A lane contains one tenant's ready tasks of a class. It has a list for each priority,
//! in order of arrival. The tenants' shares (see module `tenant`) decide which lane of a class is next. Priority and
//! age decide which task of the lane is next.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdSet;

use crate::command::Label;
use crate::layout::layout;
use crate::slab::Slab;
use crate::task::{PRIORITY_MAX, StoredLabel, Task, TaskList};
use crate::worker::ServedSet;

const LEVELS: usize = PRIORITY_MAX as usize + 1;

layout! {
    /// A lane: one tenant's ready tasks that have the same queue, kind and required labels, in the order in which they
    /// start.
    #[derive(Debug, Clone)]
    pub struct Lane {
        pub tenant: u32,
        pub class: u32,
        pub levels: [TaskList; LEVELS],
        pub len: u32,
        /// Moving average of the cost of the lane's tasks, µs; 0 before the first task has run.
        pub cost_us: u32,
        /// The lane's rank among the lanes that may be next. `None` if the lane has no ready task, or if quotas do not
        /// allow the lane's first task to start.
        pub rank: Option<LaneRank>,
    }
}

layout! {
    /// A lane's rank, which decides from which tenant's lane the next task starts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct LaneRank {
        /// 0 if the lane's first task is within the tenant's reserved quota, 1 if it is within the soft quota,
        /// otherwise 2.
        pub tier: u8,
        /// The tenant's tag: the virtual time up to which the tenant was served. The lowest tag is next.
        pub tag: u64,
    }
}

impl Lane {
    pub(crate) fn new(tenant: u32, class: u32) -> Lane {
        Lane { tenant, class, levels: Default::default(), len: 0, cost_us: 0, rank: None }
    }

    /// Adds a task. A task whose worker was lost is added at the front.
    pub(crate) fn push(&mut self, tasks: &mut Slab<Task>, at: u32, to_front: bool) {
        let level = &mut self.levels[usize::from(tasks[at].priority)];
        if to_front {
            level.push_front(tasks, at);
        } else {
            level.push_back(tasks, at);
        }
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, tasks: &mut Slab<Task>, at: u32) {
        self.levels[usize::from(tasks[at].priority)].remove(tasks, at);
        self.len -= 1;
    }

    /// The rank and the index of the next task; `None` if the lane is empty.
    pub(crate) fn first(&self, tasks: &Slab<Task>, ageing_ms: u32) -> Option<(i64, u32)> {
        if self.len == 0 {
            return None;
        }
        let heads = self.levels.iter().rev().filter(|level| level.len > 0).map(|level| level.head);
        heads.map(|head| (tasks[head].rank(ageing_ms), head)).min_by_key(|(rank, _)| *rank)
    }
}

/// Labels that a worker must have, sorted and without duplicates.
pub(crate) type Needs = Arc<[StoredLabel]>;

/// Converts labels to their stored form.
pub(crate) fn needs_of(labels: &[Label<'_>]) -> Needs {
    let sorted: BTreeSet<&Label<'_>> = labels.iter().collect();
    sorted.into_iter().map(|label| StoredLabel { key: label.key.into(), value: label.value.into() }).collect()
}

/// A class of tasks: all tasks with the same queue, kind and needed labels.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) queue: u32,
    pub(crate) kind: u32,
    pub(crate) needs: Needs,
    /// Lanes that may be next, in order of rank.
    pub(crate) ranked_lanes: OrdSet<(LaneRank, u32)>,
    /// Pools whose workers serve the class. The pools are in the order in which they are tried: by [`ServedSet::rank`],
    /// then by number.
    pub(crate) pools: Vec<u32>,
    ranks: Vec<(bool, usize, u32)>,
    /// Number of ready tasks in the class.
    pub(crate) ready: u64,
    /// Number of known tasks in the class.
    pub(crate) tasks: u64,
}

impl Class {
    pub(crate) fn new(queue: u32, kind: u32, needs: Needs) -> Class {
        let (ranked_lanes, pools, ranks) = (OrdSet::new(), Vec::new(), Vec::new());
        Class { queue, kind, needs, ranked_lanes, pools, ranks, ready: 0, tasks: 0 }
    }

    pub(crate) fn add_pool(&mut self, pool: u32, serves: &ServedSet) {
        let (is_for_all, labels) = serves.rank();
        let rank = (is_for_all, labels, pool);
        let at = self.ranks.partition_point(|other| *other < rank);
        self.ranks.insert(at, rank);
        self.pools.insert(at, pool);
    }

    pub(crate) fn remove_pool(&mut self, pool: u32) {
        self.ranks.retain(|rank| rank.2 != pool);
        self.pools.retain(|other| *other != pool);
    }
}
