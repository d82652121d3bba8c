//! Views of tasks, tenants, queues and workers, as queries return them.

use std::sync::Arc;

use crate::error::TaskRefusal;
use crate::layout::layout;
use crate::quota::Quota;
use crate::retry::RetryPolicy;
use crate::slab::NONE;
use crate::state::SchedulerState;
use crate::task::{AttemptOutcome, StoredLabel, TaskStage};
use crate::tenant::{StoredKeyLimit, TenantTotals};

/// Maximum number of tasks that one call of [`SchedulerState::list`] checks.
const CHECKED_MAX: usize = 100_000;
/// Size at which a page of whole tasks ends, bytes.
const PAGE_BYTES_MAX: usize = 8 << 20;

layout! {
    /// The state of a task in a query's result. Times are on the cluster's clock.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TaskView {
        /// Id of the task.
        pub task: u64,
        /// Name of the tenant.
        pub tenant: Arc<[u8]>,
        /// Name of the queue.
        pub queue: Arc<[u8]>,
        /// Kind of work.
        pub kind: Arc<[u8]>,
        /// Payload.
        pub payload: Arc<[u8]>,
        /// The stage of the task.
        pub stage: TaskStage,
        /// Priority: 0 is the lowest, 9 the highest.
        pub priority: u8,
        /// Number of attempts since the task was submitted or last restarted. Attempts whose worker died do not count.
        pub attempts: u32,
        /// Number of workers that died while they ran the task.
        pub lost: u32,
        /// Time of submission.
        pub submitted_ms: u64,
        /// Start of the last attempt.
        pub started_ms: Option<u64>,
        /// Deadline.
        pub deadline_ms: Option<u64>,
        /// Id of the task's worker.
        pub worker: Option<u64>,
        /// The last reported progress in thousandths, and its note.
        pub progress: (u16, Option<Arc<[u8]>>),
        /// Labels.
        pub labels: Vec<StoredLabel>,
        /// Tasks that had to be done before the task could start.
        pub after: Vec<u64>,
        /// Result or failure of the task's last attempt.
        pub outcome: Option<AttemptOutcome>,
        /// Labels that a worker must have.
        pub needs: Vec<StoredLabel>,
        /// Thousandths of a processor and bytes of memory that the task needs.
        pub amounts: [u64; 2],
        /// Timeout of an attempt, ms.
        pub timeout_ms: u32,
        /// Earliest start, or time of the next retry, while the task waits for that time.
        pub not_before_ms: Option<u64>,
        /// Retry policy; `None` once the task is completed or cancelled.
        pub retry: Option<RetryPolicy>,
        /// Idempotency key; empty for none.
        pub idempotency_key: Arc<[u8]>,
        /// Destination of a task that publishes.
        pub subject: Arc<[u8]>,
    }
}

/// Selects tasks by tenant, queue, kind, stage and label. Fields that are `None` match every task.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter<'a> {
    /// Name of the tenant.
    pub tenant: Option<&'a [u8]>,
    /// Name of the queue.
    pub queue: Option<&'a [u8]>,
    /// Kind of work.
    pub kind: Option<&'a [u8]>,
    /// The stage of the task.
    pub stage: Option<TaskStage>,
    /// Key and value of a label.
    pub label: Option<(&'a [u8], &'a [u8])>,
}

layout! {
    /// The settings and counters of a tenant in a query's result.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TenantView {
        /// Name of the tenant.
        pub name: Arc<[u8]>,
        /// Weight of the tenant compared with other tenants' weights.
        pub weight: u32,
        /// Quotas for running tasks, for thousandths of a processor, and for bytes of memory.
        pub quotas: [Quota; 3],
        /// Maximum number of waiting tasks; 0 for no limit.
        pub queued_max: u64,
        /// Maximum number of retries for each hundred first attempts; 0 for no limit.
        pub retry_percent: u32,
        /// Limits by key.
        pub limits: Arc<Vec<StoredKeyLimit>>,
        /// Number of waiting tasks, ready or not.
        pub queued: u64,
        /// Number of tasks that wait only for a worker.
        pub ready: u64,
        /// Number of running tasks, and the thousandths of a processor and bytes of memory that they need.
        pub used: [u64; 3],
        /// Number of dead letters.
        pub dead: u64,
        /// The tenant's totals.
        pub account: TenantTotals,
    }
}

