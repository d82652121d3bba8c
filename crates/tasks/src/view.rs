//! What people see of tasks, tenants, queues and workers.

use std::sync::Arc;

use crate::error::Refusal;
use crate::layout::layout;
use crate::quota::Quota;
use crate::retry::Retry;
use crate::slab::NONE;
use crate::state::State;
use crate::task::{Labelled, Outcome, Stage};
use crate::tenant::{Account, Limited};

/// So many tasks one call looks at, at most.
const LOOKED_AT_MAX: usize = 100_000;
/// A page of whole tasks ends when they have come to so much.
const PAGE_BYTES_MAX: usize = 8 << 20;

layout! {
    /// A task, as it is now. Times are of the cluster's count.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TaskView {
        /// Its id.
        pub task: u64,
        /// Whose it is.
        pub tenant: Arc<[u8]>,
        /// Where it waits.
        pub queue: Arc<[u8]>,
        /// What is done.
        pub kind: Arc<[u8]>,
        /// With what.
        pub payload: Arc<[u8]>,
        /// How far it is.
        pub stage: Stage,
        /// 0 to 9, the highest.
        pub priority: u8,
        /// Attempts begun.
        pub attempts: u32,
        /// Workers that died under it.
        pub lost: u32,
        /// When it was submitted.
        pub submitted_ms: u64,
        /// When its last attempt began, if there was one.
        pub started_ms: Option<u64>,
        /// When it has to be done.
        pub deadline_ms: Option<u64>,
        /// Who has it.
        pub worker: Option<u64>,
        /// How far it said it is, in thousandths, and in words.
        pub progress: (u16, Option<Arc<[u8]>>),
        /// What it is known by.
        pub labels: Vec<Labelled>,
        /// What it waits for, or waited.
        pub after: Vec<u64>,
        /// What came of it, or of its last attempt.
        pub outcome: Option<Outcome>,
        /// Labels that a worker has to have.
        pub needs: Vec<Labelled>,
        /// Thousandths of a processor and bytes of memory that it needs.
        pub amounts: [u64; 2],
        /// How long one attempt may take.
        pub timeout_ms: u32,
        /// When it may start, while it waits for that: its own time, or its next retry's.
        pub not_before_ms: Option<u64>,
        /// What is done when an attempt fails; none once the task is over.
        pub retry: Option<Retry>,
        /// Under which a second one is the same; empty for none.
        pub idempotency_key: Arc<[u8]>,
        /// Where it publishes, if it does.
        pub subject: Arc<[u8]>,
    }
}

/// Which tasks are listed; all that is not said fits.
#[derive(Debug, Clone, Default)]
pub struct Filter<'a> {
    /// Whose.
    pub tenant: Option<&'a [u8]>,
    /// Where.
    pub queue: Option<&'a [u8]>,
    /// Of what kind.
    pub kind: Option<&'a [u8]>,
    /// How far.
    pub stage: Option<Stage>,
    /// With this label.
    pub label: Option<(&'a [u8], &'a [u8])>,
}

layout! {
    /// A tenant, as it is now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TenantView {
        /// Its name.
        pub name: Arc<[u8]>,
        /// Its share.
        pub weight: u32,
        /// On tasks running, thousandths of a processor, bytes of memory.
        pub quotas: [Quota; 3],
        /// Tasks that may wait; 0 for no limit.
        pub queued_max: u64,
        /// Retries for each hundred first starts; 0 for no limit.
        pub retry_percent: u32,
        /// Its limits by key.
        pub limits: Arc<Vec<Limited>>,
        /// Tasks that wait, for whatever.
        pub queued: u64,
        /// Of those, the ones that wait for nothing but their turn.
        pub ready: u64,
        /// Tasks running, thousandths of a processor and bytes of memory that they need.
        pub used: [u64; 3],
        /// Dead letters.
        pub dead: u64,
        /// What it has had.
        pub account: Account,
    }
}

layout! {
    /// What a tenant has in a queue of a kind.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct QueueView {
        /// Whose.
        pub tenant: Arc<[u8]>,
        /// Which.
        pub queue: Arc<[u8]>,
        /// What is done.
        pub kind: Arc<[u8]>,
        /// Tasks that wait for their turn.
        pub ready: u64,
        /// For how long the first of them has.
        pub oldest_ms: u64,
        /// What one costs, by those that were done lately.
        pub cost_us: u64,
        /// Labels that a worker has to have.
        pub needs: Vec<Labelled>,
    }
}

layout! {
    /// A worker, as it is now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WorkerView {
        /// Its id.
        pub worker: u64,
        /// For people.
        pub name: Arc<[u8]>,
        /// What it can do.
        pub kinds: Vec<Arc<[u8]>>,
        /// The queues it serves; none for all.
        pub queues: Vec<Arc<[u8]>>,
        /// Tasks it has.
        pub held: u64,
        /// Tasks it would take.
        pub credit: u64,
        /// Tasks it did.
        pub done: u64,
        /// It takes nothing new.
        pub is_draining: bool,
        /// For how long it lives without a sign.
        pub left_ms: u64,
        /// What it has that tasks may need.
        pub labels: Vec<Labelled>,
        /// The tenants whose tasks it takes; none for all.
        pub tenants: Vec<Arc<[u8]>>,
        /// Thousandths of a processor and bytes of memory that it has; 0 where it does not say.
        pub has: [u64; 2],
        /// What its tasks need of that.
        pub used: [u64; 2],
    }
}

impl State {
    /// A task.
    pub fn get(&self, task: u64) -> Result<TaskView, Refusal> {
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
            not_before_ms: matches!(task.stage, Stage::Blocked | Stage::Delayed)
                .then_some(task.since_ms)
                .filter(|since_ms| *since_ms > self.now_ms),
            retry: (!task.stage.is_over() || task.stage == Stage::Dead)
                .then(|| self.policies.get(task.policy)),
            idempotency_key: extra.idempotency_key.unwrap_or_default(),
            subject: extra.subject.unwrap_or_default(),
        }
    }

    /// Up to `limit` tasks that fit, and from where to go on if there may be more; begins with 0.
    pub fn list(&self, filter: &Filter<'_>, from: u32, limit: usize) -> (Vec<TaskView>, Option<u32>) {
        self.list_within(filter, from, limit, |_| 0)
    }

    /// The same; a page also ends when the tasks on it have come to [`PAGE_BYTES_MAX`], by what `weigh` says of each.
    pub(crate) fn list_within(
        &self,
        filter: &Filter<'_>,
        from: u32,
        limit: usize,
        weigh: impl Fn(&mut TaskView) -> usize,
    ) -> (Vec<TaskView>, Option<u32>) {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (looked, (at, _)) in self.tasks.iter_from(from).enumerate() {
            if looked == LOOKED_AT_MAX || found.len() == limit || bytes >= PAGE_BYTES_MAX {
                return (found, Some(at));
            }
            if self.fits(at, filter) {
                let mut task = self.view(at);
                bytes += weigh(&mut task);
                found.push(task);
            }
        }
        (found, None)
    }

    fn fits(&self, at: u32, filter: &Filter<'_>) -> bool {
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

    /// All queues of all tenants, by kind.
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
                has: worker.has,
                used: worker.used,
            }
        })
    }
}
