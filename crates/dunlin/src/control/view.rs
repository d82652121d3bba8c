//! A copy of the key-value state, from which the node answers reads.
//!
//! Applying a large transaction can take seconds. Reads use a copy that shares unchanged parts with the state. Reads
//! and the machine therefore do not wait for each other.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin_control::ControlState;

/// A copy of the key-value state after the last log entry, for reads. It is stored before the response to that entry is
/// sent.
#[derive(Debug, Default)]
pub(super) struct StateView(Mutex<Arc<ControlState>>);

impl StateView {
    /// Replaces the state.
    pub(super) fn publish(&self, state: &ControlState) {
        let mut next = Arc::new(state.clone());
        std::mem::swap(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), &mut next);
        // The previous copy is freed here, outside the lock.
    }

    /// The state after the last entry.
    pub(super) fn state(&self) -> Arc<ControlState> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use dunlin_control::{ControlCommand, ControlState};

    use crate::{Config, Node, block_on};

    /// Applying a large transaction must not block a listener's thread that reads.
    #[test]
    fn key_reads_do_not_wait_for_the_lock_of_the_state_machine() {
        let node = Node::start(Config::default()).expect("it starts");
        let control = node.control().expect("the node is a cluster of one");
        let put = ControlCommand::Put { key: b"key", value: b"value", lease: 0 };
        block_on(control.execute(&put)).expect("it is put");
        let group = control.group().expect("it runs");
        let revision = group.with(|_is_locked| control.with(ControlState::revision));
        assert_eq!(revision.expect("it runs"), 1);
    }
}