layout! {
    /// A tenant's ready tasks of one kind in one queue, in a query's result.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct QueueView {
        /// Name of the tenant.
        pub tenant: Arc<[u8]>,
        /// Name of the queue.
        pub queue: Arc<[u8]>,
        /// Kind of work.
        pub kind: Arc<[u8]>,
        /// Number of ready tasks.
        pub ready: u64,
        /// Waiting time of the ready task that is next, ms; 0 if no task is ready.
        pub oldest_ms: u64,
        /// Recent cost of a task, µs.
        pub cost_us: u64,
        /// Labels that a worker must have.
        pub needs: Vec<StoredLabel>,
    }
}

layout! {
    /// The state of a worker in a query's result.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WorkerView {
        /// Id of the worker.
        pub worker: u64,
        /// Display name.
        pub name: Arc<[u8]>,
        /// Kinds that the worker runs.
        pub kinds: Vec<Arc<[u8]>>,
        /// Queues that the worker serves; empty for all.
        pub queues: Vec<Arc<[u8]>>,
        /// Number of tasks that the worker holds.
        pub held: u64,
        /// Number of further tasks that the worker can take.
        pub credit: u64,
        /// Number of tasks that the worker has done.
        pub done: u64,
        /// Whether the worker takes no new tasks.
        pub is_draining: bool,
        /// Remaining time to live without a renewal, ms.
        pub left_ms: u64,
        /// Labels of the worker, which tasks may require.
        pub labels: Vec<StoredLabel>,
        /// Tenants whose tasks the worker takes; empty for all.
        pub tenants: Vec<Arc<[u8]>>,
        /// Thousandths of a processor and bytes of memory of the worker; 0 if not stated.
        pub capacity: [u64; 2],
        /// Thousandths of a processor and bytes of memory that the held tasks need.
        pub used: [u64; 2],
    }
}

impl SchedulerState {
    /// Returns a task.
    pub fn get(&self, task: u64) -> Result<TaskView, TaskRefusal> {
        self.find_task(task).map(|at| self.view(at))
    }

    fn view(&self, at: u32) -> TaskView {
        let task = &self.tasks[at];
        let class = &self.classes[self.lanes[task.lane as usize].class as usize];
        let extra = task.extra.as_deref().cloned().unwrap_or_default();
        TaskView {
            task: self.tasks.id(at),
            tenant: self.tenants[task.tenant as usize].name.clone(),
            queue: self.names.get(class.queue).clone(),
            kind: self.names.get(class.kind).clone(),
            payload: task.payload.clone(),
            stage: task.stage,
            priority: task.priority,
            attempts: u32::from(task.attempts),
            lost: u32::from(task.lost),
            submitted_ms: task.submitted_ms,
            started_ms: (task.token > 0).then_some(task.started_ms),
            deadline_ms: (task.deadline_ms != u64::MAX).then_some(task.deadline_ms),
            worker: (task.stage.is_held() && task.worker != NONE).then(|| self.worker_id(task.worker)),
            progress: (extra.permille, extra.note),
            labels: extra.labels,
            after: extra.after,
            outcome: task.outcome.as_deref().cloned(),
            needs: class.needs.to_vec(),
            amounts: [u64::from(extra.cpu_milli), extra.memory_bytes],
            timeout_ms: task.timeout_ms,
            not_before_ms: matches!(task.stage, TaskStage::Blocked | TaskStage::Delayed)
                .then_some(task.since_ms)
                .filter(|since_ms| *since_ms > self.now_ms),
            retry: (!task.stage.is_over() || task.stage == TaskStage::Dead)
                .then(|| self.policies.get(task.policy)),
            idempotency_key: extra.idempotency_key.unwrap_or_default(),
            subject: extra.subject.unwrap_or_default(),
        }
    }

    /// Returns up to `limit` matching tasks, and the start of the next page if there may be more tasks. The first page
    /// starts at 0.
    pub fn list(&self, filter: &TaskFilter<'_>, from: u32, limit: usize) -> (Vec<TaskView>, Option<u32>) {
        self.list_within(filter, from, limit, |_| 0)
    }

