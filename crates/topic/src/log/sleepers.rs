//! The sleeping cursors of a log, in the order in which they fell asleep.
//!
//! The list is a linked list in a vector of slots. A cursor is removed in constant time, which matters because a
//! closing session removes all its cursors. Slots are used again in the order in which they became free, so that
//! neighbours in the list tend to be neighbours in memory. When 100,000 cursors are woken, walking through the list is
//! therefore faster.
//!
//! Limit: 2³² − 1 sleepers of one log.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::wake::Waiter;

/// A cursor that sleeps until there is something to read: its waiter, and the token with which the waiter is notified.
#[derive(Debug)]
pub(crate) struct SleepingCursor {
    pub(crate) waiter: Arc<Waiter>,
    pub(crate) token: u32,
}

/// The number of a sleeping cursor's slot. It is valid until the cursor is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SleeperId(NonZeroU32);

#[derive(Debug, Default)]
pub(super) struct Sleepers {
    slots: Vec<Slot>,
    asleep: Ends,
    free: Ends,
    /// The last overdue cursor in the list. It and all cursors before it have something to read, but were not woken
    /// yet.
    overdue: Option<SleeperId>,
    count: u32,
}

#[derive(Debug)]
struct Slot {
    /// The sleeping cursor; `None` in a free slot.
    armed: Option<SleepingCursor>,
    previous: Option<SleeperId>,
    next: Option<SleeperId>,
}

/// The first and last slot of a list.
#[derive(Debug, Default)]
struct Ends {
    first: Option<SleeperId>,
    last: Option<SleeperId>,
}

impl SleeperId {
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl Sleepers {
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    pub(super) fn push(&mut self, armed: SleepingCursor) -> SleeperId {
        let id = match self.free.first {
            Some(id) => {
                self.free.unlink(&mut self.slots, id);
                id
            }
            None => {
                self.slots.push(Slot { armed: None, previous: None, next: None });
                let number = u32::try_from(self.slots.len()).ok().and_then(NonZeroU32::new);
                SleeperId(number.expect("a log has fewer than 2^32 sleeping cursors"))
            }
        };
        self.slots[id.index()].armed = Some(armed);
        self.asleep.append(&mut self.slots, id);
        self.count += 1;
        id
    }

    /// Removes and returns the first cursor, which the caller wakes. Marks all other cursors as overdue: they have
    /// something to read, but were not woken yet.
    #[inline(always)]
    pub(super) fn take_first(&mut self) -> Option<SleepingCursor> {
        let first = self.asleep.first?;
        self.overdue = self.asleep.last;
        self.take(first)
    }

    pub(super) fn has_overdue(&self) -> bool {
        self.overdue.is_some()
    }

    /// Removes and returns the first cursor if it is overdue. A caller may repeat the call until it returns `None`. A
    /// loop over all cursors, not only the overdue ones, might never end, because woken cursors go to sleep again.
    pub(super) fn take_overdue(&mut self) -> Option<SleepingCursor> {
        self.overdue?;
        self.take(self.asleep.first?)
    }

    /// Removes a cursor. Does nothing if the slot already belongs to another cursor.
    pub(super) fn remove(
        &mut self,
        id: SleeperId,
        waiter: &Arc<Waiter>,
        token: u32,
    ) -> Option<SleepingCursor> {
        let armed = self.slots.get(id.index())?.armed.as_ref()?;
        if armed.token != token || !Arc::ptr_eq(&armed.waiter, waiter) {
            return None;
        }
        self.take(id)
    }

    pub(super) fn take_all(&mut self) -> Vec<SleepingCursor> {
        let mut all = Vec::with_capacity(self.len());
        while let Some(armed) = self.take_first() {
            all.push(armed);
        }
        *self = Sleepers::default();
        all
    }

    fn take(&mut self, id: SleeperId) -> Option<SleepingCursor> {
        if self.overdue == Some(id) {
            self.overdue = self.slots[id.index()].previous;
        }
        self.asleep.unlink(&mut self.slots, id);
        self.free.append(&mut self.slots, id);
        self.count -= 1;
        self.slots[id.index()].armed.take()
    }
}

impl Ends {
    fn append(&mut self, slots: &mut [Slot], id: SleeperId) {
        let before = self.last.replace(id);
        match before {
            Some(before) => slots[before.index()].next = Some(id),
            None => self.first = Some(id),
        }
        slots[id.index()].previous = before;
        slots[id.index()].next = None;
    }

