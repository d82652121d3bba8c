//! Makes room in memory for a log's new records, and drops old records.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::config::saturating_ns;
use crate::event::Position;
use crate::log::{AppendOptions, Log, LogContents, RetainedSegment, written_bytes};
use crate::memory::MemoryBudgetError;
use crate::publish::PublishError;
use crate::segment::{BUFFER_BYTES_MIN, Buffer, Segment, SegmentWriter};

/// A new segment has this many times the size of the previous segment, up to an eighth of the history.
const GROWTH: usize = 4;
const SEGMENTS_PER_HISTORY: u64 = 8;
const SEGMENT_BYTES_MAX: u64 = 256 << 10;

impl From<MemoryBudgetError> for PublishError {
    fn from(MemoryBudgetError { requested, used, limit }: MemoryBudgetError) -> PublishError {
        PublishError::BudgetSpent { requested, used, limit }
    }
}

impl Log {
    #[inline(always)]
    pub(super) fn make_room<'s>(
        &self,
        state: &'s mut LogContents,
        bytes: usize,
        by_ref_bytes: u64,
        append: &AppendOptions,
    ) -> Result<&'s mut SegmentWriter, PublishError> {
        let by_ref_max = self.memory_bytes / SEGMENTS_PER_HISTORY;
        let fits = state
            .writer
            .as_ref()
            .is_some_and(|w| w.room() >= bytes && (by_ref_bytes == 0 || w.by_ref_bytes() <= by_ref_max));
        if !fits && let Err(refused) = self.rotate(state, bytes, append) {
            self.budget.release_nonzero(by_ref_bytes);
            return Err(refused);
        }
        Ok(state.writer.as_mut().expect("`rotate` has set a writer"))
    }

    #[inline(always)]
    pub(super) fn charge_by_ref(
        &self,
        state: &mut LogContents,
        bytes: u64,
        append: &AppendOptions,
    ) -> Result<(), PublishError> {
        match self.budget.charge_nonzero(bytes) {
            Ok(()) => Ok(()),
            Err(_) => self.charge_after_dropping(state, bytes, append),
        }
    }

    #[cold]
    fn charge_after_dropping(
        &self,
        state: &mut LogContents,
        bytes: u64,
        append: &AppendOptions,
    ) -> Result<(), PublishError> {
        if state.retained_bytes < bytes {
            state.seal();
        }
        while let Err(spent) = self.budget.charge(bytes) {
            self.drop_for_memory(state, spent, append)?;
        }
        Ok(())
    }

    /// Must be called after the budget has refused a charge (`spent`). Drops the oldest segment if the sealed segments
    /// have at least the requested bytes; otherwise, refuses the append.
    pub(super) fn drop_for_memory(
        &self,
        state: &mut LogContents,
        spent: MemoryBudgetError,
        append: &AppendOptions,
    ) -> Result<(), PublishError> {
        if state.retained_bytes < spent.requested || !state.may_drop_oldest() {
            return Err(spent.into());
        }
        self.drop_oldest(state, append.evict)
    }

    #[cold]
    fn rotate(
        &self,
        state: &mut LogContents,
        bytes: usize,
        append: &AppendOptions,
    ) -> Result<(), PublishError> {
        state.seal();
        state.retire_lingering();
        let mut wanted = Buffer::bytes_for(segment_bytes(self.memory_bytes, state.capacity).max(bytes));
        let room = self.memory_bytes.saturating_sub(wanted as u64);
        let kept_from = self.update_pressure(state, append.now_ns);
        while (state.retained_bytes > room && !self.is_kept(state, kept_from, wanted as u64)
            || self.is_aged(state, append.now_ns))
            && state.may_drop_oldest()
        {
            self.drop_oldest(state, append.evict)?;
        }
        let buffer = loop {
            match Buffer::new(&self.budget, wanted) {
                Ok(buffer) => break buffer,
                Err(_) if wanted > Buffer::bytes_for(bytes) => {
                    wanted = Buffer::bytes_for(bytes.max(wanted / GROWTH));
                }
                Err(spent) => self.drop_for_memory(state, spent, append)?,
            }
        };
        state.writer = Some(Segment::create(buffer, state.next_seq));
        state.capacity = wanted.min(SEGMENT_BYTES_MAX as usize);
        // The waiters are notified while the log's lock is held, so a woken thread may have to wait for the lock. This
        // is accepted, because such cursors are rare.
        let long_sleepers = state.take_long_sleepers(wanted as u64, self.memory_bytes);
        long_sleepers.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
        self.update_warn_position(state);
        Ok(())
    }

    /// Looks at the progress of subscribers that cannot receive gaps, and updates [`Log::pressure`]. Returns the
    /// sequence number of the oldest record that any of these subscribers has not read.
    fn update_pressure(&self, state: &LogContents, now_ns: u64) -> Option<u64> {
        if self.config.limits.pending_bytes_max == 0 {
            return None;
        }
        let oldest = self.oldest_unread(state.epoch, now_ns);
        let bytes_from = |first: u64| -> u64 {
            let unread = state.retained.iter().rev().take_while(|retained| retained.last_seq() >= first);
            unread.map(|retained| retained.bytes).sum()
        };
        self.pressure.store(oldest.first_of_active.map_or(0, bytes_from), Ordering::Relaxed);
        oldest.first
    }

    /// Whether the oldest segment must stay. This is the case if a subscriber that cannot receive gaps has not read the
    /// segment, and the limits allow the log to keep it. `wanted` is the size of the segment to be created.
    fn is_kept(&self, state: &LogContents, kept_from: Option<u64>, wanted: u64) -> bool {
        let is_unread = |first: u64| state.retained.front().is_some_and(|oldest| oldest.last_seq() >= first);
        kept_from.is_some_and(is_unread)
            && state.retained_bytes + wanted <= self.config.limits.pending_bytes_max
            && self.budget.room() >= self.budget.limit() / 2
    }

    /// Drops records that are older than the retention allows. Each append also drops such records. This method is
    /// therefore needed only for logs to which nothing is published.
    pub(crate) fn expire(&self, now_ns: u64) {
        self.wake_overdue();
        if self.config.retention.age.is_none() {
            return;
        }
        let mut guard = self.lock();
        let state = &mut *guard;
        state.retire_lingering();
        let tail_is_aged = state.writer.is_some() && self.is_beyond_age(state.last_append_ns, now_ns);
        if tail_is_aged {
            state.seal();
        }
        while self.is_aged(state, now_ns) && state.may_drop_oldest() {
            if self.drop_oldest(state, false).is_err() {
                break;
            }
        }
        self.update_warn_position(state);
        let dropped_payloads = state.take_dropped_payloads();
        drop(guard);
        drop(dropped_payloads);
    }

    /// Drops all records and continues at `to`. Subscribers that have not read all records of the present epoch receive
    /// a gap. If `to` is in a new epoch, they receive [`EpochChanged`](crate::EpochChanged).
    ///
    /// # Panics
    /// If the log is durable, or if `to` is before the present position.
    pub fn reset_to(&self, to: Position) {
        let mut state = self.lock();
        assert!(!self.is_durable, "a durable log cannot move");
        assert!(to >= Position { epoch: state.epoch, seq: state.next_seq }, "{to} was before");
        state.seal();
        while let Some(retained) = state.retained.pop_front() {
            state.retained_bytes -= retained.bytes;
            state.retire(retained.segment);
        }
        (state.epoch, state.next_seq, state.has_dropped) = (to.epoch, to.seq, false);
        // The log is empty now, so no subscriber has to be warned of a loss.
        self.warn_before.store(to.seq, Ordering::Relaxed);
        let waiting = state.take_all_sleepers();
        let dropped_payloads = state.take_dropped_payloads();
        drop(state);
        drop(dropped_payloads);
        waiting.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
    }

    /// Drops all records of a closed log that is not durable. Subscribers that have not read them receive a gap. The
    /// records of a durable log are on disk, where the store drops them.
    pub fn drop_closed(&self) {
        let mut state = self.lock();
        if !state.closed || self.is_durable {
            return;
        }
        state.drop_all();
        self.update_warn_position(&state);
        let dropped_payloads = state.take_dropped_payloads();
        drop(state);
        drop(dropped_payloads);
    }

    /// Frees the segments of a closed log that is not durable. In contrast to [`drop_closed`](Log::drop_closed),
    /// payloads that were kept by reference are freed only with the log: freeing them may run a program's code, and the
    /// caller may hold the lock of another log.
    pub fn free_segments(&self) {
        let mut state = self.lock();
        if state.closed && !self.is_durable {
            state.drop_all();
            self.update_warn_position(&state);
        }
    }

    fn is_aged(&self, state: &LogContents, now_ns: u64) -> bool {
        state.retained.front().is_some_and(|retained| self.is_beyond_age(retained.last_append_ns, now_ns))
    }

    fn is_beyond_age(&self, append_ns: u64, now_ns: u64) -> bool {
        let age = self.config.retention.age.map(saturating_ns);
        age.is_some_and(|age| append_ns.saturating_add(age) < now_ns)
    }

    fn drop_oldest(&self, state: &mut LogContents, evict: bool) -> Result<(), PublishError> {
        let Some(oldest) = state.retained.front() else { return Ok(()) };
        let last = oldest.last_seq();
        if let Some(rare) = &mut state.rare {
            rare.registered.check_consumed(last, evict)?;
        }
        if let Some(retained) = state.retained.pop_front() {
            state.retained_bytes -= retained.bytes;
            // On a durable log, the records of the segment are still on disk.
            state.has_dropped |= self.config.durable.is_none();
            state.retire(retained.segment);
        }
        Ok(())
    }

    pub(super) fn update_warn_position(&self, state: &LogContents) {
        if state.has_dropped && !state.is_warned_by_owner() {
            let oldest = state.oldest_seq(&self.config);
            let next = state.visible_next();
            self.warn_before.store(oldest + next.saturating_sub(oldest) / 2, Ordering::Relaxed);
        }
    }
}

