//! Reserves a worker for a task that needs much capacity.
//!
//! The scheduler skips a task that fits no worker at present, so that smaller tasks can start. With a steady stream of
//! small tasks, a large task would wait for ever. When a task has waited for `reserve_ms`, the scheduler therefore
//! reserves the first worker that is large enough for it. This worker takes no other task until the large task fits.
//! All other workers continue as usual. Reservations work as in EASY backfilling (Lifka 1995), but without estimates of
//! run times.
//!
//! Invariants: a reserved worker takes no other task. A reservation lasts at most until the tasks that the worker runs
//! at present are done. A task has at most one reserved worker. At most a quarter of all workers are reserved, and at
//! most `RESERVED_MAX`; one worker may always be reserved.

use crate::state::SchedulerState;
use crate::task::TaskStage;

/// Maximum number of reserved workers. It must be lower than the number of idle workers that a dispatch may skip.
const RESERVED_MAX: usize = 16;

impl SchedulerState {
    /// Returns `None` if the worker is not reserved. Returns `Some(None)` if the worker is reserved for a task that
    /// does not fit yet. If this task fits, returns the task's lane and the task. If the task cannot be next any more,
    /// ends the reservation.
    pub(crate) fn reservation_of(&mut self, worker: u32) -> Option<Option<(u32, u32)>> {
        let id = *self.reserved.get(&worker)?;
        let task = self.tasks.find(id).filter(|&at| self.tasks[at].stage == TaskStage::Ready);
        let next = task.filter(|&at| {
            let lane = &self.lanes[self.tasks[at].lane as usize];
            let is_first =
                lane.first(&self.tasks, self.limits.ageing_ms).is_some_and(|(_, first)| first == at);
            // Ends the reservation if quotas do not allow the task's tenant to run the task now, or if the capacity is
            // reserved for other tenants.
            let tier = lane.rank.map(|rank| rank.tier);
            is_first
                && tier.is_some_and(|tier| tier == 0 || self.is_spare(lane.tenant, &self.tasks[at].need()))
        });
        let Some(at) = next else {
            self.reserved.remove(&worker);
            return None;
        };
        let fits = self.workers[worker].fits(&self.tasks[at].need());
        Some(fits.then_some((self.tasks[at].lane, at)))
    }

    /// Reserves a worker for the first task of a lane, if the task has waited long enough and does not fit now. Returns
    /// whether the worker was reserved.
    pub(crate) fn reserve(&mut self, worker: u32, lane_at: u32) -> bool {
        let Some((_, at)) = self.lanes[lane_at as usize].first(&self.tasks, self.limits.ageing_ms) else {
            return false;
        };
        let (task, found) = (&self.tasks[at], &self.workers[worker]);
        let need = task.need();
        let has_waited = self.now_ms.saturating_sub(task.since_ms) >= u64::from(self.limits.reserve_ms);
        let most = (self.workers.len() as usize / 4).clamp(1, RESERVED_MAX);
        let id = self.tasks.id(at);
        let is_allowed = has_waited
            && found.is_as_large(&need)
            && !found.fits(&need)
            && self.reserved.len() < most
            && !self.reserved.values().any(|reserved_task| *reserved_task == id);
        if is_allowed {
            self.reserved.insert(worker, id);
        }
        is_allowed
    }

    /// Ends the reservation for a task that has stopped waiting.
    pub(crate) fn unreserve(&mut self, at: u32) {
        if self.reserved.is_empty() {
            return;
        }
        let id = self.tasks.id(at);
        let worker =
            self.reserved.iter().find(|(_, reserved_task)| **reserved_task == id).map(|(worker, _)| *worker);
        if let Some(worker) = worker {
            self.reserved.remove(&worker);
            let pool = self.workers[worker].pool;
            self.dirty.extend(self.pools[pool as usize].classes.iter());
        }
    }
}
