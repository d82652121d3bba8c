//! Keeps the ticks of several processes in lock-step.
//!
//! ```text
//!  step 2r      a tick was made: the process completes its handovers, then sends `settled 2r`
//!  step 2r + 1  begins when all processes have sent `settled 2r`: the process sends its ghosts, then `settled 2r + 1`
//!  next tick    may begin when all processes have sent `settled 2r + 1`
//! ```
//! Frames of a step that has not begun here are not read from their connection. No process therefore receives an entity
//! from a tick that it has not made. A run begins with a round without a tick, because entities may have been added
//! since the last run.

use std::collections::BTreeMap;

/// The state of this process in the lock-step: its own step, and those of the other processes.
#[derive(Debug)]
pub(super) struct ProcessLockstep {
    step: u64,
    last_sent: Option<u64>,
    /// The last step that each other process has settled; `None` before it has settled one.
    others: BTreeMap<u64, Option<u64>>,
    /// Whether this process may begin the next tick.
    tick_allowed: bool,
}

/// The next action of this process in the lock-step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockstepAction {
    /// Wait for messages of other processes.
    Wait,
    /// Send `settled` with this step to all processes.
    SendSettled(u64),
    /// Send ghosts, because the next step has begun.
    SendGhosts,
    /// Make a tick.
    Tick,
}

impl ProcessLockstep {
    /// Creates the lock-step of this process with these other processes.
    pub(super) fn new(others: impl Iterator<Item = u64>) -> ProcessLockstep {
        ProcessLockstep {
            step: 0,
            last_sent: None,
            others: others.map(|process| (process, None)).collect(),
            tick_allowed: true,
        }
    }

    pub(super) fn step(&self) -> u64 {
        self.step
    }

    /// Stores that another process has settled a step.
    pub(super) fn record_settled(&mut self, process: u64, step: u64) {
        if let Some(last) = self.others.get_mut(&process) {
            *last = (*last).max(Some(step));
        }
    }

    /// Begins the steps of a tick, or of a run's first round.
    pub(super) fn begin(&mut self) {
        self.step += 2 - self.step % 2;
        self.tick_allowed = false;
    }

    /// Returns the next action. `settled` says whether all handovers of this process are complete.
    pub(super) fn next(&mut self, settled: bool) -> LockstepAction {
        if self.tick_allowed {
            return LockstepAction::Tick;
        }
        let is_ghosts = self.step % 2 == 1;
        if self.last_sent < Some(self.step) && (settled || is_ghosts) {
            self.last_sent = Some(self.step);
            return LockstepAction::SendSettled(self.step);
        }
        if self.last_sent < Some(self.step) || self.others.values().any(|last| *last < Some(self.step)) {
            return LockstepAction::Wait;
        }
        if is_ghosts {
            self.tick_allowed = true;
            return LockstepAction::Tick;
        }
        self.step += 1;
        LockstepAction::SendGhosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tick_waits_for_handovers_and_ghosts_of_all_processes() {
        let mut lockstep = ProcessLockstep::new([2, 3].into_iter());
        assert_eq!(lockstep.next(true), LockstepAction::Tick);
        lockstep.begin();
        assert_eq!((lockstep.step(), lockstep.next(false)), (2, LockstepAction::Wait));
        lockstep.record_settled(2, 2);
        assert_eq!(lockstep.next(true), LockstepAction::SendSettled(2));
        assert_eq!(lockstep.next(true), LockstepAction::Wait, "3 has settled nothing");
        lockstep.record_settled(3, 3);
        assert_eq!(lockstep.next(true), LockstepAction::SendGhosts);
        assert_eq!(
            (lockstep.next(true), lockstep.next(true)),
            (LockstepAction::SendSettled(3), LockstepAction::Wait)
        );
        lockstep.record_settled(2, 3);
        assert_eq!((lockstep.next(true), lockstep.next(false)), (LockstepAction::Tick, LockstepAction::Tick));
        lockstep.begin();
        assert_eq!(lockstep.step(), 4);
    }
}