impl RetainedSegment {
    fn last_seq(&self) -> u64 {
        self.segment.first_seq + u64::from(self.segment.commit().count) - 1
    }
}

impl LogContents {
    /// Whether the oldest segment may be dropped from memory. On a durable log, its records must be stored first.
    fn may_drop_oldest(&self) -> bool {
        let oldest = self.retained.front().map_or(0, |retained| retained.segment.first_seq);
        self.stored().is_none_or(|stored| stored.is_fully_stored(oldest))
    }

    pub(super) fn drop_all(&mut self) {
        self.seal();
        while let Some(retained) = self.retained.pop_front() {
            self.retained_bytes -= retained.bytes;
            self.has_dropped = true;
            self.retire(retained.segment);
        }
        self.retire_lingering();
    }

    /// Seals the segment to which the log writes at present. If this segment is empty, drops it.
    pub(super) fn seal(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let count = writer.written().count;
        let bytes = writer.segment().buffer_bytes() + writer.by_ref_bytes();
        self.sealed_bytes += written_bytes(&writer);
        let segment = writer.segment().clone();
        match self.stored_mut() {
            Some(stored) if count > 0 => stored.seal(writer),
            _ => writer.seal(),
        }
        if count > 0 {
            self.retained_bytes += bytes;
            self.retained.push_back(RetainedSegment { segment, bytes, last_append_ns: self.last_append_ns });
        } else {
            self.retire(segment);
        }
    }

    fn retire(&mut self, segment: Arc<Segment>) {
        let mut dropped_payloads = Vec::new();
        if !segment.retire(&mut dropped_payloads) {
            self.lingering.push(segment);
        }
        self.defer_drop(dropped_payloads);
    }

    fn retire_lingering(&mut self) {
        let mut dropped_payloads = Vec::new();
        self.lingering.retain(|segment| !segment.retire(&mut dropped_payloads));
        self.defer_drop(dropped_payloads);
    }

    fn defer_drop(&mut self, mut dropped_payloads: Vec<Bytes>) {
        if !dropped_payloads.is_empty() {
            self.rare().dropped_payloads.append(&mut dropped_payloads);
        }
    }
}

fn segment_bytes(memory_bytes: u64, last_capacity: usize) -> usize {
    let share = (memory_bytes / SEGMENTS_PER_HISTORY).min(SEGMENT_BYTES_MAX) as usize;
    let target = (share + 1).next_power_of_two() / 2;
    (last_capacity * GROWTH).clamp(BUFFER_BYTES_MIN, target.max(BUFFER_BYTES_MIN))
}
