//! The state of the task scheduler, and the application of commands.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::ahead::WorkerPrefetch;
use crate::command::TaskCommand;
use crate::effects::{TaskEffects, TaskEvent, TaskEventKind};
use crate::enlisted::Enlisted;
use crate::error::{Limit, TaskRefusal};
use crate::group::{GroupKey, TaskGroup};
use crate::lane::{Class, Lane, Needs};
use crate::limits::SchedulerLimits;
use crate::names::{ByName, NameTable};
use crate::pages::Pages;
use crate::policies::Policies;
use crate::quota::Amounts;
use crate::reply::CommandReply;
use crate::schedule::Schedule;
use crate::shard;
use crate::slab::Slab;
use crate::task::{NEVER_MS, Task, TaskList};
use crate::tenant::Tenant;
use crate::work_estimate::WorkEstimate;
use crate::worker::{ServedSet, Worker, WorkerPool};

/// Kinds of timers. A timer belongs to a task, a worker or a schedule.
pub(crate) const TASK: u8 = 0;
pub(crate) const WORKER: u8 = 1;
pub(crate) const SCHEDULE: u8 = 2;

/// Number of fencing tokens that are skipped after a restore. The scheduler is assumed to have given out fewer tokens
/// since the backup.
const RESTORE_SKIPS: u64 = 1_000_000_000;
/// A restoration from a backup raises the use counts in the ids of tasks and workers by this number. Since the backup,
/// no slot can have been used more often, because a finished task keeps its slot for an hour, or until 100,000 later
/// tasks have finished. For a state on a disk, ids stay below 2^53 after the first restoration, so that a JSON number
/// holds them exactly.
const RESTORE_SKIPS_USES: u32 = 1 << 20;
/// Base-2 logarithm of the number of fencing tokens that are reserved for each 100 ms. If more tasks started in 100 ms,
/// tokens could repeat after a loss of the state. With this number, tokens stay below 2^53, so that a JSON number holds
/// them exactly.
const TOKENS_PER_START_BITS: u32 = 20;
/// Number of different generations with which the ids of an empty state can begin. With this number, ids stay below
/// 2^53, as they do after a first restoration.
const FIRST_GENERATIONS: u32 = 1 << 20;
/// When the virtual time reaches this value, the tags of all tenants are reduced.
const VIRTUAL_TIME_MAX: u64 = 1 << 60;

/// All tasks, workers and tenants of one shard of the task scheduler. Clones are cheap, because they share data.
#[derive(Debug, Clone, Default)]
pub struct SchedulerState {
    pub(crate) shard: u8,
    pub(crate) limits: SchedulerLimits,
    pub(crate) now_ms: u64,
    /// Difference between the time since 1970 and the cluster's time, ms.
    pub(crate) unix_offset_ms: i64,
    pub(crate) names: NameTable,
    pub(crate) tasks: Slab<Task>,
    pub(crate) workers: Slab<Worker>,
    /// Workers that joined in another shard.
    pub(crate) enlisted: Enlisted,
    pub(crate) tenants: Pages<Tenant>,
    pub(crate) tenant_at: ByName,
    pub(crate) classes: Pages<Class>,
    pub(crate) class_at: OrdMap<(u32, u32, Needs), u32>,
    /// Number of classes whose tasks need labels of workers.
    pub(crate) demands: u32,
    pub(crate) lanes: Pages<Lane>,
    pub(crate) lane_at: OrdMap<(u32, u32), u32>,
    /// Number of known tasks of each lane.
    pub(crate) lane_tasks: Pages<u32>,
    pub(crate) unused_lanes: OrdSet<u32>,
    pub(crate) unused_classes: OrdSet<u32>,
    pub(crate) pools: Pages<WorkerPool>,
    pub(crate) pool_at: OrdMap<Arc<ServedSet>, u32>,
    pub(crate) policies: Policies,
    pub(crate) groups: OrdMap<GroupKey, TaskGroup>,
    /// Times at which a group gets a token or can be forgotten.
    pub(crate) refills: OrdSet<(u64, GroupKey)>,
    /// Timers: time, kind, and index of the task, worker or schedule.
    pub(crate) timers: OrdSet<(u64, u8, u32)>,
    /// Tasks with an idempotency key, by tenant and key.
    pub(crate) keys: OrdMap<(u32, Arc<[u8]>), u64>,
    pub(crate) schedules: Slab<Schedule>,
    pub(crate) schedule_at: OrdMap<(u32, Arc<[u8]>), u32>,
    pub(crate) virtual_time: u64,
    /// The token of the last start.
    pub(crate) token: u64,
    /// Completed and cancelled tasks that are still known, the oldest first.
    pub(crate) finished: TaskList,
    pub(crate) bytes: u64,
    /// Size in bytes of the completed and cancelled tasks, which are dropped to make room for new tasks.
    pub(crate) finished_bytes: u64,
    /// Size of each tenant's tasks, groups and schedules, not counting completed and cancelled tasks, bytes.
    pub(crate) bytes_of: Pages<u64>,
    /// Free capacity of all workers: tasks, thousandths of a processor, bytes of memory.
    pub(crate) free: Amounts,
    /// Capacity that is reserved for tenants and that these tenants do not use at present.
    pub(crate) unused_reserve: Amounts,
    /// Whether a task could not start because capacity is reserved for other tenants.
    pub(crate) is_held_back: bool,
    /// The id of the task for which each reserved worker is reserved. The key is the worker's index.
    pub(crate) reserved: OrdMap<u32, u64>,
    /// Maximum and present number of tasks ahead, for each worker that may hold such tasks. The key is the worker's
    /// index.
    pub(crate) ahead: OrdMap<u32, WorkerPrefetch>,
    /// Classes with new ready tasks; empty between commands.
    pub(crate) dirty: Vec<u32>,
}

