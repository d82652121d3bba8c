//! Handles the end of an attempt. The end completes the task, leads to a retry, or makes the task a dead letter.

use std::sync::Arc;

use crate::command::AttemptReport;
use crate::effects::{AttemptFailure, TaskEffects, TaskEventKind, WorkerOrder};
use crate::error::TaskRefusal;
use crate::layout::shared;
use crate::reply::CommandReply;
use crate::slab::NONE;
use crate::state::SchedulerState;
use crate::task::{AttemptOutcome, NEVER_MS, TaskStage};

/// The resources that an attempt used. If the worker sent no report, only the elapsed time since the attempt's start is
/// known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AttemptCost {
    run_us: u64,
    cpu_us: u64,
    memory_bytes: u64,
}

impl AttemptCost {
    /// Charged time, µs: the longer of the run time and the processor time.
    pub(crate) fn cost_us(&self) -> u64 {
        self.run_us.max(self.cpu_us).max(1)
    }
}

impl SchedulerState {
    pub(crate) fn complete(
        &mut self,
        report: &AttemptReport,
        result: &[u8],
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let (bytes, bytes_max) = (result.len() as u64, u64::from(self.limits.result_bytes_max));
        if bytes > bytes_max {
            return Err(TaskRefusal::ResultTooLong { bytes, bytes_max });
        }
        let (worker, at) = match self.check_report(report) {
            // The report is repeated, because the reply to the first report of this attempt was lost.
            Err(TaskRefusal::Over { .. }) if self.is_completed(report.task) => return Ok(CommandReply::Done),
            checked => checked?,
        };
        let spent = self.spent(at, report);
        self.release(at, spent, false, effects);
        self.workers[worker].done += 1;
        self.succeed(at, spent, result, effects);
        self.add_credit_and_assign(worker, report.credit, effects);
        Ok(CommandReply::Done)
    }

    /// Completes tasks whose payload was published. Ignores tasks that are unknown or have ended.
    pub(crate) fn published(
        &mut self,
        tasks: &[u64],
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        self.check_batch(tasks.len())?;
        for &id in tasks {
            let Some(at) = self.tasks.find(id) else { continue };
            let task = &self.tasks[at];
            if task.stage == TaskStage::Running && task.worker == NONE {
                self.set_due(at, NEVER_MS);
                self.succeed(at, AttemptCost::default(), b"", effects);
            }
        }
        Ok(CommandReply::Done)
    }

    /// Makes a task that is not allowed to publish its payload a dead letter. Ignores a task that is unknown or has
    /// ended.
    pub(crate) fn unpublished(
        &mut self,
        task: u64,
        error: &[u8],
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let Some(at) = self.tasks.find(task) else { return Ok(CommandReply::Done) };
        let found = &self.tasks[at];
        if found.stage == TaskStage::Running && found.worker == NONE {
            self.set_due(at, NEVER_MS);
            self.fail_attempt(
                at,
                AttemptFailure::Failed,
                false,
                AttemptCost::default(),
                self.truncate_text(error),
                effects,
            );
        }
        Ok(CommandReply::Done)
    }

    fn is_completed(&self, task: u64) -> bool {
        self.tasks.find(task).is_some_and(|at| self.tasks[at].stage == TaskStage::Completed)
    }

    /// Completes a task whose attempt succeeded.
    pub(crate) fn succeed(&mut self, at: u32, spent: AttemptCost, result: &[u8], effects: &mut TaskEffects) {
        let AttemptCost { run_us, cpu_us, .. } = spent;
        self.tenant_of(at).account.completed += 1;
        self.set_outcome(at, None, spent, result);
        self.record_event(at, TaskEventKind::Completed { cpu_us, run_us }, effects);
        self.end(at, TaskStage::Completed);
        self.release_dependent_tasks(at, effects);
        self.trim_finished();
    }

    pub(crate) fn fail(
        &mut self,
        report: &AttemptReport,
        error: &[u8],
        retry: bool,
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let (worker, at) = self.check_report(report)?;
        let spent = self.spent(at, report);
        let error = self.truncate_text(error);
        let is_stopping = self.tasks[at].stage == TaskStage::Stopping;
        self.release(at, spent, false, effects);
        if is_stopping {
            self.end_cancelled_with_dependents(at, effects);
        } else {
            self.fail_attempt(at, AttemptFailure::Failed, retry, spent, error, effects);
        }
        self.add_credit_and_assign(worker, report.credit, effects);
        Ok(CommandReply::Done)
    }

