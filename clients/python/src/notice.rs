//! What stands in a record's place, as Python's classes: for `match`, attributes are named as in `docs/topic.md`.

use std::sync::Arc;

use dunlin_topic::{LogName, Notice, Publishers};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::position::PyPosition;

macro_rules! notices {
    ($($(#[doc = $about:literal])* $rust:ident $python:literal {
        $($(#[doc = $said:literal])* $field:ident: $kind:ty,)*
    })*) => {
        $(
            $(#[doc = $about])*
            #[pyclass(frozen, get_all, name = $python, module = "dunlin")]
            pub struct $rust {
                /// The topic.
                topic: String,
                /// Which of its logs.
                partition: u16,
                $($(#[doc = $said])* $field: $kind,)*
            }

            #[pymethods]
            impl $rust {
                fn __repr__(&self) -> String {
                    let mut text = format!("{}({}/{}", $python, self.topic, self.partition);
                    $(text.push_str(&format!(", {}={}", stringify!($field), Said::said(&self.$field)));)*
                    text.push(')');
                    text
                }
            }
        )*

        /// Adds the classes to the module.
        pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_class::<$rust>()?;)*
            Ok(())
        }
    };
}

notices! {
    /// Records were lost to this reader.
    PyGap "Gap" {
        /// Of which epoch.
        epoch: u32,
        /// The first that is missing.
        first: u64,
        /// The last that is missing.
        last: u64,
        /// How many.
        records: u64,
    }
    /// More than half of the history lies ahead of this reader.
    PyLagging "Lagging" {
        /// Records it has yet to read.
        behind: u64,
        /// Records the log holds.
        retained: u64,
    }
    /// The log began anew.
    PyEpochChanged "EpochChanged" {
        /// The epoch that ended.
        old: u32,
        /// The last record of it that this reader was given.
        last_seen: u64,
        /// The last record of it that is known to have existed, if anybody can know.
        known_through: Option<u64>,
        /// Where the new epoch begins for this reader.
        new_first: PyPosition,
    }
    /// The state of a stateful topic, in the place of the records up to its position.
    PySnapshot "Snapshot" {
        /// The last record that it holds.
        position: PyPosition,
        /// What the state adds up to.
        checksum: u64,
        /// Its bytes.
        data: Py<PyBytes>,
    }
    /// Whether a publisher of a state is connected.
    PyPublishers "Publishers" {
        /// Whether at least one is.
        connected: bool,
        /// Since when that has been so, ns since the Unix epoch.
        since_ns: u64,
        /// When the newest record was appended, if there is one.
        last_append_ns: Option<u64>,
    }
    /// The log was deleted; nothing more comes from it.
    PyDeleted "Deleted" {
        /// Its last position.
        last: PyPosition,
    }
}

impl PyPublishers {
    pub fn of(publishers: &Publishers) -> PyPublishers {
        let Publishers { log, connected, since_ns, last_append_ns } = publishers.clone();
        let (topic, partition) = (log.topic.clone(), log.partition);
        PyPublishers { topic, partition, connected, since_ns, last_append_ns }
    }
}

/// How a field is shown.
trait Said {
    fn said(&self) -> String;
}

impl Said for u32 {
    fn said(&self) -> String {
        self.to_string()
    }
}

impl Said for bool {
    fn said(&self) -> String {
        if *self { "True".to_owned() } else { "False".to_owned() }
    }
}

impl Said for u64 {
    fn said(&self) -> String {
        self.to_string()
    }
}

impl Said for Option<u64> {
    fn said(&self) -> String {
        self.map_or_else(|| "None".to_owned(), |number| number.to_string())
    }
}

impl Said for PyPosition {
    fn said(&self) -> String {
        self.0.to_string()
    }
}

impl Said for Py<PyBytes> {
    fn said(&self) -> String {
        Python::attach(|py| format!("{} bytes", self.bind(py).as_bytes().len()))
    }
}

/// Whether a notice is told: what only helps to count, and what a replica checks itself by, is not.
pub fn is_told(notice: &Notice) -> bool {
    !matches!(notice, Notice::Advance { .. } | Notice::Checksum(_))
}

/// Whether records are missing where this stands, and so who wants all records or an error gets the latter.
pub fn is_loss(notice: &Notice) -> bool {
    match notice {
        Notice::Gap(_) => true,
        Notice::EpochChanged(changed) => changed.known_through != Some(changed.last_seen),
        _ => false,
    }
}

/// The object that says it; `None` where [`is_told`] says no.
pub fn object(py: Python<'_>, notice: &Notice) -> PyResult<Option<Py<PyAny>>> {
    let of = |log: &Arc<LogName>| (log.topic.clone(), log.partition);
    let object = match notice {
        Notice::Gap(gap) => {
            let ((topic, partition), records) = (of(&gap.log), gap.records());
            let (epoch, first, last) = (gap.epoch, gap.first, gap.last);
            Py::new(py, PyGap { topic, partition, epoch, first, last, records })?.into_any()
        }
        Notice::Lagging(lagging) => {
            let ((topic, partition), behind, retained) = (of(&lagging.log), lagging.behind, lagging.retained);
            Py::new(py, PyLagging { topic, partition, behind, retained })?.into_any()
        }
        Notice::EpochChanged(changed) => {
            let (topic, partition) = of(&changed.log);
            let (old, last_seen, known_through) = (changed.old, changed.last_seen, changed.known_through);
            let new_first = PyPosition(changed.new_first);
            Py::new(py, PyEpochChanged { topic, partition, old, last_seen, known_through, new_first })?
                .into_any()
        }
        Notice::Snapshot(snapshot) => {
            let (topic, partition) = of(&snapshot.log);
            let data = PyBytes::new(py, &snapshot.bytes).unbind();
            let (position, checksum) = (PyPosition(snapshot.position), snapshot.checksum);
            Py::new(py, PySnapshot { topic, partition, position, checksum, data })?.into_any()
        }
        Notice::Publishers(publishers) => Py::new(py, PyPublishers::of(publishers))?.into_any(),
        Notice::Deleted { log, last } => {
            let ((topic, partition), last) = (of(log), PyPosition(*last));
            Py::new(py, PyDeleted { topic, partition, last })?.into_any()
        }
        _ => return Ok(None),
    };
    Ok(Some(object))
}
