//! The state that a cluster agrees on: keys, leases, locks, elections and owners of topics.
//!
//! A [`ControlState`] applies [`ControlCommand`]s and returns their replies. The state has no clock, disk or socket:
//! the replication passes commands and times to it, in the same order on every node.
//!
//! Invariants:
//! - The same commands at the same times produce the same state on every node, and byte-identical snapshots.
//! - A refused command changes nothing.
//! - Each command that changes keys takes one revision, with one [`Change`].
//! - A lock has at most one holder. A lock's fencing token, the revision at which the holder took the lock, only grows.

mod change;
mod command;
mod effects;
mod error;
mod item;
mod layout;
mod lease;
mod limits;
mod lock;
mod placement;
mod query;
mod reply;
mod revision_builder;
mod room;
mod snapshot;
mod state;
mod transaction;

pub use change::{Change, KeyEvent, KeyEvents, visible_events};
pub use command::{Compare, ComparedProperty, Comparison, ControlCommand, KeyOperation};
pub use effects::{ControlEffects, LockGrant};
pub use error::{ControlDecodeError, ControlRefusal};
pub use item::{Key, KeyItem, Value, prefix_end};
pub use lease::LeaseInfo;
pub use limits::ControlStateLimits;
pub use lock::{LOCKS, LockStatus};
pub use placement::{NODES, OwnerRequest, Placement, TOPICS, TopicKind, node_key, node_of, topic_key};
pub use query::{ControlOutcome, ControlQuery, ControlQueryResult, LeaseState, NOT_SHOWN};
pub use reply::{ControlReply, FoundKey, FoundKeys, OperationOutcome};
pub use snapshot::{FrozenControlState, StateRestorer};
pub use state::ControlState;

/// The version of all encodings in this crate, and the first byte of each encoding.
pub const VERSION: u8 = 1;
