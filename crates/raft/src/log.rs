//! Stores a Raft log on disk as a journal of operations. After a restart, repeating the operations rebuilds the log.

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
