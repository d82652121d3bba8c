//! What a cluster agrees on: keys and values, leases, locks and elections.
//!
//! A [`State`] takes in [`Command`]s and says what came of them. It has no clock, disk or socket: who replicates it hands it
//! the same commands in the same order everywhere, and says with each how late it is.
//!
//! Invariants:
//! - The same commands at the same times give the same state everywhere, to the byte of its snapshot.
//! - A refused command leaves no trace.
//! - Each command that changes keys takes one revision, and gives one [`Change`] with all that it changed.
//! - A lock has one holder at most; its token, the revision at which it was taken, only grows.

mod change;
mod command;
mod effects;
mod error;
mod item;
mod layout;
mod lease;
mod limits;
mod lock;
mod place;
mod query;
mod reply;
mod room;
mod snapshot;
mod state;
mod transaction;
mod turn;

pub use change::{Change, Event, Events, visible_events};
pub use command::{Command, Compare, Is, Operation, Target};
pub use effects::{Effects, Granted};
pub use error::{DecodeError, Refusal};
pub use item::{Item, Key, Value, prefix_end};
pub use lease::LeaseInfo;
pub use limits::Limits;
pub use lock::LOCKS;
pub use place::{Kind, NODES, Placement, TOPICS, Wanted, node_key, node_of, topic_key};
pub use query::{Answer, Answered, LeaseState, NOT_SHOWN, Query};
pub use reply::{Found, Outcome, Pair, Reply};
pub use snapshot::{Frozen, Restoring};
pub use state::State;

/// The version of every encoding here; the first byte of each.
pub const VERSION: u8 = 1;
