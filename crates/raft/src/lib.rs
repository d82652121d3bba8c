//! Replicates state machines over several nodes with the Raft protocol.
//!
//! No other crate depends on openraft, the library that implements the protocol. The log and the snapshots are stored
//! as [journals](dunlin_journal).

mod codec;
mod commands;
mod error;
mod frames;
mod group;
mod limits;
mod log;
mod machine;
mod machines;
mod message;
mod network;
mod on_disk;
mod proposal;
mod seed;
mod snapshots;
mod type_config;

#[cfg(test)]
mod suite;

pub use commands::CommandBatch;
pub use error::RaftGroupError;
pub use group::{GroupHandle, Leadership, Status, UntypedGroup};
pub use limits::{HEARTBEAT_MS, RaftLimits};
pub use log::is_begun;
pub use machine::{FrozenMachine, StateMachine};
pub use network::{RaftMember, RequestLane, ResponseFuture, Transport};
pub use on_disk::members_on_disk;
pub use seed::seed;
