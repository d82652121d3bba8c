//! Limits of a [`SchedulerState`](crate::SchedulerState).

use crate::layout::layout;

layout! {
    /// Limits of the task scheduler, equal on every node because the state and its snapshots contain them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SchedulerLimits {
        /// Maximum length of each name, bytes. Names are those of tenants, queues, kinds, workers and schedules, the
        /// keys and values of labels, idempotency keys, and subjects.
        pub name_bytes_max: u32,
        /// Maximum size of a task's payload, bytes.
        pub payload_bytes_max: u32,
        /// Maximum size of a result, an error or a progress note, bytes; longer errors and notes are cut.
        pub result_bytes_max: u32,
        /// Maximum number of tasks that one command submits, redrives or discards.
        pub batch_max: u32,
        /// Maximum number of tasks that one task waits for.
        pub dependencies_max: u32,
        /// Maximum number of items in each of these lists: the labels that a task has; the labels that a task needs; a
        /// worker's kinds, queues, labels or tenants; a tenant's limits.
        pub labels_max: u32,
        /// Maximum number of tenants.
        pub tenants_max: u32,
        /// Maximum number of classes (queue, kind and needed labels) of known tasks, over all tenants.
        pub classes_max: u32,
        /// Maximum number of one tenant's lanes that have known tasks.
        pub lanes_max: u32,
        /// Maximum number of pools. A pool consists of all workers with the same labels that serve the same kinds,
        /// queues and tenants.
        pub pools_max: u32,
        /// Maximum number of workers at the same time.
        pub workers_max: u32,
        /// Maximum number of tasks that a worker may hold at the same time.
        pub credit_max: u32,
        /// Maximum number of schedules at the same time.
        pub schedules_max: u32,
        /// Maximum number of different retry policies of one tenant's tasks. Completed, cancelled and discarded tasks
        /// do not count.
        pub policies_max: u32,
        /// Maximum number of tasks that have not ended.
        pub tasks_max: u64,
        /// Approximate size of all tasks, bytes; growth beyond it is refused.
        pub state_bytes_max: u64,
        /// Maximum number of tasks that have ended and are still known.
        pub finished_max: u64,
        /// How long tasks that have ended stay known, ms.
        pub finished_ms: u64,
        /// Maximum number of dead letters of one tenant; the oldest are dropped.
        pub dead_max: u64,
        /// Longest time to live of a worker without a renewal, ms.
        pub worker_ttl_ms_max: u64,
        /// Timeout of a task that sets no timeout, ms.
        pub timeout_ms_default: u32,
        /// A waiting time, ms. When a task has waited for this time, its rank has risen as much as by one level of
        /// priority.
        pub ageing_ms: u32,
        /// A waiting time, ms. After this time, a worker is reserved for a task that is next but fits no worker at
        /// present.
        pub reserve_ms: u32,
        /// If this many workers have died while they ran a task, the task becomes a dead letter.
        pub poison_max: u32,
        /// Maximum memory that a task may need, bytes.
        pub need_bytes_max: u64,
        /// A publication that is not confirmed within this time is repeated, ms.
        pub publish_retry_ms: u32,
    }
}

impl SchedulerLimits {
    /// Maximum number of classes that need labels. Each such class costs a look-up for every worker that has these
    /// labels.
    pub const DEMANDS_MAX: u32 = 1_024;
    /// Maximum number of classes that need labels, for each tenant.
    pub const DEMANDS_OF_TENANT_MAX: u32 = 64;
    /// Maximum number of schedules of one tenant.
    pub const SCHEDULES_OF_TENANT_MAX: u32 = 10_000;
}

impl Default for SchedulerLimits {
    fn default() -> SchedulerLimits {
        SchedulerLimits {
            name_bytes_max: 255,
            payload_bytes_max: 1 << 20,
            result_bytes_max: 1 << 20,
            batch_max: 10_000,
            dependencies_max: 1_000,
            labels_max: 64,
            tenants_max: 100_000,
            classes_max: 65_536,
            lanes_max: 1_024,
            pools_max: 4_096,
            workers_max: 1_000_000,
            credit_max: 10_000,
            schedules_max: 100_000,
            policies_max: 1_024,
            tasks_max: 100_000_000,
            state_bytes_max: 64 << 30,
            finished_max: 100_000,
            finished_ms: 3_600_000,
            dead_max: 100_000,
            worker_ttl_ms_max: 600_000,
            timeout_ms_default: 300_000,
            ageing_ms: 60_000,
            reserve_ms: 5_000,
            poison_max: 3,
            need_bytes_max: 1 << 40,
            publish_retry_ms: 5_000,
        }
    }
}
