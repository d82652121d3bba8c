//! Cursors. A cursor is a subscriber's position in one log.
//!
//! To read, call [`Cursor::fill`], then walk over the records that the call found. Between reads, a cursor keeps its
//! position and the segment of the next record (a hint), but no buffer.
//!
//! A log has no index of its history, so a cursor with a filter checks every record. A call therefore skips only as
//! many records as its [`SkipBudget`] allows, and then returns [`ReadOutcome::Skipped`]. The caller first lets other
//! work of the thread run, and then calls again.

mod begin;
mod follower;
mod payload_filter;
mod select;
mod spans;
mod subject_sleep;
mod walk;

use std::sync::Arc;

use crate::event::{Gap, Lagging, LogName, Notice, Position};
use crate::log::{CatchUpRequest, Log, Lookup, LossCause, MergedRecord, SleeperId, SubscriberId};
use crate::progress::SubscriberProgress;
use crate::segment::{PinnedSegment, Segment, SegmentFrames};
use crate::subscribe::{OnGap, SubscribeError};
use crate::wake::Waiter;

use follower::FollowerState;
pub use payload_filter::PayloadFilter;
pub use select::{Filter, SkipBudget};
use select::{RecordVerdict, Selector};
pub use spans::{RecordSpan, RecordSpanContent, RecordSpans};

/// The result of [`Cursor::fill`]: records, a notice, skipped records, nothing to read yet, or the end of the log.
#[derive(Debug)]
pub enum ReadOutcome {
    /// There is at least one record to read.
    Records,
    /// The call has skipped as many records as its budget allows. There may be more to read, so the caller must call
    /// again, and must not treat the cursor as caught up.
    Skipped,
    /// There is nothing to read yet.
    Empty,
    /// There is a notice to deliver before the next record.
    Notice(Notice),
    /// The log has ended.
    Closed,
}

#[derive(Debug)]
enum Hint {
    None,
    /// The cursor knows the segment of the next record, but does not pin the segment, so the log may free the segment's
    /// buffer.
    Loose(Arc<Segment>),
    PinnedSegment(PinnedSegment),
    /// A record that was made for this subscriber alone: merged from several records, or with a reduced payload.
    MergedRecord(Box<MergedRecord>),
    /// The next record is on disk, but cannot be read at present. Each time a resource is available again, the store
    /// allows all such reads to be repeated. `retries` is how often the store had done so before this read.
    Deferred {
        retries: u64,
    },
}

/// Says when a record counts as consumed by a registered subscriber: as soon as the subscriber reads the next record,
/// or only after an explicit call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumeMode {
    /// When a record is read, all records before it are consumed.
    Reads,
    /// Records are consumed only when [`Cursor::consume`] is called.
    Explicit,
}

/// A subscriber's position in one log, and the means to read the log's records from there.
#[derive(Debug)]
pub struct Cursor {
    log: Arc<Log>,
    hint: Hint,
    next: Position,
    /// The position at which the cursor started. Set only if the subscriber requested no particular position and
    /// another process may own the log.
    default_start: Option<Position>,
    /// The number of skipped records directly before the next one. The next delivered record reports them in its
    /// `prev_seq`.
    skipped: u64,
    /// The offset of the next record in the segment that `hint` names.
    offset: u32,
    on_gap: OnGap,
    consumption: ConsumeMode,
    warned: bool,
    armed: Option<SleeperId>,
    ended: bool,
    /// Whether to read only records that this process holds, even if the log is a mirror.
    local_only: bool,
    /// Whether the owner keeps history for this subscriber if the cursor switches to a private mirror.
    keeps_history: bool,
    /// Whether the cursor counts as a subscriber of the log.
    is_subscribed: bool,
    subscriber: Option<SubscriberId>,
    select: Option<Box<Selector>>,
    /// The progress of the subscription, which operators can see. Set only for an in-process subscription that has a
    /// name.
    progress: Option<Arc<SubscriberProgress>>,
    follower: Option<Box<FollowerState>>,
}

