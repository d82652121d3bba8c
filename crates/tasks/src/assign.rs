//! Assigns ready tasks to workers that can take further tasks.

use std::ops::Bound;

use crate::effects::{TaskEffects, TaskEventKind, TaskStart, WorkerOrder};
use crate::lane::LaneRank;
use crate::state::SchedulerState;
use crate::task::{TaskList, TaskStage};

/// Maximum number of lanes, or of idle workers, that are skipped because a task needs more resources than a worker has
/// left.
const SKIPPED_MAX: usize = 32;
/// Assumed cost of a task in a lane without history, µs.
const COST_US_FIRST: u32 = 1_000;

/// A task that may be next: its rank, its lane, and its index. The rank consists of the lane's tier, the lane's tag,
/// and the task's rank within the lane. The task with the lowest rank is next.
type Candidate = ((u8, u64, i64), u32, u32);

impl SchedulerState {
    /// Assigns tasks of all classes that have new ready tasks.
    pub(crate) fn dispatch(&mut self, effects: &mut TaskEffects) {
        let has_ready_tasks = !self.dirty.is_empty();
        while let Some(class) = self.dirty.pop() {
            for at in 0..self.classes[class as usize].pools.len() {
                let pool = self.classes[class as usize].pools[at];
                self.serve(class, pool, effects);
            }
        }
        if has_ready_tasks {
            self.assign_to_ending_workers(effects);
        }
    }

    /// Assigns tasks of a class to idle workers of a pool. Tasks of other classes come first if the pool serves them
    /// and their rank is lower.
    fn serve(&mut self, class: u32, pool: u32, effects: &mut TaskEffects) {
        let mut skipped = None;
        let serves = self.pools[pool as usize].serves.clone();
        for _ in 0..SKIPPED_MAX {
            loop {
                if self.first_lane(&serves, class).is_none() {
                    return;
                }
                let from = skipped.map_or(Bound::Unbounded, Bound::Excluded);
                let idle = &self.pools[pool as usize].idle;
                let next = match skipped {
                    None => idle.get_min(),
                    Some(_) => idle.range((from, Bound::Unbounded)).next(),
                };
                let Some(&next) = next else { return };
                if !self.assign(next.1, effects) {
                    skipped = Some(next);
                    break;
                }
            }
        }
    }

    /// Assigns a worker as many tasks as it accepts.
    pub(crate) fn fill(&mut self, worker: u32, effects: &mut TaskEffects) {
        while self.assign(worker, effects) {}
        self.fill_ahead(worker, effects);
        self.update_idle(worker);
    }

    /// Assigns a worker its next task, if there is one and the worker accepts more tasks. Returns whether a task was
    /// assigned.
    fn assign(&mut self, worker: u32, effects: &mut TaskEffects) -> bool {
        self.workers[worker].accepts_tasks() && self.assign_next(worker, effects)
    }

    /// Assigns a worker its next task, even if the worker has no credit. Returns whether a task was assigned.
    pub(crate) fn assign_next(&mut self, worker: u32, effects: &mut TaskEffects) -> bool {
        while let Some((lane, at)) = self.choose_task(worker) {
            let (tenant_at, need, now_ms) = (self.tasks[at].tenant, self.tasks[at].need(), self.now_ms);
            let tenant = self.tenant(tenant_at);
            for (used, quota) in tenant.used.iter_mut().zip(&tenant.quotas) {
                used.settle(quota, now_ms);
            }
            if tenant.tier(&need).is_some() {
                self.start(at, lane, worker, effects);
                return true;
            }
            self.rank_lane(lane); // The tenant's burst has just ended.
        }
        false
    }

    /// Finds the task that a worker should run next. Returns the lane and the task: `(lane, task)`. Returns `None` if
    /// no ready task fits the worker.
    fn choose_task(&mut self, worker: u32) -> Option<(u32, u32)> {
        if let Some(reserved_task) = self.reservation_of(worker) {
            return reserved_task;
        }
        let pool = &self.pools[self.workers[worker].pool as usize];
        let (classes, serves) = (pool.classes.clone(), pool.serves.clone());
        let mut best: Option<Candidate> = None;
        for &class in classes.iter() {
            let Some(first) = self.first_lane(&serves, class) else { continue };
            let fits = self.first_fitting_task(worker, first);
            if fits.is_none() && self.reserve(worker, first.1) {
                return None;
            }
            let found = fits.or_else(|| {
                let following = self.lanes_after_first(&serves, class, SKIPPED_MAX);
                following.into_iter().find_map(|next| self.first_fitting_task(worker, next))
            });
            if let Some(found) = found
                && best.is_none_or(|(best, ..)| found.0 < best)
            {
                best = Some(found);
            }
        }
        best.map(|(_, lane, at)| (lane, at))
    }

