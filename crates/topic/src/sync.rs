//! The atomics of segments, locks and waiters: from the standard library in the product, from loom in models.
//!
//! Each memory ordering has a name. `cargo xtask race --mutate` weakens one ordering at a time by its name, for example
//! with `--cfg mutate="commit_store"`, and checks that the model fails.

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

/// The standard `UnsafeCell` with loom's interface.
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
    /// Stores the committed length. A reader that sees the new length also sees the bytes below it.
    COMMIT_STORE = Release, "commit_store"
}
ordering! {
    /// The load that pairs with [`COMMIT_STORE`].
    COMMIT_LOAD = Acquire, "commit_load"
}
ordering! {
    /// Ends a pin. The reader's last access to the bytes happens before the end of the pin.
    UNPIN = Release, "unpin"
}
ordering! {
    /// Retires a segment; pairs with [`UNPIN`]. The next owner of the buffer writes only after every reader has left.
    RETIRE = Acquire, "retire"
}
ordering! {
    /// Acquires the lock. The next holder of the lock sees the writes of the previous holder.
    LOCK_ACQUIRE = Acquire, "lock_acquire"
}
ordering! {
    /// The store that pairs with [`LOCK_ACQUIRE`].
    LOCK_RELEASE = Release, "lock_release"
}
/// Pins a segment. This needs no ordering: pinning and retiring are read-modify-writes of one word, so the second
/// operation sees the value of the first.
pub(crate) const PIN: Ordering = Ordering::Relaxed;
