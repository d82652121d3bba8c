//! A copy of the state of keys, leases and locks, from which the node answers reads.
//!
//! Applying a large transaction can take seconds. The copy, which shares unchanged parts with the state, lets reads and
//! the state machine proceed without waiting for each other.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin_control::ControlState;

/// A copy of the state of keys, leases and locks after the last applied log entry, for reads. The copy is updated
/// before the response to that entry is sent.
#[derive(Debug, Default)]
pub(super) struct StateView(Mutex<Arc<ControlState>>);

impl StateView {
    /// Replaces the copy.
    pub(super) fn publish(&self, state: &ControlState) {
        let mut next = Arc::new(state.clone());
        std::mem::swap(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), &mut next);
        // `next`, now the previous copy, is freed here, after the lock was released.
    }

    /// The state after the last applied log entry.
    pub(super) fn state(&self) -> Arc<ControlState> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use dunlin_control::{ControlCommand, ControlState};

    use crate::{Config, Node, block_on};

    /// While a large transaction is applied, a listener's thread must still be able to read.
    #[test]
    fn reading_a_key_does_not_wait_for_the_state_machine_lock() {
        let node = Node::start(Config::default()).expect("it starts");
        let control = node.control().expect("the node is a cluster of one");
        let put = ControlCommand::Put { key: b"key", value: b"value", lease: 0 };
        block_on(control.execute(&put)).expect("it is put");
        let group = control.group().expect("it runs");
        let revision = group.with(|_is_locked| control.with(ControlState::revision));
        assert_eq!(revision.expect("it runs"), 1);
    }
}
