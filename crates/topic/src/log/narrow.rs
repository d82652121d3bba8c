//! An index of sleeping cursors by the subjects that they want.
//!
//! Without the index, a cursor that skips most subjects would wake for each record, check the record and
//! sleep again. The cost of a record would grow with the number of such cursors. With the index a record
//! wakes only the cursors that want it. A woken cursor continues at the record that woke it.
//!
//! Invariants:
//! - The index has checked every record that was appended since a cursor went to sleep.
//! - A cursor sleeps for at most a quarter of the history. The log then wakes the cursor to skip ahead, so
//!   that the skipped records do not look like a backlog.
//!
//! Limit: one entry for each such cursor.

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

/// The sequence number at which a cursor of the index continues: the first record that may be for the cursor. Also
/// [`ASLEEP`] or [`ANYWHERE`].
pub(crate) type ResumeSeq = Arc<AtomicU64>;

/// Value of [`ResumeSeq`]: the cursor is still in the index.
pub(crate) const ASLEEP: u64 = 0;
/// Value of [`ResumeSeq`]: the index has removed the cursor, which must check all records since it went to sleep.
pub(crate) const ANYWHERE: u64 = u64::MAX;

/// The index of sleeping cursors.
#[derive(Debug, Default)]
pub(super) struct SleeperIndex {
    by_tail: PatternIndex<RefCell<Vec<Entry>>>,
    len: usize,
    /// The last checked record: its segment's first sequence number, and how far that segment was checked.
    looked: (u64, Commit),
    /// The epoch of the checked records.
    epoch: u32,
    /// Bytes of history since the index last woke all its cursors.
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    armed: SleepingCursor,
    goes_on: ResumeSeq,
}

impl SleeperIndex {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Checks the records appended since the last call and removes the cursors that want them.
    fn take_wanted(&mut self, writer: &SegmentWriter) -> Vec<SleepingCursor> {
        let mut woken = Vec::new();
        let first_seq = writer.segment().first_seq;
        let from = if self.looked.0 == first_seq { self.looked.1 } else { Commit::default() };
        let seqs = first_seq + u64::from(from.count)..;
        for (seq, lying) in seqs.zip(writer.frames_since(from)) {
            let tail = lying.frame.subject_tail();
            if !tail.is_empty() {
                self.by_tail.for_each_matching(tail, |entries| {
                    for Entry { armed, goes_on } in entries.borrow_mut().drain(..) {
                        goes_on.store(seq, Ordering::Release);
                        woken.push(armed);
                    }
                });
            }
        }
        self.looked = (first_seq, writer.written());
        self.len -= woken.len();
        woken
    }

    /// Removes all cursors, to continue at `next`.
    fn take_all(&mut self, next: u64) -> Vec<SleepingCursor> {
        let mut woken = Vec::with_capacity(self.len);
        self.by_tail.retain(|entries| {
            for Entry { armed, goes_on } in entries.get_mut().drain(..) {
                goes_on.store(next, Ordering::Release);
                woken.push(armed);
            }
            false
        });
        (self.len, self.bytes) = (0, 0);
        woken
    }
}

impl LogContents {
    /// Removes the cursors that want the records just appended.
    #[inline(always)]
    pub(super) fn take_wanted(&mut self) -> Vec<SleepingCursor> {
        match &mut self.narrow {
            Some(narrow) if narrow.len > 0 => {
                // The index compares only sequence numbers of one epoch.
                if narrow.epoch != self.epoch {
                    return narrow.take_all(ANYWHERE);
                }
                self.writer.as_ref().map_or_else(Vec::new, |writer| narrow.take_wanted(writer))
            }
            _ => Vec::new(),
        }
    }

    /// Counts the bytes of a new segment. If the cursors of the index have slept for a quarter of the history, removes
    /// and returns all of them, so that they skip ahead.
    pub(super) fn take_slept_long(&mut self, bytes: u64, memory_bytes: u64) -> Vec<SleepingCursor> {
        match &mut self.narrow {
            Some(narrow) if narrow.len > 0 => {
                narrow.bytes += bytes;
                if narrow.bytes < memory_bytes / 4 {
                    return Vec::new();
                }
                narrow.take_all(if narrow.epoch == self.epoch { self.next_seq } else { ANYWHERE })
            }
            _ => Vec::new(),
        }
    }

    /// Removes all sleepers, because the log has to report something other than records.
    pub(super) fn take_all_sleepers(&mut self) -> Vec<SleepingCursor> {
        let mut all = self.sleepers.take_all();
        if let Some(narrow) = &mut self.narrow {
            all.extend(narrow.take_all(ANYWHERE));
        }
        all
    }
}

impl Log {
    /// Whether cursors can sleep in the index. They can if records are visible as soon as they are appended.
    pub(crate) fn has_index(&self) -> bool {
        !self.is_durable
    }

    /// Puts a cursor to sleep until a record with a matching subject tail arrives; `false` if there is something to
    /// read.
    pub(crate) fn arm_narrow(
        &self,
        next: Position,
        waiter: &Arc<Waiter>,
        token: u32,
        wants: (&Pattern, &ResumeSeq),
    ) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.has_news(next) {
            return false;
        }
        let narrow = state.narrow.get_or_insert_default();
        if narrow.len == 0 {
            let looked = |writer: &SegmentWriter| (writer.segment().first_seq, writer.written());
            narrow.looked = state.writer.as_ref().map_or((state.next_seq, Commit::default()), looked);
            (narrow.bytes, narrow.epoch) = (0, state.epoch);
        }
        let (pattern, goes_on) = wants;
        goes_on.store(ASLEEP, Ordering::Relaxed);
        let entry = Entry {
            armed: SleepingCursor { waiter: Arc::clone(waiter), token },
            goes_on: Arc::clone(goes_on),
        };
        match narrow.by_tail.get_mut(pattern) {
            Some(entries) => entries.get_mut().push(entry),
            None => drop(narrow.by_tail.insert(pattern, RefCell::new(vec![entry]))),
        }
        narrow.len += 1;
        true
    }

    /// The position after the newest record, if none of the records up to that one was for this sleeping cursor.
    pub(crate) fn slept_through(&self, goes_on: &ResumeSeq) -> Option<Position> {
        let state = self.lock();
        let narrow = state.narrow.as_ref().filter(|narrow| narrow.epoch == state.epoch)?;
        let sleeps = narrow.len > 0 && goes_on.load(Ordering::Acquire) == ASLEEP;
        sleeps.then_some(Position { epoch: state.epoch, seq: state.next_seq })
    }

    /// Removes the cursor; returns `None` if the index has already removed it to wake it.
    pub(crate) fn disarm_narrow(&self, (pattern, goes_on): (&Pattern, &ResumeSeq)) -> Option<SleepingCursor> {
        let mut state = self.lock();
        let narrow = state.narrow.as_mut()?;
        let entries = narrow.by_tail.get_mut(pattern)?.get_mut();
        let at = entries.iter().position(|entry| Arc::ptr_eq(&entry.goes_on, goes_on))?;
        let entry = entries.swap_remove(at);
        if entries.is_empty() {
            narrow.by_tail.remove(pattern);
        }
        narrow.len -= 1;
        Some(entry.armed)
    }
}