impl SchedulerState {
    /// Creates an empty state.
    pub fn new(limits: SchedulerLimits) -> SchedulerState {
        SchedulerState::of_shard(limits, 0)
    }

    /// Creates an empty state of the shard with this number, which is below [`SHARDS_MAX`](crate::SHARDS_MAX).
    pub fn of_shard(limits: SchedulerLimits, shard: u8) -> SchedulerState {
        let mark = shard::mark_of(shard);
        let (tasks, workers) = (Slab::with_mark(mark), Slab::with_mark(mark));
        SchedulerState { limits, shard, tasks, workers, ..SchedulerState::default() }
    }

    /// Makes the first fencing tokens and ids of an empty state depend on its start time. `start` is this time, in
    /// units of 100 ms. Nodes that lose their state in a restart need this, because workers and clients may still know
    /// earlier tokens and ids.
    ///
    /// Earlier tokens are then not used again. An earlier id can be used again only in two cases: after 2^20 units (29
    /// hours), or if a slot was used more than once in each unit since the earlier start.
    #[must_use]
    pub fn started_at(mut self, start: u32) -> SchedulerState {
        self.token = u64::from(start) << TOKENS_PER_START_BITS;
        self.tasks.set_generation_min(start % FIRST_GENERATIONS);
        self.workers.set_generation_min(start % FIRST_GENERATIONS);
        self
    }

    /// Number of the shard.
    pub fn shard(&self) -> u8 {
        self.shard
    }

    /// The cluster's time: the number of milliseconds since the cluster began, as counted by the cluster's leaders.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The present limits of the state.
    pub fn limits(&self) -> SchedulerLimits {
        self.limits
    }

    /// Approximate size of all tasks, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of known tasks.
    pub fn len(&self) -> u64 {
        u64::from(self.tasks.len())
    }

    /// Whether no task is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the tenant with this number; `None` if there is no such tenant.
    pub fn tenant_name(&self, tenant: u32) -> Option<&Arc<[u8]>> {
        self.tenants.get(tenant as usize).map(|tenant| &tenant.name)
    }

    /// Time of the next timer, if there is one.
    pub fn next_due_ms(&self) -> Option<u64> {
        let refill = self.refills.get_min().map(|(due_ms, _)| *due_ms);
        self.timers.get_min().map(|&(due_ms, ..)| due_ms).into_iter().chain(refill).min()
    }

    /// Whether more than `count` timers and tasks change at the time `now_ms`. The timers are the due timers of tasks,
    /// workers and schedules. The tasks are those that change when these timers fire.
    pub fn has_more_due(&self, now_ms: u64, count: usize) -> bool {
        if self.timers.get_min().is_none_or(|(due_ms, ..)| *due_ms > now_ms) {
            return false;
        }
        let mut estimate = WorkEstimate::new(self, count);
        self.timers.range(..=(now_ms, u8::MAX, u32::MAX)).any(|&(_, kind, at)| {
            estimate.add_timer(kind, at);
            estimate.exceeds_max()
        })
    }

