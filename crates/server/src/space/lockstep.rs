//! Ticks in lock-step over processes.
//!
//! ```text
//!  step 2r      a tick was made: hand-overs    ── all of ours are over: we say `settled 2r`; all have said so ──►
//!  step 2r + 1  ghosts are told                ── told: we say `settled 2r + 1`;  all have said so ──► the next tick may begin
//! ```
//! What comes from a step that is not begun here waits in its connection: so nobody is handed an entity that was moved in a tick which
//! it has not made itself. A run begins with a round without a tick, since entities may have come meanwhile.

use std::collections::BTreeMap;

/// Where this process is.
#[derive(Debug)]
pub(super) struct Lockstep {
    step: u64,
    said: Option<u64>,
    /// The last step that each of the others has settled.
    others: BTreeMap<u64, Option<u64>>,
    /// It may go on.
    open: bool,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, until others have said more.
    Wait,
    /// Say that this step is settled.
    Say(u64),
    /// Tell ghosts: the next step has begun.
    TellGhosts,
    /// A tick may be made.
    Tick,
}

impl Lockstep {
    /// Beside these processes.
    pub(super) fn new(others: impl Iterator<Item = u64>) -> Lockstep {
        Lockstep { step: 0, said: None, others: others.map(|process| (process, None)).collect(), open: true }
    }

    pub(super) fn step(&self) -> u64 {
        self.step
    }

    /// Another has settled a step.
    pub(super) fn hear(&mut self, process: u64, step: u64) {
        if let Some(last) = self.others.get_mut(&process) {
            *last = (*last).max(Some(step));
        }
    }

    /// A tick begins, or a run.
    pub(super) fn begin(&mut self) {
        self.step += 2 - self.step % 2;
        self.open = false;
    }

    /// What to do; `settled` where all of ours is handed over.
    pub(super) fn next(&mut self, settled: bool) -> Next {
        if self.open {
            return Next::Tick;
        }
        let is_ghosts = self.step % 2 == 1;
        if self.said < Some(self.step) && (settled || is_ghosts) {
            self.said = Some(self.step);
            return Next::Say(self.step);
        }
        if self.said < Some(self.step) || self.others.values().any(|last| *last < Some(self.step)) {
            return Next::Wait;
        }
        if is_ghosts {
            self.open = true;
            return Next::Tick;
        }
        self.step += 1;
        Next::TellGhosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tick_waits_for_handovers_and_ghosts_of_all_processes() {
        let mut one = Lockstep::new([2, 3].into_iter());
        assert_eq!(one.next(true), Next::Tick);
        one.begin();
        assert_eq!((one.step(), one.next(false)), (2, Next::Wait));
        one.hear(2, 2);
        assert_eq!(one.next(true), Next::Say(2));
        assert_eq!(one.next(true), Next::Wait, "3 has said nothing");
        one.hear(3, 3);
        assert_eq!(one.next(true), Next::TellGhosts);
        assert_eq!((one.next(true), one.next(true)), (Next::Say(3), Next::Wait));
        one.hear(2, 3);
        assert_eq!((one.next(true), one.next(false)), (Next::Tick, Next::Tick));
        one.begin();
        assert_eq!(one.step(), 4);
    }
}
