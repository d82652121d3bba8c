//! Waiting in tests for what can only be polled.
//!
//! A test that has an event to wait for (a channel, a join, a subscription) waits for that, and for at most [`PATIENCE`].

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Guards a test against hanging. No test judges by it: a machine may be as slow as it likes.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How long to sleep between two polls.
pub const POLL: Duration = Duration::from_millis(2);

/// Polls until `is_so` returns true.
///
/// # Panics
///
/// When that takes longer than [`PATIENCE`].
#[track_caller]
pub fn until(what: impl Display, mut is_so: impl FnMut() -> bool) {
    find(what, || is_so().then_some(()));
}

/// Polls until `look` returns something.
///
/// # Panics
///
/// When that takes longer than [`PATIENCE`].
#[track_caller]
pub fn find<T>(what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::new();
    loop {
        if let Some(found) = look() {
            return found;
        }
        deadline.check(&what);
        std::thread::sleep(POLL);
    }
}

/// For loops that do more than [`until`] can: each turn checks that [`PATIENCE`] has not run out.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// Begins now.
    #[expect(clippy::new_without_default, reason = "it stands for a moment, not for a value")]
    pub fn new() -> Deadline {
        Deadline(Instant::now() + PATIENCE)
    }

    /// Whether the time has run out.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.0
    }

    /// # Panics
    ///
    /// When the time has run out.
    #[track_caller]
    pub fn check(&self, what: impl Display) {
        assert!(!self.is_over(), "not within {PATIENCE:?}: {what}");
    }
}
