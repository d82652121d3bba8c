//! Busy polling: on threads that never park, a session tries to read from its socket instead of waiting for
//! readiness.
//!
//! An attempt to read costs less than waiting, but it costs a system call each time. A session without traffic
//! therefore waits for readiness, as on other threads.

/// Number of consecutive failed attempts after which a session waits for readiness. This many attempts take some tens
/// of milliseconds.
const FAILURES_MAX: u32 = 100_000;

/// Number of rounds that a session runs before other sessions of the thread run.
const ROUNDS_PER_POLL: usize = 8;

/// Whether a session may poll its socket, and the number of consecutive failed attempts.
#[derive(Debug)]
pub(crate) struct Spin {
    allowed: bool,
    failures: u32,
}

impl Spin {
    pub(crate) fn new(allowed: bool) -> Spin {
        Spin { allowed, failures: 0 }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.allowed && self.failures < FAILURES_MAX
    }

    /// Number of rounds that the session runs before other sessions. A polling session runs one, because its next round
    /// comes soon.
    pub(crate) fn rounds_per_poll(&self) -> usize {
        if self.is_on() { 1 } else { ROUNDS_PER_POLL }
    }

    pub(crate) fn record_success(&mut self) {
        self.failures = 0;
    }

    /// Counts a failed attempt. Returns whether to try again. When polling ends, the session makes one more attempt,
    /// which waits for readiness: a polling session has not registered to be woken when its socket is readable.
    pub(crate) fn record_failure(&mut self) -> bool {
        let was_on = self.is_on();
        self.failures = self.failures.saturating_add(1);
        was_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_registers_for_readiness_after_polling_ends() {
        let mut spin = Spin::new(true);
        while spin.is_on() {
            assert!(spin.record_failure(), "{} failures", spin.failures);
        }
        assert!(!spin.record_failure());
        spin.record_success();
        assert!(spin.is_on() && spin.record_failure());
    }
}
