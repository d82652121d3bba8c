//! Submits tasks: all tasks of a batch, or none.
//!
//! A tenant's limit of waiting tasks takes effect in steps. Beyond 70 % of the limit, the reply asks the submitter for
//! a slower rate. Beyond 90 %, tasks below the usual priority are refused; beyond 100 %, all tasks. A refusal contains
//! a retry delay.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::classes::ClassKey;
use crate::command::{Label, NewTask, TaskDependency};
use crate::destination::Destination;
use crate::effects::{TaskEffects, TaskEventKind};
use crate::error::{Limit, TaskRefusal};
use crate::layout::shared;
use crate::reply::{CommandReply, SubmittedTask};
use crate::room::bytes_of_new;
use crate::shard::{SLOTS_MAX, shard_of_id};
use crate::slab::NONE;
use crate::state::SchedulerState;
use crate::task::{NEVER_MS, PRIORITY_MAX, StoredLabel, Task, TaskExtra, TaskStage, ids_of};

/// The usual priority. Tasks of a lower priority are refused first.
const PRIORITY_NORMAL: u8 = 5;
/// Shortest and longest retry delay, ms.
const RETRY_AFTER_MS: (u64, u64) = (100, 60_000);
/// Maximum distance of a time from now, ms: ten years. A time further away is refused as a mistake.
const TIME_DISTANCE_MAX_MS: u64 = 10 * 365 * 86_400_000;

/// The fields that must be equal in two tasks with the same idempotency key.
fn idempotent_fields<'n>(task: &NewTask<'n>) -> (&'n [u8], &'n [u8], &'n [u8], &'n [u8]) {
    (task.queue, task.kind, task.payload, task.subject)
}

impl SchedulerState {
    pub(crate) fn submit(
        &mut self,
        tenant: &[u8],
        new: &[NewTask<'_>],
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let tenant = self.find_tenant(tenant)?;
        self.check_batch(new.len())?;
        new.iter().try_for_each(|task| self.check_task(task))?;
        let known = self.find_known_keys(tenant, new)?;
        self.check_dependencies(tenant, new, &known)?;
        let fresh = || new.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(new, _)| new);
        let slow_down_ms = self.check_queue(tenant, fresh())?;
        self.check_room(tenant, fresh())?;
        self.check_class_room(tenant, fresh())?;
        let tasks = self.add_tasks(tenant, new, &known, effects);
        self.trim_finished();
        Ok(CommandReply::Submitted { tasks, slow_down_ms })
    }

    pub(crate) fn check_task(&self, new: &NewTask<'_>) -> Result<(), TaskRefusal> {
        self.check_name(new.queue)?;
        self.check_name(new.kind)?;
        let destination = Destination::read(new.subject);
        self.check_length(new.idempotency_key)?;
        self.check_length(destination.subject)?;
        self.check_length(destination.user.unwrap_or_default())?;
        let (bytes, bytes_max) = (new.payload.len() as u64, u64::from(self.limits.payload_bytes_max));
        if bytes > bytes_max {
            return Err(TaskRefusal::PayloadTooLong { bytes, bytes_max });
        }
        let (bytes, bytes_max) = (new.memory_bytes, self.limits.need_bytes_max);
        if bytes > bytes_max {
            return Err(TaskRefusal::NeedsTooMuch { bytes, bytes_max });
        }
        if new.priority > PRIORITY_MAX {
            return Err(TaskRefusal::Priority { priority: new.priority });
        }
        [new.not_before_ms, new.deadline_ms].iter().try_for_each(|at_ms| self.check_time(*at_ms))?;
        if let Some(deadline_ms) = self.cluster_ms(new.deadline_ms)
            && deadline_ms <= self.now_ms
        {
            return Err(TaskRefusal::DeadlinePast { by_ms: self.unix_ms().saturating_sub(new.deadline_ms) });
        }
        if (new.kind == crate::PUBLISH) == new.subject.is_empty() {
            return Err(TaskRefusal::Subject);
        }
        Limit::Labels.check(new.labels.len() as u64, u64::from(self.limits.labels_max))?;
        Limit::Labels.check(new.needs.len() as u64, u64::from(self.limits.labels_max))?;
        self.check_labels(&new.labels)?;
        self.check_labels(&new.needs)?;
        Limit::Dependencies.check(new.after.len() as u64, u64::from(self.limits.dependencies_max))
    }

