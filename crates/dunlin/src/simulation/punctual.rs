//! Sleeping on time: Linux lets a thread sleep 50 µs longer than it asked for, unless it asks for better.

use std::num::NonZeroU64;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// While it lives, the thread that made it is woken when it asked to be.
#[derive(Debug)]
pub(super) struct Punctual {
    slack_ns: Option<NonZeroU64>,
    /// It belongs to its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Punctual {
    pub(super) fn new() -> Punctual {
        // Where it is refused, sleeps end as late as they always did.
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
    fn timer_slack_is_reduced_only_while_punctual() {
        let before = current_timer_slack().unwrap();
        let punctual = Punctual::new();
        assert_eq!(current_timer_slack().unwrap(), 1);
        drop(punctual);
        assert_eq!(current_timer_slack().unwrap(), before);
    }
}
