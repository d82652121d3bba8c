//! Cancels tasks, and retries or discards dead letters.

use crate::effects::{TaskEffects, TaskEventKind, WorkerOrder};
use crate::error::TaskRefusal;
use crate::reply::CommandReply;
use crate::slab::NONE;
use crate::state::SchedulerState;
use crate::task::{AttemptOutcome, NEVER_MS, TaskStage};

impl SchedulerState {
    pub(crate) fn cancel(
        &mut self,
        task: u64,
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let at = self.find_task(task)?;
        if matches!(self.tasks[at].stage, TaskStage::Completed | TaskStage::Cancelled) {
            return Err(TaskRefusal::Over { task });
        }
        self.cancel_all(vec![task], effects);
        Ok(CommandReply::Done)
    }

    /// Cancels these tasks and all tasks that wait for them. Tasks are identified by their ids, because the state may
    /// forget a task as soon as the task is cancelled.
    fn cancel_all(&mut self, mut left: Vec<u64>, effects: &mut TaskEffects) {
        while let Some(id) = left.pop() {
            let Some(at) = self.tasks.find(id) else { continue };
            match self.tasks[at].stage {
                TaskStage::Running if self.tasks[at].worker != NONE => {
                    self.tasks[at].stage = TaskStage::Stopping;
                    let (worker, token) = (self.worker_id(self.tasks[at].worker), self.tasks[at].token);
                    effects.orders.push(WorkerOrder::Stop { worker, task: self.tasks.id(at), token });
                    continue;
                }
                TaskStage::Stopping | TaskStage::Completed | TaskStage::Cancelled => continue,
                TaskStage::Running => self.set_due(at, NEVER_MS),
                TaskStage::Dead => self.remove_dead(at),
                _ => self.withdraw(at),
            }
            left.extend(self.end_cancelled_task(at, effects));
        }
    }

    /// Ends a cancelled task, which its worker has released. Then cancels the tasks that wait for this task.
    pub(crate) fn end_cancelled_with_dependents(&mut self, at: u32, effects: &mut TaskEffects) {
        let dependents = self.end_cancelled_task(at, effects);
        self.cancel_all(dependents, effects);
    }

    /// Ends one cancelled task. Returns the tasks that waited for this task.
    fn end_cancelled_task(&mut self, at: u32, effects: &mut TaskEffects) -> Vec<u64> {
        self.tenant_of(at).account.cancelled += 1;
        let outcome = self.tasks[at].outcome.as_deref().cloned();
        let none = AttemptOutcome {
            bytes: [].into(),
            failure: None,
            at_ms: 0,
            run_us: 0,
            cpu_us: 0,
            memory_bytes: 0,
        };
        let outcome = AttemptOutcome { at_ms: self.now_ms, ..outcome.unwrap_or(none) };
        self.change_task(at, |task| task.outcome = Some(outcome.into()));
        self.record_event(at, TaskEventKind::Cancelled, effects);
        self.end(at, TaskStage::Cancelled);
        let dependents = self.take_dependents(at);
        self.trim_finished();
        dependents
    }

    fn remove_dead(&mut self, at: u32) {
        let tenant = self.tasks[at].tenant;
        let mut dead = self.tenants[tenant as usize].dead;
        dead.remove(&mut self.tasks, at);
        self.tenant(tenant).dead = dead;
    }

    pub(crate) fn retry(
        &mut self,
        task: u64,
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let at = self.find_task(task)?;
        if self.tasks[at].stage != TaskStage::Dead {
            return Err(TaskRefusal::NotDead { task });
        }
        self.restart(at, effects);
        Ok(CommandReply::Done)
    }

    /// Restarts a dead letter. The restarted task may use all its retries anew. Its deadline is removed, because the
    /// deadline may have caused the failure.
    fn restart(&mut self, at: u32, effects: &mut TaskEffects) {
        self.remove_dead(at);
        let now_ms = self.now_ms;
        let task = &mut self.tasks[at];
        (task.attempts, task.lost, task.delay_ms) = (0, 0, 0);
        (task.deadline_ms, task.since_ms) = (NEVER_MS, now_ms.max(task.since_ms));
        let is_blocked = task.waits_for > 0;
        task.stage = TaskStage::Blocked;
        self.tenant_of(at).queued += 1;
        self.record_event(at, TaskEventKind::Redriven, effects);
        if !is_blocked {
            self.enqueue(at, effects);
        }
    }

    pub(crate) fn redrive(
        &mut self,
        tenant: &[u8],
        count: u32,
        with_poisoned: bool,
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let tenant = self.find_tenant(tenant)?;
        let dead = &self.tenants[tenant as usize].dead;
        let chosen = dead.iter(&self.tasks).filter(|(_, task)| with_poisoned || !task.is_poisoned());
        let mut chosen = chosen.map(|(at, _)| at);
        let first: Vec<u32> = chosen.by_ref().take(self.dead_count(tenant, count) as usize).collect();
        let more = chosen.next().is_some();
        drop(chosen);
        first.iter().for_each(|&at| self.restart(at, effects));
        Ok(CommandReply::Changed { tasks: first.len() as u64, more })
    }

    pub(crate) fn discard(
        &mut self,
        tenant: &[u8],
        count: u32,
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let tenant = self.find_tenant(tenant)?;
        let tasks = self.dead_count(tenant, count);
        (0..tasks).for_each(|_| self.discard_first(tenant, effects));
        Ok(CommandReply::Changed { tasks, more: self.tenants[tenant as usize].dead.len > 0 })
    }

    fn dead_count(&self, tenant: u32, count: u32) -> u64 {
        let most = if count == 0 { self.limits.batch_max } else { count.min(self.limits.batch_max) };
        u64::from(self.tenants[tenant as usize].dead.len.min(most))
    }

    /// Discards a tenant's oldest dead letter, and cancels the tasks that wait for it.
    pub(crate) fn discard_first(&mut self, tenant: u32, effects: &mut TaskEffects) {
        let at = self.tenants[tenant as usize].dead.head;
        if at == NONE {
            return;
        }
        self.remove_dead(at);
        self.record_event(at, TaskEventKind::Discarded, effects);
        let dependents = self.take_dependents(at);
        self.remove_task(at);
        self.cancel_all(dependents, effects);
    }
}
