//! The atomic types of segments, locks and waiters. They come from the standard library, but in loom models from loom.
//!
//! Each memory ordering has a name. `cargo xtask race --mutate` weakens the orderings one at a time, and checks that a
//! model then fails. It selects an ordering by its name, for example with `--cfg mutate="commit_store"`.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    sync::{Mutex, MutexGuard},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

/// The standard library's `UnsafeCell`, with the interface of loom's.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

macro_rules! ordering {
    ($(#[$doc:meta])* $name:ident = $right:ident, $label:literal) => {
        $(#[$doc])*
        #[cfg(not(mutate = $label))]
        pub(crate) const $name: Ordering = Ordering::$right;
        #[cfg(mutate = $label)]
        pub(crate) const $name: Ordering = Ordering::Relaxed;
    };
}

ordering! {
    /// Stores the committed length. A thread that loads the new length also sees the bytes below it.
    COMMIT_STORE = Release, "commit_store"
}
ordering! {
    /// Loads the committed length; pairs with [`COMMIT_STORE`].
    COMMIT_LOAD = Acquire, "commit_load"
}
ordering! {
    /// Ends a pin. All accesses of the reading thread to the segment's bytes happen before the end of the pin.
    UNPIN = Release, "unpin"
}
ordering! {
    /// Retires a segment; pairs with [`UNPIN`]. The buffer is therefore written again only after every read has ended.
    RETIRE = Acquire, "retire"
}
ordering! {
    /// Acquires the lock. The new holder of the lock sees all writes of the previous holder.
    LOCK_ACQUIRE = Acquire, "lock_acquire"
}
ordering! {
    /// Releases the lock; pairs with [`LOCK_ACQUIRE`].
    LOCK_RELEASE = Release, "lock_release"
}
/// Pins a segment. No ordering is needed: pinning and retiring are read-modify-write operations on the same word, so
/// whichever comes second sees the result of the first.
pub(crate) const PIN: Ordering = Ordering::Relaxed;
