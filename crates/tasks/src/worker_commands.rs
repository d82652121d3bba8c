//! Applies workers' commands: join, renew, pull, progress and leave.

use std::sync::Arc;

use crate::command::{AttemptReport, NewWorker};
use crate::effects::{TaskEffects, TaskEventKind, WorkerOrder};
use crate::error::{Limit, TaskRefusal};
use crate::lane::needs_of;
use crate::reply::CommandReply;
use crate::state::{SchedulerState, WORKER};
use crate::task::{TaskList, TaskStage};
use crate::worker::{ServedSet, Worker, WorkerPool};

/// The most memory of a worker that is counted, bytes. A million workers together then have less than 2^63 bytes.
const MEMORY_BYTES_MAX: u64 = 1 << 43;
/// Limits the pools whose workers serve a tenant by name: for each tenant, there are at most `pools_max` divided by
/// this number.
const POOLS_SHARE: u32 = 4;

impl SchedulerState {
    pub(crate) fn join(&mut self, new: &NewWorker<'_>) -> Result<CommandReply, TaskRefusal> {
        self.check_join(new)?;
        let at = self.add_worker(new);
        Ok(CommandReply::Joined { worker: self.worker_id(at) })
    }

    /// Adds a worker, after all checks; returns the worker's index.
    pub(crate) fn add_worker(&mut self, new: &NewWorker<'_>) -> u32 {
        let serves = ServedSet {
            kinds: new.kinds.iter().map(|kind| self.names.insert(kind)).collect(),
            queues: new.queues.iter().map(|queue| self.names.insert(queue)).collect(),
            labels: needs_of(&new.labels).iter().cloned().collect(),
            tenants: new.tenants.iter().map(|tenant| Arc::from(*tenant)).collect(),
        };
        let pool = self.pool_for(serves);
        let worker = Worker {
            name: new.name.into(),
            pool,
            credit: 0,
            ttl_ms: new.ttl_ms,
            end_ms: self.now_ms.saturating_add(new.ttl_ms),
            joined_ms: self.now_ms,
            idle_ms: self.now_ms,
            is_draining: false,
            held: TaskList::default(),
            capacity: [u64::from(new.cpu_milli), new.memory_bytes.min(MEMORY_BYTES_MAX)],
            used: [0; 2],
            idle: None,
            done: 0,
        };
        (0..2).for_each(|part| self.free[part + 1] += worker.capacity[part]);
        let end_ms = worker.end_ms;
        let at = self.workers.insert(worker);
        self.timers.insert((end_ms, WORKER, at));
        let capacity = self.workers[at].capacity;
        let has_substitute = self.has_substitute_worker(pool, &capacity);
        self.pools[pool as usize].add_worker(capacity);
        if !has_substitute {
            self.recheck_served_groups();
        }
        self.add_credit(at, new.credit);
        let classes = self.pools[pool as usize].classes.clone();
        self.dirty.extend(classes.iter());
        at
    }

    pub(crate) fn check_join(&self, new: &NewWorker<'_>) -> Result<(), TaskRefusal> {
        self.check_length(new.name)?;
        if new.kinds.is_empty() {
            return Err(TaskRefusal::NoKinds);
        }
        let labels_max = u64::from(self.limits.labels_max);
        let most = new.kinds.len().max(new.queues.len()).max(new.labels.len()).max(new.tenants.len());
        Limit::Labels.check(most as u64, labels_max)?;
        new.kinds.iter().chain(&new.queues).chain(&new.tenants).try_for_each(|name| self.check_name(name))?;
        self.check_labels(&new.labels)?;
        let ttl_ms_max = self.limits.worker_ttl_ms_max;
        if !(1..=ttl_ms_max).contains(&new.ttl_ms) {
            return Err(TaskRefusal::WorkerTtl { ttl_ms_max });
        }
        Limit::Credit.check(u64::from(new.credit), u64::from(self.limits.credit_max))?;
        Limit::Workers.check(u64::from(self.workers.len()) + 1, u64::from(self.limits.workers_max))?;
        // If one of the names is unknown, no existing pool serves it, and a new pool is needed.
        let numbers = |names: &[&[u8]]| names.iter().map(|name| self.names.find(name)).collect::<Option<_>>();
        let labels = needs_of(&new.labels).iter().cloned().collect();
        let tenants = new.tenants.iter().map(|tenant| Arc::from(*tenant)).collect();
        let known = numbers(&new.kinds).zip(numbers(&new.queues)).is_some_and(|(kinds, queues)| {
            self.pool_at.contains_key(&ServedSet { kinds, queues, labels, tenants })
        });
        if known {
            return Ok(());
        }
        self.check_pools_of_tenants(new)?;
        if self.unused_pool().is_some() {
            return Ok(());
        }
        Limit::Pools.check(self.pools.len() as u64 + 1, u64::from(self.limits.pools_max))
    }

