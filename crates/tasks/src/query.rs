//! Queries that read a [`SchedulerState`], and their results.

use std::sync::Arc;

use crate::error::{TaskDecodeError, TaskRefusal};
use crate::layout::{choice, decode, encode, layout};
use crate::limits::SchedulerLimits;
use crate::reply::CommandReply;
use crate::signals::Signals;
use crate::state::SchedulerState;
use crate::task::TaskStage;
use crate::view::{QueueView, TaskFilter, TaskView, TenantView, WorkerView};

/// Maximum number of tasks on a page of a list. A query may ask for fewer tasks.
const PAGE_MAX: u32 = 1_000;

choice! {
    /// A query about tasks, queues, tenants, workers or the scheduler.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum TaskQuery<'a> {
        /// Reads all properties of a task.
        Get { /// Id of the task.
            task: u64 } = 1,
        /// Lists tasks that match a filter. The tasks are not in the order of time, but in the order of the places at
        /// which the state stores them.
        List { /// The filter.
            filter: ListFilter<'a>, /// Start of the page; 0 for the first.
            from: u32, /// Maximum number of tasks on the page; 0 for 1,000.
            limit: u32, /// Whether payloads and results are included.
            whole: bool } = 2,
        /// Explains why a task does not run, or what the task is doing.
        Why { /// Id of the task.
            task: u64 } = 3,
        /// Lists the queues of tenants, with the number of ready tasks of each kind.
        Queues { /// Name of the tenant; empty for all.
            tenant: &'a [u8] } = 4,
        /// Lists tenants with their totals.
        Tenants { /// Name of the tenant; empty for all.
            tenant: &'a [u8] } = 5,
        /// Lists all workers.
        Workers = 6,
        /// Reads the inputs of the autoscaler.
        Signals = 7,
        /// Reads the sizes and limits of the state.
        Status = 8,
    }
}

layout! {
    /// Selects tasks by tenant, queue, kind, stage and label. Empty and zero fields match every task.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct ListFilter<'a> {
        /// Name of the tenant.
        pub tenant: &'a [u8],
        /// Name of the queue.
        pub queue: &'a [u8],
        /// Kind of work.
        pub kind: &'a [u8],
        /// The stage of the task.
        pub stage: Option<TaskStage>,
        /// Key and value of a label, if the key is not empty.
        pub label: (&'a [u8], &'a [u8]),
    }
}

choice! {
    // Boxing has no benefit: only one value exists at a time, on the stack of its encoder or reader.
    /// The result of a [`TaskQuery`], such as a list of tasks.
    #[derive(Debug, Clone, PartialEq, Eq)]
    #[allow(clippy::large_enum_variant)]
    pub enum TaskQueryResult {
        /// The requested task.
        Task { /// The task.
            task: TaskView, /// The cluster's time, ms.
            now_ms: u64 } = 1,
        /// One page of a list of tasks.
        Tasks { /// The tasks.
            tasks: Vec<TaskView>, /// Start of the next page, if there is one.
            next: Option<u32>, /// The cluster's time, ms.
            now_ms: u64 } = 2,
        /// An explanation of why a task does not run.
        Why { /// One sentence.
            why: String } = 3,
        /// The queues, with the number of ready tasks of each kind.
        Queues { /// Entries by tenant, queue and kind.
            queues: Vec<QueueView> } = 4,
        /// The tenants with their totals.
        Tenants { /// The tenants.
            tenants: Vec<TenantView> } = 5,
        /// The list of workers.
        Workers { /// The workers.
            workers: Vec<WorkerView> } = 6,
        /// The inputs of the autoscaler.
        Signals { /// The inputs.
            signals: Signals } = 7,
        /// The sizes and limits of the state.
        Status { /// Number of known tasks.
            tasks: u64, /// Approximate size of all tasks, bytes.
            bytes: u64, /// The cluster's time, ms.
            now_ms: u64, /// The limits.
            limits: SchedulerLimits } = 8,
    }
}

choice! {
    /// The outcome of a command about tasks: the reply, or the refusal.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum TaskCommandOutcome {
        /// The command was applied.
        Done { /// The reply.
            reply: CommandReply } = 1,
        /// The command was refused.
        Refused { /// The reason.
            refusal: TaskRefusal } = 2,
    }
}

impl SchedulerState {
    /// Runs a query.
    pub fn answer(&self, query: &TaskQuery<'_>) -> Result<TaskQueryResult, TaskRefusal> {
        let is = |wanted: &[u8], name: &Arc<[u8]>| wanted.is_empty() || *wanted == **name;
        Ok(match *query {
            TaskQuery::Get { task } => TaskQueryResult::Task { task: self.get(task)?, now_ms: self.now_ms() },
            TaskQuery::List { ref filter, from, limit, whole } => self.page(filter, from, limit, whole),
            TaskQuery::Why { task } => TaskQueryResult::Why { why: self.why(task)? },
            TaskQuery::Queues { tenant } => TaskQueryResult::Queues {
                queues: self.queues().filter(|queue| is(tenant, &queue.tenant)).collect(),
            },
            TaskQuery::Tenants { tenant } => TaskQueryResult::Tenants {
                tenants: self.tenants().filter(|found| is(tenant, &found.name)).collect(),
            },
            TaskQuery::Workers => TaskQueryResult::Workers { workers: self.workers().collect() },
            TaskQuery::Signals => TaskQueryResult::Signals { signals: self.signals() },
            TaskQuery::Status => TaskQueryResult::Status {
                tasks: self.len(),
                bytes: self.bytes(),
                now_ms: self.now_ms(),
                limits: self.limits(),
            },
        })
    }

    fn page(&self, wanted: &ListFilter<'_>, from: u32, limit: u32, whole: bool) -> TaskQueryResult {
        let limit = if limit == 0 { PAGE_MAX } else { limit.min(PAGE_MAX) } as usize;
        let non_empty = |name| (!<[u8]>::is_empty(name)).then_some(name);
        let (tenant, queue, kind) =
            (non_empty(wanted.tenant), non_empty(wanted.queue), non_empty(wanted.kind));
        let label = non_empty(wanted.label.0).map(|_| wanted.label);
        let filter = TaskFilter { tenant, queue, kind, stage: wanted.stage, label };
        let (tasks, next) = self.list_within(&filter, from, limit, |task| {
            if !whole {
                task.payload = Arc::default();
                task.outcome.iter_mut().for_each(|outcome| outcome.bytes = Arc::default());
            }
            task.payload.len() + task.outcome.as_ref().map_or(0, |outcome| outcome.bytes.len())
        });
        TaskQueryResult::Tasks { tasks, next, now_ms: self.now_ms() }
    }
}

impl<'a> TaskQuery<'a> {
    /// Appends the encoded query.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a query, borrowing from `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<TaskQuery<'a>, TaskDecodeError> {
        decode(bytes)
    }
}

impl TaskQueryResult {
    /// Appends the encoded result.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a result.
    pub fn decode(bytes: &[u8]) -> Result<TaskQueryResult, TaskDecodeError> {
        decode(bytes)
    }
}

impl TaskCommandOutcome {
    /// Appends the encoded outcome.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes an outcome.
    pub fn decode(bytes: &[u8]) -> Result<TaskCommandOutcome, TaskDecodeError> {
        decode(bytes)
    }
}

impl From<Result<CommandReply, TaskRefusal>> for TaskCommandOutcome {
    fn from(result: Result<CommandReply, TaskRefusal>) -> TaskCommandOutcome {
        match result {
            Ok(reply) => TaskCommandOutcome::Done { reply },
            Err(refusal) => TaskCommandOutcome::Refused { refusal },
        }
    }
}
