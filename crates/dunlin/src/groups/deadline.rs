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
    waker: Mutex<Option<Waker>>,
}

impl NextDeadline {
    pub(super) fn new() -> NextDeadline {
        NextDeadline { next_ns: AtomicU64::new(u64::MAX), waker: Mutex::new(None) }
    }

    #[inline]
    pub(super) fn report(&self, due_ns: u64) {
        if due_ns < self.next_ns.load(Ordering::Relaxed)
            && due_ns < self.next_ns.fetch_min(due_ns, Ordering::SeqCst)
            && let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            waker.wake();
        }
    }

    /// Runs `handle`, which handles the deadlines that have passed and calls [`report`](NextDeadline::report) for all
    /// others. Returns the next deadline, if there is one. If an earlier deadline is reported afterwards, `waker` is
    /// woken.
    pub(super) fn run(&self, waker: &Waker, handle: impl FnOnce()) -> Option<u64> {
        // Removes the waker while `handle` runs, so that the handler does not wake itself.
        self.set_waker(None);
        self.next_ns.store(u64::MAX, Ordering::SeqCst);
        handle();
        // Sets the waker before the next deadline is read: a deadline that was reported earlier is read below, and a
        // later one wakes the handler.
        self.set_waker(Some(waker.clone()));
        Some(self.next_ns.load(Ordering::SeqCst)).filter(|next_ns| *next_ns != u64::MAX)
    }

    fn set_waker(&self, waker: Option<Waker>) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }
}
