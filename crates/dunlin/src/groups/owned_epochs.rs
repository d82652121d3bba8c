//! Decides from which epochs of a log a group at this node may deliver records.
//!
//! A group delivers only records of epochs in which this node owns the topic. When the topic moves to another owner,
//! this node's log becomes a mirror and receives records of the next owner's epoch, even before this node has ended the
//! group. The group at the next owner delivers these records, so this group must not read them.

use std::sync::Arc;

use dunlin_topic::Log;

#[derive(Debug)]
pub(super) struct OwnedEpochs {
    /// The topic's log. The group's cursor may read another log: a mirror that serves only this cursor.
    log: Arc<Log>,
    /// The newest epoch in which, as far as the group knows, this node owns the topic.
    through: u32,
    /// If the topic has moved to another owner, the last epoch whose records the group still delivers.
    last: Option<u32>,
}

impl OwnedEpochs {
    pub(super) fn new(log: &Arc<Log>) -> OwnedEpochs {
        OwnedEpochs { log: Arc::clone(log), through: log.owned_through(), last: None }
    }

    /// Limits the group to the epochs through `last`, because the topic has moved to another owner.
    pub(super) fn end_after(&mut self, last: u32) {
        self.last = Some(last);
    }

    /// Whether the topic has moved to another owner. The group then delivers only the records that remain at this node.
    pub(super) fn is_ending(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the topic has moved to another owner, and `epoch` is later than the last epoch that the group delivers.
    pub(super) fn has_ended_before(&self, epoch: u32) -> bool {
        self.last.is_some_and(|last| epoch > last)
    }

    /// The newest epoch whose records the group may deliver.
    pub(super) fn newest(&self) -> u32 {
        self.last.unwrap_or(self.through)
    }

    /// Like [`newest`](OwnedEpochs::newest), but first reads from the log whether this node owns the topic in a newer
    /// epoch.
    pub(super) fn refresh(&mut self) -> u32 {
        if self.last.is_none() {
            self.through = self.through.max(self.log.owned_through());
        }
        self.newest()
    }

    /// Whether the group may deliver records of this epoch.
    pub(super) fn includes(&mut self, epoch: u32) -> bool {
        epoch <= self.newest() || epoch <= self.refresh()
    }
}