    /// Handles a failed attempt: schedules a retry, or makes the task a dead letter.
    fn fail_attempt(
        &mut self,
        at: u32,
        why: AttemptFailure,
        may_retry: bool,
        spent: AttemptCost,
        error: &[u8],
        effects: &mut TaskEffects,
    ) {
        self.set_outcome(at, Some(why), spent, error);
        self.tenant_of(at).account.failed += 1;
        let (id, now_ms) = (self.tasks.id(at), self.now_ms);
        let task = &self.tasks[at];
        let policy = self.policies.get(task.policy);
        let mut delay_ms = policy.delay_ms(id, u32::from(task.attempts), task.delay_ms);
        let (attempts, deadline_ms) = (task.attempts, task.deadline_ms);
        let fits = |delay_ms: u32| now_ms.saturating_add(u64::from(delay_ms)) < deadline_ms;
        if !may_retry || attempts > policy.retries || !fits(delay_ms) {
            return self.make_dead_letter(at, why, effects);
        }
        if !self.tenant_of(at).spend_retry() {
            delay_ms = policy.longest_ms();
        }
        let task = &mut self.tasks[at];
        (task.since_ms, task.delay_ms) = (now_ms + u64::from(delay_ms), delay_ms);
        task.stage = TaskStage::Delayed;
        self.tenant_of(at).queued += 1;
        self.record_event(at, TaskEventKind::Retrying { why, delay_ms }, effects);
        self.enqueue(at, effects);
    }

    /// Handles a task whose worker has ended. If the task was cancelled, it ends. Otherwise, it waits for another
    /// worker. If too many workers died while they ran this task, it becomes a dead letter.
    pub(crate) fn lose_task(&mut self, at: u32, effects: &mut TaskEffects) {
        let spent = self.spent_since_start(at);
        let poison_max = self.limits.poison_max;
        let task = &mut self.tasks[at];
        let is_stopping = task.stage == TaskStage::Stopping;
        task.lost = task.lost.saturating_add(1);
        task.attempts -= 1;
        let times = u32::from(task.lost);
        let is_poisoned = times >= poison_max;
        self.tenant_of(at).account.lost += 1;
        self.release(at, spent, !is_stopping && !is_poisoned, effects);
        if is_stopping {
            self.end_cancelled_with_dependents(at, effects);
        } else if is_poisoned {
            self.set_outcome(at, Some(AttemptFailure::Poisoned), spent, b"");
            self.make_dead_letter(at, AttemptFailure::Poisoned, effects);
        } else {
            self.record_event(at, TaskEventKind::Lost { times }, effects);
            self.tenant_of(at).queued += 1;
            self.requeue(at);
        }
    }

    /// Handles a task whose timer is due.
    pub(crate) fn fire_task_timer(&mut self, at: u32, effects: &mut TaskEffects) {
        let (stage, deadline_ms) = (self.tasks[at].stage, self.tasks[at].deadline_ms);
        let is_late = self.now_ms >= deadline_ms;
        self.set_due(at, NEVER_MS);
        match stage {
            TaskStage::Running if self.tasks[at].is_published() && is_late => {
                let spent = AttemptCost::default();
                self.fail_attempt(at, AttemptFailure::Deadline, false, spent, b"", effects);
            }
            TaskStage::Running if self.tasks[at].is_published() => self.publish_payload(at, effects),
            TaskStage::Running | TaskStage::Stopping => {
                // A task that waits for the resources of this task may now start.
                let pool = self.workers[self.tasks[at].worker].pool;
                self.dirty.extend(self.pools[pool as usize].classes.iter());
                self.time_out(at, is_late, effects);
            }
            TaskStage::Delayed if !is_late || self.tasks[at].since_ms < deadline_ms => {
                self.enqueue(at, effects)
            }
            _ => {
                self.withdraw(at);
                self.make_dead_letter(at, AttemptFailure::Deadline, effects);
            }
        }
    }

