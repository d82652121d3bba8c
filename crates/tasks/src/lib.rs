//! Schedules the tasks of many tenants, with queues, workers, leases, fair shares and quotas.
//!
//! A [`SchedulerState`] applies [`TaskCommand`]s. For each command, it returns a reply, and adds the command's effects
//! on workers and topics to [`TaskEffects`]. The state uses no clock, disk or socket: its caller replicates the
//! commands, and sets the time.
//!
//! ```
//! use dunlin_tasks::{CommandReply, NewTask, SchedulerLimits, SchedulerState, TaskCommand, TaskEffects, TenantSettings};
//!
//! let (mut state, mut effects) = (SchedulerState::new(SchedulerLimits::default()), TaskEffects::default());
//! state.apply(&TaskCommand::Tenant { tenant: TenantSettings::new(b"shop") }, &mut effects).expect("the tenant is valid");
//! let tasks = vec![NewTask::new(b"resize", b"image 7")];
//! let reply = state.apply(&TaskCommand::Submit { tenant: b"shop", tasks }, &mut effects).expect("a valid task");
//! assert!(matches!(reply, CommandReply::Submitted { .. }));
//! ```
//! Invariants:
//! - Equal commands at equal times give equal states on all nodes, and snapshots with equal bytes.
//! - A refused command changes nothing.
//! - A submitted task is in one [`TaskStage`] until it ends: completed, cancelled or dead.
//! - A task has at most one worker. Only a report of this worker with the token of the task's last start counts.
//! - Every running task is counted for its tenant, and no quota or limit is exceeded.
//! - Starting a task takes time proportional to the number of kinds and label sets that the worker serves. This time
//!   grows only logarithmically with the numbers of tenants, tasks and workers.

mod ahead;
mod assign;
mod attach;
mod cancel;
mod classes;
mod command;
mod destination;
mod effects;
mod enlisted;
mod error;
mod excess_values;
mod fairness;
mod finish;
mod group;
mod join;
mod lane;
mod lane_selection;
mod layout;
mod limits;
mod names;
mod orders;
mod pages;
mod policies;
mod query;
mod queue;
mod quota;
mod rate;
mod reply;
mod reserve;
mod retry;
mod room;
mod route;
mod schedule;
mod shard;
mod signals;
mod slab;
mod slot_allocation;
mod slots;
mod snapshot;
mod state;
mod submit;
mod task;
mod tenancy;
mod tenant;
mod view;
mod why;
mod work_estimate;
mod worker;
mod worker_commands;

pub use attach::{AttachRequest, AttachResponse, HeldTasks};
pub use command::{
    AttemptReport, KeyLimit, Label, NewTask, NewWorker, TaskCommand, TaskDependency, TenantSettings,
};
pub use destination::Destination;
pub use effects::{
    AttemptFailure, TaskEffects, TaskEvent, TaskEventKind, TaskPublication, TaskStart, WorkerOrder,
};
pub use error::{Limit, TaskDecodeError, TaskRefusal, no_tenant};
pub use excess_values::ExcessValues;
pub use fairness::{fair_shares, jain, jain_index};
pub use limits::SchedulerLimits;
pub use query::{ListFilter, TaskCommandOutcome, TaskQuery, TaskQueryResult};
pub use quota::Quota;
pub use rate::Rate;
pub use reply::{CommandReply, SubmittedTask};
pub use retry::{Backoff, RetryPolicy};
pub use route::ShardRoute;
pub use shard::{SHARDS_MAX, shard_of_id, shard_of_tenant};
pub use signals::{KindSignals, Signals, WorkerShape};
pub use slot_allocation::{DemandSnapshot, SlotAllocator, SlotChanges};
pub use slots::{SlotApportioner, TenantDemand, WorkerSlots, due_slots, move_slots};
pub use snapshot::{FrozenSchedulerState, StateRestore};
pub use state::SchedulerState;
pub use task::{AttemptOutcome, PRIORITY_MAX, StoredLabel, TaskStage};
pub use tenant::{StoredKeyLimit, TenantTotals};
pub use view::{QueueView, TaskFilter, TaskView, TenantView, WorkerView};

/// The version of all encodings in this crate. It is the first byte of each encoding.
pub const VERSION: u8 = 1;
/// The kind of tasks whose payload is published to a subject.
pub const PUBLISH: &[u8] = b"publish";
