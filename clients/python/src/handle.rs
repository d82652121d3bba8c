//! Handles for the client's objects that Python uses. Only one thread at a time may use a handle, but any thread may
//! close it. A child process may not use the handles of its parent.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use dunlin_client::interruptible;
use pyo3::prelude::*;
use tokio::sync::Notify;

use crate::failure::{Failure, InterpreterGuard, check_signals, take_signal_error};

/// A value that is dropped only in the process that made it. In a child process, dropping the value would send data on
/// the parent's connection.
#[derive(Debug)]
struct OwnedByProcess<T> {
    process: u32,
    value: Option<T>,
}

impl<T> Drop for OwnedByProcess<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}

/// A handle to a value. All threads of the process that created the handle may use the handle; child processes may not.
/// All clones of a handle refer to the same value.
#[derive(Debug)]
pub struct SharedHandle<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    process: u32,
    closed: AtomicBool,
    /// Whether a thread is in a call that uses the value and may wait.
    occupied: AtomicBool,
    /// Wakes waiting asyncio tasks when the handle is closed.
    close_notify: Notify,
    slot: Mutex<OwnedByProcess<T>>,
}

impl<T> Clone for SharedHandle<T> {
    fn clone(&self) -> SharedHandle<T> {
        SharedHandle(Arc::clone(&self.0))
    }
}

/// A handle that closes together with its connection.
pub trait Closable: Send + Sync {
    /// Closes the handle. Waiting threads return within 100 ms.
    fn close(&self);
}

impl<T: Send> Closable for Shared<T> {
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if self.process != std::process::id() {
            return;
        }
        self.close_notify.notify_waiters();
        // If another thread is using the value now, the other thread drops the value at the end of its call.
        if let Ok(mut slot) = self.slot.try_lock() {
            let value = self.take_value(&mut slot);
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

    fn take_value(&self, slot: &mut MutexGuard<'_, OwnedByProcess<T>>) -> Option<T> {
        if self.process == std::process::id() { slot.value.take() } else { None }
    }
}

impl<T: Send + 'static> SharedHandle<T> {
    pub fn new(value: T) -> SharedHandle<T> {
        let process = std::process::id();
        let slot = Mutex::new(OwnedByProcess { process, value: Some(value) });
        SharedHandle(Arc::new(Shared {
            process,
            closed: AtomicBool::new(false),
            occupied: AtomicBool::new(false),
            close_notify: Notify::new(),
            slot,
        }))
    }

    /// Returns an object through which the connection can close this handle.
    pub fn closer(&self) -> Arc<dyn Closable> {
        Arc::clone(&self.0) as Arc<dyn Closable>
    }

    /// Fails if the handle is closed, or was made in another process.
    pub fn check(&self) -> Result<(), Failure> {
        self.0.check()
    }

    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    pub fn close(&self, py: Python<'_>) {
        run_detached(py, || self.0.close());
    }

    /// Closes the handle and returns its value. If another thread is using the value, returns `None`, and the other
    /// thread drops the value.
    pub fn take(&self, py: Python<'_>) -> Option<T> {
        let shared = &self.0;
        let value = shared.slot.try_lock().ok().and_then(|mut slot| shared.take_value(&mut slot));
        self.close(py);
        value
    }

    /// Calls a function that may wait, and releases the interpreter's lock during the call. Fails if another thread is
    /// in such a call on the same value.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.0.check()?;
        run_until_closed(py, &self.0, || {
            if self.0.occupied.swap(true, Ordering::Acquire) {
                return Err(Failure::Busy);
            }
            let outcome = self.0.call(self.0.lock(), call);
            self.0.occupied.store(false, Ordering::Release);
            outcome
        })
    }

    /// Calls a function that does not wait. Fails while a thread uses the value in a call that may wait. An asyncio
    /// task that waits for the value does not prevent the call.
    pub fn try_with<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.0.check()?;
        let (outcome, _guard) = run_detached(py, || self.try_with_detached(call));
        Ok(outcome?)
    }

    /// Like [`try_with`](Self::try_with), for a thread that does not hold the interpreter's lock.
    fn try_with_detached<R>(&self, call: impl FnOnce(&mut T) -> Result<R, Failure>) -> Result<R, Failure> {
        self.0.check()?;
        if self.0.occupied.load(Ordering::Acquire) {
            return Err(Failure::Busy);
        }
        self.0.call(self.0.lock(), call)
    }

    /// Like [`with`](Self::with), but first waits until no other thread uses the value.
    pub fn with_lock<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.0.check()?;
        run_until_closed(py, &self.0, || self.0.call(self.0.lock(), call))
    }

    /// Waits in an asyncio task until `poll` is ready. Fails if the handle is closed.
    pub async fn poll_until<R>(
        &self,
        mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<Result<R, Failure>>,
    ) -> Result<R, Failure> {
        let mut closed = pin!(self.0.close_notify.notified());
        self.0.check()?;
        poll_fn(|cx| {
            if closed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(Failure::Closed));
            }
            self.try_with_detached(|value| Ok(poll(value, cx)))
                .unwrap_or_else(|failure| Poll::Ready(Err(failure)))
        })
        .await
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, OwnedByProcess<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<R>(
        &self,
        mut slot: MutexGuard<'_, OwnedByProcess<T>>,
        call: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let outcome = slot.value.as_mut().map_or(Err(Failure::Closed), call);
        if !self.closed.load(Ordering::Acquire) {
            return outcome;
        }
        let value = self.take_value(&mut slot);
        drop(slot);
        drop(value);
        Err(Failure::Closed)
    }
}

/// Calls a function that may wait. The wait ends early if the handle is closed or a signal handler raises an exception.
fn run_until_closed<T: Send + 'static, R: Send>(
    py: Python<'_>,
    shared: &Arc<Shared<T>>,
    call: impl FnOnce() -> Result<R, Failure> + Send,
) -> PyResult<R> {
    let watched = Arc::clone(shared);
    run_interruptible(py, move || watched.closed.load(Ordering::Acquire), call)
}

/// Calls a function, and releases the interpreter's lock during the call. Also returns a guard, which the caller must
/// keep for as long as it uses the interpreter.
pub fn run_detached<R: Send>(py: Python<'_>, call: impl FnOnce() -> R + Send) -> (R, InterpreterGuard) {
    py.detach(|| (call(), InterpreterGuard::new_or_park()))
}

/// Calls a function that may wait, and releases the interpreter's lock during the call. The wait ends early if
/// `is_cancelled` returns `true` or a signal handler raises an exception.
pub fn run_interruptible<R: Send>(
    py: Python<'_>,
    is_cancelled: impl Fn() -> bool + Send + 'static,
    call: impl FnOnce() -> Result<R, Failure> + Send,
) -> PyResult<R> {
    let (outcome, _guard) =
        run_detached(py, || interruptible(move || is_cancelled() || check_signals(), call));
    match take_signal_error() {
        Some(error) => Err(error),
        None => Ok(outcome?),
    }
}
