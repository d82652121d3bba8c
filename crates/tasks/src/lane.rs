//! Lanes and classes: where tasks wait for their turn.
//!
//! A class is a queue and a kind. A lane is what one tenant has ready of a class: a list for each priority, first come first
//! served. Whose lane is next in a class is a matter of shares (`tenant`); which task of a lane, of priority and age.

use imbl::OrdSet;

use crate::layout::layout;
use crate::slab::Slab;
use crate::task::{List, PRIORITY_MAX, Task};

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

/// A queue and a kind.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) queue: u32,
    pub(crate) kind: u32,
    /// Where each lane stands that may be next, and which it is.
    pub(crate) standing: OrdSet<(Standing, u32)>,
    /// Sets of workers that serve it.
    pub(crate) pools: Vec<u32>,
    /// Tasks that are ready.
    pub(crate) ready: u64,
}

impl Class {
    pub(crate) fn new(queue: u32, kind: u32) -> Class {
        Class { queue, kind, standing: OrdSet::new(), pools: Vec::new(), ready: 0 }
    }
}
