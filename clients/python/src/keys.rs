//! The calls on keys, values, leases and locks that `python/dunlin/kv.py` wraps.

use std::time::Duration;

use dunlin_client::state::{
    Compare, ComparedProperty, Comparison, ControlCommand, ControlReply, KeyOperation,
};
use dunlin_client::{Client, Kv, KvEntry, Transaction, WatchFrom, WriteResult};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::connection::Connection;
use crate::events::timeout;
use crate::failure::Failure;
use crate::handle::SharedHandle;
use crate::lease::RawLease;
use crate::lock::RawLock;
use crate::watch::RawWatch;

/// Calls that read and write a cluster's keys and values.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub struct Keys {
    connection: Py<Connection>,
    stale: bool,
}

/// The value with which a condition of a transaction compares a key: a number for the key's revision, version or lease,
/// or bytes for its value.
#[derive(FromPyObject)]
enum CompareValue {
    Number(u64),
    Bytes(Vec<u8>),
}

/// A condition of a transaction: the key, the operator, the compared property of the key, and the value to compare it
/// with.
type Compared = (Vec<u8>, String, String, CompareValue);
/// One operation of a transaction. The fields are the operation's name; the key, or the start of the range; the value,
/// or the end of the range; the number of a lease, or the largest number of keys.
type Step = (String, Vec<u8>, Vec<u8>, u64);

/// Converts a key and its value to a tuple with the fields of Python's `Entry`, in the order of these fields.
pub fn row<'py>(py: Python<'py>, entry: &KvEntry) -> PyResult<Bound<'py, PyTuple>> {
    let (key, value) = (PyBytes::new(py, &entry.key), PyBytes::new(py, &entry.value));
    (key, value, entry.created, entry.modified, entry.version, entry.lease).into_pyobject(py)
}

fn rows<'py>(py: Python<'py>, entries: &[KvEntry]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, entries.iter().map(|entry| row(py, entry)).collect::<PyResult<Vec<_>>>()?)
}

fn compare((key, is, target, against): &Compared) -> PyResult<Compare<'_>> {
    let is = match is.as_str() {
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        ">" => Comparison::Greater,
        _ => return Err(PyValueError::new_err(format!("unknown comparison {is:?}: use ==, !=, < or >"))),
    };
    let target = match (target.as_str(), against) {
        ("version", CompareValue::Number(version)) => ComparedProperty::Version { version: *version },
        ("created", CompareValue::Number(revision)) => ComparedProperty::Created { revision: *revision },
        ("modified", CompareValue::Number(revision)) => ComparedProperty::Modified { revision: *revision },
        ("lease", CompareValue::Number(lease)) => ComparedProperty::Lease { lease: *lease },
        ("value", CompareValue::Bytes(value)) => ComparedProperty::Value { value },
        _ => {
            return Err(PyValueError::new_err(format!(
                "a key's {target} cannot be compared with a value of this type"
            )));
        }
    };
    Ok(Compare { key, is, target })
}

fn operation((name, a, b, number): &Step) -> PyResult<KeyOperation<'_>> {
    Ok(match name.as_str() {
        "put" => KeyOperation::Put { key: a, value: b, lease: *number },
        "delete" => KeyOperation::Delete { key: a },
        "delete_range" => KeyOperation::DeleteRange { start: a, end: b },
        "get" => KeyOperation::Get { key: a },
        "range" => {
            KeyOperation::Range { start: a, end: b, limit: u32::try_from(*number).unwrap_or(u32::MAX) }
        }
        _ => return Err(PyValueError::new_err(format!("unknown operation {name:?}"))),
    })
}

impl Keys {
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Kv) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        let stale = self.stale;
        let kv = move |client: &Client| if stale { client.kv().stale() } else { client.kv() };
        self.connection.get().call(py, move |client| call(&kv(client)))
    }
}

#[pymethods]
impl Keys {
    #[new]
    fn new(connection: Py<Connection>, stale: bool) -> Keys {
        Keys { connection, stale }
    }

