//! Makes room for new records and drops old ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::config::saturating_ns;
use crate::event::Position;
use crate::log::{AppendOptions, Log, LogContents, RetainedSegment, written_bytes};
use crate::memory::BudgetSpent;
use crate::publish::PublishError;
use crate::segment::{BUFFER_BYTES_MIN, Buffer, Segment, SegmentWriter};

/// The factor by which each new segment is larger than the previous one, up to an eighth of the history.
const GROWTH: usize = 4;
const SEGMENTS_PER_HISTORY: u64 = 8;
const SEGMENT_BYTES_MAX: u64 = 256 << 10;

impl From<BudgetSpent> for PublishError {
    fn from(BudgetSpent { asked, used, limit }: BudgetSpent) -> PublishError {
        PublishError::BudgetSpent { asked, used, limit }
    }
}

impl Log {
    /// Ensures that the writer has room for `bytes` more bytes.
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
            self.budget.release_some(by_ref_bytes);
            return Err(refused);
        }
        Ok(state.writer.as_mut().expect("`rotate` has set a writer"))
    }

    /// Charges the budget for payloads that are stored by reference.
    #[inline(always)]
    pub(super) fn charge_by_ref(
        &self,
        state: &mut LogContents,
        bytes: u64,
        append: &AppendOptions,
    ) -> Result<(), PublishError> {
        match self.budget.charge_some(bytes) {
            Ok(()) => Ok(()),
            Err(_) => self.charge_after_shortening(state, bytes, append),
        }
    }

    #[cold]
    fn charge_after_shortening(
        &self,
        state: &mut LogContents,
        bytes: u64,
        append: &AppendOptions,
    ) -> Result<(), PublishError> {
        if state.held_bytes < bytes {
            state.seal();
        }
        while let Err(spent) = self.budget.charge(bytes) {
            self.shorten(state, spent, append)?;
        }
        Ok(())
    }

    /// Called after the budget has refused a charge. Drops the oldest segment if this releases enough memory; otherwise
    /// refuses the publisher.
    pub(super) fn shorten(
        &self,
        state: &mut LogContents,
        spent: BudgetSpent,
        append: &AppendOptions,
    ) -> Result<(), PublishError> {
        if state.held_bytes < spent.asked || !state.may_give_up() {
            return Err(spent.into());
        }
        self.give_up_oldest(state, append.evict)
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
        let kept_from = self.look_at_pending(state, append.now_ns);
        while (state.held_bytes > room && !self.is_kept(state, kept_from, wanted as u64)
            || self.is_aged(state, append.now_ns))
            && state.may_give_up()
        {
            self.give_up_oldest(state, append.evict)?;
        }
        let buffer = loop {
            match Buffer::new(&self.budget, wanted) {
                Ok(buffer) => break buffer,
                Err(_) if wanted > Buffer::bytes_for(bytes) => {
                    wanted = Buffer::bytes_for(bytes.max(wanted / GROWTH));
                }
                Err(spent) => self.shorten(state, spent, append)?,
            }
        };
        state.writer = Some(Segment::create(buffer, state.next_seq));
        state.capacity = wanted.min(SEGMENT_BYTES_MAX as usize);
        // This notifies while it holds the log's lock, so that the woken threads have to wait for the lock. It happens
        // rarely.
        let slept_long = state.take_slept_long(wanted as u64, self.memory_bytes);
        slept_long.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
        self.warn_laggards(state);
        Ok(())
    }

    /// Checks the progress of subscribers that cannot receive gaps. Returns the oldest sequence number that one of them
    /// has not read.
    fn look_at_pending(&self, state: &LogContents, now_ns: u64) -> Option<u64> {
        if self.config.limits.pending_bytes_max == 0 {
            return None;
        }
        let pending = self.pending(state.epoch, now_ns);
        let bytes_from = |first: u64| -> u64 {
            let unread = state.held.iter().rev().take_while(|held| held.last_seq() >= first);
            unread.map(|held| held.bytes).sum()
        };
        self.pressure.store(pending.first_of_moving.map_or(0, bytes_from), Ordering::Relaxed);
        pending.first
    }

    /// Whether the oldest segment is kept for a subscriber that has not read it and cannot receive gaps.
    fn is_kept(&self, state: &LogContents, kept_from: Option<u64>, wanted: u64) -> bool {
        let is_unread = |first: u64| state.held.front().is_some_and(|oldest| oldest.last_seq() >= first);
        kept_from.is_some_and(is_unread)
            && state.held_bytes + wanted <= self.config.limits.pending_bytes_max
            && self.budget.room() >= self.budget.limit() / 2
    }

    /// Drops records beyond the retention age. Each append does this too. Call this function for logs to which nobody
    /// publishes.
    pub(crate) fn expire(&self, now_ns: u64) {
        self.wake_overdue();
        if self.config.retention.age.is_none() {
            return;
        }
        let mut guard = self.lock();
        let state = &mut *guard;
        state.retire_lingering();
        let tail_is_aged = state.writer.is_some() && self.is_past(state.last_append_ns, now_ns);
        if tail_is_aged {
            state.seal();
        }
        while self.is_aged(state, now_ns) && state.may_give_up() {
            if self.give_up_oldest(state, false).is_err() {
                break;
            }
        }
        self.warn_laggards(state);
        let remains = state.take_remains();
        drop(guard);
        drop(remains);
    }

    /// Drops all records and continues at `to`. Subscribers that have not read all records of the present epoch receive
    /// a gap. A new epoch is reported as a change of epoch.
    ///
    /// # Panics
    /// If the log is durable, or if `to` is before the present position.
    pub fn move_on(&self, to: Position) {
        let mut state = self.lock();
        assert!(!self.is_durable, "a durable log cannot move");
        assert!(to >= Position { epoch: state.epoch, seq: state.next_seq }, "{to} was before");
        state.seal();
        while let Some(held) = state.held.pop_front() {
            state.held_bytes -= held.bytes;
            state.retire(held.segment);
        }
        (state.epoch, state.next_seq, state.gave_up) = (to.epoch, to.seq, false);
        // The log has no earlier records, and will drop no record soon.
        self.warn_before.store(to.seq, Ordering::Relaxed);
        let waiting = state.take_all_sleepers();
        let remains = state.take_remains();
        drop(state);
        drop(remains);
        waiting.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
    }

    /// Drops all records of a closed log; subscribers that have not read them receive a gap. On a durable log, does
    /// nothing, because the store drops its records.
    pub fn give_up_closed(&self) {
        let mut state = self.lock();
        if !state.closed || self.is_durable {
            return;
        }
        state.give_up_all();
        self.warn_laggards(&state);
        let remains = state.take_remains();
        drop(state);
        drop(remains);
    }

    fn is_aged(&self, state: &LogContents, now_ns: u64) -> bool {
        state.held.front().is_some_and(|held| self.is_past(held.last_append_ns, now_ns))
    }

    fn is_past(&self, append_ns: u64, now_ns: u64) -> bool {
        let age = self.config.retention.age.map(saturating_ns);
        age.is_some_and(|age| append_ns.saturating_add(age) < now_ns)
    }

    fn give_up_oldest(&self, state: &mut LogContents, evict: bool) -> Result<(), PublishError> {
        let Some(oldest) = state.held.front() else { return Ok(()) };
        let last = oldest.last_seq();
        if let Some(rare) = &mut state.rare {
            rare.registered.permit_giving_up(last, evict)?;
        }
        if let Some(held) = state.held.pop_front() {
            state.held_bytes -= held.bytes;
            // On a durable log, the segment's records are still on disk.
            state.gave_up |= self.config.durable.is_none();
            state.retire(held.segment);
        }
        Ok(())
    }

    pub(super) fn warn_laggards(&self, state: &LogContents) {
        if state.gave_up {
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
    /// Whether the oldest segment may be dropped: on a durable log, its records are stored.
    fn may_give_up(&self) -> bool {
        let oldest = self.held.front().map_or(0, |held| held.segment.first_seq);
        self.stored().is_none_or(|stored| stored.may_give_up(oldest))
    }

    /// Seals and drops everything.
    pub(super) fn give_up_all(&mut self) {
        self.seal();
        while let Some(held) = self.held.pop_front() {
            self.held_bytes -= held.bytes;
            self.gave_up = true;
            self.retire(held.segment);
        }
        self.retire_lingering();
    }

    /// Seals the segment being written; an empty one is dropped.
    pub(super) fn seal(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let count = writer.written().count;
        let bytes = writer.segment().bytes_held() + writer.by_ref_bytes();
        self.sealed_bytes += written_bytes(&writer);
        let segment = writer.segment().clone();
        match self.stored_mut() {
            Some(stored) if count > 0 => stored.seal(writer),
            _ => writer.seal(),
        }
        if count > 0 {
            self.held_bytes += bytes;
            self.held.push_back(RetainedSegment { segment, bytes, last_append_ns: self.last_append_ns });
        } else {
            self.retire(segment);
        }
    }

    fn retire(&mut self, segment: Arc<Segment>) {
        let mut remains = Vec::new();
        if !segment.retire(&mut remains) {
            self.lingering.push(segment);
        }
        self.leave(remains);
    }

    fn retire_lingering(&mut self) {
        let mut remains = Vec::new();
        self.lingering.retain(|segment| !segment.retire(&mut remains));
        self.leave(remains);
    }

    fn leave(&mut self, mut remains: Vec<Bytes>) {
        if !remains.is_empty() {
            self.rare().remains.append(&mut remains);
        }
    }
}

fn segment_bytes(memory_bytes: u64, last_capacity: usize) -> usize {
    let share = (memory_bytes / SEGMENTS_PER_HISTORY).min(SEGMENT_BYTES_MAX) as usize;
    let target = (share + 1).next_power_of_two() / 2;
    (last_capacity * GROWTH).clamp(BUFFER_BYTES_MIN, target.max(BUFFER_BYTES_MIN))
}
