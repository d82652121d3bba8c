//! Defines the interfaces of replicated state machines and of their snapshots.

use std::any::Any;
use std::io;

use bytes::Bytes;

/// A replicated state machine. The same commands at the same times must produce the same state on all nodes.
pub trait StateMachine: Any + Send {
    /// Sets the cluster's time, ms. The time never decreases.
    fn advance(&mut self, now_ms: u64);

    /// The time that was last set, ms.
    fn now_ms(&self) -> u64;

    /// The time, ms, at which the machine next changes without a command; `None` if only commands can change it.
    fn next_due_ms(&self) -> Option<u64>;

    /// Whether it may take more than a few milliseconds to [`advance`](StateMachine::advance) the machine to `now_ms`
    /// and then to apply these commands, which are short. If this method returns `true`, both steps happen on another
    /// thread, so that heartbeats are not delayed.
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

    /// Called after the last command of an entry was applied. The machine may now notify callers and subscribers.
    fn end_entry(&mut self) {}

    /// Returns the present state in a form that later commands do not change. This method must return in constant time.
    fn freeze(&self) -> Box<dyn FrozenMachine>;

    /// Whether `block` was written by [`FrozenMachine::write_history`], so that a snapshot may omit it.
    fn is_optional_block(_block: &[u8]) -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Replaces the state by the one in `blocks`, which a [`FrozenMachine`] wrote. After an error, the machine must not
    /// be used any more.
    fn restore(&mut self, blocks: &mut dyn Iterator<Item = Bytes>) -> io::Result<()>;
}

/// The state of a state machine at one moment. While a snapshot of this state is written, the machine itself can
/// change.
pub trait FrozenMachine: Send {
    /// Passes the state to `write_block`, block by block. Stops if `write_block` returns an error.
    fn write(&self, write_block: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;

    /// Writes further blocks, which contain the history that led to the state. If the disk has little room, snapshots
    /// omit these blocks. Backups never contain them.
    fn write_history(&self, _write_block: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        Ok(())
    }
}
