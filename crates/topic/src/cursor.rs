//! A reader's place in one log.
//!
//! Reading goes [`Cursor::fill`], then any of the walks over what it found. Between reads a cursor
//! holds a position and a hint; the buffer it read from may go.

mod begin;
mod following;
mod narrow;
mod select;
mod spans;
mod view;
mod walk;

use std::sync::Arc;

use crate::event::{Gap, Lagging, LogName, Notice, Position};
use crate::log::{Found, Log, Merged, Owed, ReaderId, SleeperId};
use crate::reading::Reading;
use crate::segment::{Frames, Pinned, Segment};
use crate::subscribe::{OnGap, SubscribeError};
use crate::wake::Waiter;

use following::Following;
pub use select::Filter;
use select::{Select, Verdict};
pub use spans::{Content, Span, Spans};
pub use view::View;

/// What a cursor has for its reader.
#[derive(Debug)]
pub enum Fill {
    /// At least one record, under the cursor.
    Records,
    /// Nothing now.
    Empty,
    /// Something else than a record.
    Notice(Notice),
    /// Nothing, ever again.
    Closed,
}

#[derive(Debug)]
enum Hint {
    None,
    /// The segment that holds the next record, or will; its buffer may be gone.
    Loose(Arc<Segment>),
    /// A read is in progress.
    Pinned(Pinned),
    /// One record that this reader alone is given: several merged into one, or one of which it is shown less.
    Merged(Box<Merged>),
}

/// Who says how far a registered reader has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumption {
    /// Reading on is consuming what was read.
    Reads,
    /// Whoever reads from the cursor calls [`Cursor::consume`].
    Told,
}

/// A place in one log.
#[derive(Debug)]
pub struct Cursor {
    log: Arc<Log>,
    hint: Hint,
    next: Position,
    /// Where it began without having asked for a place, in a log that may be another process's.
    unasked: Option<Position>,
    /// How many records before it were skipped, and not told of yet.
    skipped: u64,
    /// Where in the hint's segment `next` begins.
    offset: u32,
    on_gap: OnGap,
    consumption: Consumption,
    warned: bool,
    /// Where it sleeps.
    armed: Option<SleeperId>,
    ended: bool,
    /// Where the log is another process's, it reads what is here and nothing else.
    here: bool,
    /// It feeds a mirror of the log for all readers of another node.
    feeds_mirror: bool,
    /// It counts among the log's listeners.
    listens: bool,
    reader: Option<ReaderId>,
    select: Option<Box<Select>>,
    /// In process, of a subscription with a name: what operators see.
    reading: Option<Arc<Reading>>,
    following: Option<Box<Following>>,
}

