//! Waking whoever waits for records.
//!
//! A waiting cursor is *armed*: it stands in its log's list, put there inside the log's lock after
//! one more look. A publish takes one off the list and wakes it, whoever is woken takes two more:
//! so a publisher pays for one wake, however many wait.
//!
//! Invariants:
//! - A cursor that was taken off a list passes the wake on when its reader returns from waiting, looks
//!   again, or drops it.
//! - A cursor nobody sleeps on (its reader gave up waiting, or never began) is notified, but the
//!   wake goes on to the next.
//!
//! Limit: a task that was woken and is not polled (its executor stands still, or it waits for
//! something else by now) delays those behind it until the next publish or [`Topic::expire`](crate::Topic::expire).

use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// Whoever reads one or many cursors: a subscriber, or a session of a door.
#[derive(Debug, Default)]
pub struct Waiter {
    any: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Most waiters have one cursor: its token stands here, and no list is needed.
    first: Option<u32>,
    #[expect(clippy::box_collection, reason = "an idle subscriber is to take 256 bytes")]
    more: Option<Box<Vec<u32>>>,
    waker: Option<Waker>,
}

impl Waiter {
    /// The token that room in a reliable topic notifies; see [`Topic::await_room`](crate::Topic::await_room).
    pub const ROOM: u32 = 0;

    /// A waiter nobody waits on yet.
    pub fn new() -> Arc<Waiter> {
        Arc::default()
    }

    /// Says that the cursor of this token is worth a look, and wakes whoever waits.
    pub fn notify(&self, token: u32) {
        self.wake(token);
    }

    /// [`notify`](Waiter::notify); `false` when nobody waited.
    pub(crate) fn wake(&self, token: u32) -> bool {
        let waker = {
            let mut inner = self.lock();
            match inner.first {
                None => inner.first = Some(token),
                Some(_) => inner.more.get_or_insert_default().push(token),
            }
            self.any.store(true, Ordering::Release);
            inner.waker.take()
        };
        waker.map(Waker::wake).is_some()
    }

    /// Takes the tokens that were notified; `false` when there were none.
    #[inline]
    pub fn take_ready(&self, mut each: impl FnMut(u32)) -> bool {
        if !self.is_ready() {
            return false;
        }
        let (first, more) = {
            let mut inner = self.lock();
            self.any.store(false, Ordering::Relaxed);
            (inner.first.take(), inner.more.take())
        };
        first.into_iter().for_each(&mut each);
        more.into_iter().flat_map(|more| *more).for_each(each);
        true
    }

    /// Whether anything was notified and not yet taken.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Has `waker` woken by the next notification; `false` when one is there already.
    pub fn set_waker(&self, waker: &Waker) -> bool {
        let mut inner = self.lock();
        if self.any.load(Ordering::Relaxed) {
            return false;
        }
        if !inner.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            inner.waker = Some(waker.clone());
        }
        true
    }

    /// Whoever waited has gone away; `false` when a notification was first.
    pub fn clear_waker(&self) -> bool {
        let mut inner = self.lock();
        inner.waker = None;
        !self.any.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker for the calling thread, which waits by [`thread::park`].
pub fn thread_waker() -> Waker {
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    }
    WAKER.with(Waker::clone)
}
