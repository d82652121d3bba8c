//! The topic of changes: one record for each revision, on every node.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_control::Change;
use dunlin_topic::{Draft, Position, PublishError, Retention, Topic, TopicConfig};

use crate::clock::now_ns;
use crate::error::TopicError;
use crate::node::Node;

/// The topic's name. The bytes of its records are those of [`dunlin_control::Events`].
pub const KV: &str = "$kv";

/// The largest record: what one revision changes.
const RECORD_BYTES_MAX: u32 = 64 << 20;

/// The end at which the topic is written.
#[derive(Debug)]
pub(super) struct History {
    topic: Arc<Topic>,
    epoch: u32,
}

impl History {
    /// Makes the topic; in epoch 0 until it is known which there is.
    pub(super) fn open(node: &Node, bytes: u64) -> Result<History, TopicError> {
        let retention = Retention { bytes, records: None, age: None };
        let config = TopicConfig { retention, record_bytes_max: RECORD_BYTES_MAX, ..TopicConfig::default() };
        let topic = node.create_at(KV, config, 0)?;
        Ok(History { topic, epoch: 0 })
    }

    /// Takes the topic away again.
    pub(super) fn close(node: &Node) {
        node.registry().remove(KV);
    }

    /// The next revision is the one after `revision`, of this epoch; readers of others are told.
    pub(super) fn move_on(&mut self, epoch: u32, revision: u64) {
        self.epoch = epoch;
        self.topic.logs()[0].move_on(Position { epoch, seq: revision + 1 });
    }

    /// Adds revisions, all at once if they fit: who reads is woken once. Where one finds no room, its readers are told a gap.
    pub(super) fn record(&self, changes: &mut Vec<Change>) {
        let Some(last) = changes.last().map(|change| change.revision) else { return };
        let drafts = changes.iter().map(|change| Draft::from(change.bytes.as_slice()));
        match self.append(drafts, last) {
            true => changes.clear(),
            false => changes.drain(..).for_each(|change| self.record_alone(change)),
        }
    }

    fn record_alone(&self, change: Change) {
        let draft = std::iter::once(Draft::from(Bytes::from(change.bytes)));
        if !self.append(draft, change.revision) {
            let next = Position { epoch: self.epoch, seq: change.revision + 1 };
            self.topic.logs()[0].move_on(next);
        }
    }

    /// Whether there was room.
    fn append<'d>(&self, drafts: impl Iterator<Item = Draft<'d>> + Clone, last: u64) -> bool {
        match self.topic.append_drafts(now_ns(), 0, false, drafts) {
            Ok(receipt) => assert_eq!(receipt.position.seq, last, "a revision has its own number"),
            // The node has stopped, and with it all who read.
            Err(PublishError::Closed) => {}
            Err(_no_room) => return false,
        }
        true
    }
}
