//! The state as readers see it.
//!
//! Taking in a large transaction takes long, on a busy machine seconds. Readers look at a copy instead, which shares everything with
//! the state but what the next entries change: no reader waits for the machine, and the machine waits for no reader.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin_control::State;

/// The state as it is after the last entry. An entry is answered after it is here.
#[derive(Debug, Default)]
pub(super) struct View(Mutex<Arc<State>>);

impl View {
    /// Shows readers this state from now on.
    pub(super) fn publish(&self, state: &State) {
        let mut next = Arc::new(state.clone());
        std::mem::swap(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), &mut next);
        // The state before is freed here, and not inside the lock.
    }

    /// The state after the last entry.
    pub(super) fn state(&self) -> Arc<State> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use dunlin_control::{Command, State};

    use crate::{Config, Node, block_on};

    /// A listener's thread once stood still for a second, while a large transaction was taken in.
    #[test]
    fn reads_do_not_wait_for_a_busy_state_machine() {
        let node = Node::start(Config::default()).expect("it starts");
        let control = node.control().expect("it is a cluster of one");
        let put = Command::Put { key: b"key", value: b"value", lease: 0 };
        block_on(control.ask(&put)).expect("it is put");
        let group = control.group().expect("it runs");
        let seen = group.with(|_is_locked| control.with(State::revision));
        assert_eq!(seen.expect("it runs"), 1);
    }
}
