//! An index of sleeping cursors by the subjects that the cursors read.
//!
//! Without the index, a cursor that reads only a few subjects would wake for each record, check the record and sleep
//! again. The cost of a record would then grow with the number of such cursors. With the index, a record wakes only the
//! cursors that read the record's subject. A woken cursor continues at the record that woke it.
//!
//! Invariants:
//! - The index checks every record that is appended while a cursor sleeps in the index.
//! - After a quarter of the history was written, the log wakes the cursors that still sleep in the index, so that they
//!   skip the records that were appended since they fell asleep. Otherwise, these records would look like a backlog.
//!
//! Limits: one entry for each cursor that sleeps in the index. A sweep removes patterns without a cursor; until the
//! next sweep, the number of patterns may double, and may grow to [`SWEEP_AT_LEAST`] in any case.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::Position;
use crate::log::sleepers::SleepingCursor;
use crate::log::{Log, LogContents};
use crate::pattern_index::PatternIndex;
use crate::segment::{Commit, SegmentWriter};
use crate::subject::Pattern;
use crate::wake::Waiter;

/// The sequence number at which a woken cursor continues: that of the first record that may be for the cursor. Instead
/// of a sequence number, the value may be [`ASLEEP`] or [`ANYWHERE`].
pub(crate) type ResumeSeq = Arc<AtomicU64>;

/// Value of [`ResumeSeq`]: the cursor still sleeps in the index.
pub(crate) const ASLEEP: u64 = 0;
/// Value of [`ResumeSeq`]: the index has released the cursor, which must itself check all records since it went to
/// sleep.
pub(crate) const ANYWHERE: u64 = u64::MAX;

#[derive(Debug, Default)]
pub(super) struct SleeperIndex {
    by_tail: PatternIndex<RefCell<Vec<Entry>>>,
    len: usize,
    /// How far records are checked: the first sequence number of a segment, and the length up to which this segment is
    /// checked.
    checked: (u64, Commit),
    epoch: u32,
    /// Bytes of segments that were created since the index last released all its cursors.
    bytes: u64,
    /// When the index has this number of patterns, it removes the patterns without a cursor before it adds another
    /// pattern.
    sweep_at: usize,
}

const SWEEP_AT_LEAST: usize = 64;

#[derive(Debug)]
struct Entry {
    armed: SleepingCursor,
    resume_seq: ResumeSeq,
}

impl SleeperIndex {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Removes the patterns without a cursor, if the number of patterns has doubled since the last sweep. Until a
    /// sweep, the pattern of a woken cursor stays in the index, because the cursor usually sleeps again.
    fn sweep(&mut self) {
        if self.by_tail.len() >= self.sweep_at {
            self.by_tail.retain(|entries| !entries.get_mut().is_empty());
            self.sweep_at = (2 * self.by_tail.len()).max(SWEEP_AT_LEAST);
        }
    }

    /// Checks the records that were appended since the last call. Removes and returns the cursors that read any of
    /// them.
    fn take_matching(&mut self, writer: &SegmentWriter) -> Vec<SleepingCursor> {
        let mut woken = Vec::new();
        let first_seq = writer.segment().first_seq;
        let from = if self.checked.0 == first_seq { self.checked.1 } else { Commit::default() };
        let seqs = first_seq + u64::from(from.count)..;
        for (seq, entry) in seqs.zip(writer.frames_since(from)) {
            let tail = entry.frame.subject_tail();
            if !tail.is_empty() {
                self.by_tail.for_each_matching(tail, |entries| {
                    for Entry { armed, resume_seq } in entries.borrow_mut().drain(..) {
                        resume_seq.store(seq, Ordering::Release);
                        woken.push(armed);
                    }
                });
            }
        }
        self.checked = (first_seq, writer.written());
        self.len -= woken.len();
        woken
    }

    /// Removes and returns all cursors, which continue at `next`.
    fn take_all(&mut self, next: u64) -> Vec<SleepingCursor> {
        let mut woken = Vec::with_capacity(self.len);
        self.by_tail.retain(|entries| {
            for Entry { armed, resume_seq } in entries.get_mut().drain(..) {
                resume_seq.store(next, Ordering::Release);
                woken.push(armed);
            }
            false
        });
        (self.len, self.bytes) = (0, 0);
        woken
    }
}

impl LogContents {
    /// Removes and returns the cursors of the index that read any of the records just appended.
    #[inline(always)]
    pub(super) fn take_matching(&mut self) -> Vec<SleepingCursor> {
        match &mut self.sleeper_index {
            Some(index) if index.len > 0 => {
                // Sequence numbers can be compared only within one epoch. In a new epoch, all cursors are released.
                if index.epoch != self.epoch {
                    return index.take_all(ANYWHERE);
                }
                self.writer.as_ref().map_or_else(Vec::new, |writer| index.take_matching(writer))
            }
            _ => Vec::new(),
        }
    }