impl Cursor {
    /// From here on it skips other subjects; `false`, and all as it was, where it follows the log's state: that is one of all.
    pub fn set_filter(&mut self, filter: Option<Filter>) -> bool {
        if self.following.is_some() {
            return filter.is_none();
        }
        self.forget_view();
        self.rouse_narrow();
        let before = self.select.as_mut().and_then(|select| select.filter.take());
        if self.listens {
            self.log.listeners.enter(filter.as_ref(), self.feeds_mirror);
            self.log.listeners.leave(before.as_ref(), self.feeds_mirror);
        }
        let mut select = self.select.take().unwrap_or_default();
        (select.filter, select.narrow) = (filter, None);
        self.select = (!select.is_empty()).then_some(select);
        true
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The record that will be read next.
    pub fn next(&self) -> Position {
        self.next
    }

    /// How many records lie ahead.
    pub fn behind(&self) -> u64 {
        let last = self.log.last();
        if last.epoch == self.next.epoch { (last.seq + 1).saturating_sub(self.next.seq) } else { 0 }
    }

    /// Looks for something to read. After [`Fill::Records`] the segment is pinned until the records
    /// were walked past or [`release`](Cursor::release) is called.
    #[inline(always)]
    pub fn fill(&mut self) -> Fill {
        loop {
            if let Hint::Pinned(pinned) = &mut self.hint {
                if self.offset < pinned.seen().bytes || self.offset < pinned.refresh().bytes {
                    if self.select.is_none() || self.skip_unselected() && self.show_view() {
                        return Fill::Records;
                    }
                    continue;
                }
                self.release();
            }
            match self.fill_slowly() {
                Some(fill) => return fill,
                None => continue,
            }
        }
    }

    /// `None` when there is a pinned segment to look at.
    fn fill_slowly(&mut self) -> Option<Fill> {
        if let Hint::Merged(merged) = &self.hint {
            let left = (self.offset as usize) < merged.frame.len();
            if left && (self.select.is_none() || self.skip_unselected()) {
                return Some(Fill::Records);
            }
            self.leave_merged();
        }
        if self.following.is_some()
            && let Some(fill) = self.follow()
        {
            return Some(fill);
        }
        if let Hint::Loose(segment) = &self.hint {
            let commit = segment.commit();
            if self.offset == commit.bytes && !commit.sealed {
                self.warned = false;
                return Some(self.empty());
            }
            if let Some(lagging) = self.warn() {
                return Some(Fill::Notice(Notice::Lagging(lagging)));
            }
            // A conflated reader comes here only where nothing can be merged any more: then it reads as others do.
            if self.offset < commit.bytes && self.pin() {
                return None;
            }
        }
        self.find()
    }

    #[inline]
    fn empty(&mut self) -> Fill {
        if self.following.is_none() {
            return Fill::Empty;
        }
        self.tell_publishers().or_else(|| self.check()).unwrap_or(Fill::Empty)
    }

    /// A warning, once until it has caught up. A registered reader cannot lose anything.
    fn warn(&mut self) -> Option<Lagging> {
        if self.warned || self.reader.is_some() || self.is_conflated() || !self.log.should_warn(self.next.seq)
        {
            return None;
        }
        self.warned = true;
        self.reading.iter().for_each(|reading| reading.lagging());
        self.log.lagging(self.next)
    }

    fn pin(&mut self) -> bool {
        let Hint::Loose(segment) = std::mem::replace(&mut self.hint, Hint::None) else { return false };
        segment.prefetch(self.offset);
        match Pinned::new(segment) {
            Ok(pinned) => {
                self.hint = Hint::Pinned(pinned);
                true
            }
            Err(_gone) => false,
        }
    }

    /// Asks the log for the place of `next`.
    #[cold]
    fn find(&mut self) -> Option<Fill> {
        self.hint = Hint::None;
        if self.ended {
            return Some(Fill::Closed);
        }
        if let Some(lagging) = self.warn() {
            return Some(Fill::Notice(Notice::Lagging(lagging)));
        }
        let reader = self.reader.filter(|_| self.consumption == Consumption::Reads);
        let is_asked = self.unasked != Some(self.next);
        let found = match self.log.find(self.next, self.on_gap, reader) {
            Found::Detour if is_asked && self.make_detour() => return None,
            Found::Detour => self.log.find_here(self.next, self.on_gap, is_asked),
            // What a mirror turns out to begin after is for no reader that named no place, nor has one yet.
            Found::Skip(next) if !is_asked || self.log.is_private() => Found::Skip(next),
            Found::Skip(_) if self.make_detour() => return None,
            Found::Skip(next) => {
                let (log, Position { epoch, seq }) = (Arc::clone(self.log.name()), self.next);
                Found::Gap(Gap { log, epoch, first: seq, last: next.seq - 1 }, next)
            }
            found => found,
        };
        match self.skip_to_state(found) {
            Found::Segment(segment) => {
                let before = self.next.seq - segment.first_seq;
                self.offset = 0;
                self.hint = Hint::Loose(segment);
                if before > 0 && self.pin() {
                    self.offset = self.offset_after(before);
                    if self.is_conflated() {
                        self.release();
                    }
                }
                // A buffer that went in between is found to be a gap in the next round.
                None
            }
            Found::Nothing | Found::Detour => Some(self.empty()),
            Found::Skip(next) => {
                self.skipped += next.seq - self.next.seq;
                self.next = next;
                self.show();
                None
            }
            Found::Gap(mut gap, mut go_on) => {
                // The publisher may have come round since the reader was last looked at.
                if let Some(lagging) = self.warn() {
                    return Some(Fill::Notice(Notice::Lagging(lagging)));
                }
                let since = Position { epoch: gap.epoch, seq: gap.first - 1 };
                if (self.on_gap == OnGap::Snapshot || self.is_conflated())
                    && let Some(next) = self.find_state(Owed::Since(since))
                {
                    go_on = next;
                    gap.last = next.seq - 1;
                }
                (self.next, self.skipped) = (go_on, 0);
                self.ended = self.on_gap == OnGap::Fail;
                self.log.count_gap(gap.records());
                self.reading.iter().for_each(|reading| reading.lost(gap.records()));
                self.show();
                Some(Fill::Notice(Notice::Gap(gap)))
            }
            Found::EpochChanged(mut changed) => {
                // Where nothing is missing between the epochs the state goes on.
                let whole = changed.known_through == Some(changed.last_seen)
                    && changed.new_first.seq == changed.last_seen + 1;
                if !whole && let Some(next) = self.find_state(Owed::State) {
                    changed.new_first = next;
                }
                (self.next, self.skipped) = (changed.new_first, 0);
                self.show();
                Some(Fill::Notice(Notice::EpochChanged(changed)))
            }
            Found::Closed => {
                self.ended = true;
                let last = self.log.last();
                Some(Fill::Notice(Notice::Deleted { log: Arc::clone(self.log.name()), last }))
            }
        }
    }

    /// The bytes that this many frames of the pinned segment take.
    fn offset_after(&self, frames: u64) -> u32 {
        let Hint::Pinned(pinned) = &self.hint else { return 0 };
        pinned.frames(0).take(frames as usize).map(|lying| lying.bytes.len() as u32).sum()
    }

    /// The frames under the cursor.
    #[inline(always)]
    fn frames(&self) -> Option<Frames<'_>> {
        match &self.hint {
            Hint::Pinned(pinned) => Some(pinned.frames(self.offset)),
            Hint::Merged(merged) => Some(Frames::of_one(&merged.frame[self.offset as usize..])),
            Hint::None | Hint::Loose(_) => None,
        }
    }

