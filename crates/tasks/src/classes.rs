//! Assigns numbers to lanes, to classes, and to names that clients choose.
//!
//! A lane or class is in use while one of its tasks is known. A lane or class that is no longer in use stays until its
//! number is needed for another lane or class. A name stays as long as a class or a pool uses it.
//!
//! Limits: a tenant has at most [`SchedulerLimits::lanes_max`] lanes, and all tenants together have at most
//! [`LANES_MAX`]. There are at most [`SchedulerLimits::classes_max`] classes, of which at most
//! [`SchedulerLimits::DEMANDS_MAX`] need labels.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::command::{Label, NewTask};
use crate::error::{Limit, TaskRefusal};
use crate::lane::{Class, Lane, Needs, needs_of};
use crate::limits::SchedulerLimits;
use crate::state::SchedulerState;

/// Maximum number of lanes of all tenants.
const LANES_MAX: usize = 262_144;

/// Queue, kind and needed labels of a task. They determine the task's class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassKey<'a> {
    queue: &'a [u8],
    kind: &'a [u8],
    needs: &'a [Label<'a>],
}

impl<'a> ClassKey<'a> {
    pub(crate) fn of(task: &'a NewTask<'a>) -> ClassKey<'a> {
        ClassKey { queue: task.queue, kind: task.kind, needs: &task.needs }
    }
}

