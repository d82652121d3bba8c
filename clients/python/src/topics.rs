//! Converts topics between Python's dictionaries and the client's types.

use std::collections::BTreeMap;
use std::time::Duration;

use dunlin_client::TopicDescription;
use dunlin_topic::{DurableOptions, OnFull, ReducerConfig, ReliableOptions, Retention, TopicConfig};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::position::PyPosition;

/// The configuration of a topic that Python creates; `None` means the default.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TopicArguments {
    pattern: Option<String>,
    partitions: u16,
    retention_bytes: Option<u64>,
    retention_records: Option<u64>,
    retention_age: Option<f64>,
    record_bytes_max: Option<u32>,
    reliable: Option<String>,
    reliable_wait: Option<f64>,
    subscribers_max: Option<u16>,
    durable: Option<String>,
    reducer: Option<String>,
    reducer_options: BTreeMap<String, String>,
}

impl TopicArguments {
    pub fn config(self) -> PyResult<TopicConfig> {
        let seconds = crate::events::timeout;
        let defaults = TopicConfig::default();
        let durable = self.durable.map(|level| {
            let acknowledge = level.parse().map_err(PyValueError::new_err)?;
            Ok::<_, PyErr>(DurableOptions { acknowledge, ..DurableOptions::default() })
        });
        let durable = durable.transpose()?;
        let bytes_default = if durable.is_some() {
            DurableOptions::RETENTION_BYTES_DEFAULT
        } else {
            defaults.retention.bytes
        };
        let reliable = self.reliable.map(|on_full| {
            let reliable_default = ReliableOptions::default();
            let on_full = match on_full.as_str() {
                "refuse" => OnFull::Refuse,
                "evict" => OnFull::Evict,
                _ => return Err(PyValueError::new_err("reliable must be \"refuse\" or \"evict\"")),
            };
            let subscribers_max = self.subscribers_max.unwrap_or(reliable_default.subscribers_max);
            Ok(ReliableOptions {
                subscribers_max,
                wait_max: seconds(self.reliable_wait)?.unwrap_or(reliable_default.wait_max),
                on_full,
            })
        });
        Ok(TopicConfig {
            pattern: self.pattern,
            partitions: self.partitions,
            retention: Retention {
                bytes: self.retention_bytes.unwrap_or(bytes_default),
                records: self.retention_records,
                age: seconds(self.retention_age)?,
            },
            record_bytes_max: self.record_bytes_max.unwrap_or(defaults.record_bytes_max),
            reliable: reliable.transpose()?,
            durable,
            reducer: self.reducer.map(|kind| ReducerConfig { kind, options: self.reducer_options }),
            ..defaults
        })
    }
}

/// Returns a topic's description as a dictionary. Its keys are the names of the topic's properties.
pub fn description<'py>(py: Python<'py>, topic: &TopicDescription) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let config = &topic.config;
    dict.set_item("name", &topic.name)?;
    dict.set_item("pattern", config.pattern.as_deref().unwrap_or(&topic.name))?;
    dict.set_item("partitions", config.partitions)?;
    dict.set_item("retention_bytes", config.retention.bytes)?;
    dict.set_item("retention_records", config.retention.records)?;
    dict.set_item("retention_age", config.retention.age.as_ref().map(Duration::as_secs_f64))?;
    dict.set_item("record_bytes_max", config.record_bytes_max)?;
    dict.set_item("reliable", config.reliable.is_some())?;
    dict.set_item("durable", config.durable.map(|durable| durable.acknowledge.to_string()))?;
    dict.set_item("reducer", config.reducer.as_ref().map(|reducer| reducer.kind.clone()))?;
    dict.set_item(
        "reducer_options",
        config.reducer.as_ref().map(|reducer| reducer.options.clone()).unwrap_or_default(),
    )?;
    dict.set_item("publishers", topic.publishers)?;
    dict.set_item("subscribers_total", topic.subscribers_total)?;
    let logs = PyList::empty(py);
    for log in &topic.logs {
        let last_append_ns = (log.last_append_ns > 0).then_some(log.last_append_ns);
        logs.append((log.partition, PyPosition(log.first), log.last_seq, log.bytes, last_append_ns))?;
    }
    dict.set_item("logs", logs)?;
    let subscribers = PyList::empty(py);
    for subscriber in &topic.subscribers {
        let position = PyPosition(subscriber.position);
        subscribers.append((
            &subscriber.name,
            subscriber.partition,
            position,
            subscriber.lag,
            subscriber.missed,
            subscriber.registered,
        ))?;
    }
    dict.set_item("subscribers", subscribers)?;
    let groups = PyList::empty(py);
    for group in &topic.groups {
        let kind = if group.work { "work" } else { "share" };
        groups.append((
            &group.name,
            kind,
            group.members,
            group.waiting,
            group.claimed,
            group.pending_dead_letters,
            group.dead_letter_error.as_deref(),
        ))?;
    }
    dict.set_item("groups", groups)?;
    Ok(dict)
}
