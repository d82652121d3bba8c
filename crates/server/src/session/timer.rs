//! The timer of a session. A session has only one.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The timer with which a session waits until a time.
#[derive(Debug)]
pub(crate) struct Timer(Pin<Box<Sleep>>);

impl Timer {
    pub(crate) fn new(ms: u32) -> Timer {
        Timer(Box::pin(tokio::time::sleep(Duration::from_millis(ms.into()))))
    }

    pub(crate) fn set_ms(&mut self, ms: u32) {
        self.0.as_mut().reset(Instant::now() + Duration::from_millis(ms.into()));
    }

    /// Whether the set time has passed. Returns true once for each time that is set.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>) -> bool {
        match self.0.as_mut().poll(cx) {
            Poll::Ready(()) => true,
            Poll::Pending => false,
        }
    }
}
