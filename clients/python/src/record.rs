//! Python's class `Record`: a received record.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyTuple};

use crate::column::{Column, U8};
use crate::position::PyPosition;
use crate::records::{Payloads, RecordGroup};

/// A received record: its subject, payload, position, key, headers and times.
#[pyclass(frozen, name = "Record", module = "dunlin")]
pub struct PyRecord {
    pub records: Arc<RecordGroup>,
    pub index: usize,
}

#[pymethods]
impl PyRecord {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    fn match_args() -> (&'static str, &'static str) {
        ("subject", "payload")
    }

    /// The subject to which the record was published.
    #[getter]
    fn subject(&self) -> String {
        self.records.subject(self.index)
    }

    /// The payload, copied.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.records.payload(self.index))
    }

    /// The payload without a copy. As long as the view exists, the memory of all records that were received together
    /// with this one stays allocated.
    #[getter]
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        let range = self.records.payload_range(self.index);
        let owner = Arc::new(Payloads(Arc::clone(&self.records)));
        let column = Column::strided(owner, U8, range.start, 1, range.len());
        PyMemoryView::from(Bound::new(py, column)?.as_any())
    }

    #[getter]
    fn topic(&self) -> &str {
        &self.records.log(self.index).topic
    }

    #[getter]
    fn partition(&self) -> u16 {
        self.records.log(self.index).partition
    }

    #[getter]
    fn position(&self) -> PyPosition {
        PyPosition(self.records.position(self.index))
    }

    #[getter]
    fn epoch(&self) -> u32 {
        self.records.head(self.index).epoch
    }

    #[getter]
    fn seq(&self) -> u64 {
        self.records.head(self.index).seq
    }

    /// A sequence number that is lower than this record's. The subscriber has lost no record between the two numbers:
    /// records between them were filtered, have expired, or are merged into this record.
    #[getter]
    fn prev_seq(&self) -> u64 {
        self.records.head(self.index).prev_seq
    }

    /// Time at which the node appended the record, in ns since the Unix epoch.
    #[getter]
    fn append_time_ns(&self) -> i64 {
        self.records.head(self.index).append_ns
    }

    /// The publisher's event time, in ns since the Unix epoch; `None` if the publisher gave none.
    #[getter]
    fn event_time_ns(&self) -> Option<u64> {
        self.records.frame(self.index).event_time_ns()
    }

    #[getter]
    fn expires_ns(&self) -> Option<u64> {
        self.records.frame(self.index).expires_ns()
    }

    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.records.frame(self.index).key().map(|key| PyBytes::new(py, key))
    }

    /// The subject to which replies are published.
    #[getter]
    fn reply(&self) -> Option<&str> {
        self.records.frame(self.index).reply()
    }

    /// Names and values of the headers, in the publisher's order; names may repeat.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let frame = self.records.frame(self.index);
        let pairs = frame.headers().map(|(name, value)| (name, PyBytes::new(py, value)));
        PyTuple::new(py, pairs.collect::<Vec<_>>())
    }

    /// The value of the first header with this name; `None` if there is no such header.
    fn header<'py>(&self, py: Python<'py>, name: &str) -> Option<Bound<'py, PyBytes>> {
        let frame = self.records.frame(self.index);
        frame.headers().find(|(other, _)| *other == name).map(|(_, value)| PyBytes::new(py, value))
    }

    fn __len__(&self) -> usize {
        self.records.payload_range(self.index).len()
    }

    fn __repr__(&self) -> String {
        let (subject, position) = (self.subject(), self.position().__str__());
        format!("Record({subject:?}, {position}, {} bytes)", self.__len__())
    }
}
