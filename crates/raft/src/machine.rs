//! What is replicated.

use std::any::Any;
use std::io;

use bytes::Bytes;

/// A state machine: the same commands at the same times bring it to the same state on every node.
pub trait Machine: Any + Send {
    /// It is so late now, by the cluster's count of milliseconds, or as late as it was.
    fn advance(&mut self, now_ms: u64);

    /// How late it was told that it is.
    fn now_ms(&self) -> u64;

    /// When something becomes of it without a command, if anything does: it is told the time no much later.
    fn next_due_ms(&self) -> Option<u64>;

    /// Whether a command makes the state larger. Near the end of the disk's room those are refused, and others are not.
    fn grows(command: &[u8]) -> bool
    where
        Self: Sized;

    /// Takes a command in; what is answered to who asked. `index` is its place in raft's log; other commands may share it.
    fn apply(&mut self, index: u64, command: &[u8]) -> Bytes;

    /// All commands of an entry have been taken in: whom it concerns may be told, all at once.
    fn end_entry(&mut self) {}

    /// The state as it is now, at a cost that does not grow with it.
    fn freeze(&self) -> Box<dyn Frozen>;

    /// Whether a block of a snapshot is one of [`Frozen::write_past`].
    fn may_leave_out(_block: &[u8]) -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Becomes the state that a [`Frozen`] wrote. After a refusal it is not used any more.
    fn restore(&mut self, blocks: &mut dyn Iterator<Item = Bytes>) -> io::Result<()>;
}

/// A state at one moment, while its machine goes on.
pub trait Frozen: Send {
    /// Gives it in blocks, until one is refused.
    fn write(&self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;

    /// Gives further blocks, of what was before the state. A snapshot leaves them out where the disk has little room, a backup
    /// always.
    fn write_past(&self, _take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        Ok(())
    }
}
