//! A worker that is kept for a task that needs much.
//!
//! A task that no worker has room for is passed over, so that small ones go on. Where small ones never end it would wait for ever: what one gives back
//! the next takes. So for one that is next and has waited for `reserve_ms`, the first worker that asks and is large enough takes nothing more, until
//! what it holds is done and the task fits; all others go on (a reservation as in EASY backfilling, Lifka 1995, without its guesses at how long tasks take).
//!
//! Invariants: who is kept works for others no longer than until its own tasks are done; a task has one worker kept at most; and never are more than
//! a quarter of all workers, or `RESERVED_MAX`, kept, but for one.

use crate::state::State;
use crate::task::Stage;

/// Fewer than the idle workers that are passed over at most.
const RESERVED_MAX: usize = 16;

impl State {
    /// If a worker is kept, the lane and the task that it is kept for, once it has room.
    pub(crate) fn kept_for(&mut self, worker: u32) -> Option<Option<(u32, u32)>> {
        let id = *self.reserved.get(&worker)?;
        let task = self.tasks.find(id).filter(|&at| self.tasks[at].stage == Stage::Ready);
        let next = task.filter(|&at| {
            let lane = &self.lanes[self.tasks[at].lane as usize];
            let is_first =
                lane.first(&self.tasks, self.limits.ageing_ms).is_some_and(|(_, first)| first == at);
            // Where its tenant may not have it now, or others' reserves come first, nobody is kept for it.
            let tier = lane.standing.map(|standing| standing.tier);
            is_first
                && tier.is_some_and(|tier| tier == 0 || self.is_spare(lane.tenant, &self.tasks[at].need()))
        });
        let Some(at) = next else {
            self.reserved.remove(&worker);
            return None;
        };
        let fits = self.workers[worker].fits(&self.tasks[at].need());
        Some(fits.then_some((self.tasks[at].lane, at)))
    }

    /// Keeps a worker for what a lane has first, which it has no room for now, if that has waited long enough.
    pub(crate) fn reserve(&mut self, worker: u32, lane_at: u32) -> bool {
        let Some((_, at)) = self.lanes[lane_at as usize].first(&self.tasks, self.limits.ageing_ms) else {
            return false;
        };
        let (task, found) = (&self.tasks[at], &self.workers[worker]);
        let need = task.need();
        let has_waited = self.now_ms.saturating_sub(task.since_ms) >= u64::from(self.limits.reserve_ms);
        let most = (self.workers.len() as usize / 4).clamp(1, RESERVED_MAX);
        let id = self.tasks.id(at);
        let may = has_waited
            && found.is_as_large(&need)
            && !found.fits(&need)
            && self.reserved.len() < most
            && !self.reserved.values().any(|kept| *kept == id);
        if may {
            self.reserved.insert(worker, id);
        }
        may
    }

    /// A task waits no more, here or at all: whoever was kept for it is there for others.
    pub(crate) fn unreserve(&mut self, at: u32) {
        if self.reserved.is_empty() {
            return;
        }
        let id = self.tasks.id(at);
        let worker = self.reserved.iter().find(|(_, kept)| **kept == id).map(|(worker, _)| *worker);
        if let Some(worker) = worker {
            self.reserved.remove(&worker);
            let pool = self.workers[worker].pool;
            self.dirty.extend(self.pools[pool as usize].classes.iter());
        }
    }
}
