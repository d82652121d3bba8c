//! Python's class `Job`: a record that a group delivered to a member.

use std::time::Duration;

use dunlin_client::{ClaimSettler, Settlement};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments;
use crate::failure::Failure;
use crate::handle::SharedHandle;
use crate::position::PyPosition;
use crate::record::PyRecord;

/// A record that a group delivered to a member. A record of a `work` group must be acknowledged or returned, from any
/// thread.
#[pyclass(frozen, module = "dunlin")]
pub struct Job {
    pub record: Py<PyRecord>,
    /// The token with which the member acknowledges or returns the record, or renews its claim on the record; 0 in a
    /// `share` group.
    pub token: u64,
    pub attempt: u32,
    pub claim: Duration,
    pub settler: SharedHandle<ClaimSettler>,
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

    /// The token with which the member acknowledges or returns the record, or renews its claim on the record; 0 in a
    /// `share` group.
    #[getter]
    fn token(&self) -> u64 {
        self.token
    }

    /// The number of the attempt, from 1.
    #[getter]
    fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The duration of the claim in seconds, from the time the node sent the record.
    #[getter]
    fn claim(&self) -> f64 {
        self.claim.as_secs_f64()
    }

    /// Acknowledges the record.
    fn ack(&self, py: Python<'_>) -> PyResult<()> {
        settle(py, &self.settler, &[self.token], |settler, tokens| Ok(settler.ack(tokens)?))
    }

    /// Returns the record to the group. The node delivers the record again after `delay` seconds at the earliest.
    #[pyo3(signature = (delay = None), text_signature = "($self, delay=0.0)")]
    fn nack(&self, py: Python<'_>, delay: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let delay = arguments::timeout("delay", delay)?.unwrap_or_default();
        if delay.as_millis() > u128::from(u32::MAX) {
            let seconds = delay.as_secs_f64();
            return Err(PyValueError::new_err(format!(
                "delay={seconds} is not from 0 to {} seconds",
                u32::MAX / 1000
            )));
        }
        settle(py, &self.settler, &[self.token], |settler, tokens| {
            let claims: Vec<_> = tokens.iter().map(|token| (*token, delay)).collect();
            Ok(settler.nack(&claims)?)
        })
    }

    /// Renews the claim: its full duration starts again now.
    fn renew(&self, py: Python<'_>) -> PyResult<()> {
        settle(py, &self.settler, &[self.token], |settler, tokens| Ok(settler.renew(tokens)?))
    }

    fn __repr__(&self) -> String {
        format!("Job({:?}, {}, attempt {})", self.subject(), self.position().__str__(), self.attempt)
    }
}

/// Runs `call`, which acknowledges, returns or renews the claims with these tokens. Fails if some of the claims have
/// expired; the error names their tokens.
pub fn settle(
    py: Python<'_>,
    settler: &SharedHandle<ClaimSettler>,
    tokens: &[u64],
    call: impl FnOnce(&ClaimSettler, &[u64]) -> Result<Settlement, Failure> + Send,
) -> PyResult<()> {
    // Records of a `share` group have token 0 and need no acknowledgement.
    let tokens: Vec<u64> = tokens.iter().copied().filter(|token| *token != 0).collect();
    if tokens.is_empty() {
        return Ok(());
    }
    let settled = settler.with_lock(py, |settler| call(settler, &tokens))?;
    if settled.stale.is_empty() {
        return Ok(());
    }
    let stale = PyTuple::new(py, settled.stale)?;
    Err(PyErr::from_value(py.import("dunlin.errors")?.call_method1("_stale", (stale,))?))
}
