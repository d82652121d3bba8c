//! One partition of a group: the position in its log, and the state machine.

use std::sync::Arc;

use dunlin_topic::{
    ConsumeMode, Cursor, DeadLetter, Log, Notice, Position, ReadOutcome, Start, SubscribeError,
    SubscribeOptions,
};

use super::feed::GroupReader;
use super::machine::GroupMachine;

/// One partition of a group.
#[derive(Debug)]
pub(super) struct GroupPartition<M> {
    pub(super) cursor: Cursor,
    pub(super) machine: M,
    /// Whether the log was deleted and read to its end.
    pub(super) ended: bool,
    /// A dead letter that its topic has refused for now.
    pub(super) pending: Option<DeadLetter>,
    /// After the topic has moved, the last epoch that the group reads here.
    pub(super) last_epoch: Option<u32>,
}

/// A cursor of a group in one log.
pub(super) fn cursor(log: &Arc<Log>, options: &SubscribeOptions) -> Result<Cursor, SubscribeError> {
    Cursor::new(Arc::clone(log), options, None, ConsumeMode::Explicit)
}

/// A cursor after all records of an epoch: at the next epoch or, if this epoch continues, at the next record.
pub(super) fn cursor_after(
    log: &Arc<Log>,
    options: &SubscribeOptions,
    epoch: u32,
) -> Result<Cursor, SubscribeError> {
    loop {
        let is_over = log.last().epoch > epoch;
        // A position after every possible record of the epoch.
        let end = Position { epoch, seq: u64::MAX - 1 };
        let start = if is_over { Start::After(end) } else { Start::Latest };
        let cursor = cursor(log, &SubscribeOptions { start, ..options.clone() })?;
        // The next epoch may have begun in between, with records that belong to the group.
        if is_over || cursor.next().epoch <= epoch {
            return Ok(cursor);
        }
    }
}

impl<M: GroupMachine> GroupPartition<M> {
    pub(super) fn new(
        mut cursor: Cursor,
        machine: impl Fn(u64) -> M,
        notices: &mut Vec<Notice>,
    ) -> Result<GroupPartition<M>, SubscribeError> {
        // A start in a past epoch continues in the present one. The first member receives the notice.
        if cursor.next().epoch != cursor.log().last().epoch
            && let ReadOutcome::Notice(changed) = cursor.fill()
        {
            notices.push(changed);
        }
        let machine = machine(cursor.next().seq - 1);
        Ok(GroupPartition { cursor, machine, ended: false, pending: None, last_epoch: None })
    }

    /// The reader of the log, and the state machine.
    pub(super) fn feed(&mut self) -> (GroupReader<'_>, &mut M) {
        (GroupReader::new(&mut self.cursor, &mut self.ended, self.last_epoch), &mut self.machine)
    }

    pub(super) fn has_more(&self) -> bool {
        self.machine.has_ready() || self.may_look() && self.cursor.may_have_more()
    }

    /// Whether the group reads more of the log.
    pub(super) fn may_look(&self) -> bool {
        self.machine.may_look() && !self.ended && !self.is_past_last_epoch()
    }

    /// Whether the group has received all records that remain here of a topic that moved.
    pub(super) fn is_past_last_epoch(&self) -> bool {
        self.last_epoch.is_some_and(|last| self.cursor.next().epoch > last)
    }

    /// The newest epoch from which the group received records.
    pub(super) fn epoch(&self) -> u32 {
        let epoch = self.cursor.next().epoch;
        self.last_epoch.map_or(epoch, |last| last.min(epoch))
    }

    /// Whether the partition can deliver no more records.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.machine.is_settled()
    }

    pub(super) fn waiting(&self) -> u64 {
        let last = self.cursor.log().last().seq;
        last.saturating_sub(self.machine.position()).saturating_sub(self.machine.claims().into())
    }

    pub(super) fn rest(&mut self) {
        self.cursor.release();
        if self.cursor.is_registered() {
            self.cursor.consume(self.machine.position());
        }
    }
}
