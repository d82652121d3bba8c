//! A batch of records, whose fields Python reads as columns.

use std::mem::offset_of;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyTuple};

use crate::column::{Column, I64, NumberFormat, U8, U32, U64};
use crate::record::PyRecord;
use crate::records::{Payloads, RecordFields, RecordFieldsBytes, RecordGroup};

/// Consecutive records of a subscription, whose fields Python reads as columns without copying them.
#[pyclass(frozen, sequence, name = "Batch", module = "dunlin")]
pub struct PyBatch(pub Arc<RecordGroup>);

impl PyBatch {
    /// Returns a column with one field of each record's [`RecordFields`], such as the sequence number. `offset` is the
    /// field's place in `RecordFields`. With `extra` = 1, the column also contains this field of the final entry of the
    /// group, which is no record.
    fn column<'py>(
        &self,
        py: Python<'py>,
        kind: NumberFormat,
        offset: usize,
        extra: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let owner = Arc::new(RecordFieldsBytes(Arc::clone(&self.0)));
        let column = Column::strided(owner, kind, offset, size_of::<RecordFields>(), self.0.len() + extra);
        as_array(py, column)
    }
}

/// Returns the column as a NumPy array if NumPy is available, otherwise as a memoryview. In both cases the numbers are
/// not copied.
pub fn as_array(py: Python<'_>, column: Column) -> PyResult<Bound<'_, PyAny>> {
    let column = Bound::new(py, column)?.into_any();
    py.import("dunlin._arrays")?.getattr("as_array")?.call1((column,))
}

#[pymethods]
impl PyBatch {
    #[getter]
    fn seqs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, U64, offset_of!(RecordFields, seq), 0)
    }

    #[getter]
    fn epochs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, U32, offset_of!(RecordFields, epoch), 0)
    }

    #[getter]
    fn append_times_ns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, I64, offset_of!(RecordFields, append_ns), 0)
    }

    /// The records' event times in ns since the Unix epoch; 0 for a record without an event time.
    #[getter]
    fn event_times_ns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, I64, offset_of!(RecordFields, event_ns), 0)
    }

    /// For each record, the index in `logs` of the log to which the record belongs.
    #[getter]
    fn log_numbers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, U32, offset_of!(RecordFields, log), 0)
    }

    /// The index in `data` at which each payload begins, followed by the index at which the last payload ends.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, U64, offset_of!(RecordFields, payload_at), 1)
    }

    /// The topic and partition of each log that has records in this batch.
    #[getter]
    fn logs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(
            py,
            self.0.logs().iter().map(|log| (log.topic.as_str(), log.partition)).collect::<Vec<_>>(),
        )
    }

    /// The payloads of all records, one directly after another.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        let len = self.0.head(self.0.len()).payload_at as usize;
        let column = Column::strided(Arc::new(Payloads(Arc::clone(&self.0))), U8, 0, 1, len);
        PyMemoryView::from(Bound::new(py, column)?.as_any())
    }

    /// The payloads as an array of `dtype` without a copy; each payload is one element.
    fn as_array<'py>(&self, py: Python<'py>, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let numpy = py.import("numpy")?;
        let dtype = numpy.getattr("dtype")?.call1((dtype,))?;
        let item_bytes: usize = dtype.getattr("itemsize")?.extract()?;
        match self.0.payload_bytes_each() {
            Some(bytes) if bytes == item_bytes => numpy.getattr("frombuffer")?.call1((self.data(py)?, dtype)),
            Some(bytes) => Err(PyValueError::new_err(format!(
                "each payload has {bytes} bytes, but an item of dtype {dtype} has {item_bytes}"
            ))),
            None => Err(PyValueError::new_err(
                "the payloads have several lengths and do not form an array: use data and offsets",
            )),
        }
    }

    /// The payloads of all records, copied into a list of `bytes`.
    fn payloads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, (0..self.0.len()).map(|index| PyBytes::new(py, self.0.payload(index))))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<PyRecord> {
        let len = self.0.len() as isize;
        let from_start = if index < 0 { index + len } else { index };
        if (0..len).contains(&from_start) {
            return Ok(PyRecord { records: Arc::clone(&self.0), index: from_start as usize });
        }
        Err(PyIndexError::new_err(format!("record {index} does not exist: the batch has {len} records")))
    }

    fn __repr__(&self) -> String {
        format!("Batch({} records, {} bytes)", self.0.len(), self.0.bytes())
    }
}
