//! Iterates over the events of a subscription, one by one or in batches, with Python's `for` and `async for`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_client::Subscriber;
use dunlin_topic::{Event, Notice, Subscribe};
use pyo3::exceptions::{PyStopAsyncIteration, PyValueError};
use pyo3::prelude::*;

use crate::batch::PyBatch;
use crate::failure::Failure;
use crate::handle::SharedHandle;
use crate::notice;
use crate::record::PyRecord;
use crate::records::RecordGroup;
use crate::runtime::{self, ReadyAwaitable};

/// The largest number of records that one read takes from the client.
const READ_RECORDS_MAX: usize = 512;
/// A read from the client ends when it has taken records of at least this many bytes.
const READ_BYTES_MAX: usize = 1 << 20;

/// A subscriber with a buffer of received events that Python has not read yet.
pub struct BufferedSubscriber {
    pub subscriber: SharedHandle<Subscriber>,
    buffer: Mutex<EventBuffer>,
}

#[derive(Default)]
struct EventBuffer {
    pieces: VecDeque<Piece>,
    /// How many records of the first of the `pieces` have already been returned to Python.
    returned: usize,
}

enum Piece {
    Records(Arc<RecordGroup>),
    Notice(Notice),
}

/// The items that an iterator returns.
#[derive(Clone, Copy)]
pub enum IterationMode {
    /// Records and notices.
    All,
    /// Only records. If records are missing, the iterator raises an exception.
    Records,
    /// Notices, and batches of at most this many records.
    Batches(usize),
}

impl BufferedSubscriber {
    pub fn new(subscriber: Subscriber) -> BufferedSubscriber {
        BufferedSubscriber { subscriber: SharedHandle::new(subscriber), buffer: Mutex::default() }
    }

    fn buffer(&self) -> MutexGuard<'_, EventBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves more events from the client to the buffer. Returns `false` if no event arrives within `timeout`. With
    /// `Some(Duration::ZERO)` the call does not wait; with `None` it waits without a limit.
    fn refill(&self, py: Python<'_>, mode: IterationMode, timeout: Option<Duration>) -> PyResult<bool> {
        let records_max =
            if let IterationMode::Batches(records_max) = mode { records_max } else { READ_RECORDS_MAX };
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let is_nonblocking = timeout.is_some_and(|timeout| timeout.is_zero());
        let read = |subscriber: &mut Subscriber| loop {
            let mut pieces = VecDeque::new();
            read_events(subscriber, records_max, &mut pieces)?;
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !pieces.is_empty()
                || remaining.is_some_and(|remaining| remaining.is_zero())
                || !subscriber.wait(remaining)?
            {
                return Ok(pieces);
            }
        };
        let pieces =
            if is_nonblocking { self.subscriber.try_with(py, read) } else { self.subscriber.with(py, read) }?;
        let has_pieces = !pieces.is_empty();
        self.buffer().pieces.extend(pieces);
        Ok(has_pieces)
    }

    /// Returns the next event from the buffer; `None` if the buffer is empty. The buffer contains the events that were
    /// already taken from the client.
    fn next_buffered(&self, py: Python<'_>, mode: IterationMode) -> PyResult<Option<Py<PyAny>>> {
        loop {
            let Some(next) = self.buffer().next(mode) else { return Ok(None) };
            let notice = match next {
                NextEvent::Record(record) => return Ok(Some(Py::new(py, record)?.into_any())),
                NextEvent::Batch(batch) => return Ok(Some(Py::new(py, batch)?.into_any())),
                NextEvent::Notice(notice) => notice,
            };
            let only_records = matches!(mode, IterationMode::Records);
            if only_records && !notice::is_loss(&notice) {
                continue;
            }
            let Some(object) = notice::object(py, &notice)? else { continue };
            if only_records {
                let error = py.import("dunlin.errors")?.call_method1("_gap", (object,))?;
                return Err(PyErr::from_value(error));
            }
            return Ok(Some(object));
        }
    }

    /// Returns the next event; `None` if there is none within `timeout`.
    pub fn next(
        &self,
        py: Python<'_>,
        mode: IterationMode,
        timeout: Option<Duration>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            self.subscriber.check()?;
            if let Some(next) = self.next_buffered(py, mode)? {
                return Ok(Some(next));
            }
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !self.refill(py, mode, remaining)? {
                return Ok(None);
            }
        }
    }
}

