//! Tasks that workers have at hand while they do others.
//!
//! A worker that is given its next task only when it has answered the last waits in between: for the way there and back, and for a disk. So it
//! may be given some ahead, and begins the next at once. But a task that was given ahead waits for this very worker, however soon another were free.
//! So it is only done where that is no loss: where more tasks are ready than there are workers, each would have waited for its turn longer than
//! for one task to end.
//!
//! Where fewer are ready, one is given ahead only to a worker that is about to end: who is foreseen to end next would be given it next in any case,
//! but for the time in which its answer and the order are on their way. What is foreseen is what tasks of a lane cost lately, of workers whose
//! last tasks took as long as was foreseen. A worker that is late by more than its answer's way is not waited for: nobody knows when it ends.
//!
//! Invariants:
//! - A task that was given ahead is held like any other, under a token, and takes no credit; what the next answers give pays for it first.
//! - Who is idle comes first: a worker is given tasks ahead when it answers, or when it is about to end and nobody is idle.

use crate::effects::Effects;
use crate::error::{Limit, Refusal};
use crate::finish::Spent;
use crate::layout::layout;
use crate::reply::Reply;
use crate::state::State;

/// So long before it is foreseen to end a worker may be given its next task: about as long as an order's way, with a disk, takes where machines are busy.
const SOON_MS: u64 = 4;
/// And so long after: its answer is on its way.
const LATE_MS: u64 = 8;
/// A worker is foreseen to end only where its tasks were off by no more than this share of what was foreseen.
const STEADY_SHARE: u32 = 8;
/// So many that are about to end are looked at for one that can take a task.
const LOOKED_AT_MAX: usize = 32;

layout! {
    /// What a worker may have at hand, and has.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Ahead {
        /// At most so many.
        pub most: u32,
        /// So many, beside those it does.
        pub given: u32,
        /// When it is foreseen to end what it does; 0 where it does nothing.
        pub ends_ms: u64,
        /// By how much its tasks were off lately, in µs, 1 at least; 0 before the first.
        pub off_us: u32,
    }
}

impl Ahead {
    fn is_any(&self) -> bool {
        self.most > 0 || self.given > 0
    }

    /// Its place among those that may be given something when they are about to end.
    pub(crate) fn place(&self) -> Option<u64> {
        (self.ends_ms > 0 && self.given < self.most).then_some(self.ends_ms)
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
        let known = self.ahead.get(&at).copied().unwrap_or_default();
        self.set_ahead(at, Ahead { most, given: held.saturating_sub(slots), ..known });
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
            ready += self.ready_for(&pool.serves, class);
            ready > pool.workers
        })
    }

    /// Of a pool's workers, those that are about to end are given what nobody else can begin.
    pub(crate) fn serve_soon(&mut self, effects: &mut Effects) {
        for pool in 0..self.pools.len() {
            while self.has_standing(pool)
                && let Some(worker) = self.about_to_end(pool)
                && self.give_next(worker, effects)
            {}
        }
    }

    fn has_standing(&self, pool: usize) -> bool {
        let pool = &self.pools[pool];
        !pool.soon.is_empty()
            && pool.classes.iter().any(|class| self.foremost(&pool.serves, *class).is_some())
    }

    /// The worker of a pool that is foreseen to end next, soon, and may be given a task before.
    fn about_to_end(&self, pool: usize) -> Option<u32> {
        let pool = &self.pools[pool];
        let (from_ms, to_ms) = (self.now_ms.saturating_sub(LATE_MS), self.now_ms.saturating_add(SOON_MS));
        let soon = pool.soon.range((from_ms, 0)..=(to_ms, u32::MAX)).take(LOOKED_AT_MAX);
        soon.map(|(_, worker)| *worker).find(|worker| self.is_foreseen(*worker))
    }

    /// A worker does one task, and nobody waits for it to take one; it ends when it was foreseen to.
    fn is_foreseen(&self, worker_at: u32) -> bool {
        let (worker, ahead) =
            (&self.workers[worker_at], self.ahead.get(&worker_at).copied().unwrap_or_default());
        let does_one =
            worker.held.len.checked_sub(ahead.given) == Some(1) && worker.credit == 0 && !worker.is_draining;
        does_one && ahead.off_us > 0 && ahead.off_us <= self.tasks[worker.held.head].charged_us / STEADY_SHARE
    }

    /// A task was given ahead.
    pub(crate) fn count_ahead(&mut self, worker: u32) {
        let ahead = self.ahead.get(&worker).copied().unwrap_or_default();
        self.set_ahead(worker, Ahead { given: ahead.given + 1, ..ahead });
    }

    /// What is left of so much credit when it has paid for what was given ahead.
    pub(crate) fn pay(&mut self, worker: u32, credit: u32) -> u32 {
        let Some(&ahead) = self.ahead.get(&worker) else { return credit };
        let paid = ahead.given.min(credit);
        self.set_ahead(worker, Ahead { given: ahead.given - paid, ..ahead });
        credit - paid
    }

    /// A worker has just been given its first task.
    pub(crate) fn foresee(&mut self, worker_at: u32) {
        let Some(&ahead) = self.ahead.get(&worker_at) else { return };
        let held = self.workers[worker_at].held;
        let ends_ms = match held.len {
            0 => 0,
            _ => self.now_ms.saturating_add(u64::from(self.tasks[held.head].charged_us).div_ceil(1_000)),
        };
        self.set_ahead(worker_at, Ahead { ends_ms, ..ahead });
    }

    /// A worker has one task less, which was charged so much; what it has next it begins now.
    pub(crate) fn was_foreseen(&mut self, worker_at: u32, charged_us: u32, spent: Spent) {
        let Some(&ahead) = self.ahead.get(&worker_at) else { return };
        let off_us = u32::try_from(spent.cost_us()).unwrap_or(u32::MAX).abs_diff(charged_us);
        let off_us = match ahead.off_us {
            0 => off_us,
            before_us => before_us.midpoint(off_us),
        };
        self.set_ahead(worker_at, Ahead { off_us: off_us.max(1), ..ahead });
        self.foresee(worker_at);
    }

    /// A worker has nothing at hand any more, and will not have.
    pub(crate) fn forget_ahead(&mut self, worker: u32) {
        self.set_ahead(worker, Ahead::default());
    }

    fn set_ahead(&mut self, worker: u32, ahead: Ahead) {
        let before = match ahead.is_any() {
            true => self.ahead.insert(worker, ahead),
            false => self.ahead.remove(&worker),
        };
        let (before, after) = (before.and_then(|before| before.place()), ahead.place());
        if before != after {
            let pool = &mut self.pools[self.workers[worker].pool as usize].soon;
            before.map(|ends_ms| pool.remove(&(ends_ms, worker)));
            after.map(|ends_ms| pool.insert((ends_ms, worker)));
        }
    }
}
