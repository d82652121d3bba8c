//! The native handle for a watch of keys, which `python/dunlin/kv.py` wraps.

use dunlin_client::{Change, Watch};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::events::timeout;
use crate::failure::Failure;
use crate::handle::SharedHandle;
use crate::keys::row;
use crate::runtime;

/// A watch of a cluster's keys, from which Python receives the changes.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub struct RawWatch {
    pub watch: SharedHandle<Watch>,
}

/// The changes of one revision: the revision's epoch and number, and a list with the entry of each written key and the
/// name of each deleted key.
type Row<'py> = (u32, u64, Bound<'py, PyList>);

fn change<'py>(py: Python<'py>, change: &Change) -> PyResult<Row<'py>> {
    let events = PyList::empty(py);
    for event in &change.events {
        match event {
            Ok(entry) => events.append(row(py, entry)?)?,
            Err(key) => events.append(PyTuple::new(py, [PyBytes::new(py, key)])?)?,
        }
    }
    Ok((change.epoch, change.revision, events))
}

#[pymethods]
impl RawWatch {
    /// Returns the changes of the next revision; `None` if none arrive within `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Row<'py>>> {
        let timeout = self::timeout(timeout)?;
        let next = self.watch.with(py, |watch| match timeout {
            Some(timeout) => Ok(watch.next_timeout(timeout)?),
            None => Ok(Some(watch.next()?)),
        })?;
        next.map(|next| change(py, &next)).transpose()
    }

    /// Returns the changes of the next revision; `None` if none are available.
    #[pyo3(name = "_try_next")]
    fn try_next<'py>(&self, py: Python<'py>) -> PyResult<Option<Row<'py>>> {
        let next = self.watch.try_with(py, |watch| Ok(watch.try_next()?))?;
        next.map(|next| change(py, &next)).transpose()
    }

    /// A future that resolves when a change may be available.
    #[pyo3(name = "_wait")]
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let watch = self.watch.clone();
        runtime::spawn(py, async move {
            match watch.poll_until(|watch, cx| watch.poll_ready(cx).map_err(Failure::from)).await {
                // The watch is closed. Waiting ends without an error, and the next call reports that the watch is
                // closed.
                Err(Failure::Closed) => Ok(()),
                outcome => outcome,
            }
        })
    }

    /// The last revision that the watch has received, even if this revision changed none of the watched keys; 0 before
    /// the first revision.
    #[getter]
    fn revision(&self, py: Python<'_>) -> PyResult<u64> {
        self.watch.try_with(py, |watch| Ok(watch.revision()))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.watch.is_closed()
    }

    fn close(&self, py: Python<'_>) {
        self.watch.close(py);
    }
}