    /// Moves past what this reader is not to get; whether a wanted record is under the cursor.
    fn skip_unselected(&mut self) -> bool {
        let (Some(frames), Some(select)) = (self.frames(), &self.select) else { return true };
        let (mut next, mut skipped) = (self.next.seq, self.skipped);
        let mut bytes = 0;
        let mut found = false;
        for lying in frames {
            match select.judge(next, &lying.frame) {
                Verdict::Wanted => {
                    found = true;
                    break;
                }
                Verdict::Skipped => skipped += 1,
                Verdict::Lost => skipped = 0,
            }
            next += 1;
            bytes += lying.bytes.len() as u32;
        }
        self.advance(next - self.next.seq, bytes);
        self.skipped = skipped;
        found
    }

    /// Ends a read in progress, so that the log may give up the segment.
    #[inline(always)]
    pub fn release(&mut self) {
        if let Hint::Pinned(_) = &self.hint
            && let Hint::Pinned(pinned) = std::mem::replace(&mut self.hint, Hint::None)
        {
            self.hint = Hint::Loose(pinned.release());
        }
    }

    /// Goes to sleep: the next record notifies `waiter` of `token`. `false` when there is something
    /// to read already.
    pub fn arm(&mut self, waiter: &Arc<Waiter>, token: u32) -> bool {
        self.release();
        if self.may_sleep_narrow() {
            return self.arm_narrow(waiter, token);
        }
        if self.armed.is_none() && !self.ended && self.can_tell() != Some(true) {
            let reader = self.reader.filter(|_| self.consumption == Consumption::Reads);
            self.armed = self.log.arm(self.awaited(), waiter, token, reader);
            if self.has_news_of_publishers() {
                // It came before the cursor slept, and woke others.
                self.rouse(waiter, token);
            }
        }
        self.armed.is_some()
    }

    /// Whether there may be something to read; costs one look where the cursor was.
    #[inline(always)]
    pub fn may_have_more(&self) -> bool {
        if let Some(can_tell) = self.can_tell() {
            return can_tell;
        }
        self.may_have_records()
    }

