//! The atomics of the segment module: std's in the product, loom's in its model.
//!
//! Each memory ordering has a name here, so that `cargo xtask race --mutate` can weaken one at a
//! time (`--cfg mutate="commit_store"` …) and see the model fail.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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
    /// A reader that sees the new length sees the bytes below it.
    COMMIT_STORE = Release, "commit_store"
}
ordering! {
    /// The other half of [`COMMIT_STORE`].
    COMMIT_LOAD = Acquire, "commit_load"
}
ordering! {
    /// A reader's last look at the bytes comes before its pin is gone.
    UNPIN = Release, "unpin"
}
ordering! {
    /// The other half of [`UNPIN`]: whoever takes the buffer writes to it after every reader left.
    RETIRE = Acquire, "retire"
}
/// A pin needs no ordering: pinning and retiring are read-modify-writes of one word, so one of them
/// is first, and the loser learns it from the value.
pub(crate) const PIN: Ordering = Ordering::Relaxed;
