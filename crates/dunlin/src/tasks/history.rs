//! The topic of what happens to tasks: one record for each event, on every node, under the same numbers.
//!
//! Each shard has a partition of its own, in the order of their numbers. A record is one JSON object; its subject is the topic's name and the tenant's: `$tasks.TENANT`, or `$tasks._` for a tenant whose
//! name cannot be part of a subject.

mod text;

use std::sync::Arc;

use bytes::Bytes;
use dunlin_tasks::{Event, State};
use dunlin_topic::{Draft, Meta, Payload, Position, PublishError, Retention, Subject, Topic, TopicConfig};
use hashbrown::HashMap;

use crate::error::TopicError;
use crate::node::Node;

/// The topic's name.
pub const TASKS: &str = "$tasks";
const PATTERN: &str = "$tasks.>";
/// The last token of the subject of tenants whose names cannot be one.
const UNNAMED: &str = "_";

/// Whether a pattern is for events of tasks.
pub(crate) fn is_of_tasks(pattern: &str) -> bool {
    pattern.strip_prefix(TASKS).is_some_and(|rest| rest.starts_with('.'))
}

/// The end at which the topic is written.
#[derive(Debug)]
pub(super) struct History {
    /// `None` where nothing is kept.
    topic: Option<Arc<Topic>>,
    /// Of the shard.
    partition: usize,
    epoch: u32,
    /// Events there have been.
    count: u64,
    text: String,
    /// Where each event's text ends, and whose it is.
    parts: Vec<(usize, u32)>,
}

impl History {
    /// Makes the topic, where something is to be kept; in epoch 0 until it is known which there is.
    pub(super) fn open(node: &Node, bytes: u64, shards: u8) -> Result<Option<Arc<Topic>>, TopicError> {
        Ok(match bytes {
            0 => None,
            bytes => {
                let retention = Retention { bytes, records: None, age: None };
                let pattern = Some(PATTERN.to_owned());
                let partitions = u16::from(shards);
                let config = TopicConfig { retention, pattern, partitions, ..TopicConfig::default() };
                let topic = node.create_at(TASKS, config, 0)?;
                // Who goes on reading here may have come from a node that is further on.
                topic.logs().iter().for_each(|log| log.set_replicated(true));
                Some(topic)
            }
        })
    }

    /// A shard's part of it.
    pub(super) fn of(topic: Option<Arc<Topic>>, shard: u8) -> History {
        let (text, parts) = (String::new(), Vec::new());
        History { topic, partition: usize::from(shard), epoch: 0, count: 0, text, parts }
    }

    /// Takes the topic away again.
    pub(super) fn close(node: &Node) {
        node.registry().remove(TASKS);
    }

    /// There is no other node: nobody can have read more than there is here.
    pub(super) fn is_nowhere_else(node: &Node) {
        if let Some(topic) = node.registry().get(TASKS) {
            topic.logs().iter().for_each(|log| log.set_replicated(false));
        }
    }

    /// The epoch, and how many events there have been.
    pub(super) fn stands(&self) -> (u32, u64) {
        (self.epoch, self.count)
    }

    /// The next event is the one after `count`, of this epoch; readers of others are told.
    pub(super) fn move_on(&mut self, epoch: u32, count: u64) {
        (self.epoch, self.count) = (epoch, count);
        if let Some(topic) = &self.topic {
            topic.logs()[self.partition].move_on(Position { epoch, seq: count + 1 });
        }
    }

    /// Adds events. Where they find no room, readers are told a gap.
    pub(super) fn record(&mut self, state: &State, events: &[Event]) {
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
                Draft { meta: Meta { subject_tail: tenants.tail(tenant), ..Meta::default() }, payload }
            })
            .collect();
        // A node that is started again tells when things happened, and not when it took its log in again.
        let happened_ms = events.last().map_or(0, |event| state.unix_ms_of(event.at_ms));
        let happened_ns = happened_ms.saturating_mul(1_000_000);
        match topic.append_drafts(happened_ns, self.partition, false, drafts.iter()) {
            // The node has stopped, and with it all who read.
            Ok(_) | Err(PublishError::Closed) => {}
            Err(_no_room) => {
                topic.logs()[self.partition].move_on(Position { epoch: self.epoch, seq: self.count + 1 });
            }
        }
    }
}

/// Tenants as events name them, as far as they were needed.
#[derive(Default)]
struct Tenants(HashMap<u32, Named>);

struct Named {
    quoted: String,
    /// Of its events' subjects.
    tail: String,
}

impl Tenants {
    fn of(&mut self, state: &State, tenant: u32) -> &Named {
        self.0.entry(tenant).or_insert_with(|| {
            let name = state.tenant_name(tenant).map_or(&b""[..], |name| name);
            let tail = std::str::from_utf8(name).ok().filter(|name| Subject::parse(name).is_ok());
            Named { quoted: text::quoted(name), tail: tail.unwrap_or(UNNAMED).to_owned() }
        })
    }

    fn tail(&self, tenant: u32) -> &str {
        self.0.get(&tenant).map_or(UNNAMED, |named| &named.tail)
    }
}

/// What stands before the state in a snapshot: a version, the epoch, and how many events there have been.
pub(super) fn write_head((epoch, count): (u32, u64)) -> Vec<u8> {
    [&[1][..], &epoch.to_le_bytes(), &count.to_le_bytes()].concat()
}

/// Reads it.
pub(super) fn read_head(block: &Bytes) -> Option<(u32, u64)> {
    let (epoch, count) = block.strip_prefix(&[1])?.split_first_chunk()?;
    Some((u32::from_le_bytes(*epoch), u64::from_le_bytes(count.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_head_decodes_only_when_whole() {
        let head = Bytes::from(write_head((7, 9)));
        assert_eq!(read_head(&head), Some((7, 9)));
        (0..head.len()).for_each(|len| assert_eq!(read_head(&head.slice(..len)), None));
    }
}
