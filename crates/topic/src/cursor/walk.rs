//! Walks over the records that [`Cursor::fill`] found, either one record or one span of records at a time.

use dunlin_frame::{FLAG_EXPIRES, Frame};

use super::{Cursor, RecordSpans, RecordVerdict};
use crate::event::{Position, Record};

impl Cursor {
    /// Passes the next records to `each`, at most `max`. Returns the number of records that were passed.
    #[inline(always)]
    pub fn drain(&mut self, max: usize, mut each: impl FnMut(Record<'_>)) -> usize {
        let Some(frames) = self.frames() else { return 0 };
        let (mut records, mut bytes, mut delivered, mut skipped) = (0, 0, 0, self.skipped);
        for entry in frames {
            if delivered == max {
                break;
            }
            let position = Position { seq: self.next.seq + records, ..self.next };
            match self.verdict(position.seq, entry.frame) {
                RecordVerdict::Selected => {
                    let prev_seq = position.seq - 1 - skipped;
                    each(Record { position, prev_seq, frame: entry.frame, log: self.log.name() });
                    delivered += 1;
                    skipped = 0;
                }
                RecordVerdict::Skipped => skipped += 1,
                RecordVerdict::Lost => skipped = 0,
            }
            records += 1;
            bytes += entry.bytes.len() as u32;
        }
        self.advance(records, bytes);
        self.skipped = skipped;
        delivered
    }

    /// Decides whether the subscriber receives the record with sequence number `seq`.
    #[inline(always)]
    pub(super) fn verdict(&self, seq: u64, frame: Frame<'_>) -> RecordVerdict {
        let may_be_skipped = frame.flags() & FLAG_EXPIRES != 0 || self.select.is_some();
        if may_be_skipped { self.verdict_slow_path(seq, frame) } else { RecordVerdict::Selected }
    }

    /// Continues [`verdict`](Cursor::verdict) for records that may have expired, or that a filter may exclude. Takes
    /// the frame by value, so that the fast path can keep the frame in registers.
    #[inline(never)]
    fn verdict_slow_path(&self, seq: u64, frame: Frame<'_>) -> RecordVerdict {
        if frame.flags() & FLAG_EXPIRES != 0 && self.has_expired(frame) {
            return RecordVerdict::Skipped;
        }
        self.select.as_ref().map_or(RecordVerdict::Selected, |select| select.verdict(seq, &frame))
    }

    /// The next record, and its size for [`advance`](Cursor::advance). The record is `None` if it has expired; the
    /// caller then has to [`skip`](Cursor::skip) it.
    #[inline(always)]
    pub fn peek(&self) -> Option<(Option<Record<'_>>, u32)> {
        let (record, bytes) = self.peek_any()?;
        let expired = record.frame.flags() & FLAG_EXPIRES != 0 && self.has_expired(record.frame);
        Some(((!expired).then_some(record), bytes))
    }

    /// Like [`peek`](Cursor::peek), but also returns expired records. A record that was not expired when
    /// [`Subscribe::ready`](crate::Subscribe::ready) found it is therefore delivered even if it expires afterwards.
    #[inline(always)]
    pub fn peek_any(&self) -> Option<(Record<'_>, u32)> {
        let entry = self.frames()?.next()?;
        let prev_seq = self.next.seq - 1 - self.skipped;
        let record = Record { position: self.next, prev_seq, frame: entry.frame, log: self.log.name() };
        Some((record, entry.bytes.len() as u32))
    }

    /// Iterates over the available spans. A span of several records that are sent has at most `span_bytes_max` bytes.
    pub fn spans(&self, span_bytes_max: usize) -> RecordSpans<'_> {
        RecordSpans::new(self, self.frames(), span_bytes_max)
    }

    /// Advances past `records` records that were delivered. In the segment, they have `bytes` bytes.
    #[inline(always)]
    pub fn advance(&mut self, records: u64, bytes: u32) {
        self.next.seq += records;
        self.offset += bytes;
        self.skipped = 0;
        if self.progress.is_some() {
            self.update_progress();
        }
    }

    /// Stores the cursor's position in the subscription's progress, which operators can see.
    pub(super) fn update_progress(&self) {
        if let Some(progress) = &self.progress {
            progress.set_position(Position { seq: self.next.seq - 1, ..self.next });
        }
    }

    /// Advances past `records` records that were skipped. In the segment, they have `bytes` bytes. The next delivered
    /// record's `prev_seq` reports them as skipped, not as lost.
    #[inline(always)]
    pub fn skip(&mut self, records: u64, bytes: u32) {
        self.next.seq += records;
        self.offset += bytes;
        self.skipped += records;
    }

    /// The `prev_seq` of the next record: a lower sequence number. The subscriber needs none of the records between the
    /// two.
    pub fn prev_seq(&self) -> u64 {
        self.next.seq - 1 - self.skipped
    }

    #[cold]
    fn has_expired(&self, frame: Frame<'_>) -> bool {
        !self.log.is_stateful()
            && frame.expires_ns().is_some_and(|expires| expires <= self.log.clock.now_ns())
    }
}
