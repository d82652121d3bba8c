//! Defines the timer of a session. Each session has exactly one timer.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A timer that wakes its session at a set time.
#[derive(Debug)]
pub(crate) struct Timer(Pin<Box<Sleep>>);

impl Timer {
    pub(crate) fn new(ms: u32) -> Timer {
        Timer(Box::pin(tokio::time::sleep(Duration::from_millis(ms.into()))))
    }

    pub(crate) fn set_ms(&mut self, ms: u32) {
        self.0.as_mut().reset(Instant::now() + Duration::from_millis(ms.into()));
    }

    /// Sets the timer to `ms` from now, unless it is already set to an earlier time.
    pub(crate) fn set_ms_at_latest(&mut self, ms: u32) {
        let latest = Instant::now() + Duration::from_millis(ms.into());
        if latest < self.0.deadline() {
            self.0.as_mut().reset(latest);
        }
    }

    /// Whether the set time has come. If it has, the caller must set the timer again.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> bool {
        match self.0.as_mut().poll(cx) {
            Poll::Ready(()) => true,
            Poll::Pending => false,
        }
    }
}