    /// Counts the `bytes` of a new segment. If a quarter of the history was written since the index was last emptied,
    /// removes and returns all cursors of the index, so that they skip ahead.
    pub(super) fn take_long_sleepers(&mut self, bytes: u64, memory_bytes: u64) -> Vec<SleepingCursor> {
        match &mut self.sleeper_index {
            Some(index) if index.len > 0 => {
                index.bytes += bytes;
                if index.bytes < memory_bytes / 4 {
                    return Vec::new();
                }
                index.take_all(if index.epoch == self.epoch { self.next_seq } else { ANYWHERE })
            }
            _ => Vec::new(),
        }
    }

    /// Removes and returns all sleeping cursors, because the log has to report something other than records.
    pub(super) fn take_all_sleepers(&mut self) -> Vec<SleepingCursor> {
        let mut all = self.sleepers.take_all();
        if let Some(index) = &mut self.sleeper_index {
            all.extend(index.take_all(ANYWHERE));
        }
        all
    }
}

impl Log {
    /// Whether cursors can sleep in an index. This is only possible if records are visible as soon as they are
    /// appended.
    pub(crate) fn has_index(&self) -> bool {
        !self.is_durable
    }

    /// Puts a cursor whose next record is `next` to sleep until a record with a matching subject tail arrives. Returns
    /// `false` if there is already something to read.
    pub(crate) fn arm_by_subject(
        &self,
        next: Position,
        waiter: &Arc<Waiter>,
        token: u32,
        subjects: (&Pattern, &ResumeSeq),
    ) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.has_events(next) {
            return false;
        }
        let index = state.sleeper_index.get_or_insert_default();
        if index.len == 0 {
            let checked = |writer: &SegmentWriter| (writer.segment().first_seq, writer.written());
            index.checked = state.writer.as_ref().map_or((state.next_seq, Commit::default()), checked);
            (index.bytes, index.epoch) = (0, state.epoch);
        }
        let (pattern, resume_seq) = subjects;
        resume_seq.store(ASLEEP, Ordering::Relaxed);
        let entry = Entry {
            armed: SleepingCursor { waiter: Arc::clone(waiter), token },
            resume_seq: Arc::clone(resume_seq),
        };
        match index.by_tail.get_mut(pattern) {
            Some(entries) => entries.get_mut().push(entry),
            None => {
                index.sweep();
                index.by_tail.insert(pattern, RefCell::new(vec![entry]));
            }
        }
        index.len += 1;
        true
    }

    /// If the cursor with this `resume_seq` still sleeps, returns the position after the newest record. The cursor can
    /// skip to this position, because no record for the cursor was appended since it went to sleep.
    pub(crate) fn end_if_asleep(&self, resume_seq: &ResumeSeq) -> Option<Position> {
        let state = self.lock();
        let index = state.sleeper_index.as_ref().filter(|index| index.epoch == state.epoch)?;
        let sleeps = index.len > 0 && resume_seq.load(Ordering::Acquire) == ASLEEP;
        sleeps.then_some(Position { epoch: state.epoch, seq: state.next_seq })
    }

    /// Removes the cursor with this pattern and this `resume_seq`. Returns `None` if the index has already released the
    /// cursor.
    pub(crate) fn disarm_by_subject(
        &self,
        (pattern, resume_seq): (&Pattern, &ResumeSeq),
    ) -> Option<SleepingCursor> {
        let mut state = self.lock();
        let index = state.sleeper_index.as_mut()?;
        let entries = index.by_tail.get_mut(pattern)?.get_mut();
        let at = entries.iter().position(|entry| Arc::ptr_eq(&entry.resume_seq, resume_seq))?;
        let entry = entries.swap_remove(at);
        if entries.is_empty() {
            index.by_tail.remove(pattern);
        }
        index.len -= 1;
        Some(entry.armed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::{Clock, TopicConfig};
    use crate::memory::MemoryBudget;
    use crate::publish::Publish as _;
    use crate::topic::Topic;

    #[test]
    fn index_drops_patterns_of_cursors_that_no_longer_sleep() {
        let config = TopicConfig { pattern: Some("a.>".to_owned()), ..TopicConfig::default() };
        let budget = MemoryBudget::node(1 << 30, 0);
        let topic = Arc::new(Topic::new("a", Arc::new(config), &budget, Clock::new(|| 1), 1).unwrap());
        let log = &topic.logs()[0];
        for number in 0..1_000 {
            let pattern = Pattern::parse(&number.to_string()).unwrap();
            let (waiter, resume_seq) = (Waiter::new(), ResumeSeq::default());
            let next = Position { epoch: 1, seq: log.last().seq + 1 };
            assert!(log.arm_by_subject(next, &waiter, 0, (&pattern, &resume_seq)));
            topic.publisher(&format!("a.{number}")).publish("reply").unwrap();
            assert!(waiter.is_ready() && log.disarm_by_subject((&pattern, &resume_seq)).is_none());
        }
        let patterns = log.lock().sleeper_index.as_ref().map(|index| index.by_tail.len());
        assert!(patterns.is_some_and(|patterns| patterns <= SWEEP_AT_LEAST), "{patterns:?}");
    }
}
