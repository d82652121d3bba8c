//! The native part of the Python workers in `python/dunlin/worker.py`: a worker's attachment to a node, through which
//! the worker receives tasks.
//!
//! Several threads of a process may use one attachment. A child process may not use its parent's attachment, because
//! the attachment's thread and connection belong to the parent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin_client::{AssignedTask, Attachment, TaskUsage};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::events::timeout;
use crate::failure::Failure;
use crate::handle::run_detached;

/// When a worker ends, it waits at most this long for the node to respond to the results that the worker sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// One attempt of a task: the task's id, and the attempt's token. The token alone does not identify the attempt,
/// because each shard of a cluster's tasks numbers its tokens separately.
type Attempt = (u64, u64);

/// The fields of a task for Python: id, token, kind, tenant, payload, attempt, timeout in seconds.
type RawTask<'py> = (u64, u64, String, String, Bound<'py, PyBytes>, u32, f64);

/// A worker's attachment to a node, through which the worker receives tasks.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub struct RawAttachment {
    process: u32,
    attachment: Mutex<Option<Arc<Attachment>>>,
    /// The assigned tasks that have no result yet.
    assigned: Mutex<HashMap<Attempt, AssignedTask>>,
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
        RawAttachment { process: std::process::id(), attachment, assigned: Mutex::default() }
    }

    fn open_attachment(&self) -> Result<Arc<Attachment>, Failure> {
        if self.process != std::process::id() {
            return Err(Failure::Forked);
        }
        lock(&self.attachment).clone().ok_or(Failure::Closed)
    }

    /// Calls `call` with the task to which this attempt belongs. Does nothing if the attempt already has a result.
    fn with_task(
        &self,
        py: Python<'_>,
        attempt: Attempt,
        call: impl FnOnce(&Attachment, &AssignedTask) + Send,
    ) -> PyResult<()> {
        let attachment = self.open_attachment()?;
        let task = lock(&self.assigned).get(&attempt).cloned();
        if let Some(task) = task {
            run_detached(py, || call(&attachment, &task));
        }
        Ok(())
    }

    fn finish_task(
        &self,
        py: Python<'_>,
        attempt: Attempt,
        call: impl FnOnce(&Attachment, &AssignedTask) + Send,
    ) -> PyResult<()> {
        let attachment = self.open_attachment()?;
        let task = lock(&self.assigned).remove(&attempt);
        if let Some(task) = task {
            run_detached(py, || call(&attachment, &task));
        }
        Ok(())
    }
}

fn task_usage(run_us: u64, cpu_us: u64, memory_bytes: u64) -> TaskUsage {
    TaskUsage { run: Duration::from_micros(run_us), cpu: Duration::from_micros(cpu_us), memory_bytes }
}

#[pymethods]
impl RawAttachment {
    /// Returns the next task; `None` if none arrives within `seconds` seconds.
    fn next<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Option<RawTask<'py>>> {
        let (attachment, timeout) = (self.open_attachment()?, timeout(Some(seconds))?.unwrap_or_default());
        let next = run_detached(py, || attachment.next(timeout)).0;
        // If the worker has ended, the error of `next` says only this. The attachment's error contains the reason.
        let Some(assigned) = next.map_err(|error| Failure::from(attachment.error().unwrap_or(error)))? else {
            return Ok(None);
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let row = (
            assigned.task(),
            assigned.token(),
            text(assigned.kind()),
            text(assigned.tenant()),
            PyBytes::new(py, assigned.payload()),
            assigned.attempt(),
            assigned.timeout().as_secs_f64(),
        );
        lock(&self.assigned).insert((assigned.task(), assigned.token()), assigned);
        Ok(Some(row))
    }

    /// Whether the task's function has to end, because the node stopped the task or the task already has a result.
    fn is_stopped(&self, attempt: Attempt) -> bool {
        lock(&self.assigned).get(&attempt).is_none_or(AssignedTask::is_stopped)
    }

    fn complete(
        &self,
        py: Python<'_>,
        attempt: Attempt,
        result: &[u8],
        run_us: u64,
        cpu_us: u64,
        memory_bytes: u64,
    ) -> PyResult<()> {
        let usage = task_usage(run_us, cpu_us, memory_bytes);
        self.finish_task(py, attempt, |attachment, task| attachment.complete(task, result, &usage))
    }

    #[expect(clippy::too_many_arguments, reason = "what an attempt took, beside why it failed")]
    fn fail(
        &self,
        py: Python<'_>,
        attempt: Attempt,
        error: &str,
        retry: bool,
        run_us: u64,
        cpu_us: u64,
        memory_bytes: u64,
    ) -> PyResult<()> {
        let usage = task_usage(run_us, cpu_us, memory_bytes);
        self.finish_task(py, attempt, |attachment, task| {
            attachment.fail(task, error.as_bytes(), retry, &usage)
        })
    }

    fn progress(&self, py: Python<'_>, attempt: Attempt, permille: u16, note: &str) -> PyResult<()> {
        self.with_task(py, attempt, |attachment, task| attachment.progress(task, permille, note))
    }

    /// Restarts the task's timeout with a length of `seconds`; 0 means the length that the task was submitted with.
    fn extend(&self, py: Python<'_>, attempt: Attempt, seconds: f64) -> PyResult<()> {
        let more = timeout(Some(seconds))?.filter(|more| !more.is_zero());
        self.with_task(py, attempt, |attachment, task| attachment.extend(task, more))
    }

    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let attachment = self.open_attachment()?;
        run_detached(py, || attachment.drain());
        Ok(())
    }

    fn is_drained(&self) -> PyResult<bool> {
        Ok(self.open_attachment()?.is_drained())
    }

    /// Returns the worker's number (0 until the node has given it one), and the counts of assigned, completed, late and
    /// lost tasks.
    fn load(&self) -> PyResult<(u64, u64, u64, u64, u64)> {
        let load = self.open_attachment()?.load();
        Ok((load.worker, load.assigned, load.answered, load.stale, load.lost))
    }

    /// Ends the worker after the node has responded to all results, at the latest after `FLUSH_TIMEOUT`. The node gives
    /// unfinished tasks to other workers.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        if self.process != std::process::id() {
            return Err(Failure::Forked.into());
        }
        let attachment = lock(&self.attachment).take();
        run_detached(py, || {
            if let Some(attachment) = &attachment {
                attachment.flush(FLUSH_TIMEOUT);
            }
            drop(attachment);
        });
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