impl SchedulerState {
    /// Checks that there is room for the new queues, kinds and retry policies that a command uses.
    pub(crate) fn check_class_room<'n>(
        &self,
        tenant: u32,
        fresh: impl Iterator<Item = &'n NewTask<'n>>,
    ) -> Result<(), TaskRefusal> {
        let (mut class_keys, mut policies) = (BTreeSet::new(), BTreeSet::new());
        let mut last = None;
        for task in fresh {
            let class_key = ClassKey::of(task);
            if last.replace(class_key) != Some(class_key) {
                class_keys.insert((task.queue, task.kind, needs_of(&task.needs)));
            }
            policies.extend(task.retry);
        }
        let class = |(queue, kind, needs): &(&[u8], &[u8], Needs)| {
            self.class_at.get(&(self.names.find(queue)?, self.names.find(kind)?, needs.clone())).copied()
        };
        let wanted: BTreeSet<u32> = class_keys.iter().filter_map(class).collect();
        let new: Vec<_> = class_keys.iter().filter(|class_key| class(class_key).is_none()).collect();
        self.check_classes(
            &wanted,
            new.len(),
            new.iter().filter(|class_key| !class_key.2.is_empty()).count(),
        )?;
        let of_lane = |class: &u32| self.lane_at.get(&(tenant, *class)).copied();
        let lanes: BTreeSet<u32> = wanted.iter().filter_map(of_lane).collect();
        let has_lane =
            |class_key: &&(_, _, Needs)| class(class_key).and_then(|class| of_lane(&class)).is_some();
        let new: Vec<_> = class_keys.iter().filter(|class_key| !has_lane(class_key)).collect();
        let demands = new.iter().filter(|class_key| !class_key.2.is_empty()).count();
        self.check_lanes(tenant, &lanes, new.len(), demands)?;
        self.policies.check(tenant, &policies, self.limits.policies_max)
    }

    /// Checks that there is room for `new` further classes, of which `demands` need labels. An existing class can be
    /// replaced only if it is not in use, and if the present command does not need it (`wanted`).
    fn check_classes(&self, wanted: &BTreeSet<u32>, new: usize, demands: usize) -> Result<(), TaskRefusal> {
        let spare = |at: &&u32| !wanted.contains(at);
        let (count, count_max) = (self.classes.len() + new, self.limits.classes_max as usize);
        if new > 0 && count > count_max {
            let spare = self.unused_classes.iter().filter(spare).count();
            Limit::Classes.check((count - spare) as u64, count_max as u64)?;
        }
        let (count, count_max) = (self.demands as usize + demands, SchedulerLimits::DEMANDS_MAX as usize);
        if demands > 0 && count > count_max {
            let needs = |at: &&u32| !self.classes[**at as usize].needs.is_empty();
            let spare = self.unused_classes.iter().filter(spare).filter(needs).count();
            Limit::Demands.check((count - spare) as u64, count_max as u64)?;
        }
        Ok(())
    }

    /// Checks that there is room for a tenant's new lanes.
    fn check_lanes(
        &self,
        tenant: u32,
        wanted: &BTreeSet<u32>,
        new: usize,
        demands: usize,
    ) -> Result<(), TaskRefusal> {
        if new == 0 {
            return Ok(());
        }
        let is_kept = |lane: &&u32| self.lane_tasks[**lane as usize] > 0 || wanted.contains(lane);
        let own = self.tenants[tenant as usize].lanes.iter().filter(is_kept);
        Limit::Lanes.check((own.clone().count() + new) as u64, u64::from(self.limits.lanes_max))?;
        if self.lanes.len() + new > LANES_MAX {
            let spare = self.unused_lanes.iter().filter(|lane| !wanted.contains(lane)).count();
            Limit::Lanes.check((self.lanes.len() + new - spare) as u64, LANES_MAX as u64)?;
        }
        if demands > 0 {
            let class = |lane: &u32| &self.classes[self.lanes[*lane as usize].class as usize];
            let count = own.filter(|lane| !class(lane).needs.is_empty()).count() + demands;
            Limit::DemandsOfTenant.check(count as u64, SchedulerLimits::DEMANDS_OF_TENANT_MAX.into())?;
        }
        Ok(())
    }

    /// Counts one more known task in a lane.
    pub(crate) fn use_lane(&mut self, lane: u32) {
        self.lane_tasks[lane as usize] += 1;
        if self.lane_tasks[lane as usize] == 1 {
            self.unused_lanes.remove(&lane);
        }
        let at = self.lanes[lane as usize].class;
        let class = &mut self.classes[at as usize];
        class.tasks += 1;
        if class.tasks == 1 {
            self.unused_classes.remove(&at);
        }
    }

    /// Counts one known task less in a lane.
    pub(crate) fn release_lane(&mut self, lane: u32) {
        self.lane_tasks[lane as usize] -= 1;
        if self.lane_tasks[lane as usize] == 0 {
            self.unused_lanes.insert(lane);
        }
        let at = self.lanes[lane as usize].class;
        let class = &mut self.classes[at as usize];
        class.tasks -= 1;
        if class.tasks == 0 {
            self.unused_classes.insert(at);
        }
    }

    /// Returns the number of a tenant's lane for a class. Creates the lane if necessary; the caller then adds a task to
    /// the lane.
    pub(crate) fn lane_for(&mut self, tenant: u32, class_key: &ClassKey<'_>) -> u32 {
        let class = self.class_for(class_key);
        if let Some(&lane) = self.lane_at.get(&(tenant, class)) {
            return lane;
        }
        let lane = self.replaceable_lane(tenant);
        match lane {
            Some(lane) => {
                let before = std::mem::replace(&mut self.lanes[lane as usize], Lane::new(tenant, class));
                self.lane_at.remove(&(before.tenant, before.class));
                self.tenant(before.tenant).lanes.retain(|other| *other != lane);
            }
            None => self.push_lane(Lane::new(tenant, class)),
        }
        let lane = lane.unwrap_or(self.lanes.len() as u32 - 1);
        self.lane_at.insert((tenant, class), lane);
        self.tenant(tenant).lanes.push(lane);
        lane
    }

    /// Adds a lane without tasks.
    pub(crate) fn push_lane(&mut self, lane: Lane) {
        self.unused_lanes.insert(self.lanes.len() as u32);
        self.lanes.push_back(lane);
        self.lane_tasks.push_back(0);
    }

    /// If the number of lanes is at the limit, returns an unused lane that a new lane can replace. If the tenant has
    /// reached its own limit, this is one of the tenant's own lanes.
    fn replaceable_lane(&self, tenant: u32) -> Option<u32> {
        let own = &self.tenants[tenant as usize].lanes;
        if own.len() >= self.limits.lanes_max as usize {
            own.iter().copied().find(|lane| self.lane_tasks[*lane as usize] == 0)
        } else if self.lanes.len() >= LANES_MAX {
            self.unused_lanes.get_min().copied()
        } else {
            None
        }
    }

    fn class_for(&mut self, class_key: &ClassKey<'_>) -> u32 {
        let (queue, kind) = (self.names.insert(class_key.queue), self.names.insert(class_key.kind));
        let key = (queue, kind, needs_of(class_key.needs));
        if let Some(&class) = self.class_at.get(&key) {
            return class;
        }
        [queue, kind].into_iter().for_each(|name| self.names.add_use(name));
        let mut class = Class::new(queue, kind, key.2.clone());
        let at = self.replaceable_class(!class.needs.is_empty()).unwrap_or(self.classes.len() as u32);
        if (at as usize) < self.classes.len() {
            self.remove_class(at);
        }
        for (pool_at, pool) in self.pools.iter_mut().enumerate() {
            if pool.serves.can_run(&class) {
                let classes = Arc::make_mut(&mut pool.classes);
                classes.insert(classes.partition_point(|other| *other < at), at);
                class.add_pool(pool_at as u32, &pool.serves);
            }
        }
        self.demands += u32::from(!class.needs.is_empty());
        match self.classes.get_mut(at as usize) {
            Some(found) => *found = class,
            None => self.push_class(class),
        }
        self.class_at.insert(key, at);
        at
    }

    /// Adds a class without tasks.
    pub(crate) fn push_class(&mut self, class: Class) {
        self.unused_classes.insert(self.classes.len() as u32);
        self.classes.push_back(class);
    }

    /// If the number of classes is at the limit, returns an unused class that a new class can replace. After the
    /// replacement, the lanes of the old class belong to the new class.
    fn replaceable_class(&self, has_needs: bool) -> Option<u32> {
        let is_full = self.classes.len() >= self.limits.classes_max as usize;
        let is_full_of_needs = has_needs && self.demands >= SchedulerLimits::DEMANDS_MAX;
        if !is_full && !is_full_of_needs {
            return None;
        }
        let fits = |at: &u32| !is_full_of_needs || !self.classes[*at as usize].needs.is_empty();
        self.unused_classes.iter().copied().find(fits)
    }

    fn remove_class(&mut self, at: u32) {
        let Class { queue, kind, needs, pools, .. } = self.classes[at as usize].clone();
        for pool in pools {
            Arc::make_mut(&mut self.pools[pool as usize].classes).retain(|other| *other != at);
        }
        self.demands -= u32::from(!needs.is_empty());
        self.class_at.remove(&(queue, kind, needs));
        [queue, kind].into_iter().for_each(|name| self.names.remove_use(name));
    }
}
