//! A reader's place in one log.
//!
//! Reading goes [`Cursor::fill`], then any of the walks over what it found. Between reads a cursor
//! holds a position and a hint; the buffer it read from may go.

mod select;
mod spans;

use std::sync::Arc;

use dunlin_frame::{FLAG_EXPIRES, Frame};

use crate::event::{Lagging, LogName, Notice, Position, Record};
use crate::log::{Found, Log, ReaderId};
use crate::segment::{Pinned, Segment};
use crate::subscribe::{OnGap, Start, SubscribeError, SubscribeOptions};
use crate::wake::Waiter;

pub use select::Filter;
use select::Select;
pub use spans::{Content, Span, Spans};

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
    /// Where in the hint's segment `next` begins.
    offset: u32,
    on_gap: OnGap,
    consumption: Consumption,
    warned: bool,
    armed: bool,
    ended: bool,
    reader: Option<ReaderId>,
    select: Option<Box<Select>>,
}

impl Cursor {
    /// A place at the start that `options` asks for. `filter` skips subjects.
    pub fn new(
        log: Arc<Log>,
        options: &SubscribeOptions,
        filter: Option<Filter>,
        consumption: Consumption,
    ) -> Result<Cursor, SubscribeError> {
        Cursor::starting(log, options, options.start, filter, consumption)
    }