    fn time_out(&mut self, at: u32, is_late: bool, effects: &mut TaskEffects) {
        let (worker, token) = (self.tasks[at].worker, self.tasks[at].token);
        let (worker, task) = (self.worker_id(worker), self.tasks.id(at));
        let is_stopping = self.tasks[at].stage == TaskStage::Stopping;
        let spent = self.spent_since_start(at);
        self.release(at, spent, false, effects);
        if is_stopping {
            return self.end_cancelled_with_dependents(at, effects);
        }
        effects.orders.push(WorkerOrder::Stop { worker, task, token });
        let why = if is_late { AttemptFailure::Deadline } else { AttemptFailure::TimedOut };
        self.fail_attempt(at, why, !is_late, spent, b"", effects);
    }

    fn spent_since_start(&self, at: u32) -> AttemptCost {
        let run_us = (self.now_ms - self.tasks[at].started_ms).saturating_mul(1_000);
        AttemptCost { run_us, ..AttemptCost::default() }
    }

    /// The resources that the worker reported. The run time is limited to the time since the start plus 2 ms, because
    /// the clock counts whole ms. Without a reported run time, the time since the start counts.
    fn spent(&self, at: u32, report: &AttemptReport) -> AttemptCost {
        let most_us = self.spent_since_start(at).run_us.saturating_add(2_000);
        let run_us = if report.run_us == 0 { most_us - 2_000 } else { report.run_us.min(most_us) };
        AttemptCost { run_us, cpu_us: report.cpu_us.min(1 << 40), memory_bytes: report.memory_bytes }
    }

    fn set_outcome(&mut self, at: u32, failure: Option<AttemptFailure>, spent: AttemptCost, bytes: &[u8]) {
        let AttemptCost { run_us, cpu_us, memory_bytes } = spent;
        let outcome = AttemptOutcome {
            bytes: shared(bytes),
            failure,
            at_ms: self.now_ms,
            run_us,
            cpu_us,
            memory_bytes,
        };
        self.change_task(at, |task| task.outcome = Some(Arc::new(outcome)));
    }

    /// Takes a task from its worker. `keeps_places` must be set if the task starts again immediately. The task then
    /// keeps its places in groups (see module `group`).
    pub(crate) fn release(
        &mut self,
        at: u32,
        spent: AttemptCost,
        keeps_places: bool,
        effects: &mut TaskEffects,
    ) {
        self.set_due(at, NEVER_MS);
        self.settle_cost(at, spent);
        let need = self.tasks[at].need();
        let (worker_at, charged_us) = (self.tasks[at].worker, self.tasks[at].charged_us);
        let mut held = self.workers[worker_at].held;
        held.remove(&mut self.tasks, at);
        let worker = &mut self.workers[worker_at];
        worker.held = held;
        if held.len == 0 {
            worker.idle_ms = self.now_ms;
        }
        for part in 0..2 {
            worker.used[part] -= need[part + 1];
            if worker.capacity[part] > 0 && !worker.is_draining {
                self.free[part + 1] += need[part + 1];
            }
        }
        self.record_prediction_error(worker_at, charged_us, spent);
        self.update_idle(worker_at);
        self.report_drained(worker_at, effects);
        if !keeps_places {
            self.free_places(at);
        }
        let tenant = self.tasks[at].tenant;
        self.rank_lanes(tenant);
    }

    /// Reduces the tenant's use by the task's resources, and charges the tenant the real cost of the attempt.
    fn settle_cost(&mut self, at: u32, spent: AttemptCost) {
        let cost_us = spent.cost_us();
        let (need, now_ms) = (self.tasks[at].need(), self.now_ms);
        let charged_us = u64::from(self.tasks[at].charged_us);
        let lane = &mut self.lanes[self.tasks[at].lane as usize];
        let known = u64::from(lane.cost_us);
        let average = if known == 0 { cost_us } else { (7 * known + cost_us) / 8 };
        lane.cost_us = average.clamp(1, u64::from(u32::MAX)) as u32;
        let tenant_at = self.tasks[at].tenant;
        let tenant = self.tenant(tenant_at);
        let (charged, due) = (tenant.share(charged_us), tenant.share(cost_us));
        tenant.tag = tenant.tag.saturating_add(due).saturating_sub(charged);
        let before = tenant.unused_reserve();
        for ((used, quota), need) in tenant.used.iter_mut().zip(&tenant.quotas).zip(need) {
            used.settle(quota, now_ms);
            used.now -= need;
        }
        let after = tenant.unused_reserve();
        let account = &mut tenant.account;
        account.cpu_us += spent.cpu_us;
        account.run_us += spent.run_us;
        account.cost_us += cost_us;
        let memory_mb = spent.memory_bytes.max(need[2]) / 1_000_000;
        let memory_mb_ms = memory_mb.saturating_mul(spent.run_us / 1_000);
        account.memory_mb_ms = account.memory_mb_ms.saturating_add(memory_mb_ms);
        for part in 0..3 {
            self.unused_reserve[part] += after[part] - before[part];
        }
    }