    /// Checks the limit of pools for each tenant that the new worker names.
    fn check_pools_of_tenants(&self, new: &NewWorker<'_>) -> Result<(), TaskRefusal> {
        let count_max = u64::from(self.limits.pools_max.div_ceil(POOLS_SHARE));
        new.tenants.iter().try_for_each(|tenant| {
            let accepts_tenant =
                |pool: &&WorkerPool| pool.workers > 0 && pool.serves.tenants.contains(*tenant);
            Limit::PoolsOfTenant.check(self.pools.iter().filter(accepts_tenant).count() as u64 + 1, count_max)
        })
    }

    /// A pool that has no workers and can be replaced by a new pool, if the number of pools is at the limit.
    fn unused_pool(&self) -> Option<u32> {
        let is_full = self.pools.len() >= self.limits.pools_max as usize;
        is_full.then(|| self.pools.iter().position(|pool| pool.workers == 0).map(|at| at as u32)).flatten()
    }

    fn pool_for(&mut self, serves: ServedSet) -> u32 {
        if let Some(&pool) = self.pool_at.get(&serves) {
            return pool;
        }
        serves.kinds.iter().chain(&serves.queues).for_each(|name| self.names.add_use(*name));
        let at = self.free_pool_number();
        let serves = Arc::new(serves);
        self.pool_at.insert(serves.clone(), at);
        let mut pool = WorkerPool::new(serves);
        let mut classes = Vec::new();
        for (class_at, class) in self.classes.iter_mut().enumerate() {
            if pool.serves.can_run(class) {
                class.add_pool(at, &pool.serves);
                classes.push(class_at as u32);
            }
        }
        pool.classes = classes.into();
        self.pools[at as usize] = pool;
        at
    }

    fn free_pool_number(&mut self) -> u32 {
        if let Some(at) = self.unused_pool() {
            let pool = &self.pools[at as usize];
            let (serves, classes) = (pool.serves.clone(), pool.classes.clone());
            self.pool_at.remove(&serves);
            serves.kinds.iter().chain(&serves.queues).for_each(|name| self.names.remove_use(*name));
            classes.iter().for_each(|&class| self.classes[class as usize].remove_pool(at));
            return at;
        }
        self.pools.push_back(WorkerPool::new(Arc::default()));
        self.pools.len() as u32 - 1
    }

    /// Adds credit, unless the worker drains.
    fn add_credit(&mut self, at: u32, credit: u32) {
        if self.workers[at].is_draining {
            return;
        }
        let credit = self.use_credit_for_ahead(at, credit);
        if credit == 0 {
            return;
        }
        let worker = &mut self.workers[at];
        worker.credit += credit;
        self.free[0] += u64::from(credit);
        self.pools[worker.pool as usize].credit += u64::from(credit);
        self.update_idle(at);
    }

    fn check_credit(&self, at: u32, credit: u32, returned: u32) -> Result<(), TaskRefusal> {
        let worker = &self.workers[at];
        let count = u64::from(worker.credit) + u64::from(worker.held.len - returned) + u64::from(credit);
        Limit::Credit.check(count, u64::from(self.limits.credit_max))
    }

    pub(crate) fn pull(
        &mut self,
        worker: u64,
        credit: u32,
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let at = self.find_worker(worker)?;
        self.check_credit(at, credit, 0)?;
        self.add_credit_and_assign(at, credit, effects);
        Ok(CommandReply::Done)
    }

    /// Adds credit to a worker and assigns tasks to the worker. If reserved capacity has kept a task from starting,
    /// tasks are also assigned anew in all classes with ready tasks.
    pub(crate) fn add_credit_and_assign(&mut self, at: u32, credit: u32, effects: &mut TaskEffects) {
        self.add_credit(at, credit);
        self.fill(at, effects);
        if std::mem::take(&mut self.is_held_back) {
            let classes = self.classes.iter().enumerate();
            self.dirty
                .extend(classes.filter(|(_, class)| !class.ranked_lanes.is_empty()).map(|(at, _)| at as u32));
        }
    }

    pub(crate) fn renew_leases(&mut self, workers: &[u64]) -> Result<CommandReply, TaskRefusal> {
        self.check_batch(workers.len())?;
        let mut gone = Vec::new();
        for &id in workers {
            match self.find_worker(id) {
                Ok(at) => self.renew(at),
                Err(_) => gone.push(id),
            }
        }
        Ok(CommandReply::Renewed { gone })
    }

    /// Renews a worker's lease.
    pub(crate) fn renew(&mut self, at: u32) {
        let worker = &mut self.workers[at];
        self.timers.remove(&(worker.end_ms, WORKER, at));
        worker.end_ms = self.now_ms.saturating_add(worker.ttl_ms);
        self.timers.insert((worker.end_ms, WORKER, at));
    }

