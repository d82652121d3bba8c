//! Commands: changes to a [`SchedulerState`](crate::SchedulerState).

use crate::error::TaskDecodeError;
use crate::layout::{ExtendedEncoding, Later, choice, decode, encode, layout};
use crate::limits::SchedulerLimits;
use crate::quota::Quota;
use crate::rate::Rate;
use crate::retry::RetryPolicy;

// Encoded numbers of the commands that may change many tasks although they are short.
const TENANT: u8 = 1;
const CANCEL: u8 = 3;
const REDRIVE: u8 = 5;
const DISCARD: u8 = 6;
const LEAVE: u8 = 15;
const REDRIVE_SAFE: u8 = 24;

// Encoded numbers of the commands that may end attempts of tasks.
const COMPLETE: u8 = 10;
const FAIL: u8 = 11;
const PUBLISHED: u8 = 18;
const UNPUBLISHED: u8 = 25;

choice! {
    /// A command that changes tasks, workers, tenants or schedules. A command is applied as a whole, or refused. A time
    /// that a client states is in milliseconds since 1970; 0 stands for no time. Durations are measured with the
    /// cluster's own clock.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum TaskCommand<'a> {
        /// Creates or changes a tenant. Changed limits apply from the next start of a task on.
        Tenant { /// The tenant.
            tenant: TenantSettings<'a> } = 1,
        /// Submits tasks, all or none.
        Submit { /// Tenant of the tasks.
            tenant: &'a [u8], /// The tasks.
            tasks: Vec<NewTask<'a>> } = 2,
        /// Cancels a task, and all tasks that wait for this task. A running task ends when its worker confirms the
        /// cancellation, or when the task's timeout has passed.
        Cancel { /// Id of the task.
            task: u64 } = 3,
        /// Restarts a dead letter. The restarted task may use all its retries anew.
        Retry { /// Id of the task.
            task: u64 } = 4,
        /// Restarts the oldest dead letters of a tenant, even those that became dead letters because their workers
        /// died.
        Redrive { /// Name of the tenant.
            tenant: &'a [u8], /// Maximum number of tasks; 0 for `batch_max`.
            count: u32 } = 5,
        /// Discards the oldest dead letters of a tenant, and cancels tasks that wait for them.
        Discard { /// Name of the tenant.
            tenant: &'a [u8], /// Maximum number of tasks; 0 for `batch_max`.
            count: u32 } = 6,
        /// Adds a worker.
        Join { /// The worker.
            worker: NewWorker<'a> } = 7,
        /// Adds credit to a worker. The worker can then take this many further tasks.
        Pull { /// Id of the worker.
            worker: u64, /// Number of tasks.
            credit: u32 } = 8,
        /// Renews the leases of workers.
        Renew { /// Ids of the workers.
            workers: Vec<u64> } = 9,
        /// Reports that a worker completed a task.
        Complete { /// Worker, task and token.
            report: AttemptReport, /// Result of the task.
            result: &'a [u8] } = 10,
        /// Reports that an attempt of a task failed.
        Fail { /// Worker, task and token.
            report: AttemptReport, /// The error.
            error: &'a [u8], /// Whether a retry is allowed.
            retry: bool } = 11,
        /// Reports the progress of a task.
        Progress { /// Id of the worker.
            worker: u64, /// Id of the task.
            task: u64, /// Token of its start.
            token: u64, /// Progress in thousandths.
            permille: u16, /// A note.
            note: &'a [u8] } = 12,
        /// Restarts the timeout of a task.
        Extend { /// Id of the worker.
            worker: u64, /// Id of the task.
            task: u64, /// Token of its start.
            token: u64, /// New timeout from now on, ms; 0 for the same.
            timeout_ms: u32 } = 13,
        /// Drains a worker: the worker takes no new tasks, and ends when its present tasks have ended.
        Drain { /// Id of the worker.
            worker: u64 } = 14,
        /// Removes a worker. Its tasks go to other workers.
        Leave { /// Id of the worker.
            worker: u64 } = 15,
        /// Creates or changes a schedule, which submits a task at each time of the cron expression, in UTC.
        Schedule { /// Name of the tenant.
            tenant: &'a [u8], /// Name of the schedule.
            name: &'a [u8], /// Cron expression: five fields, or six with seconds.
            cron: &'a [u8], /// Task that is submitted.
            task: NewTask<'a> } = 16,
        /// Removes a schedule. Tasks that it has already submitted stay.
        Unschedule { /// Name of the tenant.
            tenant: &'a [u8], /// Name of the schedule.
            name: &'a [u8] } = 17,
        /// Reports that the payloads of these tasks were published.
        Published { /// Ids of the tasks.
            tasks: Vec<u64> } = 18,
        /// Sets the time of day.
        Clock { /// Milliseconds since 1970.
            unix_ms: u64 } = 19,
        /// Sets the limits of the scheduler. Existing tasks, workers and tenants stay, even if they exceed a limit.
        Limit { /// New limits.
            limits: SchedulerLimits } = 20,
        /// Creates a tenant with weight 1 and without limits, unless the tenant exists.
        EnsureTenant { /// Name of the tenant.
            tenant: &'a [u8] } = 21,
        /// Sets a worker's number of slots, and how many further tasks the worker may hold ahead. Each task that the
        /// worker runs occupies a slot. Replaces the credit from the worker's earlier commands.
        Slots { /// Id of the worker.
            worker: u64, /// Number of slots.
            slots: u32, /// Tasks that it may hold ahead.
            ahead: u32 } = 22,
        /// Lets a worker that joined in another shard take tasks of this shard too. The worker has the same id in both
        /// shards. If this shard already knows the worker, renews the worker's lease.
        Enlist { /// Id from the other shard.
            id: u64, /// The worker.
            worker: NewWorker<'a> } = 23,
        /// Restarts the oldest dead letters of a tenant, but not those that became dead letters because their workers
        /// died.
        RedriveSafe { /// Name of the tenant.
            tenant: &'a [u8], /// Maximum number of tasks; 0 for `batch_max`.
            count: u32 } = 24,
        /// Makes a task a dead letter, because the task is not allowed to publish its payload.
        Unpublished { /// Id of the task.
            task: u64, /// The error.
            error: &'a [u8] } = 25,
        /// Must follow the restoration of a backup. Begins a later epoch of events, and sets the clock. Skips the
        /// fencing tokens that workers may have received since the backup was made.
        BeginRestored { /// Milliseconds since 1970.
            unix_ms: u64 } = 26,
    }
}

layout! {
    /// The settings of a tenant: its weight, quotas and limits.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TenantSettings<'a> {
        /// Name of the tenant.
        pub name: &'a [u8],
        /// Weight of the tenant compared with other tenants' weights; at least 1.
        pub weight: u32,
        /// Maximum number of waiting tasks; 0 for no limit.
        pub queued_max: u64,
        /// Maximum number of retries for each hundred first attempts, plus a few retries at the beginning; 0 for no
        /// limit.
        pub retry_percent: u32,
        /// Quota for the number of tasks that run at the same time.
        pub concurrency: Quota,
        /// Quota for the processors of all running tasks, in thousandths of a processor.
        pub cpu_milli: Quota,
        /// Quota for the memory of all running tasks, in bytes.
        pub memory_bytes: Quota,
        /// Limits by key. A task may count towards several of these limits.
        pub limits: Vec<KeyLimit<'a>>,
    }
}

impl<'a> TenantSettings<'a> {
    /// Creates a tenant of weight 1 without limits.
    pub fn new(name: &'a [u8]) -> TenantSettings<'a> {
        TenantSettings {
            name,
            weight: 1,
            queued_max: 0,
            retry_percent: 0,
            concurrency: Quota::default(),
            cpu_milli: Quota::default(),
            memory_bytes: Quota::default(),
            limits: Vec::new(),
        }
    }
}

layout! {
    /// A limit on those tasks of a tenant that have the same value of a key, such as the same queue. It limits how many
    /// of these tasks run at the same time, and how many start in a period.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct KeyLimit<'a> {
        /// Key of a label, or `tenant`, `queue` or `kind`.
        pub key: &'a [u8],
        /// Maximum number of tasks that run at the same time.
        pub running_max: u32,
        /// Maximum number of starts in a period, retries included.
        pub rate: Option<Rate>,
    }
}

impl<'a> KeyLimit<'a> {
    /// Creates a limit on how many tasks with the same value of `key` run at the same time.
    pub fn running(key: &'a [u8], running_max: u32) -> KeyLimit<'a> {
        KeyLimit { key, running_max, rate: None }
    }

    /// Creates a limit on how often tasks with the same value of `key` start.
    pub fn starting(key: &'a [u8], rate: Rate) -> KeyLimit<'a> {
        KeyLimit { key, running_max: u32::MAX, rate: Some(rate) }
    }
}

layout! {
    /// A task to submit: its queue, kind, payload, times and requirements.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct NewTask<'a> {
        /// Name of the task's queue.
        pub queue: &'a [u8],
        /// Kind of work; kind `publish` publishes the payload without a worker.
        pub kind: &'a [u8],
        /// Payload for the worker.
        pub payload: &'a [u8],
        /// Priority: 0 is the lowest, 9 the highest.
        pub priority: u8,
        /// Earliest start.
        pub not_before_ms: u64,
        /// Deadline. A task that is not done at this time becomes a dead letter.
        pub deadline_ms: u64,
        /// Timeout of an attempt, ms; 0 for `timeout_ms_default`.
        pub timeout_ms: u32,
        /// Retry policy; `None` for three retries.
        pub retry: Option<RetryPolicy>,
        /// Idempotency key; empty for none. If a task with this key exists, the new task is not added, and the reply
        /// names the existing task. The new task is refused if its queue, kind, payload or subject differs from that of
        /// the existing task.
        pub idempotency_key: &'a [u8],
        /// Other tasks that must be done before this task can start.
        pub after: Vec<TaskDependency>,
        /// Labels, for searches and limits.
        pub labels: Vec<Label<'a>>,
        /// Processors that the task needs, in thousandths of a processor.
        pub cpu_milli: u32,
        /// Memory that the task needs, bytes.
        pub memory_bytes: u64,
        /// The destination of a task of kind `publish`: an encoded [`Destination`](crate::Destination).
        pub subject: &'a [u8],
    } later {
        /// Labels that the task needs. Only a worker that has all of these labels can run the task.
        pub needs: Vec<Label<'a>>,
    }
}

impl<'a> NewTask<'a> {
    /// Creates a task of the usual priority, 5, in the queue `default`.
    pub fn new(kind: &'a [u8], payload: &'a [u8]) -> NewTask<'a> {
        NewTask { queue: b"default", kind, payload, priority: 5, ..NewTask::default() }
    }
}

choice! {
    /// One dependency of a task: another task that must be done before the task can start.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TaskDependency {
        /// A task that was submitted before.
        Task { /// Id of the task.
            task: u64 } = 1,
        /// A task that the same command submits.
        Batch { /// Index of the task, from 0.
            index: u32 } = 2,
    }
}

layout! {
    /// A key and value of a worker or task. A task can require that its worker has a certain label.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Label<'a> {
        /// Key of the label.
        pub key: &'a [u8],
        /// Value of the label.
        pub value: &'a [u8],
    }
}

layout! {
    /// The description of a worker that joins: its kinds of tasks, its queues and its resources.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct NewWorker<'a> {
        /// Display name.
        pub name: &'a [u8],
        /// Kinds of tasks that the worker can run.
        pub kinds: Vec<&'a [u8]>,
        /// Queues that the worker serves; empty for all.
        pub queues: Vec<&'a [u8]>,
        /// Processors of the worker, in thousandths of a processor; 0 if not stated.
        pub cpu_milli: u32,
        /// Memory of the worker, bytes; 0 if not stated.
        pub memory_bytes: u64,
        /// If the worker's lease is not renewed for this time, the worker counts as dead, ms.
        pub ttl_ms: u64,
        /// Number of tasks that the worker runs at the same time.
        pub credit: u32,
    } later {
        /// Labels of the worker, which tasks may require.
        pub labels: Vec<Label<'a>>,
        /// Tenants whose tasks the worker takes; empty for all.
        pub tenants: Vec<&'a [u8]>,
    }
}

choice! {
    /// A command with fields that later versions added. The encoded number of the command is the number of the basic
    /// command plus 128.
    #[derive(Debug)]
    pub enum ExtendedCommand<'a> {
        Submit { tenant: &'a [u8], tasks: Vec<ExtendedEncoding<NewTask<'a>>> } = 130,
        Join { worker: ExtendedEncoding<NewWorker<'a>> } = 135,
        Schedule { tenant: &'a [u8], name: &'a [u8], cron: &'a [u8], task: ExtendedEncoding<NewTask<'a>> } = 144,
        Enlist { id: u64, worker: ExtendedEncoding<NewWorker<'a>> } = 151,
    }
}

impl<'a> ExtendedCommand<'a> {
    /// If the command uses a field that was added in a later version, converts the command to the extended form.
    /// Returns `None` for all other commands.
    fn of(command: &TaskCommand<'a>) -> Option<ExtendedCommand<'a>> {
        match command {
            TaskCommand::Submit { tenant, tasks } if tasks.iter().any(Later::has_later_fields) => {
                Some(ExtendedCommand::Submit {
                    tenant,
                    tasks: tasks.iter().cloned().map(ExtendedEncoding).collect(),
                })
            }
            TaskCommand::Join { worker } if worker.has_later_fields() => {
                Some(ExtendedCommand::Join { worker: ExtendedEncoding(worker.clone()) })
            }
            TaskCommand::Enlist { id, worker } if worker.has_later_fields() => {
                Some(ExtendedCommand::Enlist { id: *id, worker: ExtendedEncoding(worker.clone()) })
            }
            TaskCommand::Schedule { tenant, name, cron, task } if task.has_later_fields() => {
                Some(ExtendedCommand::Schedule { tenant, name, cron, task: ExtendedEncoding(task.clone()) })
            }
            _ => None,
        }
    }

    fn command(self) -> TaskCommand<'a> {
        match self {
            ExtendedCommand::Submit { tenant, tasks } => TaskCommand::Submit {
                tenant,
                tasks: tasks.into_iter().map(|ExtendedEncoding(task)| task).collect(),
            },
            ExtendedCommand::Join { worker: ExtendedEncoding(worker) } => TaskCommand::Join { worker },
            ExtendedCommand::Enlist { id, worker: ExtendedEncoding(worker) } => {
                TaskCommand::Enlist { id, worker }
            }
            ExtendedCommand::Schedule { tenant, name, cron, task: ExtendedEncoding(task) } => {
                TaskCommand::Schedule { tenant, name, cron, task }
            }
        }
    }
}

layout! {
    /// A worker's report about an attempt of a task: its run time, processor time and memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AttemptReport {
        /// Id of the worker.
        pub worker: u64,
        /// Id of the task.
        pub task: u64,
        /// Token of the task's start.
        pub token: u64,
        /// Run time, µs.
        pub run_us: u64,
        /// Processor time, µs.
        pub cpu_us: u64,
        /// Peak memory, bytes.
        pub memory_bytes: u64,
        /// Number of further tasks that the worker can take now.
        pub credit: u32,
    }
}

impl<'a> TaskCommand<'a> {
    /// The tenant that must exist before the command can be applied. `None` if the command needs no tenant.
    pub fn tenant(&self) -> Option<&'a [u8]> {
        match *self {
            TaskCommand::Submit { tenant, .. }
            | TaskCommand::Redrive { tenant, .. }
            | TaskCommand::RedriveSafe { tenant, .. }
            | TaskCommand::Discard { tenant, .. }
            | TaskCommand::Schedule { tenant, .. }
            | TaskCommand::Unschedule { tenant, .. } => Some(tenant),
            _ => None,
        }
    }

    /// Appends the encoded command.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match ExtendedCommand::of(self) {
            Some(longer) => encode(&longer, out),
            None => encode(self, out),
        }
    }

    /// Decodes a command, borrowing from `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<TaskCommand<'a>, TaskDecodeError> {
        match bytes.get(1) {
            Some(130 | 135 | 144 | 151) => decode(bytes).map(ExtendedCommand::command),
            _ => decode(bytes),
        }
    }

    /// Whether an encoded command may change many tasks even if the command is short. The command is not decoded, only
    /// its number is read, because this check runs for each command.
    pub(crate) fn may_change_many(command: &[u8]) -> bool {
        let number = command.get(1).copied().unwrap_or_default();
        [TENANT, CANCEL, REDRIVE, DISCARD, LEAVE, REDRIVE_SAFE].contains(&number)
    }

    /// Whether an encoded command may end attempts of tasks. The end of an attempt also changes other tasks, those that
    /// wait for the ended task.
    pub(crate) fn may_end_attempts(command: &[u8]) -> bool {
        let number = command.get(1).copied().unwrap_or_default();
        [COMPLETE, FAIL, PUBLISHED, UNPUBLISHED].contains(&number)
    }

    /// The workers that sent the command, or to which the command applies.
    pub fn workers(&self) -> &[u64] {
        match self {
            TaskCommand::Renew { workers } => workers,
            TaskCommand::Complete { report: AttemptReport { worker, .. }, .. }
            | TaskCommand::Fail { report: AttemptReport { worker, .. }, .. }
            | TaskCommand::Pull { worker, .. }
            | TaskCommand::Progress { worker, .. }
            | TaskCommand::Extend { worker, .. }
            | TaskCommand::Drain { worker }
            | TaskCommand::Leave { worker }
            | TaskCommand::Slots { worker, .. } => std::slice::from_ref(worker),
            _ => &[],
        }
    }

    /// Whether the command makes the state larger.
    pub fn grows(&self) -> bool {
        matches!(
            self,
            TaskCommand::Tenant { .. }
                | TaskCommand::EnsureTenant { .. }
                | TaskCommand::Submit { .. }
                | TaskCommand::Schedule { .. }
                | TaskCommand::Join { .. }
                | TaskCommand::Enlist { .. }
        )
    }
}
