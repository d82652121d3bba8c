//! Raft's log on disk: a journal of operations, from which a restart rebuilds the log.
//!
//! Invariants:
//! - The journal has the operations in the order in which they were done. A write is complete only after it is synced.
//! - Entries that may still be read are in memory, and readable as soon as they are appended.
//! - A journal with a hole is not opened: a node that has lost acknowledged entries must not vote.
//! - On a full disk, writes wait for room, and [`DiskSpace`] reports that the disk is full. After an error of the disk,
//!   the log writes nothing.
//!
//! Entries after the last purge are in memory, so that [`log_bytes_max`](crate::RaftLimits::log_bytes_max) bounds the
//! memory.

mod margin;
mod operation;
mod recover;
mod room;
mod store;
mod synced;
mod writer;

pub(crate) use operation::LogOperation;
pub(crate) use recover::open;
pub(crate) use room::{DiskSpace, SpaceLevel};
pub(crate) use store::RaftLog;
pub use synced::is_begun;

/// Name of the journal's directory, within the group's directory.
const DIR: &str = "log";
/// The name of the journal, which is written to each of the journal's files.
const NAME: &str = "raft";
/// Name of the reserve file, which is removed when the disk is full.
const RESERVE: &str = "reserve";
