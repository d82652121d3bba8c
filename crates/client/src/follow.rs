//! Who waits, and how they are woken.
//!
//! One of those who wait reads the socket for all (the leader); the others (followers) sleep until
//! something came for them or until the leader has what it waited for and one of them has to lead. Async callers are
//! followers that never block.
//!
//! Invariant: whoever leaves the reading half wakes one follower after letting go of it, and a
//! follower tries to take the reading half after it stood in the list. So with anybody waiting
//! somebody leads, or has been woken to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

/// Where one handle leaves word that it waits.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    waker: Mutex<Option<Waker>>,
}

impl Waiting {
    pub(crate) fn set(&self, waker: &Waker) {
        let mut slot = lock(&self.waker);
        if !slot.as_ref().is_some_and(|there| there.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }

    pub(crate) fn clear(&self) {
        *lock(&self.waker) = None;
    }

    pub(crate) fn wake(&self) {
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// All who wait without reading.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    count: AtomicUsize,
    next: AtomicU64,
    list: Mutex<BTreeMap<u64, Waker>>,
}

impl Followers {
    /// A number for a handle, under which it follows.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn add(&self, number: u64, waker: &Waker) {
        let mut list = lock(&self.list);
        list.insert(number, waker.clone());
        // Paired with the load in `wake_one`: it comes after the reading half was let go of, this
        // comes before it is tried again.
        self.count.store(list.len(), Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, number: u64) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut list = lock(&self.list);
        list.remove(&number);
        self.count.store(list.len(), Ordering::SeqCst);
    }

    /// The leader has gone: somebody else has to lead.
    #[inline]
    pub(crate) fn wake_one(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let first = {
            let mut list = lock(&self.list);
            let first = list.pop_first();
            self.count.store(list.len(), Ordering::SeqCst);
            first
        };
        if let Some((_, waker)) = first {
            waker.wake();
        }
    }

    /// Something happened that concerns everybody.
    pub(crate) fn wake_all(&self) {
        let all = {
            let mut list = lock(&self.list);
            self.count.store(0, Ordering::SeqCst);
            std::mem::take(&mut *list)
        };
        all.into_values().for_each(Waker::wake);
    }
}

/// The socket stirred while nobody was blocked in it: let all async callers look.
impl Wake for Followers {
    fn wake(self: Arc<Followers>) {
        self.wake_all();
    }
}

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<ThreadWaker>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<ThreadWaker>) {
        self.0.unpark();
    }
}

/// A waker that unparks the current thread.
pub(crate) fn thread_waker() -> Waker {
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    }
    WAKER.with(Waker::clone)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
