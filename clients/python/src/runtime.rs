//! Lets asyncio tasks wait for the node: one thread of a tokio runtime watches the sockets and wakes the event loops.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCFunction;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::failure::{Failure, InterpreterGuard};

/// The runtime, and the id of the process that created it. A forked process creates its own runtime, because threads do
/// not survive a fork.
static RUNTIME: Mutex<Option<(u32, Runtime)>> = Mutex::new(None);

fn handle() -> Result<Handle, Failure> {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((owner, runtime)) = &*runtime
        && *owner == process
    {
        return Ok(runtime.handle().clone());
    }
    // After a fork, the runtime's threads do not exist in this process. Dropping the runtime would wait for them
    // forever.
    std::mem::forget(runtime.take());
    let created = Builder::new_multi_thread().worker_threads(1).thread_name("dunlin").enable_all().build();
    let created = created.map_err(|error| Failure::Value(format!("cannot start a thread: {error}")))?;
    let handle = created.handle().clone();
    *runtime = Some((process, created));
    Ok(handle)
}

/// Returns a future of the asyncio event loop that is running. The future resolves when `work` has succeeded, and fails
/// with the error of `work`.
pub fn spawn<'py>(
    py: Python<'py>,
    work: impl Future<Output = Result<(), Failure>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>> {
    static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let get_running_loop = RUNNING_LOOP.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("asyncio")?.getattr("get_running_loop")?.unbind())
    })?;
    let event_loop = get_running_loop.bind(py).call0()?;
    let future = event_loop.call_method0("create_future")?;
    let (event_loop, pending) = (event_loop.unbind(), future.clone().unbind());
    let task = handle()?.spawn(async move {
        let outcome = work.await;
        // If the interpreter is ending or the event loop is closed, the future cannot be resolved. The outcome is then
        // dropped.
        if let Some(_guard) = InterpreterGuard::new() {
            Python::try_attach(|py| drop(resolve_future(py, &event_loop, &pending, outcome)));
        }
    });
    let abort = task.abort_handle();
    let on_done = PyCFunction::new_closure(py, None, None, move |_args, _kwargs| abort.abort())?;
    future.call_method1("add_done_callback", (on_done,))?;
    Ok(future)
}

fn resolve_future(
    py: Python<'_>,
    event_loop: &Py<PyAny>,
    future: &Py<PyAny>,
    outcome: Result<(), Failure>,
) -> PyResult<()> {
    let resolve = py.import("dunlin._asyncio")?.getattr("resolve")?;
    let error = outcome.err().map(PyErr::from);
    event_loop.call_method1(py, "call_soon_threadsafe", (resolve, future.clone_ref(py), error))?;
    Ok(())
}

/// A Python awaitable whose result is already known. Awaiting it returns the result immediately.
#[pyclass]
pub struct ReadyAwaitable(Option<Py<PyAny>>);

impl ReadyAwaitable {
    pub fn new(value: Py<PyAny>) -> ReadyAwaitable {
        ReadyAwaitable(Some(value))
    }
}

#[pymethods]
impl ReadyAwaitable {
    fn __await__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> PyResult<Option<Py<PyAny>>> {
        match self.0.take() {
            Some(value) => Err(pyo3::exceptions::PyStopIteration::new_err((value,))),
            None => Ok(None),
        }
    }
}
