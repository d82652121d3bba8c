//! The native part of a Python worker (`python/dunlin/worker.py`).
//!
//! Several threads of a process may use an attachment. A child process may not, because the attachment's thread and
//! connection belong to the parent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin_client::{AssignedTask, Attachment, TaskUsage};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::events::timeout;
use crate::failure::Failure;
use crate::handle::detached;

/// How long a worker that ends waits for the node's responses to its results.
const FAREWELL: Duration = Duration::from_secs(2);

/// A task in Python: id, token, kind, tenant, payload, attempt, timeout in seconds.
type RawTask<'py> = (u64, u64, String, String, Bound<'py, PyBytes>, u32, f64);

/// A worker's attachment to a node, through which the worker receives tasks.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub struct RawAttachment {
    process: u32,
    attachment: Mutex<Option<Arc<Attachment>>>,
    /// Assigned tasks that have no result yet, by token.
    given: Mutex<HashMap<u64, AssignedTask>>,
}

impl Drop for RawAttachment {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(lock(&self.attachment).take());
        }
    }
}

impl RawAttachment {
    pub fn new(attachment: Attachment) -> RawAttachment {
        let attachment = Mutex::new(Some(Arc::new(attachment)));
        RawAttachment { process: std::process::id(), attachment, given: Mutex::default() }
    }

    fn attached(&self) -> Result<Arc<Attachment>, Failure> {
        if self.process != std::process::id() {
            return Err(Failure::Forked);
        }
        lock(&self.attachment).clone().ok_or(Failure::Closed)
    }

    /// Calls a function with an unfinished task; does nothing for any other token.
    fn with(
        &self,
        py: Python<'_>,
        token: u64,
        call: impl FnOnce(&Attachment, &AssignedTask) + Send,
    ) -> PyResult<()> {
        let attachment = self.attached()?;
        let given = lock(&self.given).get(&token).cloned();
        if let Some(given) = given {
            detached(py, || call(&attachment, &given));
        }
        Ok(())
    }

    fn answer(
        &self,
        py: Python<'_>,
        token: u64,
        call: impl FnOnce(&Attachment, &AssignedTask) + Send,
    ) -> PyResult<()> {
        let attachment = self.attached()?;
        let given = lock(&self.given).remove(&token);
        if let Some(given) = given {
            detached(py, || call(&attachment, &given));
        }
        Ok(())
    }
}

fn used(run_us: u64, cpu_us: u64, memory_bytes: u64) -> TaskUsage {
    TaskUsage { run: Duration::from_micros(run_us), cpu: Duration::from_micros(cpu_us), memory_bytes }
}

#[pymethods]
impl RawAttachment {
    /// The next task; `None` after `seconds` without one.
    fn next<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Option<RawTask<'py>>> {
        let (attachment, patience) = (self.attached()?, timeout(Some(seconds))?.unwrap_or_default());
        let next = detached(py, || attachment.next(patience)).0;
        // Returns the reason why the worker ended; `next` itself reports only that it ended.
        let Some(given) = next.map_err(|ended| Failure::from(attachment.error().unwrap_or(ended)))? else {
            return Ok(None);
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let task = (
            given.task(),
            given.token(),
            text(given.kind()),
            text(given.tenant()),
            PyBytes::new(py, given.payload()),
            given.attempt(),
            given.timeout().as_secs_f64(),
        );
        lock(&self.given).insert(given.token(), given);
        Ok(Some(task))
    }

    /// Whether the task's function has to end: the node stopped the task, or the task already has a result.
    fn is_stopped(&self, token: u64) -> bool {
        lock(&self.given).get(&token).is_none_or(AssignedTask::is_stopped)
    }

    fn complete(
        &self,
        py: Python<'_>,
        token: u64,
        result: &[u8],
        run_us: u64,
        cpu_us: u64,
        memory_bytes: u64,
    ) -> PyResult<()> {
        let used = used(run_us, cpu_us, memory_bytes);
        self.answer(py, token, |attachment, given| attachment.complete(given, result, &used))
    }

    #[expect(clippy::too_many_arguments, reason = "what an attempt took, beside why it failed")]
    fn fail(
        &self,
        py: Python<'_>,
        token: u64,
        error: &str,
        retry: bool,
        run_us: u64,
        cpu_us: u64,
        memory_bytes: u64,
    ) -> PyResult<()> {
        let used = used(run_us, cpu_us, memory_bytes);
        self.answer(py, token, |attachment, given| attachment.fail(given, error.as_bytes(), retry, &used))
    }

    fn progress(&self, py: Python<'_>, token: u64, permille: u16, note: &str) -> PyResult<()> {
        self.with(py, token, |attachment, given| attachment.progress(given, permille, note))
    }

    /// Restarts the task's timeout, with `seconds` or, if 0, the task's own.
    fn extend(&self, py: Python<'_>, token: u64, seconds: f64) -> PyResult<()> {
        let more = timeout(Some(seconds))?.filter(|more| !more.is_zero());
        self.with(py, token, |attachment, given| attachment.extend(given, more))
    }

    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let attachment = self.attached()?;
        detached(py, || attachment.drain());
        Ok(())
    }

    fn is_drained(&self) -> PyResult<bool> {
        Ok(self.attached()?.is_drained())
    }

    /// The worker's number (0 for none), and the counts of assigned, completed, late and lost tasks.
    fn load(&self) -> PyResult<(u64, u64, u64, u64, u64)> {
        let load = self.attached()?.load();
        Ok((load.worker, load.given, load.answered, load.stale, load.lost))
    }

    /// Ends the worker after the node has responded to all results. The node gives unfinished tasks to other workers.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        if self.process != std::process::id() {
            return Err(Failure::Forked.into());
        }
        let attachment = lock(&self.attachment).take();
        detached(py, || {
            if let Some(attachment) = &attachment {
                attachment.flush(FAREWELL);
            }
            drop(attachment);
        });
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
