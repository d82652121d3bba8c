//! Python's class `Replica`: a replica of a topic's state, which the classes `Book`, `Table` and `Region` wrap.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin_client::Subscriber;
use dunlin_feed::{
    BidAskRelation, ChangeCause, PriceLevel, RETRY_NS, Replica, ReplicaCounts, ReplicaFault, ReplicaReport,
    Side,
};
use dunlin_topic::{Position, PublisherStatus, Reducer, Subscribe};
use pyo3::exceptions::{PyStopAsyncIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::entities::PyEntities;
use crate::events::timeout;
use crate::failure::Failure;
use crate::handle::SharedHandle;
use crate::levels::PyLevels;
use crate::notice::PyPublishers;
use crate::position::PyPosition;
use crate::runtime::{self, ReadyAwaitable};
use crate::state::State;

/// A copy of a topic's state, for Python's `Book`, `Table` and `Region`.
#[pyclass(frozen, name = "Replica", module = "dunlin")]
pub struct PyReplica {
    pub following: SharedHandle<FollowedReplica>,
    pending: Mutex<VecDeque<ReplicaEvent>>,
}

/// A replica of a topic's state, with the epoch and the times of its last change.
pub struct FollowedReplica {
    replica: Replica<State, Subscriber>,
    /// The number of partitions of the topic. Each partition has its own state.
    partitions: usize,
    epoch: Option<u32>,
    /// The append time of the topic's last record, in ns since the Unix epoch; `None` if unknown.
    append_ns: Option<u64>,
    /// The event time of the topic's last record, in ns since the Unix epoch; `None` if unknown.
    event_ns: Option<u64>,
    started: Instant,
}

/// An event that a replica reports to Python, such as a change of its state or a fault.
pub enum ReplicaEvent {
    Changed {
        partition: u16,
        from: Position,
        to: Position,
        by: &'static str,
        append_ns: Option<u64>,
        event_ns: Option<u64>,
    },
    Fault {
        partition: u16,
        text: String,
    },
    Publishers(PublisherStatus),
    Deleted {
        partition: u16,
    },
}

impl FollowedReplica {
    pub fn new(
        replica: Replica<State, Subscriber>,
        partitions: usize,
        append_ns: Option<u64>,
    ) -> FollowedReplica {
        let started = Instant::now();
        FollowedReplica { replica, partitions, epoch: None, append_ns, event_ns: None, started }
    }

    /// Applies at most `max` available events. Returns the number of applied events.
    fn drain(&mut self, max: usize, events: &mut VecDeque<ReplicaEvent>) -> Result<usize, Failure> {
        let FollowedReplica { replica, epoch, append_ns, event_ns, started, .. } = self;
        let drained = replica.drain(started.elapsed().as_nanos() as u64, max, |report| match report {
            ReplicaReport::Changed(change) => {
                let (append, event) = (change.append_time_ns(), change.event_time_ns());
                // A snapshot has no append time. The last known time is kept, unless it belongs to a record of an
                // earlier epoch.
                let is_new_epoch = epoch.replace(change.to.epoch).is_some_and(|old| old != change.to.epoch);
                *append_ns = append.or(if is_new_epoch { None } else { *append_ns });
                *event_ns = event;
                let by = match change.cause {
                    ChangeCause::Record(_) => "record",
                    ChangeCause::Merged(_) => "merged",
                    ChangeCause::Snapshot => "snapshot",
                };
                let (partition, from, to) = (change.log.partition, change.from, change.to);
                events.push_back(ReplicaEvent::Changed {
                    partition,
                    from,
                    to,
                    by,
                    append_ns: append,
                    event_ns: event,
                });
            }
            ReplicaReport::Fault { log, fault } => {
                events.push_back(ReplicaEvent::Fault { partition: log.partition, text: text(&fault) });
            }
            ReplicaReport::Publishers(publishers) => {
                *append_ns = publishers.last_append_ns.max(*append_ns);
                events.push_back(ReplicaEvent::Publishers(publishers.clone()));
            }
            ReplicaReport::Deleted { log, .. } => {
                events.push_back(ReplicaEvent::Deleted { partition: log.partition })
            }
            // Python does not receive the other reports; the replica itself counts them.
            _ => {}
        });
        Ok(drained?)
    }
}

fn text(fault: &ReplicaFault) -> String {
    match fault {
        ReplicaFault::Hole { first, last } => format!("records {first} to {last} did not arrive"),
        ReplicaFault::Diverged { at, .. } => format!("the state differs from the owner's state at {at}"),
        ReplicaFault::Refused { at, why } => format!("{why}, at {at}"),
        ReplicaFault::NewEpoch { last, .. } => {
            format!(
                "the topic began a new epoch after {last}: its state is empty until it is published again"
            )
        }
        ReplicaFault::Unknown { at } => format!("records from {at} on belong to an unknown state"),
    }
}

impl ReplicaEvent {
    fn object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let module = py.import("dunlin.live")?;
        let object = match self {
            ReplicaEvent::Changed { partition, from, to, by, append_ns, event_ns } => module
                .getattr("Change")?
                .call1((partition, PyPosition(from), PyPosition(to), by, append_ns, event_ns))?,
            ReplicaEvent::Fault { partition, text } => {
                module.getattr("ReplicaFault")?.call1((partition, text))?
            }
            ReplicaEvent::Publishers(publishers) => {
                return Ok(Py::new(py, PyPublishers::of(&publishers))?.into_any());
            }
            ReplicaEvent::Deleted { partition } => module.getattr("StateDeleted")?.call1((partition,))?,
        };
        Ok(object.unbind())
    }
}

