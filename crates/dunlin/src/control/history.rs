//! The topic of changes: one record for each revision, on every node.

mod past;

use std::sync::Arc;

use bytes::Bytes;
use dunlin_control::Change;
use dunlin_topic::{Draft, Position, PublishError, Retention, Topic, TopicConfig};

use crate::clock::now_ns;
use crate::error::TopicError;
use crate::node::Node;
pub(super) use past::{Past, is_past};

/// The topic's name. The bytes of its records are those of [`dunlin_control::Events`].
pub const KV: &str = "$kv";

/// The largest record: what one revision changes.
const RECORD_BYTES_MAX: u32 = 64 << 20;
/// Changes of a snapshot are added so many bytes at a time.
const TOGETHER_BYTES: usize = 1 << 20;
/// A change of so many bytes is added alone: it is not copied then, while subscribers wait for the log.
const ALONE_BYTES: usize = 256 << 10;

/// The end at which the topic is written.
#[derive(Debug)]
pub(super) struct History {
    topic: Arc<Topic>,
    epoch: u32,
    /// Snapshots hold the changes, too.
    is_kept: bool,
}

impl History {
    /// Makes the topic; in epoch 0 until it is known which there is. `is_kept`: snapshots are to hold the changes, too.
    pub(super) fn open(node: &Node, bytes: u64, is_kept: bool) -> Result<History, TopicError> {
        let retention = Retention { bytes, records: None, age: None };
        let config = TopicConfig { retention, record_bytes_max: RECORD_BYTES_MAX, ..TopicConfig::default() };
        let topic = node.create_at(KV, config, 0)?;
        // A watch may come from a node that is further on, or from this one before it was started again.
        topic.logs()[0].set_replicated(true);
        Ok(History { topic, epoch: 0, is_kept })
    }

    /// There is no other node, and this one has applied its log: nobody can have read more than there is here.
    pub(super) fn is_nowhere_else(node: &Node) {
        if let Some(topic) = node.registry().get(KV) {
            topic.logs()[0].set_replicated(false);
        }
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

    /// The changes that are held now, if snapshots are to hold them.
    pub(super) fn freeze(&self) -> Option<Past> {
        let log = &self.topic.logs()[0];
        self.is_kept.then(|| Past::of(Arc::clone(log), log.last()))
    }

    /// A snapshot of this epoch and revision was restored, which holds these changes. Watches miss only what is neither held here nor
    /// in the snapshot.
    pub(super) fn restore(&mut self, epoch: u32, revision: u64, blocks: &[Bytes]) {
        self.epoch = epoch;
        let mut past = past::changes(epoch, blocks);
        let last = past.last().map(|change| change.revision);
        let first = past.first().map(|change| change.revision).filter(|_| last == Some(revision));
        let held = Some(self.topic.logs()[0].last()).filter(|last| last.epoch == epoch).map(|last| last.seq);
        match (first, held) {
            (_, Some(held)) if held == revision => {}
            (Some(first), Some(held)) if (first..=revision).contains(&(held + 1)) => {
                past.retain(|change| change.revision > held);
                self.record_some(past);
            }
            (Some(first), _) => {
                self.move_on(epoch, first - 1);
                self.record_some(past);
            }
            (None, _) => self.move_on(epoch, revision),
        }
    }

    /// [`History::record`] of many: a batch is as long as what changes share on their way here.
    fn record_some(&self, past: Vec<Change>) {
        let mut together = Vec::new();
        let mut bytes = 0;
        for change in past {
            bytes += change.bytes.len();
            together.push(change);
            if bytes >= TOGETHER_BYTES {
                self.record(&mut together);
                bytes = 0;
            }
        }
        self.record(&mut together);
    }

    /// Adds revisions, all at once if they fit: who reads is woken once. Where one finds no room, its readers are told a gap.
    pub(super) fn record(&self, changes: &mut Vec<Change>) {
        let Some(last) = changes.last().map(|change| change.revision) else { return };
        let is_large = changes.iter().any(|change| change.bytes.len() >= ALONE_BYTES);
        let drafts = changes.iter().map(|change| Draft::from(change.bytes.as_slice()));
        match !is_large && self.append(drafts, last) {
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
