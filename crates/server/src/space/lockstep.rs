//! Lock-step of ticks over several processes.
//!
//! ```text
//!  step 2r      a tick was made: the process completes its handovers, then sends `settled 2r`
//!  step 2r + 1  begins when all processes have sent that: the process sends its ghosts, then `settled 2r + 1`
//!  next tick    may begin when all processes have sent that
//! ```
//! Frames of a step that has not begun here wait in their connection, so that no process receives an entity from a
//! tick that it has not made. A run begins with a round without a tick, because entities may have been added.

use std::collections::BTreeMap;

/// The state of this process's lock-step.
#[derive(Debug)]
pub(super) struct ProcessLockstep {
    step: u64,
    said: Option<u64>,
    /// The last step that each other process has settled.
    others: BTreeMap<u64, Option<u64>>,
    /// Whether the next tick may begin.
    open: bool,
}

/// The next action of a lock-step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockstepAction {
    /// Wait for other processes.
    Wait,
    /// Announce that this step is settled.
    Say(u64),
    /// Send ghosts: the next step has begun.
    TellGhosts,
    /// Make a tick.
    Tick,
}

impl ProcessLockstep {
    /// The lock-step with these other processes.
    pub(super) fn new(others: impl Iterator<Item = u64>) -> ProcessLockstep {
        ProcessLockstep {
            step: 0,
            said: None,
            others: others.map(|process| (process, None)).collect(),
            open: true,
        }
    }

    pub(super) fn step(&self) -> u64 {
        self.step
    }

    /// Records that another process has settled a step.
    pub(super) fn hear(&mut self, process: u64, step: u64) {
        if let Some(last) = self.others.get_mut(&process) {
            *last = (*last).max(Some(step));
        }
    }

    /// Begins a tick or a run.
    pub(super) fn begin(&mut self) {
        self.step += 2 - self.step % 2;
        self.open = false;
    }

    /// The next action; `settled` if all handovers of this process are complete.
    pub(super) fn next(&mut self, settled: bool) -> LockstepAction {
        if self.open {
            return LockstepAction::Tick;
        }
        let is_ghosts = self.step % 2 == 1;
        if self.said < Some(self.step) && (settled || is_ghosts) {
            self.said = Some(self.step);
            return LockstepAction::Say(self.step);
        }
        if self.said < Some(self.step) || self.others.values().any(|last| *last < Some(self.step)) {
            return LockstepAction::Wait;
        }
        if is_ghosts {
            self.open = true;
            return LockstepAction::Tick;
        }
        self.step += 1;
        LockstepAction::TellGhosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tick_waits_for_handovers_and_ghosts_of_all_processes() {
        let mut one = ProcessLockstep::new([2, 3].into_iter());
        assert_eq!(one.next(true), LockstepAction::Tick);
        one.begin();
        assert_eq!((one.step(), one.next(false)), (2, LockstepAction::Wait));
        one.hear(2, 2);
        assert_eq!(one.next(true), LockstepAction::Say(2));
        assert_eq!(one.next(true), LockstepAction::Wait, "3 has said nothing");
        one.hear(3, 3);
        assert_eq!(one.next(true), LockstepAction::TellGhosts);
        assert_eq!((one.next(true), one.next(true)), (LockstepAction::Say(3), LockstepAction::Wait));
        one.hear(2, 3);
        assert_eq!((one.next(true), one.next(false)), (LockstepAction::Tick, LockstepAction::Tick));
        one.begin();
        assert_eq!(one.step(), 4);
    }
}