impl Cursor {
    /// Replaces the filter. A cursor that follows the log's state receives all subjects: for such a cursor, the call
    /// changes nothing, and returns `false` if `filter` is set.
    pub fn set_filter(&mut self, filter: Option<Filter>) -> bool {
        if self.follower.is_some() {
            return filter.is_none();
        }
        self.discard_reduced_copy();
        self.end_subject_sleep();
        let before = self.select.as_mut().and_then(|select| select.filter.take());
        if self.is_subscribed {
            self.log.subscribers.add(filter.as_ref(), self.local_only);
            self.log.subscribers.remove(before.as_ref(), self.local_only);
        }
        let mut select = self.select.take().unwrap_or_default();
        (select.filter, select.subject_sleep) = (filter, None);
        self.select = (!select.is_empty()).then_some(select);
        true
    }

    /// The log that the cursor reads.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Position of the next record.
    pub fn next(&self) -> Position {
        self.next
    }

    /// Number of unread records; 0 if the log is in another epoch than the cursor.
    pub fn lag(&self) -> u64 {
        let last = self.log.last();
        if last.epoch == self.next.epoch { (last.seq + 1).saturating_sub(self.next.seq) } else { 0 }
    }

    /// Finds the next records, or the next notice. After [`ReadOutcome::Records`], the segment stays pinned until the
    /// caller has walked over all records, or calls [`release`](Cursor::release). After [`ReadOutcome::Skipped`], no
    /// segment is pinned.
    #[inline(always)]
    pub fn fill(&mut self) -> ReadOutcome {
        self.fill_within(&mut SkipBudget::default())
    }

    /// Like [`fill`](Cursor::fill), but with a budget that several reads share.
    #[inline(always)]
    pub fn fill_within(&mut self, skips: &mut SkipBudget) -> ReadOutcome {
        loop {
            if let Hint::PinnedSegment(pinned) = &mut self.hint {
                if self.offset < pinned.length().bytes || self.offset < pinned.refresh().bytes {
                    if self.select.is_none()
                        || self.skip_unselected(skips) && self.apply_payload_filter(skips)
                    {
                        return ReadOutcome::Records;
                    }
                    if skips.is_spent() {
                        self.release();
                        return ReadOutcome::Skipped;
                    }
                    continue;
                }
                self.release();
            }
            match self.fill_slow_path(skips) {
                Some(fill) => return fill,
                None => continue,
            }
        }
    }

    /// Continues [`Cursor::fill`] if its fast path does not apply. `None` means that the caller has to repeat the fast
    /// path.
    fn fill_slow_path(&mut self, skips: &mut SkipBudget) -> Option<ReadOutcome> {
        if let Hint::MergedRecord(merged) = &self.hint {
            let left = (self.offset as usize) < merged.frame.len();
            if left && (self.select.is_none() || self.skip_unselected(skips)) {
                return Some(ReadOutcome::Records);
            }
            self.finish_merged();
        }
        if self.follower.is_some()
            && let Some(fill) = self.follow()
        {
            // A merged record may have to be withheld for tests. The next iteration of the caller's loop checks this.
            let is_unchecked = self.select.is_some() && matches!(fill, ReadOutcome::Records);
            return (!is_unchecked).then_some(fill);
        }
        if let Hint::Loose(segment) = &self.hint {
            let commit = segment.commit();
            if self.offset == commit.bytes && !commit.sealed {
                self.warned = false;
                return Some(self.notice_or_empty());
            }
            if let Some(lagging) = self.warn() {
                return Some(ReadOutcome::Notice(Notice::Lagging(lagging)));
            }
            // A conflated cursor, too, reads record by record while there is nothing to merge.
            if self.offset < commit.bytes && self.pin() {
                return None;
            }
        }
        self.find()
    }

    #[inline]
    fn notice_or_empty(&mut self) -> ReadOutcome {
        if self.follower.is_none() {
            return ReadOutcome::Empty;
        }
        self.take_publisher_notice().or_else(|| self.take_checksum_notice()).unwrap_or(ReadOutcome::Empty)
    }

    /// Returns a lag warning, at most once until the cursor has caught up. Registered subscribers receive no warning,
    /// because they cannot lose records. The subscriber of a private mirror is an exception: it is registered at the
    /// mirror, but the owner may drop records before the mirror receives them.
    fn warn(&mut self) -> Option<Lagging> {
        if self.warned
            || self.is_conflated()
            || !self.log.should_warn(self.next.seq)
            || self.subscriber.is_some() && !self.log.is_private()
        {
            return None;
        }
        self.warned = true;
        self.progress.iter().for_each(|progress| progress.record_lag_warning());
        self.log.count_lag_warning(self.next)
    }