    /// [`Cursor::new`] with another start than the options'.
    pub fn starting(
        log: Arc<Log>,
        options: &SubscribeOptions,
        start: Start,
        filter: Option<Filter>,
        consumption: Consumption,
    ) -> Result<Cursor, SubscribeError> {
        let (next, appended_from_ns) = log.start(start)?;
        let reader = if options.registered { log.register(&options.name, next)? } else { None };
        let select =
            (filter.is_some() || appended_from_ns > 0).then(|| Box::new(Select { filter, appended_from_ns }));
        Ok(Cursor {
            log,
            hint: Hint::None,
            next,
            offset: 0,
            on_gap: options.on_gap,
            consumption,
            warned: false,
            armed: false,
            ended: false,
            reader,
            select,
        })
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
                    if self.select.is_none() || self.skip_unselected() {
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
        if let Hint::Loose(segment) = &self.hint {
            let commit = segment.commit();
            if self.offset == commit.bytes && !commit.sealed {
                self.warned = false;
                return Some(Fill::Empty);
            }
            if let Some(lagging) = self.warn() {
                return Some(Fill::Notice(Notice::Lagging(lagging)));
            }
            if self.offset < commit.bytes && self.pin() {
                return None;
            }
        }
        self.find()
    }

    /// A warning, once until it has caught up. A registered reader cannot lose anything.
    fn warn(&mut self) -> Option<Lagging> {
        if self.warned || self.reader.is_some() || !self.log.should_warn(self.next.seq) {
            return None;
        }
        self.warned = true;
        self.log.lagging(self.next)
    }

    fn pin(&mut self) -> bool {
        let Hint::Loose(segment) = std::mem::replace(&mut self.hint, Hint::None) else { return false };
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
        match self.log.find(self.next, self.on_gap, reader) {
            Found::Segment(segment) => {
                let before = self.next.seq - segment.first_seq;
                self.offset = 0;
                self.hint = Hint::Loose(segment);
                if before > 0 && self.pin() {
                    self.offset = self.offset_after(before);
                }
                // A buffer that went in between is found to be a gap in the next round.
                None
            }
            Found::Nothing => Some(Fill::Empty),
            Found::Gap(gap, go_on) => {
                self.next = go_on;
                self.ended = self.on_gap == OnGap::Fail;
                Some(Fill::Notice(Notice::Gap(gap)))
            }
            Found::EpochChanged(changed) => {
                self.next = changed.new_first;
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

    /// Moves past what the filter does not want; whether a wanted record is under the cursor.
    fn skip_unselected(&mut self) -> bool {
        let (Hint::Pinned(pinned), Some(select)) = (&self.hint, &self.select) else { return true };
        let mut records = 0;
        let mut bytes = 0;
        let mut found = false;
        for lying in pinned.frames(self.offset) {
            if select.wants(&lying.frame) {
                found = true;
                break;
            }
            records += 1;
            bytes += lying.bytes.len() as u32;
        }
        self.advance(records, bytes);
        found
    }

    /// Hands over up to `max` of the records under the cursor; how many it was.
    #[inline(always)]
    pub fn drain(&mut self, max: usize, mut each: impl FnMut(Record<'_>)) -> usize {
        let Hint::Pinned(pinned) = &self.hint else { return 0 };
        let (mut records, mut bytes, mut given) = (0, 0, 0);
        for lying in pinned.frames(self.offset) {
            if given == max {
                break;
            }
            let skipped = lying.frame.flags() & FLAG_EXPIRES != 0 && self.has_expired(&lying.frame);
            let unwanted = self.select.as_ref().is_some_and(|select| !select.wants(&lying.frame));
            if !skipped && !unwanted {
                let position = Position { seq: self.next.seq + records, ..self.next };
                each(Record { position, frame: lying.frame, log: self.log.name() });
                given += 1;
            }
            records += 1;
            bytes += lying.bytes.len() as u32;
        }
        self.advance(records, bytes);
        given
    }

    /// The record under the cursor, and what to [`advance`](Cursor::advance) by when it is done with;
    /// `None` if it has expired.
    #[inline(always)]
    pub fn peek(&self) -> Option<(Option<Record<'_>>, u32)> {
        let (record, bytes) = self.under()?;
        let expired = record.frame.flags() & FLAG_EXPIRES != 0 && self.has_expired(&record.frame);
        Some(((!expired).then_some(record), bytes))
    }

    /// [`peek`](Cursor::peek), expired or not: a record that expires after it was promised is given all the same.
    #[inline(always)]
    pub fn under(&self) -> Option<(Record<'_>, u32)> {
        let Hint::Pinned(pinned) = &self.hint else { return None };
        let lying = pinned.frames(self.offset).next()?;
        let record = Record { position: self.next, frame: lying.frame, log: self.log.name() };
        Some((record, lying.bytes.len() as u32))
    }

    /// The spans of records under the cursor, each of at most `span_bytes_max` or of one record.
    pub fn spans(&self, span_bytes_max: usize) -> Spans<'_> {
        let frames = match &self.hint {
            Hint::Pinned(pinned) => Some(pinned.frames(self.offset)),
            _ => None,
        };
        Spans::new(self, frames, span_bytes_max)
    }

    /// Moves past records that were walked.
    #[inline(always)]
    pub fn advance(&mut self, records: u64, bytes: u32) {
        self.next.seq += records;
        self.offset += bytes;
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
        if self.armed {
            return true;
        }
        let reader = self.reader.filter(|_| self.consumption == Consumption::Reads);
        self.armed = !self.ended && self.log.arm(self.next, waiter, token, reader);
        self.armed
    }

    /// Whether there may be something to read; costs one look where the cursor was.
    #[inline(always)]
    pub fn may_have_more(&self) -> bool {
        match &self.hint {
            Hint::Pinned(_) => true,
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
        let Hint::Pinned(pinned) = &self.hint else { return false };
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
        self.armed
    }

    /// Was notified: wakes those behind it.
    pub fn woken(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.log.pass_wake_on();
        }
    }

    /// [`woken`](Cursor::woken) for a door, whose sessions share threads, so that waking one costs little: wakes up to
    /// `wakes` of those behind it. The last of many then hears of a record after fewer steps.
    pub fn woken_at_a_door(&mut self, wakes: usize) {
        if std::mem::take(&mut self.armed) {
            self.log.pass_wake_on_to(wakes);
        }
    }

    /// Leaves the log, which dropping does too; but only so a sleeping cursor is taken off the log's list at once.
    pub fn leave(&mut self, waiter: &Arc<Waiter>, token: u32) {
        if std::mem::take(&mut self.armed) && !self.log.disarm(waiter, token) {
            self.log.pass_wake_on();
        }
        if let Some(reader) = self.reader.take() {
            self.log.unregister(reader);
        }
        self.hint = Hint::None;
        self.ended = true;
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

    #[cold]
    fn has_expired(&self, frame: &Frame<'_>) -> bool {
        frame.expires_ns().is_some_and(|expires| expires <= self.log.clock.now_ns())
    }

    /// Topic and partition.
    pub fn name(&self) -> &Arc<LogName> {
        self.log.name()
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if std::mem::take(&mut self.armed) {
            // It stays on the list, where nobody sleeps on it. It may also have been woken just before.
            self.log.pass_wake_on();
        }
        if let Some(reader) = self.reader.take() {
            self.log.unregister(reader);
        }
    }
}
