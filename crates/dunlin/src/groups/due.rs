//! When something of any group is over next: whoever keeps time for a node sleeps until then, and is woken when it
//! becomes earlier.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// What the keeper of time waits for.
#[derive(Debug)]
pub(super) struct Due {
    /// Before this nothing is over; nothing ever is where it is the highest number.
    next_ns: AtomicU64,
    keeper: Mutex<Option<Waker>>,
}

impl Due {
    pub(super) fn new() -> Due {
        Due { next_ns: AtomicU64::new(u64::MAX), keeper: Mutex::new(None) }
    }

    /// Something is over at this time.
    #[inline]
    pub(super) fn at(&self, due_ns: u64) {
        if due_ns < self.next_ns.load(Ordering::Relaxed)
            && due_ns < self.next_ns.fetch_min(due_ns, Ordering::SeqCst)
            && let Some(keeper) = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            keeper.wake();
        }
    }

    /// Looks anew: `see_to` does what is over, and says [`at`](Due::at) for all that is not yet. When something is over
    /// next; `keeper` is woken when that becomes earlier.
    pub(super) fn keep(&self, keeper: &Waker, see_to: impl FnOnce()) -> Option<u64> {
        // Without a keeper, so that what is seen to does not wake the one who does it.
        self.set_keeper(None);
        self.next_ns.store(u64::MAX, Ordering::SeqCst);
        see_to();
        // What became earlier before this is read below; what does after it wakes.
        self.set_keeper(Some(keeper.clone()));
        Some(self.next_ns.load(Ordering::SeqCst)).filter(|next_ns| *next_ns != u64::MAX)
    }

    fn set_keeper(&self, keeper: Option<Waker>) {
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = keeper;
    }
}
