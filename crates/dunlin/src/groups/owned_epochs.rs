//! Decides from which epochs of a log a group at this node may deliver records.
//!
//! A group belongs to the topic's owner. When the topic moves, records of the next owner's epoch reach this node's log
//! as soon as the log is a mirror, which is before the node has ended the group. The group at the next owner delivers
//! them, so this group must not read them.

use std::sync::Arc;

use dunlin_topic::Log;

#[derive(Debug)]
pub(super) struct OwnedEpochs {
    /// The log of the topic. The group's cursor may read another log: the private mirror of a single subscriber.
    log: Arc<Log>,
    /// The newest epoch in which this node is known to own the topic.
    through: u32,
    /// The last epoch whose records the group still reads at this node after its topic has moved; `None` if this node
    /// owns the topic.
    last: Option<u32>,
}

impl OwnedEpochs {
    pub(super) fn new(log: &Arc<Log>) -> OwnedEpochs {
        OwnedEpochs { log: Arc::clone(log), through: log.owned_through(), last: None }
    }

    /// Limits the group to the epochs through `last`, because its topic has moved.
    pub(super) fn end_after(&mut self, last: u32) {
        self.last = Some(last);
    }

    /// Whether the topic has moved and the group only delivers the remaining records.
    pub(super) fn is_ending(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the topic has moved and this epoch comes after the last one that the group still reads.
    pub(super) fn has_ended_before(&self, epoch: u32) -> bool {
        self.last.is_some_and(|last| epoch > last)
    }

    /// The newest epoch whose records the group may deliver.
    pub(super) fn newest(&self) -> u32 {
        self.last.unwrap_or(self.through)
    }

    /// Like [`newest`](OwnedEpochs::newest), but also asks the log, which may have begun an epoch that the group has
    /// not read yet.
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