fn count_changes(events: &VecDeque<ReplicaEvent>) -> usize {
    events.iter().filter(|event| !matches!(event, ReplicaEvent::Publishers(_))).count()
}

impl PyReplica {
    /// Creates a replica of a topic with this number of partitions. `append_ns` is the append time of the topic's last
    /// record, if known.
    pub fn new(replica: Replica<State, Subscriber>, partitions: usize, append_ns: Option<u64>) -> PyReplica {
        PyReplica {
            following: SharedHandle::new(FollowedReplica::new(replica, partitions, append_ns)),
            pending: Mutex::default(),
        }
    }

    fn next_within(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Option<Py<PyAny>>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut events = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        if events.is_empty() {
            let apply = |following: &mut FollowedReplica| loop {
                let mut events = VecDeque::new();
                // Applies one event at a time. When this call returns a change, the state therefore contains no later
                // change.
                while events.is_empty() && following.drain(1, &mut events)? > 0 {}
                let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if !events.is_empty() || remaining.is_some_and(|remaining| remaining.is_zero()) {
                    return Ok(events);
                }
                following.replica.wait(remaining)?;
            };
            events = self.with_timeout(py, timeout, apply)?;
        }
        let first = events.pop_front();
        // One event may lead to two reports: a fault, and the change that repairs it. The next call returns the second
        // report.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).extend(events);
        first.map(|event| event.object(py)).transpose()
    }

    /// Calls a function on the replica. The function may wait for at most `timeout`.
    fn with_timeout<R: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        apply: impl FnOnce(&mut FollowedReplica) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        match timeout {
            Some(Duration::ZERO) => self.following.try_with(py, apply),
            _ => self.following.with(py, apply),
        }
    }

    /// Calls `read` with all complete states of the topic, which has one state for each partition. For each state,
    /// `read` receives the partition, the position and the state itself.
    fn with_states<R: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&[(u16, Position, &State)]) -> R + Send,
    ) -> PyResult<R> {
        self.following.try_with(py, |following| {
            let states = following.replica.states().map(|(log, at, state)| (log.partition, at, state));
            Ok(read(&states.collect::<Vec<_>>()))
        })
    }

    fn with_book<R: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&dyn dunlin_feed::PriceLevels) -> R + Send,
    ) -> PyResult<Option<R>> {
        self.with_states(py, |states| states.iter().find_map(|(_, _, state)| state.levels()).map(read))
    }
}

