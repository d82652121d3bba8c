//! Busy polling: on threads that never park, a session tries to read from its socket instead of waiting for
//! readiness.
//!
//! An attempt to read costs less than waiting, but it costs a system call each time. A session without traffic
//! therefore waits for readiness, as on other threads.

/// Number of consecutive failed attempts after which a session waits for readiness. So many attempts take some tens of
/// milliseconds.
const VAIN_MAX: u32 = 100_000;

/// Number of turns that a session takes before other sessions of the thread run.
const TURNS: usize = 8;

/// Whether a session may poll its socket, and the number of consecutive failed attempts.
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

    /// Number of turns that the session takes before other sessions. A polling session takes one, because its next turn
    /// comes soon.
    pub(crate) fn turns(&self) -> usize {
        if self.is_on() { 1 } else { TURNS }
    }

    /// Records that an attempt succeeded.
    pub(crate) fn not_in_vain(&mut self) {
        self.vain = 0;
    }

    /// Counts a failed attempt. Returns whether to try again.
    pub(crate) fn again(&mut self) -> bool {
        self.vain = self.vain.saturating_add(1);
        self.is_on()
    }
}
