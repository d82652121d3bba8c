//! Lanes and classes: where tasks wait for their turn.
//!
//! A class is a queue, a kind, and the labels that its tasks need of a worker: whoever may do one of its tasks has what all of them need. A lane is what one
//! tenant has ready of a class: a list for each priority, first come first served. Whose lane is next in a class is a matter of shares (`tenant`); which task
//! of a lane, of priority and age.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdSet;

use crate::command::Label;
use crate::layout::layout;
use crate::slab::Slab;
use crate::task::{Labelled, List, PRIORITY_MAX, Task};
use crate::worker::Serves;

const LEVELS: usize = PRIORITY_MAX as usize + 1;

layout! {
    /// What a tenant has ready of a class.
    #[derive(Debug, Clone)]
    pub struct Lane {
        pub tenant: u32,
        pub class: u32,
        pub levels: [List; LEVELS],
        pub len: u32,
        /// What one of its tasks costs, by those that were done lately; 0 before there are any.
        pub cost_us: u32,
        /// Whether it stands among those that may be next in its class, and as what.
        pub standing: Option<Standing>,
    }
}

layout! {
    /// A lane's place among those of its class.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Standing {
        /// 0 below what is reserved for the tenant, 1 within its soft quota, 2 beyond.
        pub tier: u8,
        /// The tenant's start tag.
        pub tag: u64,
    }
}

impl Lane {
    pub(crate) fn new(tenant: u32, class: u32) -> Lane {
        Lane { tenant, class, levels: Default::default(), len: 0, cost_us: 0, standing: None }
    }

    /// Who is back, because its worker is gone, comes first.
    pub(crate) fn push(&mut self, tasks: &mut Slab<Task>, at: u32, is_back: bool) {
        let level = &mut self.levels[usize::from(tasks[at].priority)];
        if is_back {
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

    /// Who is next, and how it ranks.
    pub(crate) fn first(&self, tasks: &Slab<Task>, ageing_ms: u32) -> Option<(i64, u32)> {
        if self.len == 0 {
            return None;
        }
        let heads = self.levels.iter().rev().filter(|level| level.len > 0).map(|level| level.head);
        heads.map(|head| (tasks[head].rank(ageing_ms), head)).min_by_key(|(rank, _)| *rank)
    }
}

/// Labels that a worker has to have, by order, each once.
pub(crate) type Needs = Arc<[Labelled]>;

/// As it is kept.
pub(crate) fn needs_of(labels: &[Label<'_>]) -> Needs {
    let sorted: BTreeSet<&Label<'_>> = labels.iter().collect();
    sorted.into_iter().map(|label| Labelled { key: label.key.into(), value: label.value.into() }).collect()
}

/// A queue, a kind, and what its tasks need.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) queue: u32,
    pub(crate) kind: u32,
    pub(crate) needs: Needs,
    /// Where each lane stands that may be next, and which it is.
    pub(crate) standing: OrdSet<(Standing, u32)>,
    /// Sets of workers that serve it, in the order in which they are asked ([`Serves::rank`], then number), and that order.
    pub(crate) pools: Vec<u32>,
    ranks: Vec<(bool, usize, u32)>,
    /// Tasks that are ready.
    pub(crate) ready: u64,
    /// Tasks that are known.
    pub(crate) tasks: u64,
}

impl Class {
    pub(crate) fn new(queue: u32, kind: u32, needs: Needs) -> Class {
        let (standing, pools, ranks) = (OrdSet::new(), Vec::new(), Vec::new());
        Class { queue, kind, needs, standing, pools, ranks, ready: 0, tasks: 0 }
    }

    pub(crate) fn add_pool(&mut self, pool: u32, serves: &Serves) {
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
