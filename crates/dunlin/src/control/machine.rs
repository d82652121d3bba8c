//! The replicated state machine of keys, leases and locks.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_control::{
    ControlCommand, ControlEffects, ControlOutcome, ControlReply, ControlState, LockGrant, StateRestorer,
};
use dunlin_raft::{FrozenMachine, StateMachine};

use super::history::{ChangeHistory, PastChanges, is_past};
use super::lock_waiters::LockWaiters;
use super::view::StateView;

/// If a log entry ends more leases and keys than this, a separate thread applies it, because ending a thousand of them
/// takes some milliseconds. Otherwise, Raft's thread applies the entry.
const ENDS_MAX: usize = 1_000;

/// The replicated state of keys, leases and locks. Each log entry also updates the topic of changes and the copy of the
/// state for reads, and notifies the callers that wait for locks.
pub(super) struct ControlMachine {
    state: ControlState,
    effects: ControlEffects,
    history: ChangeHistory,
    view: Arc<StateView>,
    lock_waiters: Arc<LockWaiters>,
    /// A buffer in which responses are encoded.
    encoded: Vec<u8>,
}

impl ControlMachine {
    pub(super) fn new(
        state: ControlState,
        history: ChangeHistory,
        view: Arc<StateView>,
        lock_waiters: Arc<LockWaiters>,
    ) -> ControlMachine {
        ControlMachine {
            state,
            effects: ControlEffects::default(),
            history,
            view,
            lock_waiters,
            encoded: Vec::new(),
        }
    }

    /// Notifies callers that wait for locks. The topic of key changes receives the changes later, at the end of the log
    /// entry.
    fn notify_lock_waiters(&mut self) {
        for LockGrant { name, lease, token } in self.effects.granted.drain(..) {
            self.lock_waiters.notify_granted(&name, lease, token);
        }
        self.effects.ended.drain(..).for_each(|lease| self.lock_waiters.notify_lease_ended(lease));
    }

    fn apply_command(&mut self, command: &ControlCommand<'_>) -> ControlOutcome {
        let result = self.state.apply(command, &mut self.effects);
        self.notify_lock_waiters();
        match (&command.unbound(), &result) {
            (ControlCommand::Begin { .. } | ControlCommand::BeginRestored { .. }, Ok(_)) => {
                self.history.record(&mut self.effects.changes);
                self.history.advance_to(self.state.epoch(), self.state.revision());
            }
            (ControlCommand::Release { name, lease }, Ok(ControlReply::Done)) => {
                self.lock_waiters.notify_left(name, *lease)
            }
            _ => {}
        }
        result.into()
    }
}

impl StateMachine for ControlMachine {
    fn advance(&mut self, now_ms: u64) {
        self.state.advance(now_ms, &mut self.effects);
        self.notify_lock_waiters();
    }

    fn now_ms(&self) -> u64 {
        self.state.now_ms()
    }

    fn next_due_ms(&self) -> Option<u64> {
        self.state.next_lease_end_ms()
    }

    fn is_long(&self, now_ms: u64, commands: &mut dyn Iterator<Item = &[u8]>) -> bool {
        self.state.has_more_due(now_ms, ENDS_MAX) || self.state.deletes_more(commands, ENDS_MAX)
    }

    /// Whether the command makes the state larger. For a command that this version cannot decode, the result is
    /// `false`.
    fn grows(command: &[u8]) -> bool {
        ControlCommand::decode(command).is_ok_and(|command| command.grows())
    }

    /// Applies a command.
    ///
    /// # Panics
    ///
    /// If this version of Dunlin does not know the command. The node stops in this case. If it skipped the command, its
    /// state would differ from the state of nodes that apply the command. No node proposes a command that it does not
    /// know itself.
    fn apply(&mut self, _index: u64, command: &[u8]) -> Bytes {
        let command = ControlCommand::decode(command);
        let command = command.expect("every command of the log has a version that this node knows");
        let outcome = self.apply_command(&command);
        self.encoded.clear();
        outcome.encode(&mut self.encoded);
        Bytes::copy_from_slice(&self.encoded)
    }

    fn end_entry(&mut self) {
        // First update the copy for reads: a subscriber that receives a change must already find it in this copy.
        self.view.publish(&self.state);
        self.history.record(&mut self.effects.changes);
        self.effects.read_bytes = 0;
    }

    fn freeze(&self) -> Box<dyn FrozenMachine> {
        Box::new(FrozenControl { state: self.state.freeze(), past: self.history.freeze() })
    }

    fn is_optional_block(block: &[u8]) -> bool {
        is_past(block)
    }

    fn restore(&mut self, blocks: &mut dyn Iterator<Item = Bytes>) -> io::Result<()> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let (mut restoring, mut past) = (StateRestorer::default(), Vec::new());
        for block in blocks {
            match is_past(&block) {
                true => past.push(block),
                false => restoring.read_block(&block).map_err(invalid)?,
            }
        }
        self.state = restoring.end().map_err(invalid)?;
        self.history.restore(self.state.epoch(), self.state.revision(), &past);
        self.view.publish(&self.state);
        self.lock_waiters.notify_restored(&self.state);
        Ok(())
    }
}

/// The state and the history of changes at one moment, for a snapshot.
struct FrozenControl {
    state: dunlin_control::FrozenControlState,
    past: Option<PastChanges>,
}

impl FrozenMachine for FrozenControl {
    fn write(&self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.state.write(take)
    }

    fn write_history(&self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.past.as_ref().map_or(Ok(()), |past| past.write(take))
    }
}
