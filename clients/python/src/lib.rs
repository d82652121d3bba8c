//! The native part of the Python package `dunlin`, which wraps the Rust client.
//!
//! Users import `python/dunlin`. This module, `dunlin._dunlin`, contains the code that runs for each record or that
//! waits: records, notices, subscriptions, publishers, groups, replicas, keys, watches, leases, locks, tasks, workers
//! and worlds.
//!
//! Invariants:
//! - A waiting thread does not hold the interpreter's lock, and checks for signals every 100 ms.
//! - A child process cannot use its parent's handles. A call on such a handle fails; it sends no message and closes no
//!   connection.
//! - Bytes that Python reads through a buffer never change, and live as long as the buffer.
//!
//! The crate's tests are in Python, because only an interpreter can load the module. `cargo xtask test python` runs
//! them.

mod arguments;
mod content;
mod failure;
mod handle;
mod runtime;

mod column;
mod position;
mod records;

mod batch;
mod notice;
mod record;

mod events;
mod subscription;

mod drafts;
mod publisher;

mod job;
mod member;

mod entities;
mod levels;
mod replica;
mod state;

mod connection;
mod topics;

mod keys;
mod lease;
mod lock;
mod watch;

mod attachment;
mod tasks;

mod world;

use pyo3::prelude::*;

/// The module `dunlin._dunlin`.
#[pymodule(name = "_dunlin")]
fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<position::PyPosition>()?;
    module.add_class::<record::PyRecord>()?;
    module.add_class::<batch::PyBatch>()?;
    module.add_class::<column::Column>()?;
    notice::register(module)?;
    module.add_class::<subscription::Subscription>()?;
    module.add_class::<events::Events>()?;
    module.add_class::<publisher::PyPublisher>()?;
    module.add_class::<publisher::PyReceipt>()?;
    module.add_class::<member::PyMember>()?;
    module.add_class::<job::Job>()?;
    module.add_class::<levels::PyLevels>()?;
    module.add_class::<entities::PyEntities>()?;
    module.add_class::<replica::PyReplica>()?;
    module.add_class::<connection::Connection>()?;
    module.add_class::<keys::Keys>()?;
    module.add_class::<watch::RawWatch>()?;
    module.add_class::<lease::RawLease>()?;
    module.add_class::<lock::RawLock>()?;
    module.add_class::<tasks::TaskCalls>()?;
    module.add_class::<attachment::RawAttachment>()?;
    module.add_class::<world::RawWorld>()?;
    module.add_class::<world::RawViewer>()?;
    module.add_class::<failure::CancellableCall>()?;
    module.add_function(wrap_pyfunction!(failure::end, module)?)?;
    module.add_function(wrap_pyfunction!(world::check_world, module)?)?;
    module.add("CODES", failure::codes(module.py())?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
