//! Busy polling: on threads that never park, a session tries to read from its socket instead of waiting for
//! readiness.
//!
//! A read attempt costs less than a wait, but a system call each time. A session that stays quiet therefore
//! waits for readiness, as on other threads.

/// Failed attempts after which a session waits for readiness: some tens of milliseconds.
const VAIN_MAX: u32 = 100_000;

/// Turns that a session takes before others of the thread.
const TURNS: usize = 8;

/// Whether a session may poll, and how many attempts failed in a row.
#[derive(Debug)]
pub(crate) struct Spin {
    allowed: bool,
    vain: u32,
}

impl Spin {
    pub(crate) fn new(allowed: bool) -> Spin {
        Spin { allowed, vain: 0 }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.allowed && self.vain < VAIN_MAX
    }

    /// Number of turns to take at once. A polling session takes one, because it soon gets its next turn.
    pub(crate) fn turns(&self) -> usize {
        if self.is_on() { 1 } else { TURNS }
    }

    /// Records that something was read or written.
    pub(crate) fn not_in_vain(&mut self) {
        self.vain = 0;
    }

    /// Counts a failed attempt, and returns whether to poll again.
    pub(crate) fn again(&mut self) -> bool {
        self.vain = self.vain.saturating_add(1);
        self.is_on()
    }
}
