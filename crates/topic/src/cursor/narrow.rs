//! Sleeping until a record of the cursor's own subjects comes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::select::Asleep;
use super::{Cursor, Hint};
use crate::log::{ANYWHERE, ASLEEP, Armed};
use crate::wake::Waiter;

impl Cursor {
    /// Whether it can be woken for its own subjects only: publishers wait for a registered reader to come by, and whoever follows
    /// a state, or loses records, looks at each.
    pub(super) fn may_sleep_narrow(&mut self) -> bool {
        let waits_otherwise = self.armed.is_some()
            || self.ended
            || self.reader.is_some()
            || self.following.is_some()
            || !self.log.has_index();
        match &mut self.select {
            Some(select) if !waits_otherwise && select.lose.is_none() => select.narrow().is_some(),
            _ => false,
        }
    }

    #[cold]
    pub(super) fn arm_narrow(&mut self, waiter: &Arc<Waiter>, token: u32) -> bool {
        if self.is_armed_narrow() {
            // Whoever reads may not have been told yet that it was taken out of the index.
            return !self.was_taken();
        }
        let next = self.awaited();
        let Some(asleep) = self.asleep() else { return false };
        let (pattern, goes_on) = (asleep.pattern.clone(), Arc::clone(&asleep.goes_on));
        let is_armed = self.log.arm_narrow(next, waiter, token, (&pattern, &goes_on));
        if let Some(asleep) = self.asleep() {
            asleep.is_armed = is_armed;
        }
        is_armed
    }

    /// Whether it sleeps until a record of its own subjects comes, and so is not woken by what it skips.
    pub fn is_armed_narrow(&self) -> bool {
        let narrow = self.select.as_ref().and_then(|select| select.narrow.as_ref());
        narrow.is_some_and(|asleep| asleep.is_armed)
    }

    /// Of one that sleeps so: whether a record for it came, or something else to be told.
    pub(super) fn narrow_has_more(&self) -> Option<bool> {
        let asleep = self.select.as_ref()?.narrow.as_ref().filter(|asleep| asleep.is_armed)?;
        Some(asleep.goes_on.load(Ordering::Acquire) != ASLEEP)
    }

    /// Was notified: goes on at the record that is for it.
    pub(super) fn woken_narrow(&mut self) {
        if self.is_armed_narrow() && !self.was_taken() {
            // It was notified of something else.
            drop(self.disarm_narrow());
        }
    }

    /// Goes on where it is to, if it was taken out of the index.
    fn was_taken(&mut self) -> bool {
        let Some(asleep) = self.asleep() else { return false };
        let goes_on = asleep.goes_on.load(Ordering::Acquire);
        if goes_on == ASLEEP {
            return false;
        }
        asleep.is_armed = false;
        if goes_on != ANYWHERE && goes_on > self.next.seq {
            self.pass_to(goes_on);
        }
        true
    }

    /// Goes on behind what has come for others while it sleeps, and says whether there was any.
    pub fn pass_unwanted(&mut self) -> bool {
        if !self.is_armed_narrow() {
            return false;
        }
        let goes_on = self.asleep().map(|asleep| Arc::clone(&asleep.goes_on));
        let Some(behind) = goes_on.and_then(|goes_on| self.log.slept_through(&goes_on)) else { return false };
        if behind.epoch != self.next.epoch || behind.seq <= self.next.seq {
            return false;
        }
        self.pass_to(behind.seq);
        true
    }

    /// What lies before `seq` was for others.
    fn pass_to(&mut self, seq: u64) {
        self.skipped += seq - self.next.seq;
        self.next.seq = seq;
        (self.hint, self.offset) = (Hint::None, 0);
        self.show();
    }

    fn asleep(&mut self) -> Option<&mut Asleep> {
        self.select.as_mut().and_then(|select| select.narrow.as_mut())
    }

    /// Has it look again, should it sleep: it may want other subjects now.
    pub(super) fn rouse_narrow(&mut self) {
        if let Some(armed) = self.disarm_narrow() {
            armed.waiter.notify(armed.token);
        }
    }

    /// Takes it out of the log's index; nothing where it was taken out to be woken.
    pub(super) fn disarm_narrow(&mut self) -> Option<Armed> {
        let asleep = self.select.as_mut().and_then(|select| select.narrow.as_mut())?;
        let was_armed = std::mem::take(&mut asleep.is_armed);
        if was_armed { self.log.disarm_narrow((&asleep.pattern, &asleep.goes_on)) } else { None }
    }
}
