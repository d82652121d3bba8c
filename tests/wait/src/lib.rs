//! Polls for conditions in tests. A test should poll only if it cannot wait for an event (on a channel, a thread or a
//! subscription). A test that waits for an event gives up after [`PATIENCE`].

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The longest time that a test waits for one event. This time is long, because tests must pass even on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The pause between two polls.
pub const POLL: Duration = Duration::from_millis(2);

/// Polls until `condition` returns `true`.
/// # Panics
/// If the condition stays false for longer than [`PATIENCE`].
#[track_caller]
pub fn until(what: impl Display, mut condition: impl FnMut() -> bool) {
    find(what, || condition().then_some(()));
}

/// Polls until `poll` returns a value.
/// # Panics
/// If `poll` returns `None` for longer than [`PATIENCE`].
#[track_caller]
pub fn find<T>(what: impl Display, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::new();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        deadline.check(&what);
        std::thread::sleep(POLL);
    }
}

/// A time limit of [`PATIENCE`], for loops that cannot use [`until`].
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// Starts a time limit of [`PATIENCE`].
    #[expect(clippy::new_without_default, reason = "it stands for a moment, not for a value")]
    pub fn new() -> Deadline {
        Deadline(Instant::now() + PATIENCE)
    }

    /// Whether the time limit has passed.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.0
    }

    /// Checks that the time limit has not passed. `what` describes the expected event for the panic's text.
    ///
    /// # Panics
    ///
    /// If the time limit has passed.
    #[track_caller]
    pub fn check(&self, what: impl Display) {
        assert!(!self.is_over(), "not within {PATIENCE:?}: {what}");
    }
}
