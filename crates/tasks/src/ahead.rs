//! Manages tasks ahead. A task ahead is a task that a worker holds before it has a free slot for the task.
//!
//! A worker that receives its next task only after it has reported the previous task is idle for a round trip and a
//! write to disk. With a task ahead, the worker continues immediately. But a task ahead waits for its worker even if
//! another worker becomes free sooner. A worker therefore receives a task ahead only if the task probably does not wait
//! longer because of this. The scheduler assumes so if more tasks are ready than there are workers that serve them.
//!
//! If fewer tasks are ready, only a worker that is about to finish receives a task ahead. The worker that is predicted
//! to finish next would receive this task in any case. Predictions use the recent cost of a lane's tasks. They are made
//! only for workers whose last tasks took as long as predicted. If a worker has not reported by the predicted end plus
//! the time that a report takes to arrive, the scheduler no longer relies on the prediction.
//!
//! Invariants:
//! - A worker holds a task ahead under a token, as it holds any other task. A worker's credit is the number of further
//!   tasks that it can run. A task ahead takes no credit when the worker receives it. Credit from the worker's later
//!   reports is used first for its tasks ahead.
//! - Idle workers come first. A worker receives tasks ahead when it reports, or when it is about to finish
//!   and no worker is idle.

use crate::effects::TaskEffects;
use crate::error::{Limit, TaskRefusal};
use crate::finish::AttemptCost;
use crate::layout::layout;
use crate::reply::CommandReply;
use crate::state::SchedulerState;

/// How long before the predicted end of a worker's task the worker may receive its next task, ms. On a busy machine, it
/// takes about this time until the order to the worker is on disk and has arrived.
const SOON_MS: u64 = 4;
/// How long after the predicted end of a task the worker's report may still be on its way, ms.
const LATE_MS: u64 = 8;
/// The end of a worker's task is predicted only if the error of the worker's recent predictions was at most 1 ÷
/// `STEADY_SHARE` of the predicted time.
const STEADY_SHARE: u32 = 8;
/// A search for a worker that is about to finish checks at most this many workers.
const CHECKED_MAX: usize = 32;

layout! {
    /// How many tasks a worker may hold ahead and how many it holds ahead at present, and when its running task is
    /// predicted to end.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct WorkerPrefetch {
        /// Maximum number of tasks ahead.
        pub ahead_max: u32,
        /// Number of tasks ahead at present.
        pub held: u32,
        /// Predicted end of the running task; 0 if there is none.
        pub predicted_end_ms: u64,
        /// Recent prediction error, µs, at least 1; 0 before the first prediction.
        pub error_us: u32,
    }
}

impl WorkerPrefetch {
    fn is_used(&self) -> bool {
        self.ahead_max > 0 || self.held > 0
    }

    /// The worker's key in the order of the workers that may receive a task shortly before they finish. `None` if the
    /// worker is not one of these workers.
    pub(crate) fn soon_key(&self) -> Option<u64> {
        (self.predicted_end_ms > 0 && self.held < self.ahead_max).then_some(self.predicted_end_ms)
    }
}

impl SchedulerState {
    /// Sets a worker's number of slots and its maximum number of tasks ahead. The previous values of both numbers have
    /// no effect.
    pub(crate) fn set_slots(
        &mut self,
        id: u64,
        slots: u32,
        ahead_max: u32,
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let at = self.find_worker(id)?;
        let count = u64::from(slots) + u64::from(ahead_max);
        Limit::Credit.check(count, u64::from(self.limits.credit_max))?;
        if self.workers[at].is_draining {
            return Ok(CommandReply::Done);
        }
        let held = self.workers[at].held.len;
        let known = self.ahead.get(&at).copied().unwrap_or_default();
        self.set_ahead(at, WorkerPrefetch { ahead_max, held: held.saturating_sub(slots), ..known });
        self.clear_credit(at);
        self.add_credit_and_assign(at, slots.saturating_sub(held), effects);
        Ok(CommandReply::Done)
    }

    /// Assigns tasks ahead to a worker that has just sent a report.
    pub(crate) fn fill_ahead(&mut self, worker: u32, effects: &mut TaskEffects) {
        while let Some(&ahead) = self.ahead.get(&worker)
            && ahead.held < ahead.ahead_max
            && self.workers[worker].credit == 0
            && !self.workers[worker].is_draining
            && self.has_surplus_tasks(worker)
            && self.assign_next(worker, effects)
        {}
    }

    /// Whether more tasks are ready for the worker's pool than the pool has workers, however many slots these workers
    /// have.
    fn has_surplus_tasks(&self, worker: u32) -> bool {
        let pool = &self.pools[self.workers[worker].pool as usize];
        let mut ready = 0;
        pool.classes.iter().any(|&class| {
            ready += self.ready_for(&pool.serves, class);
            ready > pool.workers
        })
    }