    /// The first task of a lane, as a candidate. `None` if the worker has no room for this task, or if the capacity
    /// that the task needs is reserved for other tenants.
    fn first_fitting_task(
        &mut self,
        worker: u32,
        (lane_rank, lane_at): (LaneRank, u32),
    ) -> Option<Candidate> {
        let lane = &self.lanes[lane_at as usize];
        let (rank, at) = lane.first(&self.tasks, self.limits.ageing_ms)?;
        let need = self.tasks[at].need();
        if lane_rank.tier > 0 && self.unused_reserve != [0; 3] && !self.is_spare(lane.tenant, &need) {
            self.is_held_back = true;
            return None;
        }
        self.workers[worker].fits(&need).then_some(((lane_rank.tier, lane_rank.tag, rank), lane_at, at))
    }

    fn start(&mut self, at: u32, lane_at: u32, worker_at: u32, effects: &mut TaskEffects) {
        self.remove_from_lane(at);
        self.spend_tokens(at);
        self.token += 1;
        let now_ms = self.now_ms;
        let cost_us = match self.lanes[lane_at as usize].cost_us {
            0 => COST_US_FIRST,
            cost_us => cost_us,
        };
        let task = &mut self.tasks[at];
        (task.stage, task.worker, task.token) = (TaskStage::Running, worker_at, self.token);
        (task.started_ms, task.charged_us) = (now_ms, cost_us);
        task.attempts = task.attempts.saturating_add(1);
        let is_first = task.attempts == 1 && task.lost == 0;
        let due_ms = now_ms.saturating_add(u64::from(task.timeout_ms)).min(task.deadline_ms);
        let (tenant_at, need) = (task.tenant, task.need());
        self.set_due(at, due_ms);
        self.add_use(tenant_at, &need);
        let tenant = self.tenant(tenant_at);
        let tag = tenant.tag;
        tenant.tag = tag.saturating_add(tenant.share(u64::from(cost_us)));
        tenant.queued -= 1;
        tenant.account.started += 1;
        tenant.start_rate.count(now_ms);
        if is_first {
            tenant.add_retry_budget();
        }
        self.rank_lanes(tenant_at);
        self.advance_virtual_time(tag);
        self.add_held_task(at, worker_at);
        let (worker, token) = (self.worker_id(worker_at), self.token);
        effects.orders.push(WorkerOrder::Start(self.task_start(at)));
        self.record_event(at, TaskEventKind::Started { worker, token }, effects);
    }

    /// The start of a task, as its worker received it.
    pub(crate) fn task_start(&self, at: u32) -> TaskStart {
        let task = &self.tasks[at];
        TaskStart {
            worker: self.worker_id(task.worker),
            task: self.tasks.id(at),
            token: task.token,
            tenant: self.tenants[task.tenant as usize].name.clone(),
            kind: self.names.get(self.classes[self.lanes[task.lane as usize].class as usize].kind).clone(),
            payload: task.payload.clone(),
            attempt: u32::from(task.attempts),
            timeout_ms: task.timeout_ms,
        }
    }

    /// Adds `need` to a tenant's resource use. Call `ResourceUse::settle` first, because the saved burst depends on the use
    /// until now.
    fn add_use(&mut self, tenant: u32, need: &[u64; 3]) {
        let tenant = self.tenant(tenant);
        let before = tenant.unused_reserve();
        for (used, need) in tenant.used.iter_mut().zip(need) {
            used.now += need;
        }
        let after = tenant.unused_reserve();
        for at in 0..3 {
            self.unused_reserve[at] -= before[at] - after[at];
        }
    }

    fn add_held_task(&mut self, at: u32, worker_at: u32) {
        let need = self.tasks[at].need();
        if self.workers[worker_at].credit == 0 {
            self.count_task_ahead(worker_at);
        } else {
            self.remove_credit(worker_at, 1);
        }
        let worker = &mut self.workers[worker_at];
        for part in 0..2 {
            worker.used[part] += need[part + 1];
            if worker.capacity[part] > 0 {
                self.free[part + 1] -= need[part + 1];
            }
        }
        let mut held: TaskList = worker.held;
        held.push_back(&mut self.tasks, at);
        self.workers[worker_at].held = held;
        if held.len == 1 {
            self.predict_end(worker_at);
        }
        self.update_idle(worker_at);
    }

    /// Updates a worker's position among the idle workers of its pool.
    pub(crate) fn update_idle(&mut self, at: u32) {
        let worker = &mut self.workers[at];
        let idle = worker.accepts_tasks().then_some(worker.held.len);
        if idle == worker.idle {
            return;
        }
        let before = std::mem::replace(&mut worker.idle, idle);
        let pool = &mut self.pools[worker.pool as usize].idle;
        if let Some(before) = before {
            pool.remove(&(before, at));
        }
        if let Some(idle) = idle {
            pool.insert((idle, at));
        }
    }
}
