//! Python's class `Member`: a client's membership in a group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_client::{ClaimSettler, GroupEvent, Member};
use dunlin_topic::Notice;
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments;
use crate::failure::Failure;
use crate::handle::{SharedHandle, run_detached};
use crate::job::{Job, settle};
use crate::notice;
use crate::record::PyRecord;
use crate::records::RecordGroup;
use crate::runtime::{self, ReadyAwaitable};

/// A member of a group, which receives a share of the records. Iterate it with `for` or `async for`.
#[pyclass(frozen, name = "Member", module = "dunlin")]
pub struct PyMember {
    pub topic: String,
    pub group: String,
    pub member: SharedHandle<PrefetchingMember>,
    pub settler: SharedHandle<ClaimSettler>,
}

/// A group member that requests records in advance. `requested` counts the requested records that have not arrived yet.
pub struct PrefetchingMember {
    pub member: Member,
    /// The number of records to request in advance; 0 in a `share` group.
    pub prefetch: u64,
    pub requested: u64,
}

enum MemberEvent {
    Job { records: Arc<RecordGroup>, token: u64, attempt: u32, claim: Duration },
    Notice(Notice),
}

impl PrefetchingMember {
    /// Requests more records, so that `prefetch` records are requested but have not arrived yet.
    fn claim(&mut self) {
        if self.requested < self.prefetch {
            self.member.claim(self.prefetch - self.requested);
            self.requested = self.prefetch;
        }
    }

    /// Takes one event; returns `None` if none is available. Never takes a second event in advance: the second event's
    /// record would wait in this process, although another member could process this record.
    fn take_event(&mut self) -> Result<Option<MemberEvent>, Failure> {
        let event = match self.member.try_next()? {
            None => return Ok(None),
            Some(GroupEvent::Notice(notice)) => return Ok(Some(MemberEvent::Notice(notice))),
            Some(GroupEvent::Record { token, position, attempt, claim, frame, log, .. }) => {
                let mut records = RecordGroup::with_capacity(1);
                records.push(position, position.seq - 1, &frame, log);
                records.finish();
                MemberEvent::Job { records: Arc::new(records), token, attempt, claim }
            }
        };
        self.requested = self.requested.saturating_sub(1);
        Ok(Some(event))
    }
}

impl PyMember {
    fn next_within(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Option<Py<PyAny>>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let is_nonblocking = timeout.is_some_and(|timeout| timeout.is_zero());
        loop {
            let read = |prefetching: &mut PrefetchingMember| loop {
                if let Some(event) = prefetching.take_event()? {
                    return Ok(Some(event));
                }
                prefetching.claim();
                let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if remaining.is_some_and(|remaining| remaining.is_zero())
                    || !prefetching.member.wait(remaining)?
                {
                    return Ok(None);
                }
            };
            let event =
                if is_nonblocking { self.member.try_with(py, read) } else { self.member.with(py, read) }?;
            match event {
                None => return Ok(None),
                Some(MemberEvent::Notice(notice)) => {
                    if let Some(object) = notice::object(py, &notice)? {
                        return Ok(Some(object));
                    }
                }
                Some(MemberEvent::Job { records, token, attempt, claim }) => {
                    let record = Py::new(py, PyRecord { records, index: 0 })?;
                    let settler = self.settler.clone();
                    return Ok(Some(Py::new(py, Job { record, token, attempt, claim, settler })?.into_any()));
                }
            }
        }
    }
}

#[pymethods]
impl PyMember {
    #[getter]
    fn topic(&self) -> &str {
        &self.topic
    }

    #[getter]
    fn group(&self) -> &str {
        &self.group
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.next_within(py, None) {
            Err(_) if self.member.is_closed() => Ok(None),
            next => next,
        }
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Some(next) = slf.get().try_next(py)? {
            return Ok(Bound::new(py, ReadyAwaitable::new(next))?.into_any());
        }
        py.import("dunlin._asyncio")?.call_method1("next_of", (slf,))
    }

    #[pyo3(name = "_try_next")]
    fn try_next(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.next_within(py, Some(Duration::ZERO)) {
            Err(_) if self.member.is_closed() => Err(PyStopAsyncIteration::new_err(())),
            next => next,
        }
    }

    #[pyo3(name = "_wait")]
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let member = self.member.clone();
        runtime::spawn(py, async move {
            let ready =
                member.poll_until(|prefetching, cx| prefetching.member.poll_ready(cx).map_err(Failure::from));
            match ready.await {
                Err(Failure::Closed) => Ok(()),
                outcome => outcome,
            }
        })
    }

    /// Returns the next job or notice; `None` if neither arrives within `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        self.next_within(py, arguments::timeout("timeout", timeout)?)
    }

    /// Acknowledges the records of several jobs in one round trip.
    fn ack(&self, py: Python<'_>, jobs: Vec<Py<Job>>) -> PyResult<()> {
        let tokens: Vec<u64> = jobs.iter().map(|job| job.get().token).collect();
        settle(py, &self.settler, &tokens, |settler, tokens| Ok(settler.ack(tokens)?))
    }

    /// Leaves the group. The node immediately gives other members the records that this member has claimed but not
    /// acknowledged.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.member.is_closed() {
            // If another thread waits for a record, the member leaves the group when that thread's wait ends.
            let member = self.member.take(py);
            run_detached(py, || member.map(|prefetching| prefetching.member.leave()));
            self.settler.close(py);
        }
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __aenter__(slf: Bound<'_, Self>) -> ReadyAwaitable {
        ReadyAwaitable::new(slf.into_any().unbind())
    }

    #[pyo3(signature = (*_args))]
    fn __aexit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<ReadyAwaitable> {
        self.close(py)?;
        Ok(ReadyAwaitable::new(py.None()))
    }

    fn __repr__(&self) -> String {
        format!("Member(topic={:?}, group={:?})", self.topic, self.group)
    }
}
