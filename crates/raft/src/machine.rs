//! The interface of a replicated state machine and of its snapshots.

use std::any::Any;
use std::io;

use bytes::Bytes;

/// A replicated state machine, in which equal commands at equal times produce equal states on all nodes.
pub trait StateMachine: Any + Send {
    /// Sets the cluster's time, ms. The time never decreases.
    fn advance(&mut self, now_ms: u64);

    /// The last time set, ms.
    fn now_ms(&self) -> u64;

    /// The next time, ms, at which the machine changes without a command; `None` if the machine will not change by
    /// itself.
    fn next_due_ms(&self) -> Option<u64>;

    /// Whether it may take more than a few milliseconds to [`advance`](StateMachine::advance) to the time `now_ms` and
    /// to apply these short commands. If so, the entry is applied on another thread, so that the entry does not delay
    /// heartbeats.
    fn is_long(&self, _now_ms: u64, _commands: &mut dyn Iterator<Item = &[u8]>) -> bool {
        false
    }

    /// Whether a command makes the state larger. Such commands are refused when the disk is nearly full.
    fn grows(command: &[u8]) -> bool
    where
        Self: Sized;

    /// Applies a command and returns the response. `index` is the index of the command's entry in Raft's log; an entry
    /// may contain several commands.
    fn apply(&mut self, index: u64, command: &[u8]) -> Bytes;

    /// Called after the last command of an entry: callers and subscribers may now be notified.
    fn end_entry(&mut self) {}

    /// Returns the present state in constant time.
    fn freeze(&self) -> Box<dyn FrozenMachine>;

    /// Whether a snapshot may omit this block, because [`FrozenMachine::write_history`] wrote it.
    fn is_optional_block(_block: &[u8]) -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Replaces the state by one that a [`FrozenMachine`] wrote. After an error, the machine must not be used.
    fn restore(&mut self, blocks: &mut dyn Iterator<Item = Bytes>) -> io::Result<()>;
}

/// The state of a state machine as it was at one moment, from which a snapshot is written.
pub trait FrozenMachine: Send {
    /// Writes the state in blocks until `write_block` returns an error.
    fn write(&self, write_block: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;

    /// Writes further blocks, which contain history from before the state. Snapshots omit these blocks on a disk with
    /// little room; backups always omit them.
    fn write_history(&self, _write_block: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        Ok(())
    }
}
