//! One partition of a group: the position in its log, and the state machine.

use std::sync::Arc;

use dunlin_topic::{
    ConsumeMode, Cursor, Log, Notice, Position, ReadOutcome, SkipBudget, Start, SubscribeError,
    SubscribeOptions,
};

use super::dead_letters::LetterQueue;
use super::delivered::DeliveredRanges;
use super::machine::GroupMachine;
use super::reader::GroupReader;

/// The time after which a group reads a record again that it could not read, ns.
const READ_RETRY_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct GroupPartition<M> {
    pub(super) cursor: Cursor,
    pub(super) machine: M,
    /// The position of the first record that belongs to the group.
    first: Position,
    /// The records that earlier groups of this name have delivered.
    pub(super) delivered_before: DeliveredRanges,
    /// Whether the log was deleted and read to its end.
    pub(super) ended: bool,
    /// Dead letters that were taken from the state machine and may not be stored yet.
    pub(super) letters: LetterQueue,
    /// The last epoch whose records the group still reads at this node after its topic has moved; `None` if this node
    /// owns the topic.
    pub(super) last_epoch: Option<u32>,
    /// The time until which members receive no records, because the last one cannot be read at present.
    paused_until_ns: Option<u64>,
}

/// Creates a cursor with which a group reads one log.
pub(super) fn cursor(log: &Arc<Log>, options: &SubscribeOptions) -> Result<Cursor, SubscribeError> {
    Cursor::new(Arc::clone(log), options, None, ConsumeMode::Explicit)
}

/// Creates a cursor that skips all present records of an epoch. The cursor starts with the next epoch or, if this epoch
/// continues, with the next record.
pub(super) fn cursor_after(
    log: &Arc<Log>,
    options: &SubscribeOptions,
    epoch: u32,
) -> Result<Cursor, SubscribeError> {
    loop {
        let first = log.first_after_epoch(epoch);
        let before = |first: Position| Start::After(Position { seq: first.seq - 1, ..first });
        let start = first.map_or(Start::Latest, before);
        let cursor = cursor(log, &SubscribeOptions { start, ..options.clone() })?;
        // The next epoch may have begun in the meantime, and its records belong to the group.
        if first.is_some() || cursor.next().epoch <= epoch {
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
        // A group that starts in a past epoch continues in the present one. Its first member receives the notice of the
        // new epoch.
        if cursor.next().epoch != cursor.log().last().epoch
            && let ReadOutcome::Notice(changed) = cursor.fill()
        {
            notices.push(changed);
        }
        let first = cursor.next();
        let machine = machine(first.seq - 1);
        let delivered_before = DeliveredRanges::default();
        Ok(GroupPartition {
            cursor,
            machine,
            first,
            delivered_before,
            ended: false,
            letters: LetterQueue::new(),
            last_epoch: None,
            paused_until_ns: None,
        })
    }

    /// Lets members receive no records for [`READ_RETRY_NS`].
    pub(super) fn pause(&mut self, now_ns: u64) {
        self.paused_until_ns = Some(now_ns.saturating_add(READ_RETRY_NS));
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused_until_ns.is_some()
    }

    /// Handles what is due at this time: the end of a pause, of claims and of delays.
    pub(super) fn tick(&mut self, now_ns: u64) {
        self.paused_until_ns = self.paused_until_ns.filter(|until_ns| now_ns < *until_ns);
        self.machine.tick(now_ns);
    }

    /// The time of the next [`tick`](GroupPartition::tick); `None` if nothing will be due.
    pub(super) fn next_tick_ns(&self) -> Option<u64> {
        self.machine.next_tick_ns().into_iter().chain(self.paused_until_ns).min()
    }

    /// Called when a member joins that was in the group until `epoch`: all records of later epochs belong to the group.
    /// If the group began after the first records of the present epoch, adds these records. Records of epochs in
    /// between may have been delivered at another node.
    pub(super) fn include_epoch_after(&mut self, epoch: u32) {
        let start = self.cursor.log().epoch_start();
        if epoch >= start.epoch || self.first.epoch != start.epoch || self.first.seq <= start.seq {
            return;
        }
        let missing = self.delivered_before.missing(start.epoch, start.seq, self.first.seq - 1);
        missing.into_iter().for_each(|(first, last)| self.machine.add_earlier(first, last));
        self.first = start;
    }

    /// The records of the group's first epoch that this group and earlier groups of its name have delivered. Called
    /// only for a group without members.
    pub(super) fn delivered_ranges(&self) -> DeliveredRanges {
        self.delivered_before.with(self.first.epoch, self.machine.delivered_ranges(self.first.seq))
    }

    /// Returns the log's reader and the state machine. Both are needed to take records.
    pub(super) fn reader<'a>(&'a mut self, skips: &'a mut SkipBudget) -> (GroupReader<'a>, &'a mut M) {
        (GroupReader::new(&mut self.cursor, &mut self.ended, self.last_epoch, skips), &mut self.machine)
    }

    pub(super) fn has_more(&self) -> bool {
        !self.is_paused()
            && (self.machine.has_ready_record() || self.can_read() && self.cursor.may_have_more())
    }

    /// Whether the group accepts more records from the log.
    pub(super) fn can_read(&self) -> bool {
        self.machine.can_read() && !self.ended && !self.is_paused() && !self.is_past_last_epoch()
    }

    /// Whether a group whose topic has moved has received all records that remain at this node.
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
        last.saturating_sub(self.position()).saturating_sub(self.machine.claims().into())
    }

    /// The sequence number up to which all records are settled or have expired.
    fn position(&self) -> u64 {
        let position = self.machine.position();
        if position < self.machine.fed_through() {
            return position;
        }
        // All records that were taken are settled, and the cursor has passed only expired records since.
        position.max(self.cursor.next().seq - 1)
    }

    /// The number of dead letters of the partition that may not be stored yet.
    pub(super) fn dead_letters(&self) -> usize {
        self.letters.len() + self.machine.dead_letters()
    }

    pub(super) fn release(&mut self) {
        self.cursor.release();
        if self.cursor.is_registered() {
            // The log keeps the record of a dead letter until the letter is stored.
            let before_letter = self.letters.oldest_seq().map_or(u64::MAX, |seq| seq - 1);
            self.cursor.consume(self.position().min(before_letter));
        }
    }
}