    fn unlink(&mut self, slots: &mut [Slot], id: SleeperId) {
        let Slot { previous, next, .. } = slots[id.index()];
        match previous {
            Some(previous) => slots[previous.index()].next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => slots[next.index()].previous = previous,
            None => self.last = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A model of the sleeping cursors as a plain queue. The first `overdue` of them have something to read.
    #[derive(Default)]
    struct Plain {
        queue: VecDeque<u32>,
        overdue: usize,
    }

    impl Plain {
        fn take_first(&mut self) -> Option<u32> {
            let first = self.queue.pop_front()?;
            self.overdue = self.queue.len();
            Some(first)
        }

        fn take_overdue(&mut self) -> Option<u32> {
            self.overdue = self.overdue.checked_sub(1)?;
            self.queue.pop_front()
        }

        fn remove(&mut self, token: u32) -> bool {
            let Some(at) = self.queue.iter().position(|&t| t == token) else { return false };
            self.overdue -= usize::from(at < self.overdue);
            self.queue.remove(at).is_some()
        }
    }

    proptest! {
        #[test]
        fn list_of_sleeping_cursors_behaves_like_a_plain_queue(steps in prop::collection::vec(any::<(u8, u8)>(), 1..400)) {
            let waiter = Waiter::new();
            let (mut sleepers, mut plain) = (Sleepers::default(), Plain::default());
            let mut ids = Vec::new();
            for (step, which) in steps {
                match step % 8 {
                    0..4 => {
                        let token = ids.len() as u32;
                        ids.push(sleepers.push(SleepingCursor { waiter: Arc::clone(&waiter), token }));
                        plain.queue.push_back(token);
                    }
                    4 => prop_assert_eq!(sleepers.take_first().map(|armed| armed.token), plain.take_first()),
                    5 => prop_assert_eq!(sleepers.take_overdue().map(|armed| armed.token), plain.take_overdue()),
                    6 if !ids.is_empty() => {
                        // The test also tries to remove a cursor that was already taken. Its slot may belong to another
                        // cursor by now.
                        let token = which as usize % ids.len();
                        let removed = sleepers.remove(ids[token], &waiter, token as u32);
                        prop_assert_eq!(removed.is_some(), plain.remove(token as u32));
                    }
                    7 if which % 16 == 0 => {
                        let all: Vec<u32> = sleepers.take_all().into_iter().map(|armed| armed.token).collect();
                        prop_assert_eq!(all, plain.queue.drain(..).collect::<Vec<_>>());
                        plain.overdue = 0;
                    }
                    _ => {}
                }
                prop_assert_eq!(sleepers.len(), plain.queue.len());
                prop_assert_eq!(sleepers.has_overdue(), plain.overdue > 0);
            }
        }

        #[test]
        fn list_of_sleeping_cursors_reuses_free_entries(rounds in 1..50_usize, at_once in 1..20_u32) {
            let waiter = Waiter::new();
            let mut sleepers = Sleepers::default();
            for round in 0..rounds {
                let arm = |token| sleepers.push(SleepingCursor { waiter: Arc::clone(&waiter), token });
                let ids: Vec<SleeperId> = (0..at_once).map(arm).collect();
                for (token, id) in (0..).zip(ids) {
                    if round % 2 == 0 {
                        prop_assert!(sleepers.remove(id, &waiter, token).is_some());
                    } else {
                        prop_assert!(sleepers.take_first().is_some());
                    }
                }
            }
            prop_assert_eq!(sleepers.slots.len(), at_once as usize);
        }
    }
}