    #[inline(always)]
    fn may_have_records(&self) -> bool {
        if self.select.is_some()
            && let Some(has_more) = self.narrow_has_more()
        {
            return has_more;
        }
        match &self.hint {
            Hint::Pinned(_) | Hint::Merged(_) => true,
            Hint::Loose(segment) => {
                let commit = segment.commit();
                commit.bytes > self.offset || commit.sealed
            }
            Hint::None => self.ended || self.log.has_news(self.next),
        }
    }

    /// Whether it has caught up with what there was when it looked last.
    #[inline(always)]
    pub(crate) fn has_caught_up(&mut self) -> bool {
        let pinned = match &self.hint {
            Hint::Pinned(pinned) => pinned,
            // To look again at once would merge what came meanwhile: that is for the next read.
            Hint::Merged(_) => return true,
            Hint::None | Hint::Loose(_) => return false,
        };
        let caught_up = self.offset == pinned.seen().bytes && !pinned.seen().sealed;
        self.warned &= !caught_up;
        caught_up
    }

    /// Looks how far a segment has been written by now whose read is still in progress.
    #[inline(always)]
    pub(crate) fn look_again(&mut self) {
        if let Hint::Pinned(pinned) = &mut self.hint {
            pinned.refresh();
        }
    }

    /// Whether it sleeps.
    pub fn is_armed(&self) -> bool {
        self.armed.is_some() || self.is_armed_narrow()
    }

    /// Was notified: wakes those behind it.
    pub fn woken(&mut self) {
        self.woken_narrow();
        if self.armed.take().is_some() {
            self.log.pass_wake_on();
        }
    }

    /// [`woken`](Cursor::woken) for a door, whose sessions share threads, so that waking one costs little: wakes up to
    /// `wakes` of those behind it. The last of many then hears of a record after fewer steps.
    pub fn woken_at_a_door(&mut self, wakes: usize) {
        self.woken_narrow();
        if self.armed.take().is_some() {
            self.log.pass_wake_on_to(wakes);
        }
    }

    /// Leaves the log, which dropping does too; but only so a sleeping cursor is taken off the log's list at once.
    pub fn leave(&mut self, waiter: &Arc<Waiter>, token: u32) {
        self.rouse(waiter, token);
        self.stop_listening();
        if let Some(reader) = self.reader.take() {
            self.log.unregister(reader);
        }
        self.hint = Hint::None;
        self.reading = None;
        self.ended = true;
    }

    fn stop_listening(&mut self) {
        if std::mem::take(&mut self.listens) {
            let filter = self.select.as_ref().and_then(|select| select.filter.as_ref());
            self.log.listeners.leave(filter, self.feeds_mirror);
        }
    }

    /// Publishers wait for this reader no more; it keeps its position, and may lose records from now on.
    pub fn give_up_place(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.log.unregister(reader);
        }
    }

    /// On a reliable topic: publishers wait for this reader, from where it is.
    pub fn take_place(&mut self, name: &str) -> Result<(), SubscribeError> {
        self.give_up_place();
        self.reader = self.log.register(name, self.next)?;
        Ok(())
    }

    /// A registered reader has consumed everything through `seq`.
    pub fn consume(&self, seq: u64) {
        if let Some(reader) = self.reader {
            self.log.consume(reader, seq);
        }
    }

    /// Whether it ended because records were lost to it.
    pub fn was_lost(&self) -> bool {
        self.ended && self.on_gap == OnGap::Fail
    }

    /// Whether publishers wait for this reader.
    pub fn is_registered(&self) -> bool {
        self.reader.is_some()
    }

    /// Topic and partition.
    pub fn name(&self) -> &Arc<LogName> {
        self.log.name()
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.stop_listening();
        drop(self.disarm_narrow());
        if self.armed.take().is_some() {
            // It stays on the list, where nobody sleeps on it. It may also have been woken just before.
            self.log.pass_wake_on();
        }
        if let Some(reader) = self.reader.take() {
            self.log.unregister(reader);
        }
    }
}