fn side(name: &str) -> PyResult<Side> {
    match name {
        "bid" => Ok(Side::Bid),
        "ask" => Ok(Side::Ask),
        _ => Err(PyValueError::new_err(format!("side must be \"bid\" or \"ask\", not {name:?}"))),
    }
}

#[pymethods]
impl PyReplica {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.next_within(py, None) {
            Err(_) if self.following.is_closed() => Ok(None),
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
            Err(_) if self.following.is_closed() => Err(PyStopAsyncIteration::new_err(())),
            next => next,
        }
    }

    /// A future that resolves when an event may be available. It also resolves when the replica has to repeat a request
    /// whose response is missing.
    #[pyo3(name = "_wait")]
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let following = self.following.clone();
        runtime::spawn(py, async move {
            let ready = following.poll_until(|following, cx| {
                following.replica.subscriber().poll_ready(cx).map_err(Failure::from)
            });
            match tokio::time::timeout(Duration::from_nanos(RETRY_NS), ready).await {
                Ok(Err(Failure::Closed)) | Err(_) => Ok(()),
                Ok(outcome) => outcome,
            }
        })
    }

    /// Returns the next change or fault; `None` if none arrives within `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        self.next_within(py, self::timeout(timeout)?)
    }

    /// Waits at most `timeout` seconds for an event, then applies all available events. Returns the number of changes.
    #[pyo3(signature = (timeout = Some(0.0)))]
    fn update(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<usize> {
        let timeout = self::timeout(timeout)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let apply = |following: &mut FollowedReplica| loop {
            let mut events = VecDeque::new();
            let drained = loop {
                match following.drain(1024, &mut events) {
                    Ok(0) => break Ok(()),
                    Ok(_) if events.len() >= 65_536 => break Ok(()),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            };
            let changes = count_changes(&events);
            // The state includes the changes before an error, so they are reported first. If the cause of the error
            // lasts, a later call reports it.
            if changes > 0 {
                return Ok(changes);
            }
            drained?;
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if remaining.is_some_and(|remaining| remaining.is_zero()) {
                return Ok(0);
            }
            following.replica.wait(remaining)?;
        };
        let changes = self.with_timeout(py, timeout, apply)?;
        // If the call has failed, these events stay for the next call.
        let before = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(count_changes(&before) + changes)
    }

    #[getter]
    fn is_whole(&self, py: Python<'_>) -> PyResult<bool> {
        self.following.try_with(py, |following| {
            Ok(following.replica.is_whole() && following.replica.states().count() >= following.partitions)
        })
    }

    /// The position of the state. If the topic has several partitions, the position of the first partition's state.
    /// `None` while no state is complete.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<Option<PyPosition>> {
        let at =
            self.with_states(py, |states| states.iter().min_by_key(|state| state.0).map(|state| state.1))?;
        Ok(at.map(PyPosition))
    }

    /// The append time and the event time of the topic's last record, in ns since the Unix epoch; `None` for an unknown
    /// time.
    #[getter]
    fn times_ns(&self, py: Python<'_>) -> PyResult<(Option<u64>, Option<u64>)> {
        self.following.try_with(py, |following| Ok((following.append_ns, following.event_ns)))
    }

    /// The time in seconds since the topic's last append, by this machine's clock; `None` if the append time is
    /// unknown.
    #[getter]
    fn age(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let (append_ns, _) = self.times_ns(py)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(append_ns.map(|append_ns| now.saturating_sub(Duration::from_nanos(append_ns)).as_secs_f64()))
    }

    /// The last notice about whether the topic has connected publishers.
    #[getter]
    fn publishers(&self, py: Python<'_>) -> PyResult<Option<PyPublishers>> {
        self.following
            .try_with(py, |following| Ok(following.replica.publishers().next().map(PyPublishers::of)))
    }

    /// The checksum of the state. If the topic has several partitions, the checksum of the first partition's state.
    #[getter]
    fn checksum(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with_states(py, |states| {
            states.iter().min_by_key(|state| state.0).map(|(_, _, state)| state.checksum())
        })
    }

    /// For each kind of event, the event's name and how many such events have occurred since the replica was created.
    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts: ReplicaCounts =
            self.following.try_with(py, |following| Ok(following.replica.counts()))?;
        let dict = PyDict::new(py);
        for (name, count) in [
            ("records", counts.records),
            ("conflated", counts.conflated),
            ("snapshots", counts.snapshots),
            ("gaps", counts.gaps),
            ("holes", counts.holes),
            ("gaps_healed", counts.gaps_healed),
            ("divergent", counts.divergent),
            ("refused", counts.refused),
            ("resyncs", counts.resyncs),
            ("retries", counts.retries),
            ("checked", counts.checked),
            ("ignored", counts.ignored),
        ] {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }

    /// The price and size of the best level of a side, in the book's units; `None` if the side is empty.
    fn best(&self, py: Python<'_>, side: &str) -> PyResult<Option<(i64, i64)>> {
        let side = self::side(side)?;
        let best = self.with_book(py, |book| book.best(side))?;
        Ok(best.flatten().map(|PriceLevel { price, size }| (price, size)))
    }

    /// The size at a price, in the book's units; `None` if the side has no such level.
    fn size_at(&self, py: Python<'_>, side: &str, price: i64) -> PyResult<Option<i64>> {
        let side = self::side(side)?;
        Ok(self.with_book(py, |book| book.level(side, price))?.flatten().map(|level| level.size))
    }

    /// The best `depth` levels of a side; all levels if `depth` is `None`.
    #[pyo3(signature = (side, depth = None))]
    fn levels(&self, py: Python<'_>, side: &str, depth: Option<usize>) -> PyResult<PyLevels> {
        let side = self::side(side)?;
        let rows = self.with_book(py, |book| {
            let row = |level: PriceLevel| [level.price, level.size];
            book.levels(side).take(depth.unwrap_or(usize::MAX)).map(row).collect::<Vec<_>>()
        })?;
        Ok(PyLevels::new(rows.unwrap_or_default()))
    }

    /// How the best bid relates to the best ask: `open` if a side is empty, otherwise `apart`, `locked` or `crossed`.
    #[getter]
    fn touch(&self, py: Python<'_>) -> PyResult<&'static str> {
        let touch = self.with_book(py, |book| book.touch())?;
        Ok(match touch.unwrap_or(BidAskRelation::Open) {
            BidAskRelation::Open => "open",
            BidAskRelation::Apart => "apart",
            BidAskRelation::Locked => "locked",
            BidAskRelation::Crossed => "crossed",
        })
    }

    /// The value of a key, if the topic's state maps each key to its last value. `None` if the key is missing, or if
    /// the state is of another kind.
    fn value<'py>(&self, py: Python<'py>, key: Vec<u8>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.with_states(py, |states| {
            states.iter().find_map(|(_, _, state)| state.values()?.get(&key).map(<[u8]>::to_vec))
        })?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// The total number of price levels, orders, keys or entities in the states of all partitions.
    #[getter]
    fn entries(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_states(py, |states| states.iter().map(|(_, _, state)| state.entries()).sum())
    }

    /// All keys with their values, if the topic's state maps each key to its last value; otherwise an empty list.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let all: Vec<(Vec<u8>, Vec<u8>)> = self.with_states(py, |states| {
            let values = states.iter().filter_map(|(_, _, state)| state.values());
            values
                .flat_map(|values| values.iter().map(|(key, value)| (key.to_vec(), value.to_vec())))
                .collect()
        })?;
        Ok(all.into_iter().map(|(key, value)| (PyBytes::new(py, &key), PyBytes::new(py, &value))).collect())
    }

    /// All current entities of a region; `None` while the state is not complete, or if the topic has another kind of
    /// state.
    #[getter]
    fn entities_now(&self, py: Python<'_>) -> PyResult<Option<PyEntities>> {
        self.with_states(py, |states| {
            states.iter().find_map(|(_, _, state)| state.entities()).map(PyEntities)
        })
    }

    #[getter]
    fn closed(&self) -> bool {
        self.following.is_closed()
    }

    fn close(&self, py: Python<'_>) {
        self.following.close(py);
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}
