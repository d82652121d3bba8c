//! The scheduler of many tenants' tasks: queues, workers, leases, shares, quotas.
//!
//! A [`State`] takes in [`Command`]s and says what came of them, and what follows for workers. It has no clock, disk or socket: who
//! replicates it hands it the same commands in the same order everywhere, and says with each how late it is.
//!
//! Invariants:
//! - The same commands at the same times give the same state everywhere, to the byte of its snapshot.
//! - A refused command leaves no trace.
//! - A task that was taken in is in one [`Stage`] until it is over, and is over in one of three: completed, cancelled, dead.
//! - A task has one holder at most, and only that one's answer, under the token of its last start, counts.
//! - What runs is counted by who holds it: no quota and no limit is exceeded, and none leaks.
//! - A start costs what the number of its worker's kinds says, and of the sets of labels that tasks of them need, not that of tenants, tasks or workers, but for a few logarithms.

mod ahead;
mod attach;
mod cancel;
mod classes;
mod command;
mod dealing;
mod destination;
mod effects;
mod enlisted;
mod error;
mod fairness;
mod finish;
mod give;
mod group;
mod join;
mod lane;
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
mod slots;
mod snapshot;
mod standing;
mod state;
mod submit;
mod task;
mod tenancy;
mod tenant;
mod view;
mod why;
mod worker;
mod works;

pub use attach::{Attach, Attached, Held};
pub use command::{After, Answer, Command, KeyLimit, Label, NewTask, NewWorker, Tenant};
pub use dealing::{Dealing, Look, Slots};
pub use destination::Destination;
pub use effects::{Effects, Event, Failure, Happened, Order, Publish, Start};
pub use error::{DecodeError, Limit, Refusal, no_tenant};
pub use fairness::{fair_shares, index, jain};
pub use limits::Limits;
pub use query::{Answered, Found, ListFilter, Query};
pub use quota::Quota;
pub use rate::Rate;
pub use reply::{Reply, Taken};
pub use retry::{Backoff, Retry};
pub use route::Route;
pub use shard::{SHARDS_MAX, shard_of_id, shard_of_tenant};
pub use signals::{KindSignals, Shape, Signals};
pub use slots::{Dealer, Seat, Want, due, place};
pub use snapshot::{Frozen, Restoring};
pub use state::State;
pub use task::{Labelled, Outcome, PRIORITY_MAX, Stage};
pub use tenant::{Account, Limited};
pub use view::{Filter, QueueView, TaskView, TenantView, WorkerView};

/// The version of every encoding here; the first byte of each.
pub const VERSION: u8 = 1;
/// The kind of tasks that publish their payload.
pub const PUBLISH: &[u8] = b"publish";