    /// Checks that this worker holds the task with this token. Returns two indexes: that of the worker and that of the
    /// task.
    pub(crate) fn check_held(&self, worker: u64, task: u64, token: u64) -> Result<(u32, u32), TaskRefusal> {
        let worker_at = self.find_worker(worker)?;
        let at = self.find_task(task)?;
        let found = &self.tasks[at];
        let was_given = token > 0 && token <= self.token;
        match found.token == token && was_given {
            true if found.worker != worker_at => Err(TaskRefusal::NotHeld { worker, task }),
            true if found.stage.is_held() => Ok((worker_at, at)),
            true if found.stage.is_over() => Err(TaskRefusal::Over { task }),
            _ if was_given => Err(TaskRefusal::StaleToken { task, token }),
            _ => Err(TaskRefusal::NotHeld { worker, task }),
        }
    }

    pub(crate) fn check_report(&self, report: &AttemptReport) -> Result<(u32, u32), TaskRefusal> {
        let (worker, at) = self.check_held(report.worker, report.task, report.token)?;
        self.check_credit(worker, report.credit, 1)?;
        Ok((worker, at))
    }

    pub(crate) fn progress(
        &mut self,
        worker: u64,
        task: u64,
        token: u64,
        (permille, note): (u16, &[u8]),
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let (_, at) = self.check_held(worker, task, token)?;
        let note = self.truncate_text(note);
        self.change_task(at, |task| {
            let extra = task.extra_mut();
            extra.permille = permille.min(1_000);
            extra.note = (!note.is_empty()).then(|| note.into());
        });
        self.record_event(at, TaskEventKind::Progressed { permille: permille.min(1_000) }, effects);
        Ok(CommandReply::Done)
    }

    pub(crate) fn extend(
        &mut self,
        worker: u64,
        task: u64,
        token: u64,
        timeout_ms: u32,
    ) -> Result<CommandReply, TaskRefusal> {
        let (_, at) = self.check_held(worker, task, token)?;
        if self.tasks[at].stage == TaskStage::Stopping {
            return Err(TaskRefusal::StaleToken { task, token });
        }
        let timeout_ms = if timeout_ms == 0 { self.tasks[at].timeout_ms } else { timeout_ms };
        let due_ms = self.now_ms.saturating_add(u64::from(timeout_ms)).min(self.tasks[at].deadline_ms);
        self.set_due(at, due_ms);
        Ok(CommandReply::Done)
    }

    pub(crate) fn drain(&mut self, id: u64, effects: &mut TaskEffects) -> Result<CommandReply, TaskRefusal> {
        let at = self.find_worker(id)?;
        self.remove_capacity(at);
        self.reserved.remove(&at);
        self.workers[at].is_draining = true;
        self.update_idle(at);
        self.report_drained(at, effects);
        Ok(CommandReply::Done)
    }

    /// Removes a worker's credit and free capacity, unless the worker is already draining.
    fn remove_capacity(&mut self, at: u32) {
        let worker = &mut self.workers[at];
        if worker.is_draining {
            return;
        }
        (0..2)
            .for_each(|part| self.free[part + 1] -= worker.capacity[part].saturating_sub(worker.used[part]));
        self.clear_credit(at);
        self.remove_ahead(at);
    }

    /// Removes all credit of a worker. Until the worker gets credit again, it does not count as idle.
    pub(crate) fn clear_credit(&mut self, at: u32) {
        self.remove_credit(at, self.workers[at].credit);
        self.update_idle(at);
    }

    /// Removes part of a worker's credit.
    pub(crate) fn remove_credit(&mut self, at: u32, credit: u32) {
        let worker = &mut self.workers[at];
        worker.credit -= credit;
        self.free[0] -= u64::from(credit);
        self.pools[worker.pool as usize].credit -= u64::from(credit);
    }

    pub(crate) fn report_drained(&self, at: u32, effects: &mut TaskEffects) {
        let worker = &self.workers[at];
        if worker.is_draining && worker.held.len == 0 {
            effects.orders.push(WorkerOrder::Drained { worker: self.worker_id(at) });
        }
    }

    pub(crate) fn leave(
        &mut self,
        worker: u64,
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let at = self.find_worker(worker)?;
        self.lose_worker(at, effects);
        Ok(CommandReply::Done)
    }

    /// Removes a worker. Each task of the worker goes to another worker. If too many workers have died while they ran a
    /// task, this task becomes a dead letter.
    pub(crate) fn lose_worker(&mut self, at: u32, effects: &mut TaskEffects) {
        self.remove_capacity(at);
        self.reserved.remove(&at);
        // The worker is marked as draining, so that its own tasks are not assigned to it again.
        self.workers[at].is_draining = true;
        self.update_idle(at);
        while self.workers[at].held.len > 0 {
            let task = self.workers[at].held.tail;
            self.lose_task(task, effects);
        }
        let worker = &self.workers[at];
        let (pool, capacity) = (worker.pool, worker.capacity);
        self.timers.remove(&(worker.end_ms, WORKER, at));
        self.pools[pool as usize].remove_worker(capacity);
        self.enlisted.remove(at);
        self.workers.remove(at);
        if !self.has_substitute_worker(pool, &capacity) {
            self.recheck_served_groups();
        }
    }
}
