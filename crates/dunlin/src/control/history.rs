//! The topic of key changes: one record for each revision, on every node.

mod past;

use std::sync::Arc;

use bytes::Bytes;
use dunlin_control::Change;
use dunlin_topic::{Draft, Position, PublishError, Retention, Topic, TopicConfig};

use crate::clock::now_ns;
use crate::error::TopicError;
use crate::node::Node;
pub(super) use past::{PastChanges, is_past};

/// The topic's name. Its records are decoded by [`dunlin_control::KeyEvents`].
pub const KV: &str = "$kv";

/// The largest record, which holds the changes of one revision, in bytes.
const RECORD_BYTES_MAX: u32 = 64 << 20;
/// The size in bytes above which a batch of past changes is appended and a new batch begins.
const TOGETHER_BYTES: usize = 1 << 20;
/// A change of at least this size, in bytes, is appended alone and without a copy. Subscribers wait for the log while a
/// change is copied.
const ALONE_BYTES: usize = 256 << 10;

/// Writes the changes of keys to the topic [`KV`].
#[derive(Debug)]
pub(super) struct ChangeHistory {
    topic: Arc<Topic>,
    epoch: u32,
    /// Whether snapshots contain the changes.
    is_kept: bool,
}

impl ChangeHistory {
    /// Creates the topic. It is in epoch 0 until the epoch is known. With `is_kept`, snapshots contain the changes.
    pub(super) fn open(node: &Node, bytes: u64, is_kept: bool) -> Result<ChangeHistory, TopicError> {
        let retention = Retention { bytes, records: None, age: None };
        let config = TopicConfig { retention, record_bytes_max: RECORD_BYTES_MAX, ..TopicConfig::default() };
        let topic = node.create_at(KV, config, 0)?;
        // A watch may have read later records at another node, or at this node before a restart.
        topic.logs()[0].set_replicated(true);
        Ok(ChangeHistory { topic, epoch: 0, is_kept })
    }

    /// Marks the topic as unreplicated. This is correct if no other node exists and this node has applied its log: then
    /// no subscriber can have read further.
    pub(super) fn mark_unreplicated(node: &Node) {
        if let Some(topic) = node.registry().get(KV) {
            topic.logs()[0].set_replicated(false);
        }
    }

    /// Removes the topic.
    pub(super) fn close(node: &Node) {
        node.registry().remove(KV);
    }

    /// Moves the topic to the revision after `revision` in this epoch. Its subscribers receive a gap or the notice of a
    /// new epoch.
    pub(super) fn move_on(&mut self, epoch: u32, revision: u64) {
        self.epoch = epoch;
        self.topic.logs()[0].move_on(Position { epoch, seq: revision + 1 });
    }

    /// The changes that the topic retains, if snapshots contain them.
    pub(super) fn freeze(&self) -> Option<PastChanges> {
        let log = &self.topic.logs()[0];
        self.is_kept.then(|| PastChanges::of(Arc::clone(log), log.last()))
    }

    /// Adds the changes of a restored snapshot with this epoch and revision. Watches miss only changes that neither
    /// this node nor the snapshot holds.
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

    /// Like [`ChangeHistory::record`], but appends the changes in batches of [`TOGETHER_BYTES`].
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

    /// Appends the changes of several revisions, if possible as one batch, so that subscribers are notified once. If a
    /// revision does not fit, subscribers receive a gap.
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

    /// Appends the records. Returns `false` if the log has no room for them.
    fn append<'d>(&self, drafts: impl Iterator<Item = Draft<'d>> + Clone, last: u64) -> bool {
        match self.topic.append_drafts(now_ns(), 0, false, drafts) {
            Ok(receipt) => {
                assert_eq!(receipt.position.seq, last, "a revision is its record's sequence number")
            }
            // Nothing to do: the node has stopped, and all its subscribers have ended.
            Err(PublishError::Closed) => {}
            Err(_no_room) => return false,
        }
        true
    }
}
