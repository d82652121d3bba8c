//! Keeps the ticks of a world's processes in lock-step: a process begins a tick only when all processes have finished
//! the previous one.
//!
//! ```text
//!  step 2r      a tick was made: the process completes its handovers, then sends `settled 2r`
//!  step 2r + 1  begins when all processes have sent `settled 2r`: the process sends its ghosts, then `settled 2r + 1`
//!  next tick    may begin when all processes have sent `settled 2r + 1`
//! ```
//! If a peer sends frames of a step that this process has not begun, they stay unread. A process therefore never
//! receives an entity from a tick that it has not made. A run of ticks begins with both steps, without a tick before
//! them, because entities may have been added since the previous run.

use std::collections::BTreeMap;

/// The lock-step as this process sees it: its own step, and the steps that the other processes have completed.
#[derive(Debug)]
pub(super) struct ProcessLockstep {
    step: u64,
    last_sent: Option<u64>,
    /// For each other process, the last step that it has completed; `None` if it has completed none.
    others: BTreeMap<u64, Option<u64>>,
    /// Whether this process may begin the next tick.
    tick_allowed: bool,
}

/// The next action of this process in the lock-step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockstepAction {
    /// Wait until the other processes have completed the step.
    Wait,
    /// Send `settled` with this step to all processes, because this process has completed it.
    SendSettled(u64),
    /// Send ghosts, because the step for ghosts has begun.
    SendGhosts,
    /// Make a tick.
    Tick,
}

impl ProcessLockstep {
    /// Creates the lock-step of this process with the processes whose numbers are in `others`.
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

    /// Remembers that another process has completed a step.
    pub(super) fn record_settled(&mut self, process: u64, step: u64) {
        if let Some(last) = self.others.get_mut(&process) {
            *last = (*last).max(Some(step));
        }
    }

    /// Begins the first of the two steps that follow a tick, or with which a run of ticks starts.
    pub(super) fn begin(&mut self) {
        self.step += 2 - self.step % 2;
        self.tick_allowed = false;
    }

    /// Returns what to do next. `settled` says whether all handovers of this process are complete.
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
