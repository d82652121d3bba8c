//! A spin lock for critical sections of some tens of nanoseconds. It protects logs, and the table of a node's topic
//! names.
//!
//! Unlocking is a plain store. The standard library's mutex unlocks with an atomic read-modify-write operation, which
//! has to wait until the preceding store to the log's commit word is complete. In a measurement, a round trip between
//! two spinning threads takes 235 ns with this lock and 270 ns with a mutex. A publish without subscribers takes 29 ns
//! with this lock and 33 ns with a mutex.
//!
//! A thread that finds the lock taken spins for about a microsecond, then yields between tries, and finally sleeps
//! between tries. There is no queue, so the lock is not fair. A publisher of a reliable topic that waits for
//! subscribers does not hold this lock.

#[cfg(loom)]
mod blocking;

#[cfg(not(loom))]
pub(crate) use self::{ShortGuard as LogGuard, ShortLock as LogLock};
#[cfg(loom)]
pub(crate) use blocking::{ShortGuard as LogGuard, ShortLock as LogLock};

use crate::sync::{AtomicBool, LOCK_ACQUIRE, LOCK_RELEASE, Ordering, UnsafeCell};

#[cfg(not(loom))]
const SPINS: u32 = 50;
#[cfg(not(loom))]
const YIELDS: u32 = 100;
#[cfg(not(loom))]
const SLEEP: std::time::Duration = std::time::Duration::from_micros(50);

/// A spin lock for critical sections of some tens of nanoseconds. A thread that holds the lock must not lock it again.
#[derive(Debug)]
pub struct ShortLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `taken` admits one thread at a time to the value.
unsafe impl<T: Send> Sync for ShortLock<T> {}

/// The exclusive access to the data of a [`ShortLock`]. Dropping the guard unlocks the lock.
#[derive(Debug)]
pub struct ShortGuard<'a, T>(&'a ShortLock<T>);

impl<T> ShortLock<T> {
    /// Creates an unlocked lock.
    pub fn new(value: T) -> ShortLock<T> {
        ShortLock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Locks the value, and waits while another thread has locked it.
    #[inline(always)]
    pub fn lock(&self) -> ShortGuard<'_, T> {
        if self.taken.swap(true, LOCK_ACQUIRE) {
            self.wait();
        }
        ShortGuard(self)
    }

    #[cold]
    fn wait(&self) {
        let mut tries = 0;
        while self.appears_taken() || self.taken.swap(true, LOCK_ACQUIRE) {
            tries += 1;
            pause(tries);
        }
    }

    /// Whether the lock appears to be taken. This check is a plain load, which needs no exclusive access to the lock's
    /// cache line. In loom models, the function always returns `false`, because loom could return an old value for
    /// ever.
    #[inline(always)]
    fn appears_taken(&self) -> bool {
        !cfg!(loom) && self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
fn pause(tries: u32) {
    match tries {
        ..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => std::thread::yield_now(),
        _ => std::thread::sleep(SLEEP),
    }
}

/// Loom models do not explore more than two tries, because further tries would only repeat the same states.
#[cfg(loom)]
fn pause(tries: u32) {
    if tries > 2 {
        loom::skip_branch();
    }
    loom::thread::yield_now();
}

impl<T> ShortGuard<'_, T> {
    /// Returns exclusive access to the value.
    #[inline(always)]
    pub fn get(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock for as long as the reference lives.
        self.0.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> std::ops::Deref for ShortGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock for as long as the reference lives.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T> std::ops::DerefMut for ShortGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.get()
    }
}

impl<T> Drop for ShortGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.taken.store(false, LOCK_RELEASE);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn two_threads_never_hold_the_lock_at_the_same_time() {
        loom::model(|| {
            let lock = Arc::new(ShortLock::new(0));
            let other = Arc::clone(&lock);
            let thread = loom::thread::spawn(move || *other.lock() += 1);
            *lock.lock() += 1;
            thread.join().unwrap();
            assert_eq!(*lock.lock(), 2);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lock_loses_no_increment_of_eight_threads() {
        let lock = ShortLock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 400_000);
    }

    #[test]
    fn lock_is_released_when_its_holder_panics() {
        let lock = ShortLock::new(0);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("while holding");
        }));
        assert!(outcome.is_err());
        assert_eq!(*lock.lock(), 0);
    }
}