    fn get<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let found = self.call(py, |kv| Ok(kv.get(key)?))?;
        found.map(|entry| row(py, &entry)).transpose()
    }

    /// Writes a key and returns the revision. With `expect`, writes only if the key was last changed in revision
    /// `expect`.
    fn put(
        &self,
        py: Python<'_>,
        key: &[u8],
        value: &[u8],
        lease: u64,
        expect: Option<u64>,
    ) -> PyResult<u64> {
        let command = match expect {
            Some(expect) => ControlCommand::PutIf { key, value, lease, expect },
            None => ControlCommand::Put { key, value, lease },
        };
        Ok(self.write(py, &command)?.revision)
    }

    /// Deletes a key. Returns the revision and the number of deleted keys. With `expect`, deletes only if the key was
    /// last changed in revision `expect`.
    fn delete(&self, py: Python<'_>, key: &[u8], expect: Option<u64>) -> PyResult<(u64, u64)> {
        let command = match expect {
            Some(expect) => ControlCommand::DeleteIf { key, expect },
            None => ControlCommand::Delete { key },
        };
        let written = self.write(py, &command)?;
        Ok((written.revision, written.keys))
    }

    fn delete_range(&self, py: Python<'_>, start: &[u8], end: &[u8]) -> PyResult<(u64, u64)> {
        let written = self.write(py, &ControlCommand::DeleteRange { start, end })?;
        Ok((written.revision, written.keys))
    }

    /// Reads at most `limit` keys from `start` up to and excluding `end`. Returns the revision, the keys with their
    /// values, and whether there are more keys.
    fn range<'py>(
        &self,
        py: Python<'py>,
        start: &[u8],
        end: &[u8],
        limit: u32,
    ) -> PyResult<(u64, Bound<'py, PyList>, bool)> {
        let page = self.call(py, |kv| Ok(kv.range(start, end, limit)?))?;
        Ok((page.revision, rows(py, &page.entries)?, page.more))
    }

    /// Runs a transaction. Returns the revision, whether all conditions held, and the result of each operation. The
    /// result is the number of changed keys; or, for a read, the keys and whether there are more.
    fn transact<'py>(
        &self,
        py: Python<'py>,
        compared: Vec<Compared>,
        then: Vec<Step>,
        otherwise: Vec<Step>,
    ) -> PyResult<(u64, bool, Bound<'py, PyList>)> {
        let mut transaction = Transaction::new();
        for compared in &compared {
            let Compare { key, is, target } = compare(compared)?;
            transaction = transaction.compare(key, is, target);
        }
        for step in &then {
            transaction = transaction.then(operation(step)?);
        }
        for step in &otherwise {
            transaction = transaction.otherwise(operation(step)?);
        }
        let outcome = self.call(py, |kv| Ok(kv.transact(&transaction)?))?;
        let results = PyList::empty(py);
        for result in &outcome.results {
            match result {
                Ok(keys) => results.append(keys)?,
                Err((entries, more)) => results.append((rows(py, entries)?, more))?,
            }
        }
        Ok((outcome.revision, outcome.succeeded, results))
    }

    /// Returns the present epoch of the keys, and their last revision.
    fn revision(&self, py: Python<'_>) -> PyResult<(u32, u64)> {
        self.call(py, |kv| Ok(kv.revision()?))
    }

    /// Watches the keys that begin with `prefix`. `start` contains an epoch and the first revision of that epoch to
    /// watch; revision 0 means the oldest available one. With `None`, the watch starts with the next change.
    fn watch(&self, py: Python<'_>, prefix: &[u8], start: Option<(u32, u64)>) -> PyResult<RawWatch> {
        let from = match start {
            None => WatchFrom::Now,
            Some((_, 0)) => WatchFrom::Oldest,
            Some((epoch, revision)) => WatchFrom::Revision { epoch, revision },
        };
        let watch = SharedHandle::new(self.call(py, |kv| Ok(kv.watch(prefix, from)?))?);
        self.connection.get().register_handle(&watch.closer());
        Ok(RawWatch { watch })
    }

    /// Creates a lease with a time to live of `ttl` seconds. If `keep` is set, a thread renews the lease until the
    /// handle is closed.
    fn lease(&self, py: Python<'_>, ttl: f64, keep: bool) -> PyResult<RawLease> {
        let ttl = timeout(Some(ttl))?.unwrap_or(Duration::ZERO);
        let lease = self.call(py, |kv| {
            let mut lease = kv.lease(ttl)?;
            if keep {
                lease
                    .start_renewal()
                    .map_err(|error| Failure::Value(format!("cannot start a thread: {error}")))?;
            }
            Ok(lease)
        })?;
        let lease = RawLease::new(lease);
        self.connection.get().register_handle(&lease.lease.closer());
        self.connection.get().register_handle(&lease.handle.closer());
        Ok(lease)
    }

    /// Returns a handle for a lock that belongs to a lease. The lock is not acquired yet.
    fn lock(&self, py: Python<'_>, name: Vec<u8>, value: Vec<u8>, lease: Py<RawLease>) -> RawLock {
        let held = SharedHandle::new(None);
        self.connection.get().register_handle(&held.closer());
        RawLock { connection: self.connection.clone_ref(py), name, value, lease, held }
    }

    /// Revokes the lease with this number.
    fn revoke(&self, py: Python<'_>, lease: u64) -> PyResult<()> {
        self.call(py, |kv| Ok(kv.revoke(lease)?))
    }
}

impl Keys {
    fn write(&self, py: Python<'_>, command: &ControlCommand<'_>) -> PyResult<WriteResult> {
        self.call(py, |kv| match kv.command(command)? {
            ControlReply::Changed { revision, keys } => Ok(WriteResult { revision, keys }),
            other => Err(Failure::Unknown(format!("the node sent the unexpected response {other:?}"))),
        })
    }
}
