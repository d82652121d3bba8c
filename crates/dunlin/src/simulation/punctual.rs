//! Makes sleeps of a thread exact. Linux may extend a sleep by 50 µs, the default timer slack of a thread.

use std::num::NonZeroU64;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// Reduces the timer slack of the present thread. Dropping the value restores the previous slack.
#[derive(Debug)]
pub(super) struct Punctual {
    slack_ns: Option<NonZeroU64>,
    /// Makes the type not `Send`, because the slack belongs to one thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Punctual {
    pub(super) fn new() -> Punctual {
        // If the system refuses these calls, sleeps are less exact.
        let slack_ns = current_timer_slack().ok().and_then(NonZeroU64::new);
        let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
        Punctual { slack_ns, _not_send: std::marker::PhantomData }
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        let _ = set_current_timer_slack(self.slack_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_slack_is_1_ns_only_while_punctual_timing_is_on() {
        let before = current_timer_slack().unwrap();
        let punctual = Punctual::new();
        assert_eq!(current_timer_slack().unwrap(), 1);
        drop(punctual);
        assert_eq!(current_timer_slack().unwrap(), before);
    }
}
