//! Busy polling: on a thread that never sleeps, a session tries again and again to read from its socket, instead of
//! waiting until the socket is readable.
//!
//! One attempt costs less than waiting, but each attempt is a system call. A session without traffic therefore stops
//! trying after a while, and waits as on other threads.

/// After this many failed attempts in a row, a session waits until its socket is readable. Together, these attempts
/// take some tens of milliseconds.
const FAILURES_MAX: u32 = 100_000;

/// Number of rounds that a session runs before other sessions of its thread run. Applies to sessions that do not poll
/// their sockets.
const ROUNDS_PER_POLL: usize = 8;

/// Whether a session polls its socket, and how many of its attempts have failed in a row.
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

    /// Number of rounds that the session runs before other sessions run. A session that polls its socket runs one
    /// round, because its next round comes soon.
    pub(crate) fn rounds_per_poll(&self) -> usize {
        if self.is_on() { 1 } else { ROUNDS_PER_POLL }
    }

    pub(crate) fn record_success(&mut self) {
        self.failures = 0;
    }

    /// Counts a failed attempt to read. Returns whether the session must try again.
    ///
    /// While a session polls, its attempts do not register it to be woken when its socket is readable. When polling
    /// ends, the session must therefore try once more: this last attempt registers it.
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
    fn session_tries_once_more_to_read_after_polling_ends() {
        let mut spin = Spin::new(true);
        while spin.is_on() {
            assert!(spin.record_failure(), "{} failures", spin.failures);
        }
        assert!(!spin.record_failure());
        spin.record_success();
        assert!(spin.is_on() && spin.record_failure());
    }
}
