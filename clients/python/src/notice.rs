//! Defines a Python class for each notice, for use with `match`. `docs/topic.md` describes the attributes of these
//! classes.

use std::sync::Arc;

use dunlin_topic::{LogName, Notice, PublisherStatus};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::position::PyPosition;

macro_rules! notices {
    ($($(#[doc = $about:literal])* $rust:ident $python:literal {
        $($(#[doc = $field_doc:literal])* $field:ident: $kind:ty,)*
    })*) => {
        $(
            $(#[doc = $about])*
            #[pyclass(frozen, get_all, name = $python, module = "dunlin")]
            pub struct $rust {
                /// The topic's name.
                topic: String,
                /// The partition's number.
                partition: u16,
                $($(#[doc = $field_doc])* $field: $kind,)*
            }

            #[pymethods]
            impl $rust {
                fn __repr__(&self) -> String {
                    let mut text = format!("{}({}/{}", $python, self.topic, self.partition);
                    $(text.push_str(&format!(", {}={}", stringify!($field), FieldText::field_text(&self.$field)));)*
                    text.push(')');
                    text
                }
            }
        )*

        /// Adds the classes of all notices to the module.
        pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_class::<$rust>()?;)*
            Ok(())
        }
    };
}

notices! {
    /// Records that this subscriber missed.
    PyGap "Gap" {
        /// The epoch of the missing records.
        epoch: u32,
        /// The first missing sequence number.
        first: u64,
        /// The last missing sequence number.
        last: u64,
        /// The number of missing records.
        records: u64,
    }
    /// The subscriber is behind by more than half of the retained records.
    PyLagging "Lagging" {
        /// The number of records by which the subscriber is behind.
        behind: u64,
        /// The number of retained records.
        retained: u64,
    }
    /// The log began a new epoch.
    PyEpochChanged "EpochChanged" {
        /// The epoch that ended.
        old: u32,
        /// The sequence number of the last record of the old epoch that this subscriber received.
        last_seen: u64,
        /// The sequence number of the last record of the old epoch that is known to have existed; `None` if unknown.
        known_through: Option<u64>,
        /// The position at which the new epoch begins for this subscriber.
        new_first: PyPosition,
    }
    /// The state of a state topic. It replaces all records up to `position`.
    PySnapshot "Snapshot" {
        /// The position of the last record that the state contains.
        position: PyPosition,
        /// The state's checksum.
        checksum: u64,
        /// The state's bytes.
        data: Py<PyBytes>,
    }
    /// A notice about whether a state topic has connected publishers.
    PyPublishers "Publishers" {
        /// Whether at least one publisher is connected.
        connected: bool,
        /// The time at which `connected` last changed, in ns since the Unix epoch.
        since_ns: u64,
        /// The time of the topic's last append, in ns since the Unix epoch; `None` if the topic has no record.
        last_append_ns: Option<u64>,
    }
    /// The log was deleted; no more events follow.
    PyDeleted "Deleted" {
        /// The log's last position.
        last: PyPosition,
    }
}

impl PyPublishers {
    pub fn of(publishers: &PublisherStatus) -> PyPublishers {
        let PublisherStatus { log, connected, since_ns, last_append_ns } = publishers.clone();
        let (topic, partition) = (log.topic.clone(), log.partition);
        PyPublishers { topic, partition, connected, since_ns, last_append_ns }
    }
}

/// A type of a notice's field that can be converted to text, for the notice's `repr` in Python.
trait FieldText {
    fn field_text(&self) -> String;
}

impl FieldText for u32 {
    fn field_text(&self) -> String {
        self.to_string()
    }
}

impl FieldText for bool {
    fn field_text(&self) -> String {
        if *self { "True".to_owned() } else { "False".to_owned() }
    }
}

impl FieldText for u64 {
    fn field_text(&self) -> String {
        self.to_string()
    }
}

impl FieldText for Option<u64> {
    fn field_text(&self) -> String {
        self.map_or_else(|| "None".to_owned(), |number| number.to_string())
    }
}

impl FieldText for PyPosition {
    fn field_text(&self) -> String {
        self.0.to_string()
    }
}

impl FieldText for Py<PyBytes> {
    fn field_text(&self) -> String {
        Python::attach(|py| format!("{} bytes", self.bind(py).as_bytes().len()))
    }
}

/// Whether Python receives the notice. Python receives no `Advance` and no `Checksum`, because these only serve
/// internal checks.
pub fn is_passed_to_python(notice: &Notice) -> bool {
    !matches!(notice, Notice::Advance { .. } | Notice::Checksum(_))
}

/// Whether the notice reports missing records. For such a notice, an iterator over records raises an exception.
pub fn is_loss(notice: &Notice) -> bool {
    match notice {
        Notice::Gap(_) => true,
        Notice::EpochChanged(changed) => changed.known_through != Some(changed.last_seen),
        _ => false,
    }
}

/// Returns the notice as a Python object; `None` if [`is_passed_to_python`] returns `false`.
pub fn object(py: Python<'_>, notice: &Notice) -> PyResult<Option<Py<PyAny>>> {
    let topic_and_partition = |log: &Arc<LogName>| (log.topic.clone(), log.partition);
    let object = match notice {
        Notice::Gap(gap) => {
            let ((topic, partition), records) = (topic_and_partition(&gap.log), gap.records());
            let (epoch, first, last) = (gap.epoch, gap.first, gap.last);
            Py::new(py, PyGap { topic, partition, epoch, first, last, records })?.into_any()
        }
        Notice::Lagging(lagging) => {
            let ((topic, partition), behind, retained) =
                (topic_and_partition(&lagging.log), lagging.behind, lagging.retained);
            Py::new(py, PyLagging { topic, partition, behind, retained })?.into_any()
        }
        Notice::EpochChanged(changed) => {
            let (topic, partition) = topic_and_partition(&changed.log);
            let (old, last_seen, known_through) = (changed.old, changed.last_seen, changed.known_through);
            let new_first = PyPosition(changed.new_first);
            Py::new(py, PyEpochChanged { topic, partition, old, last_seen, known_through, new_first })?
                .into_any()
        }
        Notice::Snapshot(snapshot) => {
            let (topic, partition) = topic_and_partition(&snapshot.log);
            let data = PyBytes::new(py, &snapshot.bytes).unbind();
            let (position, checksum) = (PyPosition(snapshot.position), snapshot.checksum);
            Py::new(py, PySnapshot { topic, partition, position, checksum, data })?.into_any()
        }
        Notice::Publishers(publishers) => Py::new(py, PyPublishers::of(publishers))?.into_any(),
        Notice::Deleted { log, last } => {
            let ((topic, partition), last) = (topic_and_partition(log), PyPosition(*last));
            Py::new(py, PyDeleted { topic, partition, last })?.into_any()
        }
        _ => return Ok(None),
    };
    Ok(Some(object))
}
