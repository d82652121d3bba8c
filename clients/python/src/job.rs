//! A record that a group gave to this member.

use std::time::Duration;

use dunlin_client::{Settlement, Settler};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::failure::Failure;
use crate::handle::Handle;
use crate::position::PyPosition;
use crate::record::PyRecord;

/// A record of a group; in a `work` group it is to be acknowledged or given back. Any thread may do so.
#[pyclass(frozen, module = "dunlin")]
pub struct Job {
    pub record: Py<PyRecord>,
    /// 0 in a `share` group.
    pub token: u64,
    pub attempt: u32,
    pub claim: Duration,
    pub settler: Handle<Settler>,
}

#[pymethods]
impl Job {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    fn match_args() -> (&'static str, &'static str) {
        ("subject", "payload")
    }

    #[getter]
    fn record(&self, py: Python<'_>) -> Py<PyRecord> {
        self.record.clone_ref(py)
    }

    #[getter]
    fn subject(&self) -> String {
        let record = self.record.get();
        record.records.subject(record.index)
    }

    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let record = self.record.get();
        PyBytes::new(py, record.records.payload(record.index))
    }

    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let record = self.record.get();
        record.records.frame(record.index).key().map(|key| PyBytes::new(py, key))
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.record.bind(py).getattr("headers")
    }

    #[getter]
    fn position(&self) -> PyPosition {
        let record = self.record.get();
        PyPosition(record.records.position(record.index))
    }

    /// Settles the claim; 0 in a `share` group.
    #[getter]
    fn token(&self) -> u64 {
        self.token
    }

    /// 1 for the first time it is given out.
    #[getter]
    fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How long the claim holds, seconds, from when the node sent it.
    #[getter]
    fn claim(&self) -> f64 {
        self.claim.as_secs_f64()
    }

    /// It is done.
    fn ack(&self, py: Python<'_>) -> PyResult<()> {
        settle(py, &self.settler, &[self.token], |settler, tokens| Ok(settler.ack(tokens)?))
    }

    /// It is given back, not to be given out again before `delay` seconds are over.
    #[pyo3(signature = (delay = 0.0))]
    fn nack(&self, py: Python<'_>, delay: f64) -> PyResult<()> {
        let delay = crate::events::timeout(Some(delay))?.unwrap_or_default();
        settle(py, &self.settler, &[self.token], |settler, tokens| {
            let claims: Vec<_> = tokens.iter().map(|token| (*token, delay)).collect();
            Ok(settler.nack(&claims)?)
        })
    }

    /// It takes longer: the claim holds as long again from now on.
    fn renew(&self, py: Python<'_>) -> PyResult<()> {
        settle(py, &self.settler, &[self.token], |settler, tokens| Ok(settler.renew(tokens)?))
    }

    fn __repr__(&self) -> String {
        format!("Job({:?}, {}, attempt {})", self.subject(), self.position().__str__(), self.attempt)
    }
}

/// Settles claims; one whose deadline had passed is an error, which names the tokens.
pub fn settle(
    py: Python<'_>,
    settler: &Handle<Settler>,
    tokens: &[u64],
    call: impl FnOnce(&Settler, &[u64]) -> Result<Settlement, Failure> + Send,
) -> PyResult<()> {
    // Those of a share group are settled by being read.
    let tokens: Vec<u64> = tokens.iter().copied().filter(|token| *token != 0).collect();
    if tokens.is_empty() {
        return Ok(());
    }
    let settled = settler.with_in_turn(py, |settler| call(settler, &tokens))?;
    if settled.stale.is_empty() {
        return Ok(());
    }
    let stale = PyTuple::new(py, settled.stale)?;
    Err(PyErr::from_value(py.import("dunlin.errors")?.call_method1("_stale", (stale,))?))
}
