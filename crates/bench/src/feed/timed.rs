//! A publisher that measures how long each call of `send` takes.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

use dunlin::now_ns;
use dunlin::topic::{Draft, Publish, PublishError, Receipt};

use crate::stats::Latencies;

/// The durations of a [`TimedPublisher`]'s calls of `send`. Clones share the same histogram.
pub type PublishTimes = Rc<RefCell<Latencies>>;

/// A publisher that measures how long each call of `send` takes. Simulations publish only with `send`, so calls of
/// other methods are not measured.
#[derive(Debug)]
pub struct TimedPublisher<P> {
    publisher: P,
    times: PublishTimes,
}

impl<P> TimedPublisher<P> {
    /// Creates a publisher that publishes with `publisher`, and adds the durations to `times`.
    pub fn new(publisher: P, times: &PublishTimes) -> Self {
        Self { publisher, times: Rc::clone(times) }
    }
}

impl<P: Publish> Publish for TimedPublisher<P> {
    fn publish<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<Receipt, PublishError> {
        self.publisher.publish(draft)
    }

    fn publish_batch(&mut self, drafts: &[Draft<'_>]) -> Result<Receipt, PublishError> {
        self.publisher.publish_batch(drafts)
    }

    fn publish_expecting<'a>(
        &mut self,
        last_seq: u64,
        draft: impl Into<Draft<'a>>,
    ) -> Result<Receipt, PublishError> {
        self.publisher.publish_expecting(last_seq, draft)
    }

    fn send<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<(), PublishError> {
        let start_ns = now_ns();
        let sent = self.publisher.send(draft);
        self.times.borrow_mut().record(now_ns().saturating_sub(start_ns));
        sent
    }

    fn flush(&mut self) -> Result<Option<Receipt>, PublishError> {
        self.publisher.flush()
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Receipt>, PublishError>> {
        self.publisher.poll_flush(cx)
    }
}
