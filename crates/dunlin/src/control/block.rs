//! Waiting for an answer on a thread that has nothing else to do.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::waiting;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

/// Runs `future` on this thread, which sleeps whenever it is not ready. Not on a thread that runs other tasks:
/// those would stand still, and a task's budget of its runtime may let the future never be ready there.
pub fn block_on<F: Future>(future: F) -> F::Output {
    waiting::check();
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
