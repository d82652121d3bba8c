//! The topic of key changes, which has one record for each revision and is the same on every node.

mod past;

use std::sync::Arc;

use bytes::Bytes;
use dunlin_control::Change;
use dunlin_topic::{Draft, Position, PublishError, Retention, Topic, TopicConfig};

use crate::clock::now_ns;
use crate::error::TopicError;
use crate::node::Node;
pub(super) use past::{PastChanges, is_past};

/// The name of the topic of key changes. [`dunlin_control::KeyEvents`] decodes its records.
pub const KV: &str = "$kv";

/// The maximum size of a record, which contains all changes of one revision, in bytes.
const RECORD_BYTES_MAX: u32 = 64 << 20;
/// When the changes of a restored snapshot are appended, a batch ends once it has at least this size, in bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Changes of at least this size, in bytes, are appended one by one and without a copy. Changes in a batch are copied
/// while the log is locked, and subscribers have to wait for the lock.
const UNBATCHED_BYTES: usize = 256 << 10;

/// Writes the changes of keys to the topic [`KV`].
#[derive(Debug)]
pub(super) struct ChangeHistory {
    topic: Arc<Topic>,
    epoch: u32,
    /// Whether snapshots of the keys' state contain the changes.
    in_snapshots: bool,
}

impl ChangeHistory {
    /// Creates the topic [`KV`]. It is in epoch 0 until the cluster's epoch is known. If `in_snapshots` is set,
    /// snapshots contain the changes.
    pub(super) fn open(node: &Node, bytes: u64, in_snapshots: bool) -> Result<ChangeHistory, TopicError> {
        let retention = Retention { bytes, records: None, age: None };
        let config = TopicConfig { retention, record_bytes_max: RECORD_BYTES_MAX, ..TopicConfig::default() };
        let topic = node.create_system_topic(KV, config, 0)?;
        // A watch may already have read records that this log does not contain yet: at another node, or at this node
        // before a restart.
        topic.logs()[0].set_replicated(true);
        Ok(ChangeHistory { topic, epoch: 0, in_snapshots })
    }

    /// Marks the topic as unreplicated. Call this only after this node has applied its whole log, and only if no other
    /// node exists: under these conditions, no subscriber can have read records that this node lacks.
    pub(super) fn mark_unreplicated(node: &Node) {
        if let Some(topic) = node.registry().get(KV) {
            topic.logs()[0].set_replicated(false);
        }
    }

    /// Removes the topic [`KV`].
    pub(super) fn close(node: &Node) {
        node.registry().remove(KV);
    }

    /// Lets the topic continue with the revision after `revision` in this epoch. Subscribers receive a gap or the
    /// notice of a new epoch.
    pub(super) fn advance_to(&mut self, epoch: u32, revision: u64) {
        self.epoch = epoch;
        self.topic.logs()[0].reset_to(Position { epoch, seq: revision + 1 });
    }

    /// The changes in the topic's log, for a snapshot; `None` if snapshots do not contain changes.
    pub(super) fn freeze(&self) -> Option<PastChanges> {
        let log = &self.topic.logs()[0];
        self.in_snapshots.then(|| PastChanges::of(Arc::clone(log), log.last()))
    }

    /// Adds the changes in the blocks of a restored snapshot. `epoch` and `revision` are those of the snapshot's state.
    /// Watches miss only changes that neither this node nor the snapshot holds.
    pub(super) fn restore(&mut self, epoch: u32, revision: u64, blocks: &[Bytes]) {
        self.epoch = epoch;
        let mut past = past::changes(epoch, blocks);
        let last = past.last().map(|change| change.revision);
        let first = past.first().map(|change| change.revision).filter(|_| last == Some(revision));
        let last_held =
            Some(self.topic.logs()[0].last()).filter(|last| last.epoch == epoch).map(|last| last.seq);
        match (first, last_held) {
            (_, Some(last_held)) if last_held == revision => {}
            (Some(first), Some(last_held)) if (first..=revision).contains(&(last_held + 1)) => {
                past.retain(|change| change.revision > last_held);
                self.record_in_batches(past);
            }
            (Some(first), _) => {
                self.advance_to(epoch, first - 1);
                self.record_in_batches(past);
            }
            (None, _) => self.advance_to(epoch, revision),
        }
    }

    /// Like [`ChangeHistory::record`], but appends the changes in batches of [`BATCH_BYTES`].
    fn record_in_batches(&self, past: Vec<Change>) {
        let mut batch = Vec::new();
        let mut bytes = 0;
        for change in past {
            bytes += change.bytes.len();
            batch.push(change);
            if bytes >= BATCH_BYTES {
                self.record(&mut batch);
                bytes = 0;
            }
        }
        self.record(&mut batch);
    }

    /// Appends the changes of several revisions, if possible as one batch, so that subscribers are notified once. If a
    /// revision does not fit into the log, subscribers receive a gap instead of it.
    pub(super) fn record(&self, changes: &mut Vec<Change>) {
        let Some(last) = changes.last().map(|change| change.revision) else { return };
        let is_large = changes.iter().any(|change| change.bytes.len() >= UNBATCHED_BYTES);
        let drafts = changes.iter().map(|change| Draft::from(change.bytes.as_slice()));
        match !is_large && self.append(drafts, last) {
            true => changes.clear(),
            false => changes.drain(..).for_each(|change| self.record_one(change)),
        }
    }

    fn record_one(&self, change: Change) {
        let draft = std::iter::once(Draft::from(Bytes::from(change.bytes)));
        if !self.append(draft, change.revision) {
            let next = Position { epoch: self.epoch, seq: change.revision + 1 };
            self.topic.logs()[0].reset_to(next);
        }
    }

    /// Appends the records; `last` is the revision of the last one. Returns `false` if the log has no room for them.
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
