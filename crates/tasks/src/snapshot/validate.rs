//! Checks that the blocks of a snapshot fit together: all references exist, and each task is in one list.

use super::restore::check;
use crate::error::TaskDecodeError;
use crate::shard::shard_of_id;
use crate::slab::NONE;
use crate::state::SchedulerState;
use crate::task::{Task, TaskList, TaskStage};

impl SchedulerState {
    /// Checks that all referenced numbers exist.
    pub(super) fn check_references(&self) -> Result<(), TaskDecodeError> {
        let is = |at: u32, len: usize| (at as usize) < len;
        let (names, tenants, lanes) = (self.names.len(), self.tenants.len(), self.lanes.len());
        for class in self.classes.iter() {
            check(is(class.queue, names) && is(class.kind, names), "classes")?;
        }
        for pool in self.pools.iter() {
            check(pool.serves.kinds.iter().chain(&pool.serves.queues).all(|&name| is(name, names)), "pools")?;
        }
        for (at, lane) in self.lanes.iter().enumerate() {
            check(is(lane.tenant, tenants) && is(lane.class, self.classes.len()), "lanes")?;
            check(self.tenants[lane.tenant as usize].lanes.contains(&(at as u32)), "lanes")?;
        }
        for (at, tenant) in self.tenants.iter().enumerate() {
            check((1..=crate::tenant::WEIGHT_MAX).contains(&tenant.weight), "tenants")?;
            check(
                tenant.limits.iter().filter_map(|limit| limit.rate).all(|rate| rate.is_valid()),
                "tenants",
            )?;
            let own = |&lane: &u32| is(lane, lanes) && self.lanes[lane as usize].tenant as usize == at;
            check(tenant.lanes.iter().all(own), "tenants")?;
        }
        for (_, worker) in self.workers.iter_from(0) {
            check(is(worker.pool, self.pools.len()), "workers")?;
        }
        for (_, task) in self.tasks.iter_from(0) {
            let is_known = is(task.tenant, tenants)
                && is(task.lane, lanes)
                && self.lanes[task.lane as usize].tenant == task.tenant
                && usize::from(task.policy) < self.policies.len()
                && task.priority <= crate::PRIORITY_MAX
                && task.since_ms.checked_add(1).is_some();
            check(is_known, "tasks")?;
            let is_held = task.stage.is_held() && task.worker != NONE;
            check(!is_held || self.workers.contains(task.worker), "tasks")?;
        }
        for (key, group) in &self.groups {
            let limit = self.tenants.get(key.0 as usize).and_then(|tenant| tenant.limits.get(key.1 as usize));
            let rate = limit.and_then(|limit| limit.rate);
            check(rate.is_some_and(|rate| group.bucket.is_valid_for(&rate, self.now_ms)), "rates")?;
        }
        for (&worker, &task) in &self.reserved {
            let is_ready = self.tasks.find(task).is_some_and(|at| self.tasks[at].stage == TaskStage::Ready);
            check(is_ready && self.workers.contains(worker), "reservations")?;
        }
        for (&worker, ahead) in &self.ahead {
            let is_consistent = self.workers.contains(worker)
                && (ahead.ahead_max > 0 || ahead.held > 0)
                && (ahead.held == 0 || self.workers[worker].credit == 0)
                && !self.workers[worker].is_draining;
            check(is_consistent, "workers")?;
        }
        for (worker, id) in self.enlisted.iter() {
            let is_consistent = self.workers.contains(worker)
                && (shard_of_id(id) != self.shard || self.workers.id(worker) == id);
            check(is_consistent, "workers of other shards")?;
        }
        let enlisted = if self.shard == 0 { 0 } else { self.workers.len() };
        check(self.enlisted.len() == enlisted, "workers of other shards")?;
        let schedules = self.schedules.iter_from(0);
        check(schedules.into_iter().all(|(_, found)| is(found.tenant, tenants)), "schedules")
    }

    /// Checks that each task is in the list that its stage requires, exactly once.
    pub(super) fn check_lists(&self) -> Result<(), TaskDecodeError> {
        let mut seen = vec![false; self.tasks.slots_len() as usize];
        let lanes = self.lanes.iter().enumerate();
        for (at, lane) in lanes {
            for (priority, level) in lane.levels.iter().enumerate() {
                let fits = |task: &Task| {
                    task.stage == TaskStage::Ready
                        && task.lane as usize == at
                        && usize::from(task.priority) == priority
                };
                self.check_list(level, &mut seen, fits)?;
            }
            check(
                lane.levels.iter().map(|level| u64::from(level.len)).sum::<u64>() == u64::from(lane.len),
                "lanes",
            )?;
        }
        for (at, worker) in self.workers.iter_from(0) {
            self.check_list(&worker.held, &mut seen, |task| task.stage.is_held() && task.worker == at)?;
        }
        for (at, tenant) in self.tenants.iter().enumerate() {
            let fits = |task: &Task| task.stage == TaskStage::Dead && task.tenant as usize == at;
            self.check_list(&tenant.dead, &mut seen, fits)?;
        }
        let fits = |task: &Task| matches!(task.stage, TaskStage::Completed | TaskStage::Cancelled);
        self.check_list(&self.finished, &mut seen, fits)?;
        let is_listed = |task: &Task| match task.stage {
            TaskStage::Running => task.worker != NONE,
            stage => stage >= TaskStage::Ready,
        };
        let all = self.tasks.iter_from(0);
        check(all.into_iter().all(|(at, task)| seen[at as usize] == is_listed(task)), "lists")
    }

    fn check_list(
        &self,
        list: &TaskList,
        seen: &mut [bool],
        fits: impl Fn(&Task) -> bool,
    ) -> Result<(), TaskDecodeError> {
        let (mut at, mut prev, mut len) = (list.head, NONE, 0);
        while at != NONE {
            let is_new = self.tasks.contains(at) && !std::mem::replace(&mut seen[at as usize], true);
            check(is_new && self.tasks[at].prev == prev && fits(&self.tasks[at]), "lists")?;
            (prev, at, len) = (at, self.tasks[at].next, len + 1);
        }
        check((list.tail, list.len) == (prev, len), "lists")
    }
}
