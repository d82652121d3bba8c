//! How much a [`State`](crate::State) takes.

use crate::layout::layout;

layout! {
    /// The same on every node: they stand in the state, and in its snapshots.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits {
        /// Of a name: a tenant's, queue's, kind's, worker's or schedule's, a label's key or value, an idempotency key, a subject.
        pub name_bytes_max: u32,
        /// Of a task's payload.
        pub payload_bytes_max: u32,
        /// Of a result, an error or a note of progress; longer errors and notes are cut.
        pub result_bytes_max: u32,
        /// Tasks that one command submits, and that one command redrives or discards.
        pub batch_max: u32,
        /// Tasks that one task waits for.
        pub dependencies_max: u32,
        /// Labels of one task, and those it needs; kinds, queues, labels and tenants of one worker; limits of one tenant.
        pub labels_max: u32,
        /// Tenants.
        pub tenants_max: u32,
        /// Pairs of queue and kind, with the labels that tasks need of workers, over all tenants, that known tasks have.
        pub classes_max: u32,
        /// Such pairs that known tasks of one tenant have.
        pub lanes_max: u32,
        /// Different sets of kinds, queues, labels and tenants that workers serve at once.
        pub pools_max: u32,
        /// Workers at once.
        pub workers_max: u32,
        /// Tasks a worker may hold at once.
        pub credit_max: u32,
        /// Schedules at once.
        pub schedules_max: u32,
        /// Different retry policies that one tenant's tasks use, those that are over not among them.
        pub policies_max: u32,
        /// Tasks that are not over.
        pub tasks_max: u64,
        /// Payloads, results and what tasks take besides, roughly; what grows beyond is refused.
        pub state_bytes_max: u64,
        /// Tasks that are over and still known.
        pub finished_max: u64,
        /// For how long they are.
        pub finished_ms: u64,
        /// Dead letters of one tenant; the oldest go.
        pub dead_max: u64,
        /// A worker's time to live without a sign of life.
        pub worker_ttl_ms_max: u64,
        /// The timeout of a task that names none.
        pub timeout_ms_default: u32,
        /// A task that has waited so long counts as one priority higher.
        pub ageing_ms: u32,
        /// For a task that has waited so long, and is next, and that no worker has room for, one worker is kept from taking others.
        pub reserve_ms: u32,
        /// A task under which so many workers died is a dead letter.
        pub poison_max: u32,
        /// Of memory that a task says it needs.
        pub need_bytes_max: u64,
        /// A task that publishes is given out again when nobody confirmed it for so long.
        pub publish_retry_ms: u32,
    }
}

impl Limits {
    /// Of the classes, those that need labels of workers. Each is one more to look at for every worker that has its labels.
    pub const DEMANDS_MAX: u32 = 1_024;
    /// Of those, the ones that one tenant uses.
    pub const DEMANDS_OF_TENANT_MAX: u32 = 64;
    /// Schedules of one tenant.
    pub const SCHEDULES_OF_TENANT_MAX: u32 = 10_000;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
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
