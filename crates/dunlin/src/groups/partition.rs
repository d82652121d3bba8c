//! The part of a group that belongs to one partition of the topic: the position in the log, and the state machine.

use std::sync::Arc;

use dunlin_topic::{
    ConsumeMode, Cursor, EpochChanged, Log, Notice, Position, ReadOutcome, SkipBudget, Start, SubscribeError,
    SubscribeOptions,
};

use super::dead_letters::LetterQueue;
use super::delivered::DeliveredRanges;
use super::machine::GroupMachine;
use super::options::EarlierMembership;
use super::owned_epochs::OwnedEpochs;
use super::reader::GroupReader;

/// How long a group that could not read a record waits before it tries again, ns.
const READ_RETRY_NS: u64 = 100_000_000;

/// A group's state for one partition of its topic.
#[derive(Debug)]
pub(super) struct GroupPartition<M> {
    pub(super) cursor: Cursor,
    pub(super) machine: M,
    /// The position of the first record that the group delivers.
    first: Position,
    /// The records that earlier groups with this name have delivered.
    pub(super) delivered_before: DeliveredRanges,
    /// Whether the log was deleted and the group has read it to its end.
    pub(super) ended: bool,
    /// Dead letters that were taken from the state machine, and whose storage is not confirmed.
    pub(super) letters: LetterQueue,
    pub(super) epochs: OwnedEpochs,
    /// If a record could not be read, the time until which members receive no records.
    paused_until_ns: Option<u64>,
}

/// Creates the cursor with which a group reads one log.
pub(super) fn cursor(log: &Arc<Log>, options: &SubscribeOptions) -> Result<Cursor, SubscribeError> {
    Cursor::new(Arc::clone(log), options, None, ConsumeMode::Explicit)
}

/// Creates the cursor of a new group whose first member was in a group with this name before, at this owner or at
/// another one. If the member left that group before [`Log::process_start`], the cursor starts at that position,
/// otherwise at the next record.
///
/// The cursor skips records between the epoch in which the member left and the cursor's first record. The skipped
/// records were published at other owners, or at this node before its restart. Other groups with this name may have
/// delivered these records, so this group does not deliver them. A notice reports that the group may have missed them.
pub(super) fn cursor_after(
    log: &Arc<Log>,
    options: &SubscribeOptions,
    earlier: EarlierMembership,
    notices: &mut Vec<Notice>,
) -> Result<Cursor, SubscribeError> {
    let epoch = earlier.epoch;
    loop {
        let first = earlier.is_before_start_of(log).then(|| log.process_start());
        let before = |first: Position| Start::After(Position { seq: first.seq - 1, ..first });
        let start = first.map_or(Start::Latest, before);
        let cursor = cursor(log, &SubscribeOptions { start, ..options.clone() })?;
        // If a later epoch has begun meanwhile, start again, because the group has to deliver all records of that
        // epoch.
        if first.is_some() || cursor.next().epoch <= epoch {
            notices.extend(first.and_then(|first| skipped_epochs(log, epoch, first)));
            return Ok(cursor);
        }
    }
}

/// Returns the notice that the group continues with `new_first` after the records of `epoch`. Returns `None` if the log
/// knows of no records in between.
fn skipped_epochs(log: &Log, epoch: u32, new_first: Position) -> Option<Notice> {
    let skipped = log.first_after_epoch(epoch).filter(|first| *first < new_first)?;
    let (log, last_seen) = (Arc::clone(log.name()), skipped.seq.saturating_sub(1));
    let changed = EpochChanged { log, old: epoch, last_seen, known_through: None, new_first };
    (skipped.seq != new_first.seq).then_some(Notice::EpochChanged(changed))
}