    /// Whether these encoded commands may change more than `count` tasks, directly or because tasks wait for the tasks
    /// that the commands end.
    pub fn may_change_more<'c>(&self, mut commands: impl Iterator<Item = &'c [u8]>, count: usize) -> bool {
        if self.len() <= count as u64 {
            return false;
        }
        let mut estimate = WorkEstimate::new(self, count);
        commands.any(|command| {
            estimate.add_command(command);
            TaskCommand::may_change_many(command) || estimate.exceeds_max()
        })
    }

    /// Advances the time and fires the timers that are due. Ignores a `now_ms` before the present time.
    pub fn advance(&mut self, now_ms: u64, effects: &mut TaskEffects) {
        self.now_ms = self.now_ms.max(now_ms);
        while let Some(due_ms) = self.next_due_ms().filter(|due_ms| *due_ms <= self.now_ms) {
            self.fire_timer(due_ms, effects);
        }
        self.trim_finished();
        self.dispatch(effects);
        self.assign_to_ending_workers(effects);
    }

    /// Fires the timer that is due first.
    fn fire_timer(&mut self, due_ms: u64, effects: &mut TaskEffects) {
        if let Some((_, group)) = self.refills.get_min().filter(|refill| refill.0 == due_ms).cloned() {
            self.wake_group(&group);
            debug_assert!(!self.refills.contains(&(due_ms, group)), "a refill that was due is removed");
            return;
        }
        let Some(&(_, kind, at)) = self.timers.get_min() else { return };
        match kind {
            TASK => self.fire_task_timer(at, effects),
            WORKER => self.lose_worker(at, effects),
            _ => self.fire_schedule_timer(at, effects),
        }
        debug_assert!(!self.timers.contains(&(due_ms, kind, at)), "a timer that fired is removed");
    }

    /// Applies a command.
    pub fn apply(
        &mut self,
        command: &TaskCommand<'_>,
        effects: &mut TaskEffects,
    ) -> Result<CommandReply, TaskRefusal> {
        let reply = match *command {
            TaskCommand::Tenant { ref tenant } => self.set_tenant(tenant, effects),
            TaskCommand::EnsureTenant { tenant } => self.ensure_tenant(tenant, effects),
            TaskCommand::Submit { tenant, ref tasks } => self.submit(tenant, tasks, effects),
            TaskCommand::Cancel { task } => self.cancel(task, effects),
            TaskCommand::Retry { task } => self.retry(task, effects),
            TaskCommand::Redrive { tenant, count } => self.redrive(tenant, count, true, effects),
            TaskCommand::RedriveSafe { tenant, count } => self.redrive(tenant, count, false, effects),
            TaskCommand::Discard { tenant, count } => self.discard(tenant, count, effects),
            TaskCommand::Join { ref worker } => self.join(worker),
            TaskCommand::Enlist { id, ref worker } => self.enlist(id, worker),
            TaskCommand::Pull { worker, credit } => self.pull(worker, credit, effects),
            TaskCommand::Slots { worker, slots, ahead } => self.set_slots(worker, slots, ahead, effects),
            TaskCommand::Renew { ref workers } => self.renew_leases(workers),
            TaskCommand::Complete { ref report, result } => self.complete(report, result, effects),
            TaskCommand::Fail { ref report, error, retry } => self.fail(report, error, retry, effects),
            TaskCommand::Progress { worker, task, token, permille, note } => {
                self.progress(worker, task, token, (permille, note), effects)
            }
            TaskCommand::Extend { worker, task, token, timeout_ms } => {
                self.extend(worker, task, token, timeout_ms)
            }
            TaskCommand::Drain { worker } => self.drain(worker, effects),
            TaskCommand::Leave { worker } => self.leave(worker, effects),
            TaskCommand::Schedule { tenant, name, cron, ref task } => self.schedule(tenant, name, cron, task),
            TaskCommand::Unschedule { tenant, name } => self.unschedule(tenant, name),
            TaskCommand::Published { ref tasks } => self.published(tasks, effects),
            TaskCommand::Unpublished { task, error } => self.unpublished(task, error, effects),
            TaskCommand::Clock { unix_ms } => {
                self.set_clock(unix_ms);
                Ok(CommandReply::Done)
            }
            TaskCommand::BeginRestored { unix_ms } => {
                self.set_clock(unix_ms);
                self.token = self.token.saturating_add(RESTORE_SKIPS);
                self.tasks.skip_generations(RESTORE_SKIPS_USES);
                self.workers.skip_generations(RESTORE_SKIPS_USES);
                Ok(CommandReply::Done)
            }
            TaskCommand::Limit { limits } => {
                self.limits = limits;
                self.rebuild_member_ranks();
                Ok(CommandReply::Done)
            }
        }?;
        self.dispatch(effects);
        Ok(reply)
    }

    /// Converts the cluster's time to milliseconds since 1970.
    pub fn unix_ms_of(&self, cluster_ms: u64) -> u64 {
        cluster_ms.saturating_add_signed(self.unix_offset_ms)
    }

    pub(crate) fn unix_ms(&self) -> u64 {
        self.now_ms.saturating_add_signed(self.unix_offset_ms)
    }

    /// Converts milliseconds since 1970 to the cluster's time; 0 gives `None`.
    pub(crate) fn cluster_ms(&self, unix_ms: u64) -> Option<u64> {
        (unix_ms > 0).then(|| unix_ms.saturating_sub_signed(self.unix_offset_ms))
    }

    pub(crate) fn find_tenant(&self, name: &[u8]) -> Result<u32, TaskRefusal> {
        self.check_length(name)?;
        self.tenant_at.get(name).copied().ok_or(TaskRefusal::NoTenant)
    }

    pub(crate) fn find_task(&self, task: u64) -> Result<u32, TaskRefusal> {
        self.tasks.find(task).ok_or(TaskRefusal::NoTask { task })
    }

    pub(crate) fn find_worker(&self, worker: u64) -> Result<u32, TaskRefusal> {
        let found = self.workers.find(worker).or_else(|| self.enlisted.find(worker));
        found.ok_or(TaskRefusal::NoWorker { worker })
    }

    /// Id of a worker, which is the same in all shards.
    pub(crate) fn worker_id(&self, at: u32) -> u64 {
        self.enlisted.id(at).unwrap_or_else(|| self.workers.id(at))
    }

    pub(crate) fn tenant(&mut self, at: u32) -> &mut Tenant {
        &mut self.tenants[at as usize]
    }

    pub(crate) fn tenant_of(&mut self, task: u32) -> &mut Tenant {
        let tenant = self.tasks[task].tenant;
        self.tenant(tenant)
    }

    pub(crate) fn record_event(&self, at: u32, kind: TaskEventKind, effects: &mut TaskEffects) {
        let task = self.tasks.id(at);
        effects.events.push(TaskEvent { task, tenant: self.tasks[at].tenant, at_ms: self.now_ms, kind });
    }

    /// Changes a task, and updates its counted size.
    pub(crate) fn change_task(&mut self, at: u32, change: impl FnOnce(&mut Task)) {
        let task = &mut self.tasks[at];
        let before = task.bytes();
        change(task);
        let (tenant, after, is_finished) = (task.tenant, task.bytes(), task.is_finished());
        self.count_bytes(tenant, after, before, is_finished);
    }

    /// Sets the time of a task's timer.
    pub(crate) fn set_due(&mut self, at: u32, due_ms: u64) {
        let task = &mut self.tasks[at];
        if task.due_ms == due_ms {
            return;
        }
        if task.due_ms != NEVER_MS {
            self.timers.remove(&(task.due_ms, TASK, at));
        }
        if due_ms != NEVER_MS {
            self.timers.insert((due_ms, TASK, at));
        }
        task.due_ms = due_ms;
    }

    pub(crate) fn check_name(&self, name: &[u8]) -> Result<(), TaskRefusal> {
        if name.is_empty() { Err(TaskRefusal::EmptyName) } else { self.check_length(name) }
    }

    pub(crate) fn check_length(&self, name: &[u8]) -> Result<(), TaskRefusal> {
        let (bytes, bytes_max) = (name.len() as u64, u64::from(self.limits.name_bytes_max));
        if bytes > bytes_max { Err(TaskRefusal::NameTooLong { bytes, bytes_max }) } else { Ok(()) }
    }

    pub(crate) fn check_batch(&self, count: usize) -> Result<(), TaskRefusal> {
        Limit::Batch.check(count as u64, u64::from(self.limits.batch_max))
    }

    /// Advances the virtual time. Reduces all tags long before the virtual time could overflow.
    pub(crate) fn advance_virtual_time(&mut self, tag: u64) {
        self.virtual_time = self.virtual_time.max(tag);
        if self.virtual_time < VIRTUAL_TIME_MAX {
            return;
        }
        let back = std::mem::take(&mut self.virtual_time);
        for at in 0..self.tenants.len() as u32 {
            let tenant = self.tenant(at);
            tenant.tag = tenant.tag.saturating_sub(back);
            self.rank_lanes(at);
        }
    }
}
