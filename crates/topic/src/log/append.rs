//! Appends records to a log: checks them, makes room, writes and commits them, and wakes one sleeper.

use std::borrow::Borrow;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_frame::{APPEND_TIME_AT, Frame, FrameError};

use crate::checked_batch::{CheckedBatch, check_reply};
use crate::event::Position;
use crate::lock::LogGuard;
use crate::log::{Log, LogContents};
use crate::producer::DuplicateVerdict;
use crate::publish::{Draft, Payload, PublishError};
use crate::segment::SegmentWriter;

/// Maximum total size of the frames in a batch of several records, bytes.
pub const BATCH_BYTES_MAX: usize = 16 << 20;

/// After a single record is written, one cache line is prefetched. It is this many bytes after the end of the written
/// bytes.
const PREFETCH_SINGLE_BYTES: usize = 128;
/// After each record of a batch is written, one cache line is prefetched. It is this many bytes after the end of the
/// written bytes.
const PREFETCH_BATCH_BYTES: usize = 512;

/// The producer of a batch, and the number that the producer gave to the batch's first record. From both, the log
/// recognises a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerMark {
    /// The producer's id.
    pub producer: u64,
    /// The producer's epoch: a number that grows when a new instance of the producer takes over.
    pub producer_epoch: u32,
    /// The producer's number for the first record of the batch. Each further record has the next number.
    pub producer_seq: u64,
}

/// The time, the conditions and the options of an append.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AppendOptions {
    pub(crate) now_ns: u64,
    pub(crate) mark: Option<ProducerMark>,
    pub(crate) expect_last: Option<u64>,
    /// For a log with a state: the position of the publisher's last acknowledged record. The append fails if the state
    /// does not include this record.
    pub(crate) after: Option<Position>,
    /// Whether registered subscribers that leave no room are unregistered. If not, the append is refused.
    pub(crate) evict: bool,
    /// Whether this append is done by a new owner, for records that had waited for an owner. Such an append succeeds
    /// even while the log does not accept other records yet.
    pub(crate) as_owner: bool,
}

/// The size of an append: bytes that are written to the segment, and bytes of payloads that are kept by reference.
#[derive(Debug, Clone, Copy, Default)]
struct RecordSize {
    bytes: usize,
    by_ref_bytes: u64,
}

impl RecordSize {
    #[inline(always)]
    fn total(&self) -> u64 {
        self.bytes as u64 + self.by_ref_bytes
    }
}

/// The result of an append: the position of its last record, and whether it was a retry of an earlier append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppendOutcome {
    pub(crate) position: Position,
    pub(crate) duplicate: bool,
}

impl Log {
    #[inline(always)]
    pub(crate) fn append(
        &self,
        append: AppendOptions,
        draft: &Draft<'_>,
    ) -> Result<AppendOutcome, PublishError> {
        let size = self.measure(draft)?;
        let mut state = self.lock();
        if let Some(duplicate) = state.admit(self, &append, 1, size.total())? {
            return Ok(duplicate);
        }
        let now = state.append_time(append.now_ns);
        self.charge_by_ref(&mut state, size.by_ref_bytes, &append)?;
        let writer = self.make_room(&mut state, size.bytes, size.by_ref_bytes, &append)?;
        let from = writer.written();
        self.push(writer, draft, now)?;
        writer.prefetch(PREFETCH_SINGLE_BYTES);
        if state.rare.is_some() {
            self.apply_to_state(&mut state, from, &append)?;
        }
        Ok(self.publish(state, append, now, 1, size.total()))
    }