impl<M: GroupMachine> GroupPartition<M> {
    /// Creates the state for the partition `log`. `cursor` reads `log`, or a mirror that serves only this group.
    pub(super) fn new(
        log: &Arc<Log>,
        mut cursor: Cursor,
        machine: impl Fn(u64) -> M,
        notices: &mut Vec<Notice>,
    ) -> Result<GroupPartition<M>, SubscribeError> {
        let epochs = OwnedEpochs::new(log);
        // If the group starts in a past epoch, move on to the present one. The first member receives the notice of the
        // new epoch.
        if cursor.next().epoch != cursor.log().last().epoch
            && cursor.next().epoch < epochs.newest()
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
            epochs,
            paused_until_ns: None,
        })
    }

    /// Delivers no records to members for [`READ_RETRY_NS`].
    pub(super) fn pause(&mut self, now_ns: u64) {
        self.paused_until_ns = Some(now_ns.saturating_add(READ_RETRY_NS));
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused_until_ns.is_some()
    }

    /// Ends the pause, the claims and the delays whose time has come. If it is unknown whether this node owned the
    /// topic in the cursor's epoch, checks this again.
    pub(super) fn tick(&mut self, now_ns: u64) {
        self.paused_until_ns = self.paused_until_ns.filter(|until_ns| now_ns < *until_ns);
        if self.is_at_next_owner() {
            self.epochs.refresh();
        }
        self.machine.tick(now_ns);
    }

    /// The time at which [`tick`](GroupPartition::tick) next has something to do; `None` if there is no such time.
    pub(super) fn next_tick_ns(&self) -> Option<u64> {
        self.machine.next_tick_ns().into_iter().chain(self.paused_until_ns).min()
    }

    /// Called when a returning member joins: one that was in a group with this name before. If the member left before
    /// [`Log::process_start`], the group then delivers all records since that start, even those before the group's
    /// first record. Records from before that start are not added, because another group may have delivered them.
    pub(super) fn include_records_after(&mut self, earlier: EarlierMembership) {
        let log = self.cursor.log();
        let (start, is_before) = (log.process_start(), earlier.is_before_start_of(log));
        let begins_later = self.first.epoch == start.epoch && self.first.seq > start.seq;
        if !is_before || !begins_later || !self.epochs.includes(start.epoch) {
            return;
        }
        let missing = self.delivered_before.missing(start.epoch, start.seq, self.first.seq - 1);
        missing.into_iter().for_each(|(first, last)| self.machine.add_earlier(first, last));
        self.first = start;
    }

    /// The records of the group's first epoch that were delivered by this group or by earlier groups with its name.
    /// Called only for a group without members.
    pub(super) fn delivered_ranges(&self) -> DeliveredRanges {
        self.delivered_before.with(self.first.epoch, self.machine.delivered_ranges(self.first.seq))
    }

    /// Returns the reader of the log, and the state machine that takes records from the reader.
    pub(super) fn reader<'a>(&'a mut self, skips: &'a mut SkipBudget) -> (GroupReader<'a>, &'a mut M) {
        let GroupPartition { cursor, machine, ended, epochs, .. } = self;
        (GroupReader::new(cursor, ended, epochs, skips), machine)
    }

    pub(super) fn has_more(&self) -> bool {
        let has_unread = || self.can_read() && !self.is_at_next_owner() && self.cursor.may_have_more();
        !self.is_paused() && (self.machine.has_ready_record() || has_unread())
    }

    /// Whether the log has unread records, but only records of another owner's epoch.
    pub(super) fn has_only_foreign_records(&self) -> bool {
        self.is_at_next_owner() && self.cursor.may_have_more()
    }

    /// Whether the next record belongs to an epoch in which, as far as the group knows, another node owns the topic. If
    /// the group is right and the topic has moved, the group will soon be ended.
    fn is_at_next_owner(&self) -> bool {
        self.cursor.next().epoch > self.epochs.newest()
    }

    /// Whether the group can take more records from the log.
    pub(super) fn can_read(&self) -> bool {
        self.machine.can_read() && !self.ended && !self.is_paused() && !self.is_past_last_epoch()
    }

    /// Whether the topic has moved to another owner, and the group has taken all its remaining records from the log.
    pub(super) fn is_past_last_epoch(&self) -> bool {
        self.epochs.has_ended_before(self.cursor.next().epoch)
    }

    /// The newest epoch from which the group has taken records.
    pub(super) fn epoch(&self) -> u32 {
        self.cursor.next().epoch.min(self.epochs.newest())
    }

    /// Whether the log has ended and no record of the partition will be delivered any more.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.machine.is_settled()
    }

    pub(super) fn waiting(&self) -> u64 {
        let last = self.cursor.log().last().seq;
        last.saturating_sub(self.position()).saturating_sub(self.machine.claims().into())
    }

    /// The highest sequence number up to which all records are settled or have expired.
    fn position(&self) -> u64 {
        let position = self.machine.position();
        if position < self.machine.fed_through() {
            return position;
        }
        // All records that were taken from the log are settled. The records that the cursor has skipped after them have
        // expired.
        position.max(self.cursor.next().seq - 1)
    }

    /// The number of the partition's dead letters whose storage is not confirmed.
    pub(super) fn dead_letters(&self) -> usize {
        self.letters.len() + self.machine.dead_letters()
    }

    /// Drops all dead letters whose storage is not confirmed. Returns their number.
    pub(super) fn drop_dead_letters(&mut self) -> u64 {
        let of_machine = std::iter::from_fn(|| self.machine.take_dead_letter()).count();
        self.letters.drop_all() + of_machine as u64
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
