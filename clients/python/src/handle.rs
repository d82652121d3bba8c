//! What Python holds of the client: closed from any thread, used by one at a time, and by no child process.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use dunlin_client::interruptible;
use pyo3::prelude::*;
use tokio::sync::Notify;

use crate::failure::{Failure, Returning, signals_raise, take_raised};

/// A value that is dropped only in the process that made it: in a child it would say good-bye on its parent's connection.
#[derive(Debug)]
struct Own<T> {
    process: u32,
    value: Option<T>,
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}

/// See the module. Cloning shares it.
#[derive(Debug)]
pub struct Handle<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    process: u32,
    closed: AtomicBool,
    /// A thread may wait in it at present.
    occupied: AtomicBool,
    /// Wakes tasks that wait in it when it is closed.
    ended: Notify,
    slot: Mutex<Own<T>>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Handle<T> {
        Handle(Arc::clone(&self.0))
    }
}

/// Something that a connection closes along with itself.
pub trait Close: Send + Sync {
    /// Ends it; whoever waits in it is told within 100 ms.
    fn close(&self);
}

impl<T: Send> Close for Shared<T> {
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if self.process != std::process::id() {
            return;
        }
        self.ended.notify_waiters();
        // Whoever is in it at present lets it go when it leaves.
        if let Ok(mut slot) = self.slot.try_lock() {
            let value = self.take_out(&mut slot);
            drop(slot);
            drop(value);
        }
    }
}

impl<T> Shared<T> {
    fn check(&self) -> Result<(), Failure> {
        if self.process != std::process::id() {
            return Err(Failure::Forked);
        }
        if self.closed.load(Ordering::Acquire) { Err(Failure::Closed) } else { Ok(()) }
    }

    fn take_out(&self, slot: &mut MutexGuard<'_, Own<T>>) -> Option<T> {
        if self.process == std::process::id() { slot.value.take() } else { None }
    }
}

impl<T: Send + 'static> Handle<T> {
    pub fn new(value: T) -> Handle<T> {
        let process = std::process::id();
        let slot = Mutex::new(Own { process, value: Some(value) });
        Handle(Arc::new(Shared {
            process,
            closed: AtomicBool::new(false),
            occupied: AtomicBool::new(false),
            ended: Notify::new(),
            slot,
        }))
    }

    /// For whoever closes many.
    pub fn closer(&self) -> Arc<dyn Close> {
        Arc::clone(&self.0) as Arc<dyn Close>
    }

    /// Whether it may be used.
    pub fn check(&self) -> Result<(), Failure> {
        self.0.check()
    }

    /// Whether somebody closed it.
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// Ends it.
    pub fn close(&self, py: Python<'_>) {
        detached(py, || self.0.close());
    }

    /// Ends it and gives the value back, unless another thread is in it.
    pub fn take(&self, py: Python<'_>) -> Option<T> {
        let shared = &self.0;
        let taken = shared.slot.try_lock().ok().and_then(|mut slot| shared.take_out(&mut slot));
        self.close(py);
        taken
    }

    /// Uses it without the interpreter's lock, and may wait in it. Another thread that waits in it is an error.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.0.check()?;
        waiting(py, &self.0, || {
            if self.0.occupied.swap(true, Ordering::Acquire) {
                return Err(Failure::Busy);
            }
            let outcome = self.0.call(self.0.lock(), call);
            self.0.occupied.store(false, Ordering::Release);
            outcome
        })
    }

    /// Uses it for a moment. A thread that waits in it is an error, a task that does is not.
    pub fn look<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.0.check()?;
        let (outcome, _returning) = detached(py, || self.look_in(call));
        Ok(outcome?)
    }

    /// The same, on a thread that has nothing to do with the interpreter.
    fn look_in<R>(&self, call: impl FnOnce(&mut T) -> Result<R, Failure>) -> Result<R, Failure> {
        self.0.check()?;
        if self.0.occupied.load(Ordering::Acquire) {
            return Err(Failure::Busy);
        }
        self.0.call(self.0.lock(), call)
    }

    /// The same, after any other thread that is in it.
    pub fn with_in_turn<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.0.check()?;
        waiting(py, &self.0, || self.0.call(self.0.lock(), call))
    }

    /// Waits in it as a task, until `poll` is ready or it is closed.
    pub async fn poll_until<R>(
        &self,
        mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<Result<R, Failure>>,
    ) -> Result<R, Failure> {
        let mut ended = pin!(self.0.ended.notified());
        self.0.check()?;
        poll_fn(|cx| {
            if ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(Failure::Closed));
            }
            self.look_in(|value| Ok(poll(value, cx))).unwrap_or_else(|failure| Poll::Ready(Err(failure)))
        })
        .await
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Own<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<R>(
        &self,
        mut slot: MutexGuard<'_, Own<T>>,
        call: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let outcome = slot.value.as_mut().map_or(Err(Failure::Closed), call);
        if !self.closed.load(Ordering::Acquire) {
            return outcome;
        }
        let value = self.take_out(&mut slot);
        drop(slot);
        drop(value);
        Err(Failure::Closed)
    }
}

/// Calls what may wait; the wait ends when the handle is closed or a signal handler raises.
fn waiting<T: Send + 'static, R: Send>(
    py: Python<'_>,
    shared: &Arc<Shared<T>>,
    call: impl FnOnce() -> Result<R, Failure> + Send,
) -> PyResult<R> {
    let watched = Arc::clone(shared);
    interrupting(py, move || watched.closed.load(Ordering::Acquire), call)
}

/// Calls it without the interpreter's lock. What comes back with the outcome is held as long as the interpreter is used for it.
pub fn detached<R: Send>(py: Python<'_>, call: impl FnOnce() -> R + Send) -> (R, Returning) {
    py.detach(|| (call(), Returning::or_never()))
}

/// Calls what may wait without the interpreter's lock, until `ended` or a signal handler raises.
pub fn interrupting<R: Send>(
    py: Python<'_>,
    ended: impl Fn() -> bool + Send + 'static,
    call: impl FnOnce() -> Result<R, Failure> + Send,
) -> PyResult<R> {
    let (outcome, _returning) = detached(py, || interruptible(move || ended() || signals_raise(), call));
    match take_raised() {
        Some(raised) => Err(raised),
        None => Ok(outcome?),
    }
}