    /// Refuses times far from now. Such a time is probably a number of seconds, microseconds or nanoseconds that was
    /// meant to be milliseconds.
    fn check_time(&self, at_ms: u64) -> Result<(), TaskRefusal> {
        let now_ms = self.unix_ms();
        // No comparison is possible before the cluster's clock is set.
        let is_far =
            at_ms > 0 && now_ms > TIME_DISTANCE_MAX_MS && at_ms.abs_diff(now_ms) > TIME_DISTANCE_MAX_MS;
        if is_far { Err(TaskRefusal::TimeFar { at_ms, now_ms }) } else { Ok(()) }
    }

    pub(crate) fn check_labels(&self, labels: &[Label<'_>]) -> Result<(), TaskRefusal> {
        labels.iter().try_for_each(|label| self.check_name(label.key))?;
        labels.iter().try_for_each(|label| self.check_length(label.value))
    }

    /// Checks the tasks for which the new tasks wait: each of them must exist or be in the batch, and no task may wait
    /// for itself through other tasks.
    fn check_dependencies(
        &self,
        tenant: u32,
        new: &[NewTask<'_>],
        known: &[Option<KnownKey>],
    ) -> Result<(), TaskRefusal> {
        let mut has_batch_dependency = false;
        for (index, after) in
            new.iter().enumerate().flat_map(|(i, task)| task.after.iter().map(move |a| (i, a)))
        {
            let index = index as u32;
            let task = match *after {
                TaskDependency::Batch { index: on } => match known.get(on as usize) {
                    None => return Err(TaskRefusal::NoDependency { index }),
                    Some(Some(KnownKey::Task(task))) => *task,
                    Some(_) => {
                        has_batch_dependency = true;
                        continue;
                    }
                },
                TaskDependency::Task { task } => task,
            };
            // A task of another tenant counts as missing.
            let found = self.tasks.find(task).filter(|at| self.tasks[*at].tenant == tenant);
            match found.map(|at| self.tasks[at].stage) {
                None if shard_of_id(task) != self.shard => {
                    return Err(TaskRefusal::DependencyElsewhere { index, task });
                }
                None => return Err(TaskRefusal::DependencyUnknown { index, task }),
                Some(TaskStage::Cancelled) => return Err(TaskRefusal::DependencyCancelled { index, task }),
                Some(_) => {}
            }
        }
        if has_batch_dependency { check_acyclic(new, known) } else { Ok(()) }
    }

    /// For each new task, finds an earlier task with the same idempotency key, if there is one. A task that the state
    /// knows is identified by its id, and an earlier task of the batch by its index.
    fn find_known_keys(
        &self,
        tenant: u32,
        new: &[NewTask<'_>],
    ) -> Result<Vec<Option<KnownKey>>, TaskRefusal> {
        let mut first: BTreeMap<&[u8], u32> = BTreeMap::new();
        new.iter()
            .enumerate()
            .map(|(index, task)| {
                if task.idempotency_key.is_empty() {
                    return Ok(None);
                }
                if let Some(&id) = self.keys.get(&(tenant, Arc::from(task.idempotency_key))) {
                    self.check_same(index as u32, task, id)?;
                    return Ok(Some(KnownKey::Task(id)));
                }
                let index = index as u32;
                let before = *first.entry(task.idempotency_key).or_insert(index);
                match &new[before as usize] {
                    _ if before == index => Ok(None),
                    other if idempotent_fields(other) == idempotent_fields(task) => {
                        Ok(Some(KnownKey::Batch(before)))
                    }
                    _ => Err(TaskRefusal::KeyInBatch { index, before }),
                }
            })
            .collect()
    }

    /// Checks that the new task may stand for the task `id`, which has the same idempotency key: both must do the same
    /// work, and the task `id` must not have been cancelled.
    fn check_same(&self, index: u32, new: &NewTask<'_>, id: u64) -> Result<(), TaskRefusal> {
        let Some(at) = self.tasks.find(id) else { return Ok(()) };
        let task = &self.tasks[at];
        let class = &self.classes[self.lanes[task.lane as usize].class as usize];
        let (queue, kind) = (self.names.get(class.queue), self.names.get(class.kind));
        let subject = task.extra.as_ref().and_then(|extra| extra.subject.as_deref()).unwrap_or_default();
        if idempotent_fields(new) != (&**queue, &**kind, &*task.payload, subject) {
            return Err(TaskRefusal::KeyReused { index, task: id });
        }
        match task.stage {
            TaskStage::Cancelled | TaskStage::Stopping => Err(TaskRefusal::KeyCancelled { index, task: id }),
            _ => Ok(()),
        }
    }

    /// Refuses the new tasks if the tenant would exceed its limit of waiting tasks. Returns the delay that the
    /// submitter should add for each task, ms.
    fn check_queue<'n>(
        &self,
        tenant: u32,
        fresh: impl Iterator<Item = &'n NewTask<'n>>,
    ) -> Result<u32, TaskRefusal> {
        let tenant = &self.tenants[tenant as usize];
        let queued_max = tenant.queued_max;
        if queued_max == 0 {
            return Ok(0);
        }
        let (mut count, mut is_low) = (0, false);
        for task in fresh {
            count += 1;
            is_low |= task.priority < PRIORITY_NORMAL;
        }
        let after = tenant.queued + count;
        let most = if is_low { queued_max - queued_max / 10 } else { queued_max };
        if count > 0 && after > most {
            let start_rate = tenant.start_rate.per_1000_s(self.now_ms).max(1);
            let wait_ms = (after - most).saturating_mul(1_000_000) / start_rate;
            let retry_after_ms = wait_ms.clamp(RETRY_AFTER_MS.0, RETRY_AFTER_MS.1);
            return Err(TaskRefusal::QueueFull { queued: tenant.queued, queued_max, retry_after_ms });
        }
        // The percentage is at most 100. After the limit was lowered, more tasks than the limit may wait. Tasks with a
        // known idempotency key are accepted even then.
        let percent = (after.saturating_mul(100) / queued_max).min(100);
        Ok(percent.saturating_sub(70) as u32 * 100)
    }

    fn check_room<'n>(
        &self,
        tenant: u32,
        fresh: impl Iterator<Item = &'n NewTask<'n>>,
    ) -> Result<(), TaskRefusal> {
        let (mut count, mut growth) = (0, 0);
        for task in fresh {
            count += 1;
            growth += bytes_of_new(task);
        }
        Limit::Tasks.check(u64::from(self.tasks.len()) + count, self.limits.tasks_max.min(SLOTS_MAX - 1))?;
        self.check_growth(tenant, growth)
    }

    /// Adds the tasks. All checks were made before.
    fn add_tasks(
        &mut self,
        tenant: u32,
        new: &[NewTask<'_>],
        known: &[Option<KnownKey>],
        effects: &mut TaskEffects,
    ) -> Vec<SubmittedTask> {
        let mut submitted: Vec<SubmittedTask> = Vec::with_capacity(new.len());
        let mut last: Option<(ClassKey<'_>, u32)> = None;
        for (task, known) in new.iter().zip(known) {
            let known = match *known {
                Some(KnownKey::Task(id)) => Some(id),
                Some(KnownKey::Batch(index)) => Some(submitted[index as usize].task),
                None => None,
            };
            if let Some(task) = known {
                submitted.push(SubmittedTask { task, known: true });
                continue;
            }
            let class_key = ClassKey::of(task);
            let lane = match last {
                Some((known, lane)) if known == class_key => lane,
                _ => self.lane_for(tenant, &class_key),
            };
            last = Some((class_key, lane));
            let at = self.insert_task(tenant, lane, task);
            submitted.push(SubmittedTask { task: self.tasks.id(at), known: false });
            self.record_event(at, TaskEventKind::Submitted, effects);
        }
        let ids: Vec<u64> = submitted.iter().map(|submitted| submitted.task).collect();
        for (task, submitted) in new.iter().zip(&submitted).filter(|(_, submitted)| !submitted.known) {
            self.begin_task(submitted.task, &ids_of(&task.after, &ids), effects);
        }
        submitted
    }

    fn insert_task(&mut self, tenant_at: u32, lane: u32, new: &NewTask<'_>) -> u32 {
        let policy = self.policies.add_use(tenant_at, new.retry.unwrap_or_default());
        let extra = self.task_extra(new);
        let now_ms = self.now_ms;
        let timeout_ms = if new.timeout_ms == 0 { self.limits.timeout_ms_default } else { new.timeout_ms };
        let task = Task {
            stage: TaskStage::Blocked,
            priority: new.priority,
            attempts: 0,
            policy,
            lost: 0,
            tenant: tenant_at,
            lane,
            prev: NONE,
            next: NONE,
            worker: NONE,
            timeout_ms: timeout_ms.max(1),
            delay_ms: 0,
            charged_us: 0,
            waits_for: 0,
            limited_by: 0,
            submitted_ms: now_ms,
            since_ms: self.cluster_ms(new.not_before_ms).unwrap_or(0).max(now_ms),
            started_ms: 0,
            deadline_ms: self.cluster_ms(new.deadline_ms).unwrap_or(NEVER_MS),
            due_ms: NEVER_MS,
            token: 0,
            payload: shared(new.payload),
            extra,
            outcome: None,
        };
        self.count_bytes(tenant_at, task.bytes(), 0, false);
        let at = self.tasks.insert(task);
        self.use_lane(lane);
        if !new.idempotency_key.is_empty() {
            self.keys.insert((tenant_at, new.idempotency_key.into()), self.tasks.id(at));
        }
        let expected_us = u64::from(self.lanes[lane as usize].cost_us.max(1));
        let tenant = self.tenant(tenant_at);
        tenant.queued += 1;
        tenant.account.submitted += 1;
        tenant.account.expected_us += expected_us;
        at
    }

    fn task_extra(&self, new: &NewTask<'_>) -> Option<Arc<TaskExtra>> {
        let is_plain = new.idempotency_key.is_empty()
            && new.labels.is_empty()
            && new.subject.is_empty()
            && (new.cpu_milli, new.memory_bytes) == (0, 0);
        let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.into());
        let labels = new.labels.iter();
        (!is_plain).then(|| {
            Arc::new(TaskExtra {
                idempotency_key: some(new.idempotency_key),
                labels: labels.map(|l| StoredLabel { key: l.key.into(), value: l.value.into() }).collect(),
                subject: some(new.subject),
                cpu_milli: new.cpu_milli,
                memory_bytes: new.memory_bytes,
                ..TaskExtra::default()
            })
        })
    }

    /// Puts a submitted task into its first stage. If `after` contains tasks that are not done, the new task waits for
    /// them. Otherwise, it waits only for its earliest start.
    fn begin_task(&mut self, id: u64, after: &[u64], effects: &mut TaskEffects) {
        let Some(at) = self.tasks.find(id) else { return };
        let mut waits_for = 0;
        for &on in after {
            let Some(on_at) = self.tasks.find(on).filter(|&on| self.tasks[on].stage != TaskStage::Completed)
            else {
                continue;
            };
            waits_for += 1;
            self.change_task(on_at, |task| task.extra_mut().before.push(id));
        }
        if !after.is_empty() {
            self.change_task(at, |task| task.extra_mut().after = after.to_vec());
        }
        self.tasks[at].waits_for = waits_for;
        if waits_for == 0 {
            self.enqueue(at, effects);
        } else {
            let due_ms = self.tasks[at].deadline_ms;
            self.set_due(at, due_ms);
        }
    }
}

/// An earlier task that has the idempotency key of a new task. A task that the state knows is identified by its id, and
/// an earlier task of the batch by its index.
#[derive(Debug, Clone, Copy)]
enum KnownKey {
    Task(u64),
    Batch(u32),
}

/// Removes one task after another that depends on no remaining task (Kahn 1962). If tasks are left at the end, there is
/// a cycle. A task with the idempotency key of an earlier task counts as the earlier task, and its own dependencies are
/// ignored.
fn check_acyclic(new: &[NewTask<'_>], known: &[Option<KnownKey>]) -> Result<(), TaskRefusal> {
    let mut before = vec![Vec::new(); new.len()];
    let mut waits_for = vec![0_usize; new.len()];
    for (index, task) in new.iter().enumerate().filter(|&(index, _)| known[index].is_none()) {
        for after in &task.after {
            let TaskDependency::Batch { index: on } = *after else { continue };
            match known[on as usize] {
                None => before[on as usize].push(index),
                Some(KnownKey::Batch(first)) => before[first as usize].push(index),
                Some(KnownKey::Task(_)) => continue,
            }
            waits_for[index] += 1;
        }
    }
    let mut free: Vec<_> = (0..new.len()).filter(|&index| waits_for[index] == 0).collect();
    while let Some(index) = free.pop() {
        for &next in &before[index] {
            waits_for[next] -= 1;
            if waits_for[next] == 0 {
                free.push(next);
            }
        }
    }
    match waits_for.iter().position(|&count| count > 0) {
        Some(index) => Err(TaskRefusal::Cycle { index: index as u32 }),
        None => Ok(()),
    }
}
