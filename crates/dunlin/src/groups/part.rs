//! One partition of a group's topic: where the group stands in its log, and the state machine.

use dunlin_topic::{Cursor, DeadLetter, Fill, Notice, SubscribeError};

use super::feed::Feed;
use super::machine::Machine;

/// One partition.
#[derive(Debug)]
pub(super) struct Part<M> {
    pub(super) cursor: Cursor,
    pub(super) machine: M,
    /// The log was deleted, and read to its end.
    pub(super) ended: bool,
    /// Taken from the state machine, and refused for now by the topic that dead letters go to.
    pub(super) pending: Option<DeadLetter>,
}

impl<M: Machine> Part<M> {
    pub(super) fn new(
        mut cursor: Cursor,
        machine: impl Fn(u64) -> M,
        notices: &mut Vec<Notice>,
    ) -> Result<Part<M>, SubscribeError> {
        // A start in an epoch that is over goes on in the one that is, which the first member is told.
        if cursor.next().epoch != cursor.log().last().epoch
            && let Fill::Notice(changed) = cursor.fill()
        {
            notices.push(changed);
        }
        let machine = machine(cursor.next().seq - 1);
        Ok(Part { cursor, machine, ended: false, pending: None })
    }

    /// The log, as the group is fed with it, and the group.
    pub(super) fn feed(&mut self) -> (Feed<'_>, &mut M) {
        (Feed::new(&mut self.cursor, &mut self.ended), &mut self.machine)
    }

    pub(super) fn has_more(&self) -> bool {
        self.machine.has_ready() || self.machine.may_look() && !self.ended && self.cursor.may_have_more()
    }

    /// Nothing will ever come from it.
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
