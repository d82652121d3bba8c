//! One side of an order book, which Python reads as rows of prices and sizes.

use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::batch::as_array;
use crate::column::{Column, I64, StableBytes, bytes_of};

/// The price levels of one side of an order book, best first. Each row is a price and a size in the book's units.
pub struct LevelRows(pub Vec<[i64; 2]>);

impl StableBytes for LevelRows {
    fn bytes(&self) -> &[u8] {
        bytes_of(&self.0)
    }
}

/// One side of an order book at one time: rows of price and size, which NumPy reads without a copy.
#[pyclass(frozen, sequence, name = "Levels", module = "dunlin")]
pub struct PyLevels {
    rows: Arc<LevelRows>,
}

impl PyLevels {
    pub fn new(rows: Vec<[i64; 2]>) -> PyLevels {
        PyLevels { rows: Arc::new(LevelRows(rows)) }
    }

    fn column<'py>(&self, py: Python<'py>, offset: usize) -> PyResult<Bound<'py, PyAny>> {
        let (owner, len) = (Arc::clone(&self.rows), self.rows.0.len());
        as_array(py, Column::strided(owner, I64, if len == 0 { 0 } else { offset }, 16, len))
    }
}

#[pymethods]
impl PyLevels {
    /// The prices in the book's units, best first.
    #[getter]
    fn prices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, 0)
    }

    /// The sizes in the book's units, in the order of the prices.
    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, 8)
    }

    /// Prices and sizes as an array of two columns.
    #[getter]
    fn table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_array(py, Column::pairs(Arc::clone(&self.rows) as Arc<dyn StableBytes>, I64, self.rows.0.len()))
    }

    fn __len__(&self) -> usize {
        self.rows.0.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<(i64, i64)> {
        let len = self.rows.0.len() as isize;
        let from_start = if index < 0 { index + len } else { index };
        let row = usize::try_from(from_start).ok().and_then(|at| self.rows.0.get(at));
        row.map(|[price, size]| (*price, *size)).ok_or_else(|| {
            PyIndexError::new_err(format!("level {index} does not exist: there are {len} levels"))
        })
    }

    fn __repr__(&self) -> String {
        format!("Levels({} levels)", self.rows.0.len())
    }
}
