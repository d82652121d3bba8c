//! Tasks that workers have at hand while they do others.
//!
//! A worker that is given its next task only when it has answered the last waits in between: for the way there and back, and for a disk. So it
//! may be given some ahead, and begins the next at once. But a task that was given ahead waits for this very worker, however soon another were free.
//! So it is only done where that is no loss: where more tasks are ready than there are workers, each would have waited for its turn longer than
//! for one task to end.
//!
//! Invariants:
//! - A task that was given ahead is held like any other, under a token, and takes no credit; what the next answers give pays for it first.
//! - A worker is given tasks ahead when it answers, and never for that it is idle: who can begin at once comes first.

use crate::effects::Effects;
use crate::error::{Limit, Refusal};
use crate::layout::layout;
use crate::reply::Reply;
use crate::state::State;

layout! {
    /// What a worker may have at hand, and has.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Ahead {
        /// At most so many.
        pub most: u32,
        /// So many, beside those it does.
        pub given: u32,
    }
}

impl State {
    /// A worker does so many tasks at once, and may have so many more at hand, whatever it said before.
    pub(crate) fn set_slots(
        &mut self,
        id: u64,
        slots: u32,
        most: u32,
        effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
        let at = self.find_worker(id)?;
        let count = u64::from(slots) + u64::from(most);
        Limit::Credit.check(count, u64::from(self.limits.credit_max))?;
        if self.workers[at].is_draining {
            return Ok(Reply::Done);
        }
        let held = self.workers[at].held.len;
        self.set_ahead(at, Ahead { most, given: held.saturating_sub(slots) });
        self.take_back_credit(at);
        self.take_more(at, slots.saturating_sub(held), effects);
        Ok(Reply::Done)
    }

    /// A worker that has answered gets what it may have at hand.
    pub(crate) fn fill_ahead(&mut self, worker: u32, effects: &mut Effects) {
        while let Some(&ahead) = self.ahead.get(&worker)
            && ahead.given < ahead.most
            && self.workers[worker].credit == 0
            && !self.workers[worker].is_draining
            && self.abounds(worker)
            && self.give_next(worker, effects)
        {}
    }

    /// More is ready than the workers that serve the same as this one could begin, if all did now.
    fn abounds(&self, worker: u32) -> bool {
        let pool = &self.pools[self.workers[worker].pool as usize];
        let mut ready = 0;
        pool.classes.iter().any(|&class| {
            ready += self.classes[class as usize].ready;
            ready > pool.workers
        })
    }

    /// A task was given ahead.
    pub(crate) fn count_ahead(&mut self, worker: u32) {
        let ahead = self.ahead.entry(worker).or_default();
        ahead.given += 1;
    }

    /// What is left of so much credit when it has paid for what was given ahead.
    pub(crate) fn pay(&mut self, worker: u32, credit: u32) -> u32 {
        let Some(&ahead) = self.ahead.get(&worker) else { return credit };
        let paid = ahead.given.min(credit);
        self.set_ahead(worker, Ahead { given: ahead.given - paid, ..ahead });
        credit - paid
    }

    fn set_ahead(&mut self, worker: u32, ahead: Ahead) {
        if ahead == Ahead::default() {
            self.ahead.remove(&worker);
        } else {
            self.ahead.insert(worker, ahead);
        }
    }
}
