//! The list of threads and tasks that wait while another thread reads the connection, and the code that wakes them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

/// The waker of the thread or task that waits in a call of one handle, such as a subscriber or a publisher.
#[derive(Debug, Default)]
pub(crate) struct HandleWaker {
    slot: Mutex<WakerSlot>,
}

#[derive(Debug, Default)]
struct WakerSlot {
    waker: Option<Waker>,
    /// Since when the handle has waited for an event of its own.
    waits_since: Option<Instant>,
}

impl HandleWaker {
    /// Sets the waker. Returns since when the handle has waited: the first call after the last
    /// [`clear`](Self::clear) or [`wake`](Self::wake).
    pub(crate) fn set(&self, waker: &Waker) -> Instant {
        let mut slot = lock(&self.slot);
        if !slot.waker.as_ref().is_some_and(|current| current.will_wake(waker)) {
            slot.waker = Some(waker.clone());
        }
        *slot.waits_since.get_or_insert_with(Instant::now)
    }

    pub(crate) fn clear(&self) {
        *lock(&self.slot) = WakerSlot::default();
    }

    pub(crate) fn wake(&self) {
        let slot = std::mem::take(&mut *lock(&self.slot));
        if let Some(waker) = slot.waker {
            waker.wake();
        }
    }
}

/// All threads and tasks that wait while another one reads the connection. A thread removes itself from the list when
/// it stops waiting. The future of a task may be dropped without notice, so the list may contain tasks that do not
/// exist any more. If a task has to continue the reading, all tasks are therefore woken.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    next: AtomicU64,
    threads: WakerList,
    tasks: WakerList,
    /// Whether the reactor will wake the tasks at the next event of the socket.
    armed: AtomicBool,
}

#[derive(Debug, Default)]
struct WakerList {
    count: AtomicUsize,
    list: Mutex<BTreeMap<u64, Waker>>,
}

impl Followers {
    /// Returns a new number, under which a thread or task is in the list.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn add_thread(&self, number: u64, waker: &Waker) {
        self.threads.add(number, waker);
    }

    pub(crate) fn remove_thread(&self, number: u64) {
        self.threads.remove(number);
    }

    /// Wakes one waiting thread to read the connection, or all tasks if no thread waits. The caller must have stopped
    /// reading.
    #[inline]
    pub(crate) fn wake_next_reader(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if !self.threads.wake_one() {
            self.tasks.wake_all();
        }
    }

    pub(crate) fn wake_all(&self) {
        self.threads.wake_all();
        self.tasks.wake_all();
    }
}

#[cfg(feature = "tokio")]
impl Followers {
    pub(crate) fn add_task(&self, number: u64, waker: &Waker) {
        self.tasks.add(number, waker);
    }

    pub(crate) fn remove_task(&self, number: u64) {
        self.tasks.remove(number);
    }

    /// Notes that the reactor will wake the tasks at the next event of the socket.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Wakes other waiters after a task has stopped reading the connection: one thread, and all tasks unless the
    /// reactor will wake them.
    pub(crate) fn wake_readers_unless_armed(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        self.threads.wake_one();
        if !self.armed.load(Ordering::SeqCst) {
            self.tasks.wake_all();
        }
    }
}

/// The waker that the reactor calls at an event of the socket. It wakes all tasks.
impl Wake for Followers {
    fn wake(self: Arc<Followers>) {
        self.armed.store(false, Ordering::SeqCst);
        self.tasks.wake_all();
    }
}

impl WakerList {
    fn add(&self, number: u64, waker: &Waker) {
        let mut list = lock(&self.list);
        list.insert(number, waker.clone());
        self.count.store(list.len(), Ordering::SeqCst);
        drop(list);
        // A new waiter adds itself to the list, passes this fence, and then tries to become the reader. A thread that
        // stops reading passes a fence too, and then checks the list. At least one of the two therefore notices the
        // other.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    fn remove(&self, number: u64) {
        if self.count.load(Ordering::SeqCst) > 0 {
            let mut list = lock(&self.list);
            list.remove(&number);
            self.count.store(list.len(), Ordering::SeqCst);
        }
    }

    /// Wakes the first waiter in the list. Returns `false` if the list is empty.
    #[inline]
    fn wake_one(&self) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let first = {
            let mut list = lock(&self.list);
            let first = list.pop_first();
            self.count.store(list.len(), Ordering::SeqCst);
            first
        };
        first.map(|(_, waker)| waker.wake()).is_some()
    }

    #[inline]
    fn wake_all(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let all = {
            let mut list = lock(&self.list);
            self.count.store(0, Ordering::SeqCst);
            std::mem::take(&mut *list)
        };
        all.into_values().for_each(Waker::wake);
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

pub(crate) fn thread_waker() -> Waker {
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    }
    WAKER.with(Waker::clone)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