    /// Appends all drafts, or none of them. Iterates over the drafts twice, first to compute their total size.
    pub(crate) fn append_drafts<'d>(
        &self,
        append: AppendOptions,
        drafts: impl Iterator<Item: Borrow<Draft<'d>>> + Clone,
    ) -> Result<AppendOutcome, PublishError> {
        let mut total = RecordSize::default();
        let mut count = 0;
        for draft in drafts.clone() {
            let size = self.measure(draft.borrow())?;
            total.bytes += size.bytes;
            total.by_ref_bytes += size.by_ref_bytes;
            count += 1;
        }
        check_batch(count, total.bytes)?;
        let count = count as u64;
        let mut state = self.lock();
        if let Some(duplicate) = state.admit(self, &append, count, total.total())? {
            return Ok(duplicate);
        }
        let now = state.append_time(append.now_ns);
        self.charge_by_ref(&mut state, total.by_ref_bytes, &append)?;
        let writer = self.make_room(&mut state, total.bytes, total.by_ref_bytes, &append)?;
        let from = writer.written();
        for draft in drafts {
            self.push(writer, draft.borrow(), now)?;
            writer.prefetch(PREFETCH_BATCH_BYTES);
        }
        if state.rare.is_some() {
            self.apply_to_state(&mut state, from, &append)?;
        }
        Ok(self.publish(state, append, now, count, total.total()))
    }

    /// Appends a batch that was received over a connection, and writes the append time into each record.
    pub(crate) fn append_batch(
        &self,
        append: AppendOptions,
        batch: CheckedBatch<'_>,
    ) -> Result<AppendOutcome, PublishError> {
        self.check_size(batch.largest())?;
        check_batch(batch.count() as usize, batch.bytes().len())?;
        let mut state = self.lock();
        let bytes = batch.bytes().len() as u64;
        if let Some(duplicate) = state.admit(self, &append, u64::from(batch.count()), bytes)? {
            return Ok(duplicate);
        }
        let now = state.append_time(append.now_ns);
        let writer = self.make_room(&mut state, batch.bytes().len(), 0, &append)?;
        let from = writer.written();
        writer.push(batch.bytes().len(), batch.count(), |out| {
            out.copy_from_slice(batch.bytes());
            stamp(out, now);
        });
        if state.rare.is_some() {
            self.apply_to_state(&mut state, from, &append)?;
        }
        Ok(self.publish(state, append, now, u64::from(batch.count()), bytes))
    }

    #[inline(always)]
    fn measure(&self, draft: &Draft<'_>) -> Result<RecordSize, PublishError> {
        let encoded = draft.meta.measure(draft.payload.as_slice().len())?;
        self.check_size(encoded.padded())?;
        if let Some(reply) = draft.meta.reply {
            check_reply(reply)?;
        }
        Ok(match self.bytes_to_keep_by_ref(&draft.payload) {
            Some(payload) => RecordSize {
                bytes: SegmentWriter::by_ref_stride(encoded),
                by_ref_bytes: payload.len() as u64,
            },
            None => RecordSize { bytes: encoded.padded(), by_ref_bytes: 0 },
        })
    }

    #[inline(always)]
    fn push(&self, writer: &mut SegmentWriter, draft: &Draft<'_>, now: u64) -> Result<(), PublishError> {
        let payload = draft.payload.as_slice();
        let encoded = draft.meta.measure(payload.len())?;
        match self.bytes_to_keep_by_ref(&draft.payload) {
            Some(shared) => writer.push_by_ref(&draft.meta, encoded, now, shared.clone()),
            None => {
                writer.push(encoded.padded(), 1, |out| draft.meta.encode(encoded, now, payload, out));
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn bytes_to_keep_by_ref<'d>(&self, payload: &'d Payload<'_>) -> Option<&'d Bytes> {
        match payload {
            Payload::Shared(bytes) if bytes.len() >= self.config.by_ref_bytes_min as usize => Some(bytes),
            _ => None,
        }
    }

    #[inline(always)]
    fn check_size(&self, bytes: usize) -> Result<(), PublishError> {
        let bytes_max = self.config.record_bytes_max as usize;
        if bytes > bytes_max { Err(PublishError::RecordTooLarge { bytes, bytes_max }) } else { Ok(()) }
    }

    /// Makes the newly written records visible, and wakes one sleeping cursor. On a durable log, the records become
    /// visible later, when the store has synced them.
    #[inline(always)]
    pub(super) fn publish(
        &self,
        mut state: LogGuard<'_, LogContents>,
        append: AppendOptions,
        now: u64,
        count: u64,
        bytes: u64,
    ) -> AppendOutcome {
        state.last_append_ns = now;
        let first = Position { epoch: state.epoch, seq: state.next_seq };
        state.next_seq += count;
        let position = Position { seq: state.next_seq - 1, ..first };
        if let Some(mark) = append.mark {
            state.rare().producers.record(mark, count, first);
        }
        if self.is_durable {
            publish_stored(state, &append, first.seq, count, bytes);
            return AppendOutcome { position, duplicate: false };
        }
        if let Some(writer) = &state.writer {
            writer.commit();
        }
        let woken = state.sleepers.take_first();
        let woken_by_subject = state.take_matching();
        let dropped_payloads = state.take_dropped_payloads();
        drop(state);
        if let Some(armed) = woken {
            self.wake(armed);
        }
        woken_by_subject.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
        drop(dropped_payloads);
        AppendOutcome { position, duplicate: false }
    }
}

/// Ends an append to a durable log. The store makes the records visible later.
#[cold]
fn publish_stored(
    mut state: LogGuard<'_, LogContents>,
    append: &AppendOptions,
    first_seq: u64,
    count: u64,
    bytes: u64,
) {
    let Some(stored) = state.stored_mut() else { return };
    let store = stored.record_append(append, first_seq, count, bytes).then(|| Arc::clone(&stored.store));
    let dropped_payloads = state.take_dropped_payloads();
    drop(state);
    drop(dropped_payloads);
    if let Some(store) = store {
        store.notify_staged();
    }
}

impl LogContents {
    /// Checks whether the append may proceed. If it is a retry of an earlier append, returns the outcome of that
    /// append.
    #[inline(always)]
    fn admit(
        &mut self,
        log: &Log,
        append: &AppendOptions,
        count: u64,
        bytes: u64,
    ) -> Result<Option<AppendOutcome>, PublishError> {
        // For most logs, no other node can become the owner. For these logs, the check is skipped, and with it a
        // reading of the clock.
        if self.owned_until_ns != u64::MAX && self.has_ownership_ended() && (self.closed || !append.as_owner)
        {
            // A mirror may be closed before its node has removed the deleted topic. Until the removal, records for the
            // topic are still forwarded to the owner. Only after the removal, the upstream ends these records with an
            // error: a publisher that repeats them then does not find the old topic.
            let is_closed = self.closed && (append.as_owner || !self.is_mirror());
            return Err(if is_closed { PublishError::Closed } else { PublishError::Elsewhere });
        }
        if let Some(mark) = append.mark
            && let DuplicateVerdict::Duplicate { last } = self.rare().producers.check(mark, count)?
        {
            return Ok(Some(AppendOutcome { position: last, duplicate: true }));
        }
        if let Some(after) = append.after {
            log.check_state(self, after)?;
        }
        match append.expect_last {
            Some(expected) if expected != self.next_seq - 1 => {
                Err(PublishError::SeqMoved { expected, last_seq: self.next_seq - 1 })
            }
            _ => match self.stored_mut() {
                Some(stored) => stored.admit(append, bytes).map(|()| None),
                None => Ok(None),
            },
        }
    }

    #[inline]
    pub(super) fn has_ownership_ended(&self) -> bool {
        self.ownership_clock.now_ns() >= self.owned_until_ns
    }

    /// The append time of the next record: the current time, but never earlier than the append time of the previous
    /// record.
    #[inline(always)]
    fn append_time(&self, now_ns: u64) -> u64 {
        self.last_append_ns.max(now_ns)
    }
}

fn check_batch(count: usize, bytes: usize) -> Result<(), PublishError> {
    if count == 0 {
        return Err(PublishError::Batch("a batch needs at least one record"));
    }
    // The limit is for batches. A single record may be as large as the topic's configuration allows.
    if count > 1 && bytes > BATCH_BYTES_MAX {
        return Err(FrameError::TooLarge { bytes, bytes_max: BATCH_BYTES_MAX }.into());
    }
    Ok(())
}

fn stamp(mut frames: &mut [u8], now: u64) {
    while let Some((_, stride)) = Frame::split(frames) {
        frames[APPEND_TIME_AT..APPEND_TIME_AT + 8].copy_from_slice(&now.to_le_bytes());
        frames = &mut frames[stride..];
    }
}
