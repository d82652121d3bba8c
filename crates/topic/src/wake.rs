//! Wakes threads and tasks that wait for records.
//!
//! Before it waits, a cursor is *armed*: inside the log's lock, after a last check that there is nothing to read, it
//! joins the log's list of sleepers. A publish wakes one sleeper, and each sleeper that was woken wakes two more. The
//! publisher itself therefore wakes only one sleeper, whatever the number of waiting cursors.
//!
//! Invariants:
//! - A subscriber that was woken wakes the next sleepers when it returns from waiting, reads again, or drops its
//!   cursor.
//! - If a cursor is armed, but no thread or task waits for it yet, it is notified, and the next cursor is woken at
//!   once.
//!
//! Limit: if a task was woken but is not polled, the tasks after it are woken late: at the next publish or
//! [`Topic::expire`](crate::Topic::expire).

use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// A subscriber, or a listener's session, waits on a waiter until there is something to read.
/// [`notify`](Waiter::notify) wakes the subscriber or session.
#[derive(Debug, Default)]
pub struct Waiter {
    is_ready: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The first token that was notified; others are in `more`. Most waiters have only one cursor, and need no list of
    /// tokens.
    first: Option<u32>,
    #[expect(clippy::box_collection, reason = "an idle subscriber may take 256 bytes at most")]
    more: Option<Box<Vec<u32>>>,
    waker: Option<Waker>,
}

impl Waiter {
    /// The token with which a waiter is notified that there is room in a topic; see
    /// [`Topic::await_room`](crate::Topic::await_room).
    pub const ROOM: u32 = 0;

    /// Creates a waiter. No waker is set yet.
    pub fn new() -> Arc<Waiter> {
        Arc::default()
    }

    /// Notifies the waiter that the cursor with this token has something to read, and wakes the thread or task that
    /// waits.
    pub fn notify(&self, token: u32) {
        self.wake(token);
    }

    /// Like [`notify`](Waiter::notify), but returns `false` if no thread or task was waiting.
    pub(crate) fn wake(&self, token: u32) -> bool {
        let waker = {
            let mut inner = self.lock();
            match inner.first {
                None => inner.first = Some(token),
                Some(_) => inner.more.get_or_insert_default().push(token),
            }
            self.is_ready.store(true, Ordering::Release);
            inner.waker.take()
        };
        waker.map(Waker::wake).is_some()
    }

    /// Removes all tokens that were notified, and passes each of them to `each`. Returns `false` if there were none.
    #[inline]
    pub fn take_ready(&self, mut each: impl FnMut(u32)) -> bool {
        if !self.is_ready() {
            return false;
        }
        let (first, more) = {
            let mut inner = self.lock();
            self.is_ready.store(false, Ordering::Relaxed);
            (inner.first.take(), inner.more.take())
        };
        first.into_iter().for_each(&mut each);
        more.into_iter().flat_map(|more| *more).for_each(each);
        true
    }

    /// Whether any token was notified and not taken yet.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Sets the waker that the next notification wakes. Returns `false`, and sets nothing, if there is already a
    /// notification.
    pub fn set_waker(&self, waker: &Waker) -> bool {
        let mut inner = self.lock();
        if self.is_ready.load(Ordering::Relaxed) {
            return false;
        }
        if !inner.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            inner.waker = Some(waker.clone());
        }
        true
    }

    /// Removes the waker. Returns `false` if there is already a notification.
    pub fn clear_waker(&self) -> bool {
        let mut inner = self.lock();
        inner.waker = None;
        !self.is_ready.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unparks its thread when the [`Waker`] made from this value is woken.
struct ThreadUnparker(Thread);

impl Wake for ThreadUnparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns a waker that unparks the calling thread.
pub fn thread_waker() -> Waker {
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(ThreadUnparker(thread::current())));
    }
    WAKER.with(Waker::clone)
}
