//! Cursors that sleep until a record of their own subjects arrives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::select::SubjectSleep;
use super::{Cursor, Hint};
use crate::log::{ANYWHERE, ASLEEP, SleepingCursor};
use crate::wake::Waiter;

impl Cursor {
    /// Whether the cursor can sleep until a record of its own subjects arrives. Registered subscribers, followers of
    /// a state, and cursors that drop records for tests must look at every record.
    pub(super) fn may_sleep_narrow(&mut self) -> bool {
        let waits_otherwise = self.armed.is_some()
            || self.ended
            || self.subscriber.is_some()
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
            // The cursor is already in the index, unless the index has released it.
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

    /// Whether the cursor sleeps until a record of its own subjects arrives.
    pub fn is_armed_narrow(&self) -> bool {
        let narrow = self.select.as_ref().and_then(|select| select.narrow.as_ref());
        narrow.is_some_and(|asleep| asleep.is_armed)
    }

    /// For a cursor that sleeps in the index: whether a record for the cursor has arrived, or a notice is due.
    pub(super) fn narrow_has_more(&self) -> Option<bool> {
        let asleep = self.select.as_ref()?.narrow.as_ref().filter(|asleep| asleep.is_armed)?;
        Some(asleep.goes_on.load(Ordering::Acquire) != ASLEEP)
    }

    /// Continues at the record that woke the cursor.
    pub(super) fn woken_narrow(&mut self) {
        if self.is_armed_narrow() && !self.was_taken() {
            // The notification had another cause than a record, for example a notice.
            drop(self.disarm_narrow());
        }
    }

    /// If the index has released the cursor, moves it to the record where it has to continue. Returns whether the index
    /// has released the cursor.
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

    /// Skips records that arrived for other cursors during the sleep. Returns whether there were any.
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

    /// Skips to `seq`.
    fn pass_to(&mut self, seq: u64) {
        self.skipped += seq - self.next.seq;
        self.next.seq = seq;
        (self.hint, self.offset) = (Hint::None, 0);
        self.show();
    }

    fn asleep(&mut self) -> Option<&mut SubjectSleep> {
        self.select.as_mut().and_then(|select| select.narrow.as_mut())
    }

    /// Wakes the sleeping cursor, because its subjects may change.
    pub(super) fn rouse_narrow(&mut self) {
        if let Some(armed) = self.disarm_narrow() {
            armed.waiter.notify(armed.token);
        }
    }

    /// Removes the cursor from the log's index; `None` if the index has released it already.
    pub(super) fn disarm_narrow(&mut self) -> Option<SleepingCursor> {
        let asleep = self.select.as_mut().and_then(|select| select.narrow.as_mut())?;
        let was_armed = std::mem::take(&mut asleep.is_armed);
        if was_armed { self.log.disarm_narrow((&asleep.pattern, &asleep.goes_on)) } else { None }
    }
}
