//! Python's class `Subscription`, and the conversion of the arguments with which Python creates one.

use std::sync::Arc;

use dunlin_topic::{OnGap, Start, SubscribeOptions, WaitStrategy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::arguments;
use crate::events::{BufferedSubscriber, Events, IterationMode};
use crate::position::PyPosition;
use crate::runtime::ReadyAwaitable;

/// The default maximum number of records in a batch.
const BATCH_RECORDS_MAX: usize = 4096;

/// Reads the records of one or more logs. Iterate it with `for` or `async for`.
#[pyclass(frozen, module = "dunlin")]
pub struct Subscription {
    pub pattern: String,
    pub name: String,
    pub follows_state: bool,
    pub source: Arc<BufferedSubscriber>,
}

impl Subscription {
    fn events(&self, mode: IterationMode) -> Events {
        Events { source: Arc::clone(&self.source), mode }
    }
}

#[pymethods]
impl Subscription {
    #[getter]
    fn pattern(&self) -> &str {
        &self.pattern
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn closed(&self) -> bool {
        self.source.subscriber.is_closed()
    }

    fn __iter__(&self) -> Events {
        self.events(IterationMode::All)
    }

    fn __aiter__(&self) -> Events {
        self.events(IterationMode::All)
    }

    /// Returns the next record or notice; `None` if none arrives within `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        self.source.next(py, IterationMode::All, arguments::timeout("timeout", timeout)?)
    }

    /// Iterates over records only. If records are missing, the iterator raises `GapError`; its next call continues
    /// after the gap.
    fn records(&self) -> PyResult<Events> {
        if self.follows_state {
            let message =
                "a subscription that follows a state is given states for records: iterate it, or use book()";
            return Err(PyValueError::new_err(message));
        }
        Ok(self.events(IterationMode::Records))
    }

    /// Iterates over batches of available records, with notices between them.
    #[pyo3(signature = (records_max = None), text_signature = "($self, records_max=4096)")]
    fn batches(&self, records_max: Option<&Bound<'_, PyAny>>) -> PyResult<Events> {
        let records_max = match records_max {
            Some(value) => arguments::integer("records_max", value, 1, usize::MAX as u64)? as usize,
            None => BATCH_RECORDS_MAX,
        };
        Ok(self.events(IterationMode::Batches(records_max)))
    }

    /// Ends the subscription. Calls that wait for the subscription's events end too.
    fn close(&self, py: Python<'_>) {
        self.source.subscriber.close(py);
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __aenter__(slf: Bound<'_, Self>) -> ReadyAwaitable {
        ReadyAwaitable::new(slf.into_any().unbind())
    }

    #[pyo3(signature = (*_args))]
    fn __aexit__(&self, py: Python<'_>, _args: &Bound<'_, pyo3::types::PyTuple>) -> ReadyAwaitable {
        self.close(py);
        ReadyAwaitable::new(py.None())
    }

    fn __repr__(&self) -> String {
        format!("Subscription({:?})", self.pattern)
    }
}

/// Converts Python's `start` argument: a word such as `"latest"`, the position of the last record that was already
/// read, or a time in ns since the Unix epoch.
pub fn start(start: &Bound<'_, PyAny>) -> PyResult<Start> {
    if let Ok(position) = start.cast::<PyPosition>() {
        return Ok(Start::After(position.get().0));
    }
    if !start.is_instance_of::<PyBool>()
        && let Ok(ns) = start.extract::<u64>()
    {
        return Ok(Start::Time(ns));
    }
    match start.extract::<String>().as_deref() {
        Ok("earliest") => Ok(Start::Earliest),
        Ok("latest") => Ok(Start::Latest),
        Ok("snapshot") => Ok(Start::Snapshot),
        _ => Err(PyValueError::new_err(format!(
            "start must be \"earliest\", \"latest\", \"snapshot\", a Position or a time in ns, not {}",
            start.repr()?
        ))),
    }
}

/// Converts Python's `on_gap` argument, which says where a subscriber continues after a gap.
pub fn on_gap(word: &str) -> PyResult<OnGap> {
    match word {
        "oldest" => Ok(OnGap::Oldest),
        "newest" => Ok(OnGap::Newest),
        "snapshot" => Ok(OnGap::Snapshot),
        "fail" => Ok(OnGap::Fail),
        _ => Err(PyValueError::new_err(format!(
            "on_gap must be \"oldest\", \"newest\", \"snapshot\" or \"fail\", not {word:?}"
        ))),
    }
}

/// Converts Python's `wait` argument, which says how a subscriber waits for records.
pub fn wait(word: &str) -> PyResult<WaitStrategy> {
    match word {
        "default" => Ok(WaitStrategy::Default),
        "parked" => Ok(WaitStrategy::Parked),
        "spin" => Ok(WaitStrategy::Spin),
        _ => Err(PyValueError::new_err(format!(
            "wait must be \"default\", \"parked\" or \"spin\", not {word:?}"
        ))),
    }
}

pub fn follows_state(options: &SubscribeOptions) -> bool {
    options.start == Start::Snapshot || options.on_gap == OnGap::Snapshot || options.conflate
}
