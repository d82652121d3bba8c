//! The earliest deadline of all groups. The thread or task that handles deadlines sleeps until then. An
//! earlier deadline wakes it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// The earliest deadline of all groups, and the waker of the thread or task that handles deadlines.
#[derive(Debug)]
pub(super) struct NextDeadline {
    /// The time of the earliest deadline; the maximum value means that there is none.
    next_ns: AtomicU64,
    keeper: Mutex<Option<Waker>>,
}

impl NextDeadline {
    pub(super) fn new() -> NextDeadline {
        NextDeadline { next_ns: AtomicU64::new(u64::MAX), keeper: Mutex::new(None) }
    }

    /// Reports a deadline.
    #[inline]
    pub(super) fn at(&self, due_ns: u64) {
        if due_ns < self.next_ns.load(Ordering::Relaxed)
            && due_ns < self.next_ns.fetch_min(due_ns, Ordering::SeqCst)
            && let Some(keeper) = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            keeper.wake();
        }
    }

    /// Runs `see_to`, which handles the deadlines that have passed and calls [`at`](Due::at) for all others. Returns
    /// the next deadline. If an earlier deadline is reported afterwards, `keeper` is woken.
    pub(super) fn keep(&self, keeper: &Waker, see_to: impl FnOnce()) -> Option<u64> {
        // Removes the waker while `see_to` runs, so that the handler does not wake itself.
        self.set_keeper(None);
        self.next_ns.store(u64::MAX, Ordering::SeqCst);
        see_to();
        // Sets the waker before the next deadline is read: a deadline that was reported earlier is read below, and a
        // later one wakes the handler.
        self.set_keeper(Some(keeper.clone()));
        Some(self.next_ns.load(Ordering::SeqCst)).filter(|next_ns| *next_ns != u64::MAX)
    }

    fn set_keeper(&self, keeper: Option<Waker>) {
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = keeper;
    }
}
