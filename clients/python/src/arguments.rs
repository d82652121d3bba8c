//! Converts and checks the arguments of calls from Python. For an invalid argument, the Python module
//! `dunlin._arguments` raises an exception that names the argument and shows the invalid value.

use std::time::Duration;

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyIterator};

/// The longest timeout in seconds, equal to `SECONDS_MAX` of the Python module `dunlin._arguments`.
const SECONDS_MAX: f64 = (1_u64 << 33) as f64;

/// Calls the function `name` of the Python module `dunlin._arguments` with `arguments` and the keyword arguments
/// `options`. The function returns the checked value, or raises an exception.
fn check<'py>(
    value: &Bound<'py, PyAny>,
    name: &str,
    arguments: impl PyCallArgs<'py>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    value.py().import("dunlin._arguments")?.getattr(name)?.call(arguments, options)
}

/// Converts a timeout from a number of seconds. A negative number means that the call does not wait; `None` means that
/// it waits without a limit.
pub fn timeout(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(value) = value else { return Ok(None) };
    let seconds = match value.extract::<f64>() {
        Ok(seconds) if seconds <= SECONDS_MAX && !value.is_instance_of::<PyBool>() => seconds,
        _ => check(value, "timeout", (value, name), None)?.extract()?,
    };
    Ok(Some(Duration::from_secs_f64(seconds.max(0.0))))
}

/// Converts a whole number, and checks that it is from `least` to `most`.
pub fn integer(name: &str, value: &Bound<'_, PyAny>, least: u64, most: u64) -> PyResult<u64> {
    if value.is_exact_instance_of::<PyInt>()
        && let Ok(number) = value.extract::<u64>()
        && (least..=most).contains(&number)
    {
        return Ok(number);
    }
    let options = PyDict::new(value.py());
    options.set_item("least", least)?;
    check(value, "count", (name, value, most), Some(&options))?.extract()
}

/// Converts an optional number from 0 to 2^64 - 1.
pub fn optional_u64(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    value.map(|value| integer(name, value, 0, u64::MAX)).transpose()
}

/// Returns a view of an object's buffer. Refuses a buffer whose bytes alone mean nothing to other programs, such as the
/// addresses of Python objects. The text of the error begins with a verb, because the caller knows the argument's name.
pub fn buffer<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    check(value, "buffer", (value,), None)
}

/// Returns a view of an array of rows. Like [`buffer`], refuses bytes without a meaning; also refuses plain bytes, of
/// which each byte would become a row.
pub fn rows<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    check(value, "rows", (value,), None)
}

/// Returns an iterator over the payloads that `value` contains. Refuses a single string or buffer, because the iterator
/// would return each character or byte as a payload.
pub fn payloads<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    check(value, "payloads", (value,), None)?.try_iter()
}
