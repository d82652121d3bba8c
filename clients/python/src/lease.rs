//! The native handle for a lease, which `python/dunlin/kv.py` wraps.

use std::time::{Duration, Instant};

use dunlin_client::{Lease, LeaseHandle};
use pyo3::prelude::*;

use crate::events::timeout;
use crate::handle::{SharedHandle, run_detached, run_interruptible};

/// The interval at which a waiting call checks for signals.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A lease of the cluster. Closing or abandoning the handle revokes the lease.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub struct RawLease {
    id: u64,
    ttl: Duration,
    pub handle: SharedHandle<LeaseHandle>,
    pub lease: SharedHandle<Lease>,
}

impl RawLease {
    pub fn new(lease: Lease) -> RawLease {
        let (id, ttl, handle) = (lease.id(), lease.ttl(), SharedHandle::new(lease.handle()));
        RawLease { id, ttl, handle, lease: SharedHandle::new(lease) }
    }

    /// Returns the handle for one call. The caller must drop the handle after the call: the connection stays open as
    /// long as any handle exists.
    pub fn handle(&self, py: Python<'_>) -> PyResult<LeaseHandle> {
        self.handle.try_with(py, |handle| Ok(handle.clone()))
    }
}

#[pymethods]
impl RawLease {
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// The lease's time to live after each renewal, in seconds.
    #[getter]
    fn ttl(&self) -> f64 {
        self.ttl.as_secs_f64()
    }

    /// Fails if the lease has ended or may have ended.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.try_with(py, |handle| Ok(handle.check().map(drop)?))
    }

    fn keep_alive(&self, py: Python<'_>) -> PyResult<()> {
        let (handle, watched) = (self.handle(py)?, self.lease.clone());
        run_interruptible(py, move || watched.is_closed(), || Ok(handle.keep_alive()?))
    }

    /// Waits until the lease is lost, and returns the reason; `None` if the lease is not lost within `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn wait_lost(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let handle = self.handle(py)?;
        let deadline = self::timeout(timeout)?.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let remaining = deadline.map_or(SIGNAL_CHECK_INTERVAL, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(SIGNAL_CHECK_INTERVAL)
            });
            if let Some(lost) = run_detached(py, || handle.wait_lost(remaining)).0 {
                return Ok(Some(lost.why));
            }
            py.check_signals()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
        }
    }

    /// Stops renewing the lease, without revoking it.
    fn leave(&self, py: Python<'_>) {
        if let Some(lease) = self.lease.take(py) {
            run_detached(py, || lease.leave());
        }
        self.handle.close(py);
    }

    #[getter]
    fn closed(&self) -> bool {
        self.lease.is_closed()
    }

    /// Revokes the lease. Waits for the response, but not longer than the lease's time to live.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let lease = self.lease.take(py);
        self.handle.close(py);
        match lease {
            Some(lease) => run_interruptible(py, || false, move || Ok(lease.revoke()?)),
            None => Ok(()),
        }
    }

    /// Revokes the lease without waiting for the response.
    fn abandon(&self, py: Python<'_>) {
        self.lease.close(py);
        self.handle.close(py);
    }
}
