//! Raft's log on the disk: a journal of what was done to it, from which it is made again.
//!
//! Invariants:
//! - What was done stands in the journal in the order in which it was done; a write counts when it is synced.
//! - Entries that may still be asked for are in memory, and readable as soon as they are appended.
//! - A journal with a hole, or one that ends before a record that was synced, is not opened: a node that has lost what it promised to
//!   keep must not vote.
//! - A disk that is full ends nothing: what is written waits for room, and [`Room`] says so. A disk that fails ends the log.
//!
//! Limits: entries are held from the last purge on, so [`log_bytes_max`](crate::Limits::log_bytes_max) bounds the memory.

mod margin;
mod operation;
mod recover;
mod room;
mod store;
mod synced;
mod writer;

pub(crate) use recover::open;
pub(crate) use room::{Level, Room};
pub(crate) use store::Log;
pub use synced::is_begun;

/// The journal's directory, in the group's.
const DIR: &str = "log";
/// The journal's name; it stands in each of its files.
const NAME: &str = "raft";
/// The file that is given up when the disk is full.
const RESERVE: &str = "reserve";