    /// Ends a task permanently. Queries find the task until [`Self::trim_finished`] removes it.
    pub(crate) fn end(&mut self, at: u32, stage: TaskStage) {
        self.tasks[at].stage = stage;
        let task = &self.tasks[at];
        self.policies.remove_use(task.tenant, task.policy);
        self.count_finished_bytes(at);
        let mut finished = self.finished;
        finished.push_back(&mut self.tasks, at);
        self.finished = finished;
    }

    /// Makes a task a dead letter. Tasks that wait for this task continue to wait, because a user may restart the dead
    /// letter.
    pub(crate) fn make_dead_letter(&mut self, at: u32, why: AttemptFailure, effects: &mut TaskEffects) {
        if self.tasks[at].outcome.as_ref().is_none_or(|outcome| outcome.failure != Some(why)) {
            self.set_outcome(at, Some(why), AttemptCost::default(), b"");
        }
        self.tasks[at].stage = TaskStage::Dead;
        let tenant_at = self.tasks[at].tenant;
        let mut dead = self.tenants[tenant_at as usize].dead;
        dead.push_back(&mut self.tasks, at);
        let tenant = self.tenant(tenant_at);
        tenant.dead = dead;
        tenant.account.dead += 1;
        self.record_event(at, TaskEventKind::Dead { why }, effects);
        if u64::from(dead.len) > self.limits.dead_max {
            self.discard_first(tenant_at, effects);
        }
    }

    fn release_dependent_tasks(&mut self, at: u32, effects: &mut TaskEffects) {
        for id in self.take_dependents(at) {
            let Some(next) = self.tasks.find(id) else { continue };
            let task = &mut self.tasks[next];
            task.waits_for -= 1;
            if task.waits_for == 0 && task.stage == TaskStage::Blocked {
                task.since_ms = task.since_ms.max(self.now_ms);
                self.set_due(next, NEVER_MS);
                self.enqueue(next, effects);
            }
        }
    }

    pub(crate) fn take_dependents(&mut self, at: u32) -> Vec<u64> {
        let has_any = self.tasks[at].extra.as_ref().is_some_and(|extra| !extra.before.is_empty());
        if has_any { std::mem::take(&mut self.tasks[at].extra_mut().before) } else { Vec::new() }
    }

    /// Removes completed and cancelled tasks, the oldest first. These are tasks that ended at least `finished_ms` ago,
    /// and further tasks while there are more than `finished_max` or the memory limit is exceeded.
    pub(crate) fn trim_finished(&mut self) {
        while self.finished.len > 0 {
            let at = self.finished.head;
            let ended_ms = self.tasks[at].outcome.as_ref().map_or(0, |outcome| outcome.at_ms);
            let is_old = ended_ms.saturating_add(self.limits.finished_ms) <= self.now_ms;
            let is_too_much = u64::from(self.finished.len) > self.limits.finished_max
                || self.bytes > self.limits.state_bytes_max;
            if !is_old && !is_too_much {
                break;
            }
            let mut finished = self.finished;
            finished.remove(&mut self.tasks, at);
            self.finished = finished;
            self.remove_task(at);
        }
    }

    pub(crate) fn remove_task(&mut self, at: u32) {
        let Some(task) = self.tasks.remove(at) else { return };
        self.release_lane(task.lane);
        self.count_bytes(task.tenant, 0, task.bytes(), task.is_finished());
        if task.stage == TaskStage::Dead {
            self.policies.remove_use(task.tenant, task.policy);
        }
        if let Some(key) = task.extra.as_ref().and_then(|extra| extra.idempotency_key.clone()) {
            self.keys.remove(&(task.tenant, key));
        }
    }
}