    fn pin(&mut self) -> bool {
        let Hint::Loose(segment) = std::mem::replace(&mut self.hint, Hint::None) else { return false };
        segment.prefetch(self.offset);
        match PinnedSegment::new(segment) {
            Ok(pinned) => {
                self.hint = Hint::PinnedSegment(pinned);
                true
            }
            Err(_retired) => false,
        }
    }

    #[cold]
    fn find(&mut self) -> Option<ReadOutcome> {
        self.hint = Hint::None;
        if self.ended {
            return Some(ReadOutcome::Closed);
        }
        if let Some(lagging) = self.warn() {
            return Some(ReadOutcome::Notice(Notice::Lagging(lagging)));
        }
        let subscriber = self.subscriber.filter(|_| self.consumption == ConsumeMode::Reads);
        let is_requested = self.default_start != Some(self.next);
        let found = match self.log.find(self.next, self.on_gap, subscriber) {
            Lookup::PrivateMirror
                if (is_requested || self.log.was_fed(self.next)) && self.switch_to_private_mirror() =>
            {
                return None;
            }
            Lookup::PrivateMirror => self.log.find_local(self.next, self.on_gap, is_requested),
            // A subscriber that requested no start position skips the records before the mirror's first record.
            Lookup::Skip(next) if !is_requested || self.log.is_private() => Lookup::Skip(next),
            Lookup::Skip(_) if self.switch_to_private_mirror() => return None,
            Lookup::Skip(next) => {
                let (log, Position { epoch, seq }) = (Arc::clone(self.log.name()), self.next);
                Lookup::Gap(Gap { log, epoch, first: seq, last: next.seq - 1 }, next)
            }
            found => found,
        };
        match self.skip_to_state(found) {
            Lookup::Segment(segment) => {
                let before = self.next.seq - segment.first_seq;
                self.offset = 0;
                self.hint = Hint::Loose(segment);
                if before > 0 && self.pin() {
                    self.offset = self.offset_after(before);
                    if self.is_conflated() {
                        self.release();
                    }
                }
                // If the segment's buffer is freed before the next iteration, a gap is reported then.
                None
            }
            Lookup::Nothing | Lookup::PrivateMirror => Some(self.notice_or_empty()),
            Lookup::Later { retries } => {
                self.hint = Hint::Deferred { retries };
                Some(ReadOutcome::Empty)
            }
            Lookup::Skip(next) => {
                self.skipped += next.seq - self.next.seq;
                self.next = next;
                self.update_progress();
                None
            }
            Lookup::Gap(mut gap, mut resume_at) => {
                // The publisher may have overtaken the cursor since the last check for a warning. In this case, the
                // warning is delivered before the gap.
                if let Some(lagging) = self.warn() {
                    return Some(ReadOutcome::Notice(Notice::Lagging(lagging)));
                }
                let since = Position { epoch: gap.epoch, seq: gap.first - 1 };
                if (self.on_gap == OnGap::Snapshot || self.is_conflated())
                    && let Some(next) = self.find_state(CatchUpRequest::Since(since))
                {
                    resume_at = next;
                    gap.last = next.seq - 1;
                }
                (self.next, self.skipped) = (resume_at, 0);
                self.ended = self.on_gap == OnGap::Fail;
                self.log.count_gap(&gap);
                self.progress.iter().for_each(|progress| progress.record_missed(gap.records()));
                self.update_progress();
                Some(ReadOutcome::Notice(Notice::Gap(gap)))
            }
            Lookup::EpochChanged(mut changed) => {
                // A follower receives the newest state instead of the records at the end of the old epoch. The end of a
                // deleted topic is no loss.
                let follows_state = self.on_gap == OnGap::Snapshot || self.is_conflated();
                if changed.old > 0 && !follows_state && !self.log.lacks_end() {
                    let first = Position { epoch: changed.old, seq: changed.last_seen + 1 };
                    self.log.record_loss(LossCause::Restart, first, changed.known_through);
                }
                // If no record is missing between the old and the new epoch, the follower's copy of the state stays
                // valid.
                let is_complete = changed.known_through == Some(changed.last_seen)
                    && changed.new_first.seq == changed.last_seen + 1;
                if !is_complete
                    && !self.log.lacks_end()
                    && let Some(next) = self.find_state(CatchUpRequest::State)
                {
                    changed.new_first = next;
                }
                (self.next, self.skipped) = (changed.new_first, 0);
                self.update_progress();
                Some(ReadOutcome::Notice(Notice::EpochChanged(changed)))
            }
            Lookup::Closed => {
                self.ended = true;
                let last =
                    self.log.last().min(Position { seq: self.next.seq.saturating_sub(1), ..self.next });
                Some(ReadOutcome::Notice(Notice::Deleted { log: Arc::clone(self.log.name()), last }))
            }
        }
    }

