//! The state machine that raft runs in a replica. It contains the control state, and the changes that clients can
//! watch.

use std::io;

use bytes::Bytes;
use dunlin_control::{Change, ControlCommand, ControlEffects, ControlState, StateRestorer};
use dunlin_raft::{FrozenMachine, StateMachine};

/// A replica's state, and the changes since the process started or since it last received a snapshot.
#[derive(Debug, Default)]
pub struct ReplicaMachine {
    state: ControlState,
    effects: ControlEffects,
    changes: Vec<Change>,
}

impl ReplicaMachine {
    /// Returns the state, which contains all changes that this node has applied.
    pub fn state(&self) -> &ControlState {
        &self.state
    }

    /// Returns the revision of the oldest change that is available; if none is available, the revision of the next
    /// change.
    pub fn oldest(&self) -> u64 {
        self.state.revision() + 1 - self.changes.len() as u64
    }

    /// Returns up to `count` changes from revision `from` on; `None` if the change with revision `from` is not
    /// available.
    pub fn changes(&self, from: u64, count: usize) -> Option<&[Change]> {
        let start = from.checked_sub(self.oldest())? as usize;
        let rest = self.changes.get(start..).unwrap_or_default();
        Some(&rest[..rest.len().min(count)])
    }

    fn store_changes(&mut self) {
        self.changes.append(&mut self.effects.changes);
        self.effects.granted.clear();
    }
}

impl StateMachine for ReplicaMachine {
    fn advance(&mut self, now_ms: u64) {
        self.state.advance(now_ms, &mut self.effects);
        self.store_changes();
    }

    fn now_ms(&self) -> u64 {
        self.state.now_ms()
    }

    fn next_due_ms(&self) -> Option<u64> {
        self.state.next_lease_end_ms()
    }

    fn grows(command: &[u8]) -> bool {
        ControlCommand::decode(command).is_ok_and(|command| command.grows())
    }

    fn apply(&mut self, _index: u64, command: &[u8]) -> Bytes {
        let command =
            ControlCommand::decode(command).expect("the listener refuses bytes that are not a command");
        let mut response = Vec::new();
        match self.state.apply(&command, &mut self.effects) {
            Ok(reply) => {
                response.push(1);
                reply.encode(&mut response);
            }
            Err(refusal) => {
                response.push(0);
                refusal.encode(&mut response);
            }
        }
        self.store_changes();
        response.into()
    }

    fn freeze(&self) -> Box<dyn FrozenMachine> {
        Box::new(StateCopy(self.state.freeze()))
    }

    fn restore(&mut self, blocks: &mut dyn Iterator<Item = Bytes>) -> io::Result<()> {
        let mut restorer = StateRestorer::default();
        for block in blocks {
            restorer.read_block(&block).map_err(io::Error::other)?;
        }
        self.state = restorer.end().map_err(io::Error::other)?;
        self.changes.clear();
        Ok(())
    }
}

struct StateCopy(dunlin_control::FrozenControlState);

impl FrozenMachine for StateCopy {
    fn write(&self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.0.write(take)
    }
}