    /// Like [`Self::list`], but a page also ends when the sum of `size` over its tasks reaches [`PAGE_BYTES_MAX`].
    pub(crate) fn list_within(
        &self,
        filter: &TaskFilter<'_>,
        from: u32,
        limit: usize,
        size: impl Fn(&mut TaskView) -> usize,
    ) -> (Vec<TaskView>, Option<u32>) {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (checked, (at, _)) in self.tasks.iter_from(from).enumerate() {
            if checked == CHECKED_MAX || found.len() == limit || bytes >= PAGE_BYTES_MAX {
                return (found, Some(at));
            }
            if self.fits(at, filter) {
                let mut task = self.view(at);
                bytes += size(&mut task);
                found.push(task);
            }
        }
        (found, None)
    }

    fn fits(&self, at: u32, filter: &TaskFilter<'_>) -> bool {
        let task = &self.tasks[at];
        let class = &self.classes[self.lanes[task.lane as usize].class as usize];
        let is = |wanted: Option<&[u8]>, name: &[u8]| wanted.is_none_or(|wanted| wanted == name);
        let has = |(key, value): (&[u8], &[u8])| {
            let labels = task.extra.iter().flat_map(|extra| &extra.labels);
            labels.into_iter().any(|label| (&*label.key, &*label.value) == (key, value))
        };
        is(filter.tenant, &self.tenants[task.tenant as usize].name)
            && is(filter.queue, self.names.get(class.queue))
            && is(filter.kind, self.names.get(class.kind))
            && filter.stage.is_none_or(|stage| stage == task.stage)
            && filter.label.is_none_or(has)
    }

    /// All tenants.
    pub fn tenants(&self) -> impl Iterator<Item = TenantView> {
        self.tenants.iter().map(|tenant| TenantView {
            name: tenant.name.clone(),
            weight: tenant.weight,
            quotas: tenant.quotas,
            queued_max: tenant.queued_max,
            retry_percent: tenant.retry_percent,
            limits: Arc::clone(&tenant.limits),
            queued: tenant.queued,
            ready: tenant.ready,
            used: tenant.used.map(|used| used.now),
            dead: u64::from(tenant.dead.len),
            account: tenant.account,
        })
    }

    /// All queues of all tenants. A queue has an entry for each kind of tasks and each set of labels that tasks need.
    pub fn queues(&self) -> impl Iterator<Item = QueueView> {
        let used = self.lanes.iter().zip(self.lane_tasks.iter()).filter(|(_, tasks)| **tasks > 0);
        used.map(|(lane, _)| {
            let class = &self.classes[lane.class as usize];
            let first = lane.first(&self.tasks, self.limits.ageing_ms);
            QueueView {
                tenant: self.tenants[lane.tenant as usize].name.clone(),
                queue: self.names.get(class.queue).clone(),
                kind: self.names.get(class.kind).clone(),
                ready: u64::from(lane.len),
                oldest_ms: first.map_or(0, |(_, at)| self.now_ms - self.tasks[at].since_ms),
                cost_us: u64::from(lane.cost_us),
                needs: class.needs.to_vec(),
            }
        })
    }

    /// All workers.
    pub fn workers(&self) -> impl Iterator<Item = WorkerView> {
        let names = |numbers: &std::collections::BTreeSet<u32>| {
            numbers.iter().map(|&number| self.names.get(number).clone()).collect()
        };
        self.workers.iter_from(0).map(move |(at, worker)| {
            let serves = &self.pools[worker.pool as usize].serves;
            WorkerView {
                worker: self.worker_id(at),
                name: worker.name.clone(),
                kinds: names(&serves.kinds),
                queues: names(&serves.queues),
                held: u64::from(worker.held.len),
                credit: u64::from(worker.credit),
                done: worker.done,
                is_draining: worker.is_draining,
                left_ms: worker.end_ms.saturating_sub(self.now_ms),
                labels: serves.labels.iter().cloned().collect(),
                tenants: serves.tenants.iter().cloned().collect(),
                capacity: worker.capacity,
                used: worker.used,
            }
        })
    }
}