enum NextEvent {
    Record(PyRecord),
    Batch(PyBatch),
    Notice(Notice),
}

impl EventBuffer {
    #[inline]
    fn next(&mut self, mode: IterationMode) -> Option<NextEvent> {
        let Some(Piece::Records(records)) = self.pieces.front() else {
            return match self.pieces.pop_front()? {
                Piece::Notice(notice) => Some(NextEvent::Notice(notice)),
                Piece::Records(_) => None,
            };
        };
        let (records, returned) = (Arc::clone(records), self.returned);
        if let IterationMode::Batches(_) = mode {
            self.pieces.pop_front();
            self.returned = 0;
            let is_complete = returned == 0;
            return Some(NextEvent::Batch(PyBatch(if is_complete {
                records
            } else {
                Arc::new(records.from(returned))
            })));
        }
        self.returned += 1;
        if self.returned == records.len() {
            self.pieces.pop_front();
            self.returned = 0;
        }
        Some(NextEvent::Record(PyRecord { records, index: returned }))
    }
}

/// Takes the available events from the client, but stops after about `records_max` records. If an error occurs after
/// events were taken, this call returns the events, and the next call returns the error.
fn read_events(
    subscriber: &mut Subscriber,
    records_max: usize,
    pieces: &mut VecDeque<Piece>,
) -> Result<(), Failure> {
    let mut records = RecordGroup::with_capacity(0);
    let (mut count, mut bytes) = (0, 0);
    while count < records_max && bytes < READ_BYTES_MAX {
        let before = records.bytes();
        let drained = subscriber.drain((records_max - count).min(256), |event| match event {
            Event::Record(record) => {
                records.push(record.position, record.prev_seq, &record.frame, record.log)
            }
            Event::Notice(notice) if notice::is_passed_to_python(&notice) => {
                finish_group(&mut records, pieces);
                pieces.push_back(Piece::Notice(notice));
            }
            Event::Notice(_) => {}
        });
        bytes += records.bytes().saturating_sub(before);
        match drained {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(_) if records.pushed() > 0 || !pieces.is_empty() => break,
            Err(error) => return Err(error.into()),
        }
    }
    finish_group(&mut records, pieces);
    Ok(())
}

fn finish_group(records: &mut RecordGroup, pieces: &mut VecDeque<Piece>) {
    if records.pushed() > 0 {
        let mut group = std::mem::take(records);
        group.finish();
        pieces.push_back(Piece::Records(Arc::new(group)));
    }
}

/// A Python iterator over the events of a subscription.
#[pyclass(frozen, module = "dunlin")]
pub struct Events {
    pub source: Arc<BufferedSubscriber>,
    pub mode: IterationMode,
}

#[pymethods]
impl Events {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.source.next(py, self.mode, None) {
            Err(_) if self.source.subscriber.is_closed() => Ok(None),
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

    /// Returns the next event; `None` if none is available.
    #[pyo3(name = "_try_next")]
    fn try_next(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.source.next(py, self.mode, Some(Duration::ZERO)) {
            Err(_) if self.source.subscriber.is_closed() => Err(PyStopAsyncIteration::new_err(())),
            next => next,
        }
    }

    /// A future that resolves when an event may be available.
    #[pyo3(name = "_wait")]
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let subscriber = self.source.subscriber.clone();
        runtime::spawn(py, async move {
            let ready =
                subscriber.poll_until(|subscriber, cx| subscriber.poll_ready(cx).map_err(Failure::from));
            match ready.await {
                // The handle is closed; the next call reports this error.
                Err(Failure::Closed) => Ok(()),
                outcome => outcome,
            }
        })
    }
}

/// Converts a timeout in seconds; `None` means no limit.
pub fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let timeout =
        seconds.map(|seconds| Duration::try_from_secs_f64(if seconds < 0.0 { 0.0 } else { seconds }));
    timeout.transpose().map_err(|_| PyValueError::new_err("a timeout must be a number of seconds, 0 or more"))
}
