//! Stores a Raft log on disk as a journal of the operations that changed it. After a restart, this node rebuilds the
//! log by repeating the operations.
//!
//! Invariants:
//! - The journal has the operations in the order in which they changed the log. A write is reported as complete only
//!   after it is synced.
//! - Entries can be read as soon as they are appended, because all entries that may still be read are in memory.
//! - A journal in which records are missing is not opened, because a node that has lost acknowledged entries must not
//!   vote.
//! - On a full disk, writes wait for room, and [`DiskSpace`] reports that the disk is full. After any other disk error,
//!   the log writes nothing more.
//!
//! Because all entries after the last purge are in memory, [`log_bytes_max`](crate::RaftLimits::log_bytes_max) also
//! bounds the memory that the log takes.

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
/// Name of the file that reserves room for the time when the disk is full.
const RESERVE: &str = "reserve";
