//! Errors: malformed bytes, and refused commands.

use crate::layout::{choice, decode, encode};

/// The reason why bytes are not a command, reply or snapshot of the task scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskDecodeError {
    /// The bytes end too early.
    #[error("the bytes end too early")]
    Short,
    /// Bytes follow after the end of the encoding.
    #[error("{0} unexpected bytes follow after the end")]
    Trailing(usize),
    /// The version is unknown.
    #[error("version {0} of the encoding is not known here; this build writes version {version}", version = crate::VERSION)]
    Version(u8),
    /// An enum has an unknown value.
    #[error("{number} is not a known {what}")]
    Unknown {
        /// Name of the enum.
        what: &'static str,
        /// The unknown number.
        number: u8,
    },
    /// Items are not in the order that the encoding requires.
    #[error("{0} are out of order")]
    Order(&'static str),
    /// A number or id refers to a missing item, or is repeated.
    #[error("{0} contradict each other: an entry is missing or repeated")]
    Inconsistent(&'static str),
}

choice! {
    /// The reason why a command about tasks was refused. A refused command changes nothing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum TaskRefusal {
        /// The tenant does not exist.
        #[error("the tenant does not exist")]
        NoTenant = 1,
        /// The task never existed, or it ended so long ago that the scheduler has forgotten it.
        #[error("task {task:x} does not exist, or ended too long ago")]
        NoTask { /// Id of the task.
            task: u64 } = 2,
        /// The worker never existed, has left, or was not renewed in time.
        #[error("worker {worker:x} does not exist: it left, or was not renewed within its time to live; its tasks went to other workers")]
        NoWorker { /// Id of the worker.
            worker: u64 } = 3,
        /// A required name is empty.
        #[error("a name (of a tenant, queue, kind, label or schedule) needs at least one byte")]
        EmptyName = 4,
        /// A name is longer than `name_bytes_max`.
        #[error("a name of {bytes} bytes is longer than name_bytes_max = {bytes_max}")]
        NameTooLong { /// Length of the name.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 5,
        /// A payload is longer than `payload_bytes_max`.
        #[error("a payload of {bytes} bytes is longer than payload_bytes_max = {bytes_max}")]
        PayloadTooLong { /// Length of the payload.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 6,
        /// A result is longer than `result_bytes_max`.
        #[error("a result of {bytes} bytes is longer than result_bytes_max = {bytes_max}")]
        ResultTooLong { /// Length of the result.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 7,
        /// The number of items exceeds a limit.
        #[error("{count} items exceed the limit {} = {count_max}", .limit.name())]
        TooMany { /// The limit's name.
            limit: Limit, /// Requested number.
            count: u64, /// The limit.
            count_max: u64 } = 8,
        /// The priority is above 9.
        #[error("priority {priority} is not one of 0 to 9")]
        Priority { /// The priority.
            priority: u8 } = 9,
        /// The deadline has passed.
        #[error("the deadline passed {by_ms} ms ago")]
        DeadlinePast { /// Time since the deadline, ms.
            by_ms: u64 } = 10,
        /// The dependencies of a batch are cyclic.
        #[error("task {index} of the batch waits for itself through other tasks")]
        Cycle { /// Index of a task in the cycle.
            index: u32 } = 11,
        /// A task of a batch waits for a task whose index is not in the batch.
        #[error("task {index} of the batch waits for a task whose index is outside the batch: indexes start at 0")]
        NoDependency { /// Index of the waiting task.
            index: u32 } = 12,
        /// A task waits for a cancelled task, which will never be done.
        #[error("task {index} of the batch waits for task {task:x}, which was cancelled")]
        DependencyCancelled { /// Index of the waiting task.
            index: u32, /// Id of the cancelled task.
            task: u64 } = 13,
        /// The tenant has too many waiting tasks. Tasks of low priority are refused before tasks of high priority.
        #[error("{queued} tasks of the tenant wait, and the limit is queued_max = {queued_max}: try again in {retry_after_ms} ms")]
        QueueFull { /// Number of waiting tasks.
            queued: u64, /// The limit.
            queued_max: u64, /// Time until room is expected, ms.
            retry_after_ms: u64 } = 14,
        /// The parts of a quota contradict each other.
        #[error("a quota needs reserved ≤ soft ≤ hard, and a burst needs a hard limit")]
        Quota = 15,
        /// The weight is out of range.
        #[error("a tenant's weight must be 1 to 10,000")]
        Weight = 16,
        /// A worker names no kind.
        #[error("a worker must name at least one kind of task")]
        NoKinds = 17,
        /// The time to live is 0 or above `worker_ttl_ms_max`.
        #[error("a worker's time to live must be 1 to worker_ttl_ms_max = {ttl_ms_max} ms")]
        WorkerTtl { /// The limit.
            ttl_ms_max: u64 } = 18,
        /// The report is late: the task has been started again under another token.
        #[error("token {token} of task {task:x} is not valid: the task timed out, was cancelled, or went to another worker")]
        StaleToken { /// Id of the task.
            task: u64, /// Token of the report.
            token: u64 } = 19,
        /// The worker does not hold the task.
        #[error("worker {worker:x} does not hold task {task:x}")]
        NotHeld { /// Id of the worker.
            worker: u64, /// Id of the task.
            task: u64 } = 20,
        /// The task has ended.
        #[error("task {task:x} has already ended")]
        Over { /// Id of the task.
            task: u64 } = 21,
        /// The task is not a dead letter.
        #[error("task {task:x} is not a dead letter")]
        NotDead { /// Id of the task.
            task: u64 } = 22,
        /// The schedule does not exist.
        #[error("the schedule does not exist")]
        NoSchedule = 23,
        /// The cron expression is malformed, or never matches.
        #[error("the cron expression is not valid, or never matches a time")]
        Cron = 24,
        /// The subject is missing, or not allowed for this kind.
        #[error("a task of kind `publish` needs a subject, and a task of another kind must not have one")]
        Subject = 25,
        /// The task of a schedule has dependencies, times or an idempotency key of its own.
        #[error("a schedule's task must not have dependencies, times or an idempotency key")]
        ScheduledTask = 26,
        /// The tasks have reached `state_bytes_max`. Nodes divide `tasks.bytes_max` equally among the shards to get
        /// this limit.
        #[error("tasks would take {bytes} bytes, more than tasks.bytes_max = {bytes_max}: wait for tasks to end, discard dead letters, or raise tasks.bytes_max")]
        NoRoom { /// Bytes that tasks would take.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 27,
        /// The task needs more memory than any worker may have.
        #[error("a task needs {bytes} bytes of memory, more than need_bytes_max = {bytes_max}")]
        NeedsTooMuch { /// Needed bytes.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 28,
        /// The count, time or burst of the rate is 0.
        #[error("the count, time and burst of a rate must be at least 1")]
        Rate = 29,
        /// A task of a batch waits for a task of another shard.
        #[error("task {index} of the batch waits for task {task:x} of another shard: if tasks.shards is above 1, a task can wait only for tasks of its own tenant")]
        DependencyElsewhere { /// Index of the waiting task.
            index: u32, /// Id of the task in the other shard.
            task: u64 } = 30,
        /// Another task already has this idempotency key, and the new task differs from it.
        #[error("task {index} of the batch has the idempotency key of task {task:x}, but differs from it in queue, kind, payload or subject: use another key")]
        KeyReused { /// Index of the refused task.
            index: u32, /// Id of the task with the key.
            task: u64 } = 31,
        /// The idempotency key belongs to a cancelled task.
        #[error("task {index} of the batch has the idempotency key of task {task:x}, which was cancelled: use another key to submit it again")]
        KeyCancelled { /// Index of the refused task.
            index: u32, /// Id of the task with the key.
            task: u64 } = 32,
        /// Two different tasks of a batch have the same idempotency key.
        #[error("tasks {before} and {index} of the batch have the same idempotency key, but differ in queue, kind, payload or subject: use different keys")]
        KeyInBatch { /// Index of the second task.
            index: u32, /// Index of the first task.
            before: u32 } = 33,
        /// A time is too far from now.
        #[error("the time {at_ms} is more than ten years {} now ({now_ms}, in milliseconds since 1970): check its unit, and give a point in time, not a duration", if at_ms < now_ms { "before" } else { "after" })]
        TimeFar { /// The time.
            at_ms: u64, /// The cluster's time.
            now_ms: u64 } = 34,
        /// The tenant's tasks have reached the part of the memory that one tenant may use.
        #[error(
            "the tenant's tasks would take {bytes} bytes; the present limit for each tenant is {bytes_max} \
             bytes: wait for tasks to end, or raise tasks.bytes_max. A tenant may take at most three times \
             as many bytes as remain free"
        )]
        NoShare { /// Bytes that the tenant's tasks would take.
            bytes: u64, /// Bytes that the tenant's tasks may take.
            bytes_max: u64 } = 35,
        /// A task of a batch waits for an unknown task.
        #[error("task {index} of the batch waits for task {task:x}, which is not known: the tenant never had it, or it ended too long ago")]
        DependencyUnknown { /// Index of the waiting task.
            index: u32, /// Id of the unknown task.
            task: u64 } = 36,
    }
}

/// Error text for an unknown tenant, with at most 64 characters of the tenant's name.
pub fn no_tenant(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let shown: String = name.chars().take(64).collect();
    let more = if shown.len() < name.len() { "…" } else { "" };
    format!("there is no tenant \"{}{more}\"", shown.escape_debug())
}

choice! {
    /// A limit of the task scheduler that a refused command would exceed; see [`TaskRefusal::TooMany`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub enum Limit {
        Batch = 1,
        Dependencies = 2,
        Labels = 3,
        Tenants = 4,
        Classes = 5,
        Lanes = 6,
        Pools = 7,
        Workers = 8,
        Credit = 9,
        Schedules = 10,
        Policies = 11,
        Tasks = 12,
        Demands = 13,
        DemandsOfTenant = 14,
        SchedulesOfTenant = 15,
        PoolsOfTenant = 16,
    }
}

impl Limit {
    /// Name of the limit in `SchedulerLimits`.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Batch => "batch_max",
            Limit::Dependencies => "dependencies_max",
            Limit::Labels => "labels_max",
            Limit::Tenants => "tenants_max",
            Limit::Classes => "classes_max",
            Limit::Lanes => "lanes_max",
            Limit::Pools => "pools_max",
            Limit::Workers => "workers_max",
            Limit::Credit => "credit_max",
            Limit::Schedules => "schedules_max",
            Limit::Policies => "policies_max",
            Limit::Tasks => "tasks_max",
            Limit::Demands => "DEMANDS_MAX",
            Limit::DemandsOfTenant => "DEMANDS_OF_TENANT_MAX",
            Limit::SchedulesOfTenant => "SCHEDULES_OF_TENANT_MAX",
            Limit::PoolsOfTenant => "pools_of_tenant_max",
        }
    }

    /// Refuses a count above the limit.
    pub(crate) fn check(self, count: u64, count_max: u64) -> Result<(), TaskRefusal> {
        if count > count_max { Err(TaskRefusal::TooMany { limit: self, count, count_max }) } else { Ok(()) }
    }
}

impl TaskRefusal {
    /// Appends the encoded refusal.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a refusal.
    pub fn decode(bytes: &[u8]) -> Result<TaskRefusal, TaskDecodeError> {
        decode(bytes)
    }
}
