//! The topic of task events. It has one record for each event. An event has the same sequence number on every node.
//!
//! The events of a shard are in the partition with the shard's number. A record is a JSON object. Its subject is
//! `$tasks.TENANT`, or `$tasks._` if the tenant's name cannot be a token of a subject.

mod text;

use std::sync::Arc;

use bytes::Bytes;
use dunlin_tasks::{SchedulerState, TaskEvent};
use dunlin_topic::{
    Draft, Payload, Position, PublishError, RecordMeta, Retention, Subject, Topic, TopicConfig,
};
use hashbrown::HashMap;

use crate::error::TopicError;
use crate::node::Node;

/// The name of the topic of task events.
pub const TASKS: &str = "$tasks";
const PATTERN: &str = "$tasks.>";
/// The token in the subjects of events of tenants whose names are not valid tokens.
const UNNAMED: &str = "_";

/// Whether the pattern begins with `$tasks.`, so that it selects events of tasks.
pub(crate) fn is_tasks_pattern(pattern: &str) -> bool {
    pattern.strip_prefix(TASKS).is_some_and(|rest| rest.starts_with('.'))
}

/// Writes the events of one shard's tasks to the topic [`TASKS`].
#[derive(Debug)]
pub(super) struct TaskHistory {
    /// The topic; `None` if no events are published.
    topic: Option<Arc<Topic>>,
    partition: usize,
    epoch: u32,
    /// The number of the shard's events so far.
    count: u64,
    text: String,
    /// For each event in `text`: the position at which its text ends, and its tenant.
    parts: Vec<(usize, u32)>,
}

impl TaskHistory {
    /// Creates the topic [`TASKS`], or returns `None` if `bytes` is 0, so that no events are published. The topic is in
    /// epoch 0 until the epoch of events is known.
    pub(super) fn open(node: &Node, bytes: u64, shards: u8) -> Result<Option<Arc<Topic>>, TopicError> {
        Ok(match bytes {
            0 => None,
            bytes => {
                let retention = Retention { bytes, records: None, age: None };
                let pattern = Some(PATTERN.to_owned());
                let partitions = u16::from(shards);
                let config = TopicConfig { retention, pattern, partitions, ..TopicConfig::default() };
                let topic = node.create_system_topic(TASKS, config, 0)?;
                // A subscriber may have read records at another node that this node's logs do not contain yet.
                topic.logs().iter().for_each(|log| log.set_replicated(true));
                Some(topic)
            }
        })
    }

    pub(super) fn of(topic: Option<Arc<Topic>>, shard: u8) -> TaskHistory {
        let (text, parts) = (String::new(), Vec::new());
        TaskHistory { topic, partition: usize::from(shard), epoch: 0, count: 0, text, parts }
    }

    /// Removes the topic [`TASKS`].
    pub(super) fn close(node: &Node) {
        node.registry().remove(TASKS);
    }

    /// Marks the topic as unreplicated. Call this only if no other node exists: without other nodes, no subscriber can
    /// have read events that this node lacks.
    pub(super) fn mark_unreplicated(node: &Node) {
        if let Some(topic) = node.registry().get(TASKS) {
            topic.logs().iter().for_each(|log| log.set_replicated(false));
        }
    }

    pub(super) fn epoch_and_count(&self) -> (u32, u64) {
        (self.epoch, self.count)
    }

    /// Lets the shard's log continue with the event after `count` in this epoch. Subscribers receive a gap or the
    /// notice of a new epoch.
    pub(super) fn advance_to(&mut self, epoch: u32, count: u64) {
        (self.epoch, self.count) = (epoch, count);
        if let Some(topic) = &self.topic {
            topic.logs()[self.partition].reset_to(Position { epoch, seq: count + 1 });
        }
    }

    /// Appends the events to the topic. If they do not fit into the log, subscribers receive a gap instead of them.
    pub(super) fn record(&mut self, state: &SchedulerState, events: &[TaskEvent]) {
        self.count += events.len() as u64;
        let Some(topic) = &self.topic else { return };
        self.text.clear();
        self.parts.clear();
        let mut tenants = Tenants::default();
        for event in events {
            let tenant = tenants.of(state, event.tenant);
            text::write_event(&mut self.text, &tenant.quoted, state.unix_ms_of(event.at_ms), event);
            self.parts.push((self.text.len(), event.tenant));
        }
        let text = self.text.as_bytes();
        let mut at = 0;
        let drafts: Vec<Draft<'_>> = self
            .parts
            .iter()
            .map(|&(end, tenant)| {
                let payload = Payload::Copied(&text[at..end]);
                at = end;
                Draft {
                    meta: RecordMeta { subject_tail: tenants.tail(tenant), ..RecordMeta::default() },
                    payload,
                }
            })
            .collect();
        // The append time is the time of the last event. When a restarted node applies its log again, the append time
        // is therefore the same as before.
        let happened_ms = events.last().map_or(0, |event| state.unix_ms_of(event.at_ms));
        let happened_ns = happened_ms.saturating_mul(1_000_000);
        match topic.append_drafts(happened_ns, self.partition, false, drafts.iter()) {
            // If the topic is closed, there is nothing to do: the node has stopped, and all its subscribers have ended.
            Ok(_) | Err(PublishError::Closed) => {}
            Err(_no_room) => {
                topic.logs()[self.partition].reset_to(Position { epoch: self.epoch, seq: self.count + 1 });
            }
        }
    }
}

/// The tenants' names as they appear in events, cached for one batch of events.
#[derive(Default)]
struct Tenants(HashMap<u32, TenantName>);

struct TenantName {
    quoted: String,
    /// The token of the tenant in the subjects of its events.
    tail: String,
}

impl Tenants {
    fn of(&mut self, state: &SchedulerState, tenant: u32) -> &TenantName {
        self.0.entry(tenant).or_insert_with(|| {
            let name = state.tenant_name(tenant).map_or(&b""[..], |name| name);
            let tail = std::str::from_utf8(name).ok().filter(|name| Subject::parse(name).is_ok());
            TenantName { quoted: text::quoted(name), tail: tail.unwrap_or(UNNAMED).to_owned() }
        })
    }

    fn tail(&self, tenant: u32) -> &str {
        self.0.get(&tenant).map_or(UNNAMED, |named| &named.tail)
    }
}

/// Encodes the first block of a snapshot: a version, the epoch of events, and the number of events.
pub(super) fn write_head((epoch, count): (u32, u64)) -> Vec<u8> {
    [&[1][..], &epoch.to_le_bytes(), &count.to_le_bytes()].concat()
}

/// Decodes a block that [`write_head`] has encoded. Returns the epoch and the number of events.
pub(super) fn read_head(block: &Bytes) -> Option<(u32, u64)> {
    let (epoch, count) = block.strip_prefix(&[1])?.split_first_chunk()?;
    Some((u32::from_le_bytes(*epoch), u64::from_le_bytes(count.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_header_of_a_task_history_is_refused() {
        let head = Bytes::from(write_head((7, 9)));
        assert_eq!(read_head(&head), Some((7, 9)));
        (0..head.len()).for_each(|len| assert_eq!(read_head(&head.slice(..len)), None));
    }
}
