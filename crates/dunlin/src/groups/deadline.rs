//! Keeps the earliest deadline of all groups. The thread or task that handles deadlines sleeps until then. If an
//! earlier deadline is set meanwhile, the thread or task is woken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// The earliest deadline of all groups, and the waker of the thread or task that handles deadlines.
#[derive(Debug)]
pub(super) struct NextDeadline {
    /// The time of the earliest deadline; `u64::MAX` means that there is no deadline.
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

    /// Runs `handle`, which handles the deadlines that have passed and calls [`report`](NextDeadline::report) with each
    /// later deadline. Returns the earliest reported deadline, if there is one. If a deadline before this one is
    /// reported afterwards, `waker` is woken.
    pub(super) fn run(&self, waker: &Waker, handle: impl FnOnce()) -> Option<u64> {
        // While `handle` runs, the deadlines that it reports itself must not wake the thread or task that runs it.
        self.set_waker(None);
        self.next_ns.store(u64::MAX, Ordering::SeqCst);
        handle();
        // Set the waker before reading the deadline. Otherwise, a deadline that is reported between the two steps would
        // neither be returned nor wake the handler.
        self.set_waker(Some(waker.clone()));
        Some(self.next_ns.load(Ordering::SeqCst)).filter(|next_ns| *next_ns != u64::MAX)
    }

    fn set_waker(&self, waker: Option<Waker>) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }
}