    /// Assigns ready tasks to workers that are about to finish. This method is called only when no worker with credit
    /// can start these tasks.
    pub(crate) fn assign_to_ending_workers(&mut self, effects: &mut TaskEffects) {
        for pool in 0..self.pools.len() {
            while self.has_startable_task(pool)
                && let Some(worker) = self.worker_ending_soon(pool)
                && self.assign_next(worker, effects)
            {}
        }
    }

    fn has_startable_task(&self, pool: usize) -> bool {
        let pool = &self.pools[pool];
        !pool.soon.is_empty()
            && pool.classes.iter().any(|class| self.first_lane(&pool.serves, *class).is_some())
    }

    /// Finds the worker of a pool that is predicted to finish next. Returns `None` unless this worker will finish so
    /// soon that it may receive its next task now.
    fn worker_ending_soon(&self, pool: usize) -> Option<u32> {
        let pool = &self.pools[pool];
        let (from_ms, to_ms) = (self.now_ms.saturating_sub(LATE_MS), self.now_ms.saturating_add(SOON_MS));
        let soon = pool.soon.range((from_ms, 0)..=(to_ms, u32::MAX)).take(CHECKED_MAX);
        soon.map(|(_, worker)| *worker).find(|worker| self.is_predictable(*worker))
    }

    /// Whether a worker runs a single task, takes no further task to run now, and had accurate predictions recently.
    fn is_predictable(&self, worker_at: u32) -> bool {
        let (worker, ahead) =
            (&self.workers[worker_at], self.ahead.get(&worker_at).copied().unwrap_or_default());
        let runs_one_task =
            worker.held.len.checked_sub(ahead.held) == Some(1) && worker.credit == 0 && !worker.is_draining;
        runs_one_task
            && ahead.error_us > 0
            && ahead.error_us <= self.tasks[worker.held.head].charged_us / STEADY_SHARE
    }

    /// Counts a task that was given ahead.
    pub(crate) fn count_task_ahead(&mut self, worker: u32) {
        let ahead = self.ahead.get(&worker).copied().unwrap_or_default();
        self.set_ahead(worker, WorkerPrefetch { held: ahead.held + 1, ..ahead });
    }

    /// Uses `credit` for the worker's tasks ahead first; returns the remaining credit.
    pub(crate) fn use_credit_for_ahead(&mut self, worker: u32, credit: u32) -> u32 {
        let Some(&ahead) = self.ahead.get(&worker) else { return credit };
        let used = ahead.held.min(credit);
        self.set_ahead(worker, WorkerPrefetch { held: ahead.held - used, ..ahead });
        credit - used
    }

    /// Predicts the end of the task that a worker runs. This is the first of the tasks that the worker holds. If the
    /// worker holds no task, sets the predicted end to 0.
    pub(crate) fn predict_end(&mut self, worker_at: u32) {
        let Some(&ahead) = self.ahead.get(&worker_at) else { return };
        let held = self.workers[worker_at].held;
        let predicted_end_ms = match held.len {
            0 => 0,
            _ => self.now_ms.saturating_add(u64::from(self.tasks[held.head].charged_us).div_ceil(1_000)),
        };
        self.set_ahead(worker_at, WorkerPrefetch { predicted_end_ms, ..ahead });
    }

    /// Updates the prediction error after an attempt whose predicted cost was `charged_us`, and predicts the end of the
    /// worker's next task.
    pub(crate) fn record_prediction_error(&mut self, worker_at: u32, charged_us: u32, spent: AttemptCost) {
        let Some(&ahead) = self.ahead.get(&worker_at) else { return };
        let error_us = u32::try_from(spent.cost_us()).unwrap_or(u32::MAX).abs_diff(charged_us);
        let error_us = match ahead.error_us {
            0 => error_us,
            before_us => before_us.midpoint(error_us),
        };
        self.set_ahead(worker_at, WorkerPrefetch { error_us: error_us.max(1), ..ahead });
        self.predict_end(worker_at);
    }

    /// Ends the worker's use of tasks ahead.
    pub(crate) fn remove_ahead(&mut self, worker: u32) {
        self.set_ahead(worker, WorkerPrefetch::default());
    }

    fn set_ahead(&mut self, worker: u32, ahead: WorkerPrefetch) {
        let before = match ahead.is_used() {
            true => self.ahead.insert(worker, ahead),
            false => self.ahead.remove(&worker),
        };
        let (before, after) = (before.and_then(|before| before.soon_key()), ahead.soon_key());
        if before != after {
            let pool = &mut self.pools[self.workers[worker].pool as usize].soon;
            before.map(|predicted_end_ms| pool.remove(&(predicted_end_ms, worker)));
            after.map(|predicted_end_ms| pool.insert((predicted_end_ms, worker)));
        }
    }
}
