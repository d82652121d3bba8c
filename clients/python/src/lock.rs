//! The native handle for a lock, which `python/dunlin/kv.py` wraps.

use dunlin_client::HeldLock;
use pyo3::prelude::*;

use crate::connection::Connection;
use crate::handle::SharedHandle;
use crate::lease::RawLease;

/// A handle for a lock of the cluster. Closing the handle releases the lock, or ends the wait for the lock.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub struct RawLock {
    pub connection: Py<Connection>,
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    pub lease: Py<RawLease>,
    pub held: SharedHandle<Option<HeldLock>>,
}

#[pymethods]
impl RawLock {
    /// Takes the lock and returns its fencing token. If another lease holds the lock, `wait` decides: `false` makes the
    /// call fail, and `true` makes it wait for the lock as long as this lease lives.
    fn acquire(&self, py: Python<'_>, wait: bool) -> PyResult<u64> {
        let (kv, handle) = (self.connection.get().client(py)?.kv(), self.lease.get().handle(py)?);
        let (name, value) = (&self.name, &self.value);
        self.held.with(py, |held| {
            let lock = match wait {
                true => kv.lock_while(name, &handle, value)?,
                false => kv.try_lock_while(name, &handle, value)?,
            };
            Ok(held.insert(lock).token())
        })
    }

    /// Changes the holder's value, which other clients can read.
    fn proclaim(&self, py: Python<'_>, value: &[u8]) -> PyResult<()> {
        self.held.with_lock(py, |held| match held {
            Some(lock) => Ok(lock.proclaim(value)?),
            None => Ok(()),
        })
    }

    /// Releases the lock. Fails if the lock was lost.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let released = self.held.with_lock(py, |held| match held.take() {
            Some(lock) => Ok(lock.release()?),
            None => Ok(()),
        });
        self.held.close(py);
        released
    }

    #[getter]
    fn closed(&self) -> bool {
        self.held.is_closed()
    }

    fn close(&self, py: Python<'_>) {
        self.held.close(py);
    }
}
