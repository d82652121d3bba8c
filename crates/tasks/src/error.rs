//! Why bytes are none of ours, and why a command is refused.

use crate::layout::{choice, decode, encode};

/// Why bytes mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// They end too early.
    #[error("the bytes end before what they announce")]
    Short,
    /// More than one whole.
    #[error("{0} bytes are left over")]
    Trailing(usize),
    /// Of another version.
    #[error("version {0} of the encoding is not known here; this build writes version {version}", version = crate::VERSION)]
    Version(u8),
    /// A choice that is none.
    #[error("{number} is no {what}")]
    Unknown {
        /// Of what.
        what: &'static str,
        /// The number.
        number: u8,
    },
    /// They are not in the order that the encoding has.
    #[error("{0} are out of order")]
    Order(&'static str),
    /// They name what is not there, or name it twice.
    #[error("{0} do not fit together")]
    Inconsistent(&'static str),
}

choice! {
    /// Why a command is refused. It has changed nothing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum Refusal {
        /// Nobody made this tenant.
        #[error("there is no such tenant")]
        NoTenant = 1,
        /// There is no such task, or no more.
        #[error("there is no task {task:x}")]
        NoTask { /// Which.
            task: u64 } = 2,
        /// There is no such worker, or no more.
        #[error("there is no worker {worker:x}: it left, or was silent for too long, and what it held went to others")]
        NoWorker { /// Which.
            worker: u64 } = 3,
        /// A name that has to be there has no bytes.
        #[error("a name (of a tenant, queue, kind, label or schedule) needs at least one byte")]
        EmptyName = 4,
        /// A name is longer than `name_bytes_max`.
        #[error("a name of {bytes} bytes is longer than name_bytes_max = {bytes_max}")]
        NameTooLong { /// Its bytes.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 5,
        /// A payload is longer than `payload_bytes_max`.
        #[error("a payload of {bytes} bytes is longer than payload_bytes_max = {bytes_max}")]
        PayloadTooLong { /// Its bytes.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 6,
        /// A result is longer than `result_bytes_max`.
        #[error("a result of {bytes} bytes is longer than result_bytes_max = {bytes_max}")]
        ResultTooLong { /// Its bytes.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 7,
        /// There are as many of something as may be, or more of it in one command.
        #[error("{count} are more than {} = {count_max}", .limit.name())]
        TooMany { /// Which limit.
            limit: Limit, /// How many there would be.
            count: u64, /// The limit.
            count_max: u64 } = 8,
        /// A priority above 9.
        #[error("priority {priority} is not one of 0 to 9")]
        Priority { /// It.
            priority: u8 } = 9,
        /// A deadline that is over.
        #[error("the deadline was {by_ms} ms ago")]
        DeadlinePast { /// By how much.
            by_ms: u64 } = 10,
        /// Tasks of a batch that wait for one another.
        #[error("task {index} of the batch waits for itself, by way of others")]
        Cycle { /// One of them.
            index: u32 } = 11,
        /// A task of a batch that waits for one of the batch which is not there.
        #[error("task {index} of the batch waits for a task of the batch that is not there: they are counted from 0")]
        NoDependency { /// Which waits.
            index: u32 } = 12,
        /// What it waits for was cancelled, and will never be done.
        #[error("task {index} of the batch waits for task {task:x}, which was cancelled")]
        DependencyCancelled { /// Which waits.
            index: u32, /// For which.
            task: u64 } = 13,
        /// The tenant has as many tasks waiting as it may, or soon: those of the upper priorities are taken longer.
        #[error("{queued} tasks of the tenant wait, of queued_max = {queued_max}: try again in {retry_after_ms} ms")]
        QueueFull { /// How many wait.
            queued: u64, /// The limit.
            queued_max: u64, /// When room is expected.
            retry_after_ms: u64 } = 14,
        /// A quota whose parts contradict one another.
        #[error("a quota has reserved ≤ soft ≤ hard, and burst only with hard")]
        Quota = 15,
        /// A tenant's weight of nothing.
        #[error("a tenant's weight is 1 to 10,000")]
        Weight = 16,
        /// A worker that can do nothing.
        #[error("a worker names at least one kind")]
        NoKinds = 17,
        /// A time to live of nothing, or beyond `worker_ttl_ms_max`.
        #[error("a worker lives without a sign from 1 to worker_ttl_ms_max = {ttl_ms_max} ms")]
        WorkerTtl { /// The limit.
            ttl_ms_max: u64 } = 18,
        /// The answer comes too late: the task has another token now.
        #[error("token {token} of task {task:x} is no longer good: it timed out, was cancelled, or went to another worker")]
        StaleToken { /// Which task.
            task: u64, /// The token that was shown.
            token: u64 } = 19,
        /// The worker never had this task.
        #[error("worker {worker:x} does not hold task {task:x}")]
        NotHeld { /// Who answers.
            worker: u64, /// For what.
            task: u64 } = 20,
        /// The task is over.
        #[error("task {task:x} is over already")]
        Over { /// Which.
            task: u64 } = 21,
        /// The task is no dead letter.
        #[error("task {task:x} is no dead letter")]
        NotDead { /// Which.
            task: u64 } = 22,
        /// There is no such schedule.
        #[error("there is no such schedule")]
        NoSchedule = 23,
        /// Not a cron expression, or one that never comes.
        #[error("the cron expression is none, or names no time to come")]
        Cron = 24,
        /// A task that publishes without a subject, or one that does not with one.
        #[error("tasks of kind `publish`, and only they, need a subject")]
        Subject = 25,
        /// A schedule's task that waits for others, or has times of its own.
        #[error("a schedule's task has no dependencies, times or idempotency key of its own")]
        ScheduledTask = 26,
        /// Tasks have grown to `state_bytes_max`, which nodes set as `tasks.bytes_max`, each shard an equal part.
        #[error("tasks would take {bytes} bytes, more than the {bytes_max} of tasks.bytes_max: try again when some are done, cancel tasks, discard dead letters, or raise tasks.bytes_max")]
        NoRoom { /// What they would have.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 27,
        /// A task that needs more memory than any worker has.
        #[error("a task that needs {bytes} bytes of memory needs more than need_bytes_max = {bytes_max}")]
        NeedsTooMuch { /// What it needs.
            bytes: u64, /// The limit.
            bytes_max: u64 } = 28,
        /// A rate of nothing.
        #[error("a rate has a count, a time and a burst of 1 at least")]
        Rate = 29,
        /// A task of a batch waits for one of a tenant that lives in another shard.
        #[error("task {index} of the batch waits for task {task:x}, which lives in another shard: where tasks.shards > 1, tasks wait for those of their own tenant")]
        DependencyElsewhere { /// Which waits.
            index: u32, /// For which.
            task: u64 } = 30,
        /// A known idempotency key, for something else.
        #[error("task {index} of the batch has the idempotency key of task {task:x}, which has another queue, kind, payload or subject: use another key")]
        KeyReused { /// Which has the key.
            index: u32, /// Whose key it is.
            task: u64 } = 31,
        /// A known idempotency key, of a task that was cancelled.
        #[error("task {index} of the batch has the idempotency key of task {task:x}, which was cancelled: use another key to have it done")]
        KeyCancelled { /// Which has the key.
            index: u32, /// Whose key it is.
            task: u64 } = 32,
        /// Two tasks of a batch with one key, for different things.
        #[error("tasks {before} and {index} of the batch have the same idempotency key, but another queue, kind, payload or subject")]
        KeyInBatch { /// The second.
            index: u32, /// The first.
            before: u32 } = 33,
        /// A time that is far from now.
        #[error("{at_ms} is more than ten years from now, which is {now_ms}: times are milliseconds since 1970")]
        TimeFar { /// The time.
            at_ms: u64, /// The cluster's.
            now_ms: u64 } = 34,
        /// A tenant has as much as one may have of what there is.
        #[error("the tenant's tasks would take {bytes} bytes, more than {bytes_max}, three times what is free of tasks.bytes_max: try again when some are done, cancel tasks, discard dead letters, or raise tasks.bytes_max")]
        NoShare { /// What they would take.
            bytes: u64, /// What they may.
            bytes_max: u64 } = 35,
        /// A task of a batch that waits for one which is not known.
        #[error("task {index} of the batch waits for task {task:x}, which is not known: the tenant never had it, or it was over too long ago")]
        DependencyUnknown { /// Which waits.
            index: u32, /// For which.
            task: u64 } = 36,
    }
}

/// Says that there is no tenant of this name, of which 64 characters are shown.
pub fn no_tenant(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let shown: String = name.chars().take(64).collect();
    let more = if shown.len() < name.len() { "…" } else { "" };
    format!("there is no tenant \"{}{more}\"", shown.escape_debug())
}

choice! {
    /// The limit of a [`Refusal::TooMany`].
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
    /// As it is called in `Limits`.
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

    /// Refuses what is more.
    pub(crate) fn check(self, count: u64, count_max: u64) -> Result<(), Refusal> {
        if count > count_max { Err(Refusal::TooMany { limit: self, count, count_max }) } else { Ok(()) }
    }
}

impl Refusal {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Refusal, DecodeError> {
        decode(bytes)
    }
}