    /// The size of the first `frames` frames in the pinned segment, bytes.
    fn offset_after(&self, frames: u64) -> u32 {
        let Hint::PinnedSegment(pinned) = &self.hint else { return 0 };
        pinned.frames(0).take(frames as usize).map(|entry| entry.bytes.len() as u32).sum()
    }

    /// The frames of the present segment or merged record, from the cursor's position on.
    #[inline(always)]
    fn frames(&self) -> Option<SegmentFrames<'_>> {
        match &self.hint {
            Hint::PinnedSegment(pinned) => Some(pinned.frames(self.offset)),
            Hint::MergedRecord(merged) => Some(SegmentFrames::single(&merged.frame[self.offset as usize..])),
            Hint::None | Hint::Loose(_) | Hint::Deferred { .. } => None,
        }
    }

    /// If the next record is on disk and cannot be read at present, returns `retries` of [`Hint::Deferred`]; otherwise
    /// `None`. From this number, the log knows whether the read may be repeated.
    fn deferred_read_retries(&self) -> Option<u64> {
        match self.hint {
            Hint::Deferred { retries } => Some(retries),
            _ => None,
        }
    }

    /// Skips records that the subscriber does not receive, until the budget is spent. Returns whether a record that the
    /// subscriber receives is next.
    fn skip_unselected(&mut self, skips: &mut SkipBudget) -> bool {
        let (Some(frames), Some(select)) = (self.frames(), &self.select) else { return true };
        let (mut next, mut skipped) = (self.next.seq, self.skipped);
        let mut bytes = 0;
        let mut found = false;
        for entry in frames {
            match select.verdict(next, &entry.frame) {
                RecordVerdict::Selected => {
                    found = true;
                    break;
                }
                RecordVerdict::Skipped => skipped += 1,
                RecordVerdict::Lost => skipped = 0,
            }
            next += 1;
            bytes += entry.bytes.len() as u32;
            skips.count(entry.bytes.len() as u32);
            if skips.is_spent() {
                break;
            }
        }
        self.advance(next - self.next.seq, bytes);
        self.skipped = skipped;
        found
    }

    /// Ends a read: unpins the segment, so that the log can drop it.
    #[inline(always)]
    pub fn release(&mut self) {
        if let Hint::PinnedSegment(_) = &self.hint
            && let Hint::PinnedSegment(pinned) = std::mem::replace(&mut self.hint, Hint::None)
        {
            self.hint = Hint::Loose(pinned.release());
        }
    }

    /// Arms the cursor: `waiter` is notified with `token` when the next record or notice arrives. Returns `false` if
    /// there is already something to read.
    pub fn arm(&mut self, waiter: &Arc<Waiter>, token: u32) -> bool {
        self.release();
        if self.can_sleep_by_subject() {
            return self.arm_by_subject(waiter, token);
        }
        if self.armed.is_none() && !self.ended && self.can_deliver_pending() != Some(true) {
            let subscriber = self.subscriber.filter(|_| self.consumption == ConsumeMode::Reads);
            self.armed =
                self.log.arm(self.awaited(), waiter, token, subscriber, self.deferred_read_retries());
            if self.has_publisher_change() {
                // The notice became due before the cursor was armed, so nothing would wake the cursor. Disarm the
                // cursor again.
                self.disarm(waiter, token);
            }
        }
        self.armed.is_some()
    }

    /// Whether there may be something to read. Does not look beyond the current segment.
    #[inline(always)]
    pub fn may_have_more(&self) -> bool {
        if let Some(can_deliver) = self.can_deliver_pending() {
            return can_deliver;
        }
        self.may_have_records()
    }

    #[inline(always)]
    fn may_have_records(&self) -> bool {
        if self.select.is_some()
            && let Some(has_more) = self.has_more_by_subject()
        {
            return has_more;
        }
        match &self.hint {
            Hint::PinnedSegment(_) | Hint::MergedRecord(_) => true,
            Hint::Loose(segment) => {
                let commit = segment.commit();
                commit.bytes > self.offset || commit.sealed
            }
            Hint::Deferred { retries } => self.log.has_retried(*retries),
            Hint::None => self.ended || self.log.has_events(self.next),
        }
    }

    /// Whether the cursor has read all records that were there when it last looked.
    #[inline(always)]
    pub(crate) fn has_caught_up(&mut self) -> bool {
        let pinned = match &self.hint {
            Hint::PinnedSegment(pinned) => pinned,
            // The cursor counts as caught up, because its next read merges all records that have arrived by then.
            Hint::MergedRecord(_) => return true,
            Hint::None | Hint::Loose(_) | Hint::Deferred { .. } => return false,
        };
        let caught_up = self.offset == pinned.length().bytes && !pinned.length().sealed;
        self.warned &= !caught_up;
        caught_up
    }

    #[inline(always)]
    pub(crate) fn refresh(&mut self) {
        if let Hint::PinnedSegment(pinned) = &mut self.hint {
            pinned.refresh();
        }
    }

    /// Whether the cursor is armed: the next record notifies its waiter.
    pub fn is_armed(&self) -> bool {
        self.armed.is_some() || self.is_armed_by_subject()
    }

    /// Must be called after this cursor was notified: wakes further sleeping cursors of the log.
    pub fn handle_wake(&mut self) {
        self.handle_subject_wake();
        if self.armed.take().is_some() {
            self.log.wake_next_two();
        }
    }

    /// Like [`handle_wake`](Cursor::handle_wake), but wakes up to `wakes` further sleeping cursors. A listener's
    /// sessions use this method because they share threads: one thread can handle several wake-ups, so all sleepers
    /// wake sooner.
    pub fn handle_wake_many(&mut self, wakes: usize) {
        self.handle_subject_wake();
        if self.armed.take().is_some() {
            self.log.wake_next(wakes);
        }
    }

    /// Leaves the log, and removes the cursor from the log's list of sleepers immediately. If a cursor is dropped
    /// without this call, its entry stays in the list for some time.
    pub fn leave(&mut self, waiter: &Arc<Waiter>, token: u32) {
        self.disarm(waiter, token);
        self.unsubscribe();
        if let Some(subscriber) = self.subscriber.take() {
            self.log.unregister(subscriber);
        }
        self.hint = Hint::None;
        self.progress = None;
        self.ended = true;
    }

    fn unsubscribe(&mut self) {
        if std::mem::take(&mut self.is_subscribed) {
            let filter = self.select.as_ref().and_then(|select| select.filter.as_ref());
            self.log.subscribers.remove(filter, self.local_only);
        }
    }

    /// Unregisters the subscriber. The subscriber keeps its position, but may lose records, because publishers no
    /// longer wait for it.
    pub fn unregister(&mut self) {
        if let Some(subscriber) = self.subscriber.take() {
            self.log.unregister(subscriber);
        }
    }

    /// Registers the subscriber of a reliable topic under this name, at the cursor's position, so that publishers wait
    /// for it.
    ///
    /// # Errors
    /// [`SubscribeError::Limit`] if the maximum number of subscribers is already registered.
    pub fn register(&mut self, name: &str) -> Result<(), SubscribeError> {
        self.unregister();
        self.subscriber = self.log.register(name, self.next)?;
        Ok(())
    }

    /// Reports that a registered subscriber has consumed all records up to `seq`.
    pub fn consume(&self, seq: u64) {
        if let Some(subscriber) = self.subscriber {
            self.log.consume(subscriber, seq);
        }
    }

    /// Whether the cursor has ended because records were lost and the subscriber's options demand an end in this case.
    pub fn has_ended_at_gap(&self) -> bool {
        self.ended && self.on_gap == OnGap::Fail
    }

    /// Whether publishers wait for this cursor.
    pub fn is_registered(&self) -> bool {
        self.subscriber.is_some()
    }

    /// The topic and partition of the cursor's log.
    pub fn name(&self) -> &Arc<LogName> {
        self.log.name()
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.unsubscribe();
        drop(self.disarm_by_subject());
        if self.armed.take().is_some() {
            // The log wakes the first sleepers, and each woken cursor wakes the next ones. The log may have woken this
            // cursor just before the drop. The cursor therefore wakes the next ones here. This cursor's entry stays in
            // the list.
            self.log.wake_next_two();
        }
        if let Some(subscriber) = self.subscriber.take() {
            self.log.unregister(subscriber);
        }
    }
}
