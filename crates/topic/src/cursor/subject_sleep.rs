//! Lets a cursor sleep until a record of the cursor's own subjects arrives. The log has an index of such cursors, by
//! subject.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::select::SubjectSleep;
use super::{Cursor, Hint};
use crate::log::{ANYWHERE, ASLEEP, SleepingCursor};
use crate::wake::Waiter;

impl Cursor {
    /// Whether the cursor can sleep until a record of the cursor's own subjects arrives. Registered subscribers,
    /// followers of a state, and cursors that withhold records for tests cannot, because they must check every record.
    pub(super) fn can_sleep_by_subject(&mut self) -> bool {
        let waits_otherwise = self.armed.is_some()
            || self.ended
            || self.subscriber.is_some()
            || self.follower.is_some()
            || !self.log.has_index();
        match &mut self.select {
            Some(select) if !waits_otherwise && select.loss_injector.is_none() => {
                select.prepare_subject_sleep().is_some()
            }
            _ => false,
        }
    }

    #[cold]
    pub(super) fn arm_by_subject(&mut self, waiter: &Arc<Waiter>, token: u32) -> bool {
        if self.is_armed_by_subject() {
            // The cursor still sleeps in the index, unless the index has released the cursor because of a record.
            return !self.was_released();
        }
        let next = self.awaited();
        let Some(sleep) = self.subject_sleep() else { return false };
        let (pattern, resume_seq) = (sleep.pattern.clone(), Arc::clone(&sleep.resume_seq));
        let is_armed = self.log.arm_by_subject(next, waiter, token, (&pattern, &resume_seq));
        if let Some(sleep) = self.subject_sleep() {
            sleep.is_armed = is_armed;
        }
        is_armed
    }

    /// Whether the cursor sleeps until a record of its own subjects arrives.
    pub fn is_armed_by_subject(&self) -> bool {
        let sleep = self.select.as_ref().and_then(|select| select.subject_sleep.as_ref());
        sleep.is_some_and(|sleep| sleep.is_armed)
    }

    /// For a cursor that sleeps in the log's index: whether a record for the cursor has arrived, or a notice is due.
    /// `None` for all other cursors.
    pub(super) fn has_more_by_subject(&self) -> Option<bool> {
        let sleep = self.select.as_ref()?.subject_sleep.as_ref().filter(|sleep| sleep.is_armed)?;
        Some(sleep.resume_seq.load(Ordering::Acquire) != ASLEEP)
    }

    /// For a cursor that was notified: moves the cursor to the record that woke it.
    pub(super) fn handle_subject_wake(&mut self) {
        if self.is_armed_by_subject() && !self.was_released() {
            // Something other than a record caused the notification, for example a notice.
            drop(self.disarm_by_subject());
        }
    }

    /// If the index has released the cursor, moves the cursor to the record at which it has to continue. Returns
    /// whether the index has released the cursor.
    fn was_released(&mut self) -> bool {
        let Some(sleep) = self.subject_sleep() else { return false };
        let resume_seq = sleep.resume_seq.load(Ordering::Acquire);
        if resume_seq == ASLEEP {
            return false;
        }
        sleep.is_armed = false;
        if resume_seq != ANYWHERE && resume_seq > self.next.seq {
            self.skip_to(resume_seq);
        }
        true
    }

    /// Skips the records that arrived for other cursors while this cursor sleeps. Returns whether any were skipped.
    pub fn skip_unwanted(&mut self) -> bool {
        if !self.is_armed_by_subject() {
            return false;
        }
        let resume_seq = self.subject_sleep().map(|sleep| Arc::clone(&sleep.resume_seq));
        let Some(end) = resume_seq.and_then(|resume_seq| self.log.end_if_asleep(&resume_seq)) else {
            return false;
        };
        if end.epoch != self.next.epoch || end.seq <= self.next.seq {
            return false;
        }
        self.skip_to(end.seq);
        true
    }

    fn skip_to(&mut self, seq: u64) {
        self.skipped += seq - self.next.seq;
        self.next.seq = seq;
        (self.hint, self.offset) = (Hint::None, 0);
        self.update_progress();
    }

    fn subject_sleep(&mut self) -> Option<&mut SubjectSleep> {
        self.select.as_mut().and_then(|select| select.subject_sleep.as_mut())
    }

    /// Wakes the cursor if it sleeps, because its subjects may change.
    pub(super) fn end_subject_sleep(&mut self) {
        if let Some(sleeper) = self.disarm_by_subject() {
            sleeper.waiter.notify(sleeper.token);
        }
    }

    /// Removes the cursor from the log's index. Returns `None` if the cursor does not sleep there, or if the index has
    /// already released it.
    pub(super) fn disarm_by_subject(&mut self) -> Option<SleepingCursor> {
        let sleep = self.select.as_mut().and_then(|select| select.subject_sleep.as_mut())?;
        let was_armed = std::mem::take(&mut sleep.is_armed);
        if was_armed { self.log.disarm_by_subject((&sleep.pattern, &sleep.resume_seq)) } else { None }
    }
}
