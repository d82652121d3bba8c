use std::hash::{DefaultHasher, Hash, Hasher};

use dunlin_topic::Position;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arguments;

/// A position in a log for Python: epoch and sequence number, written `EPOCH-SEQ`.
#[pyclass(frozen, name = "Position", module = "dunlin")]
#[derive(Clone, Copy)]
pub struct PyPosition(pub Position);

#[pymethods]
impl PyPosition {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    fn match_args() -> (&'static str, &'static str) {
        ("epoch", "seq")
    }

    #[new]
    fn new(epoch: &Bound<'_, PyAny>, seq: &Bound<'_, PyAny>) -> PyResult<PyPosition> {
        let epoch = arguments::integer("epoch", epoch, 0, u32::MAX.into())?;
        let seq = arguments::integer("seq", seq, 0, u64::MAX)?;
        Ok(PyPosition(Position { epoch: u32::try_from(epoch)?, seq }))
    }

    /// Parses a position.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<PyPosition> {
        text.parse().map(PyPosition).map_err(|error| PyValueError::new_err(format!("{error}")))
    }

    #[getter]
    fn epoch(&self) -> u32 {
        self.0.epoch
    }

    #[getter]
    fn seq(&self) -> u64 {
        self.0.seq
    }

    pub fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Position({}, {})", self.0.epoch, self.0.seq)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __richcmp__(&self, other: &PyPosition, compared: CompareOp) -> bool {
        compared.matches(self.0.cmp(&other.0))
    }
}
