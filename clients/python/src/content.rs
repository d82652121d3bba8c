//! Extracts payloads and headers from Python objects.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyByteArray, PyBytes, PyMapping, PyString};

use crate::arguments;

/// The payload bytes of a record, taken from a Python object: borrowed from an immutable object, copied from any other.
pub enum PayloadContent {
    /// The payload of a `bytes` object.
    Bytes(PyBackedBytes),
    /// The payload of a `str` object, in UTF-8.
    Text(PyBackedStr),
    /// A copy of the payload of any other object with a buffer.
    Copied(Vec<u8>),
}

impl PayloadContent {
    /// Extracts the payload from `bytes`, `str`, or an object with a buffer.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<PayloadContent> {
        PayloadContent::named(object, || "a payload".to_owned())
    }

    /// Like [`of`](Self::of), but also for bytes that are not a payload, such as a key. If the object is not allowed,
    /// the error begins with the name that `what` returns for these bytes.
    pub fn named(object: &Bound<'_, PyAny>, what: impl FnOnce() -> String) -> PyResult<PayloadContent> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(PayloadContent::Bytes(bytes.clone().into()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(PayloadContent::Text(PyBackedStr::try_from(text.clone())?));
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return Ok(PayloadContent::Copied(bytes.to_vec()));
        }
        let py = object.py();
        let view = arguments::buffer(object).map_err(|error| {
            if error.is_instance_of::<PyTypeError>(py) {
                PyTypeError::new_err(format!("{} {}", what(), error.value(py)))
            } else {
                error
            }
        })?;
        Ok(PayloadContent::Copied(view.call_method0("tobytes")?.extract()?))
    }

    pub fn as_slice(&self) -> &[u8] {
        match self {
            PayloadContent::Bytes(bytes) => bytes,
            PayloadContent::Text(text) => text.as_bytes(),
            PayloadContent::Copied(bytes) => bytes,
        }
    }
}

/// Extracts headers from a mapping, or from an iterable of pairs. Only an iterable can repeat a name. Values are
/// `bytes`, `str` or buffers.
pub fn headers(object: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Vec<u8>)>> {
    let pairs = match object.cast::<PyMapping>() {
        Ok(mapping) => mapping.items()?.into_any(),
        Err(_) => object.clone(),
    };
    let pair = |pair: PyResult<Bound<'_, PyAny>>| {
        let (name, value): (String, Bound<'_, PyAny>) = pair?.extract()?;
        let content = PayloadContent::named(&value, || format!("the value of header {name:?}"))?;
        Ok((name, content.as_slice().to_vec()))
    };
    pairs.try_iter()?.map(pair).collect()
}
