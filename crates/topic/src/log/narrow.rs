//! Cursors that sleep until a record of their subjects comes: an index from subject to those that want it.
//!
//! A cursor that skips most of a log's subjects would be woken for each record, look at it, and go back to sleep: with many such
//! cursors each record costs as much as all of them. Here a record wakes those that want it, and nobody else. A cursor that
//! is woken goes on at the record that woke it: what lies before it was for other subjects.
//!
//! Invariants:
//! - The index has seen every record that was appended since a cursor went to sleep.
//! - A cursor sleeps no longer than a quarter of the history takes: it is woken then to go on behind what it skipped, so that
//!   neither it nor whoever looks at its position takes that for a backlog.
//!
//! Limit: one entry for each cursor that sleeps so.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::Position;
use crate::log::sleepers::Armed;
use crate::log::{Log, State};
use crate::pattern_index::PatternIndex;
use crate::segment::{Commit, Writer};
use crate::subject::Pattern;
use crate::wake::Waiter;

/// Where a cursor that sleeps so goes on: the first record that may be for it, [`ASLEEP`] or [`ANYWHERE`].
pub(crate) type GoesOn = Arc<AtomicU64>;

/// It is in the index.
pub(crate) const ASLEEP: u64 = 0;
/// It was taken out, and has to look at all that came since.
pub(crate) const ANYWHERE: u64 = u64::MAX;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Narrow {
    by_tail: PatternIndex<RefCell<Vec<Entry>>>,
    len: usize,
    /// Up to where the records were looked at: the first sequence of a segment, and how much of it.
    looked: (u64, Commit),
    /// Of which epoch they were.
    epoch: u32,
    /// Bytes of history since all were woken last.
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    armed: Armed,
    goes_on: GoesOn,
}

impl Narrow {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Looks at what was appended since it did last, and takes out whom that is for.
    fn take_wanted(&mut self, writer: &Writer) -> Vec<Armed> {
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

    /// Takes all out, to go on at `next`.
    fn take_all(&mut self, next: u64) -> Vec<Armed> {
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

impl State {
    /// Those that the records appended just now are for.
    #[inline(always)]
    pub(super) fn take_wanted(&mut self) -> Vec<Armed> {
        match &mut self.narrow {
            Some(narrow) if narrow.len > 0 => {
                // Numbers of two epochs are not compared.
                if narrow.epoch != self.epoch {
                    return narrow.take_all(ANYWHERE);
                }
                self.writer.as_ref().map_or_else(Vec::new, |writer| narrow.take_wanted(writer))
            }
            _ => Vec::new(),
        }
    }

    /// A segment of so many bytes was begun. Those that have slept for long go on behind what they skipped.
    pub(super) fn take_slept_long(&mut self, bytes: u64, memory_bytes: u64) -> Vec<Armed> {
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

    /// All that sleep, in whatever way: the log has more to tell than records.
    pub(super) fn take_all_sleepers(&mut self) -> Vec<Armed> {
        let mut all = self.sleepers.take_all();
        if let Some(narrow) = &mut self.narrow {
            all.extend(narrow.take_all(ANYWHERE));
        }
        all
    }
}

impl Log {
    /// Whether cursors may sleep here until a record of their subjects comes: records are seen when they are appended.
    pub(crate) fn has_index(&self) -> bool {
        !self.is_durable
    }

    /// Puts a cursor to sleep that wants subjects whose tails match the pattern, unless there is something to look at.
    pub(crate) fn arm_narrow(
        &self,
        next: Position,
        waiter: &Arc<Waiter>,
        token: u32,
        wants: (&Pattern, &GoesOn),
    ) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.has_news(next) {
            return false;
        }
        let narrow = state.narrow.get_or_insert_default();
        if narrow.len == 0 {
            let looked = |writer: &Writer| (writer.segment().first_seq, writer.written());
            narrow.looked = state.writer.as_ref().map_or((state.next_seq, Commit::default()), looked);
            (narrow.bytes, narrow.epoch) = (0, state.epoch);
        }
        let (pattern, goes_on) = wants;
        goes_on.store(ASLEEP, Ordering::Relaxed);
        let entry =
            Entry { armed: Armed { waiter: Arc::clone(waiter), token }, goes_on: Arc::clone(goes_on) };
        match narrow.by_tail.get_mut(pattern) {
            Some(entries) => entries.get_mut().push(entry),
            None => drop(narrow.by_tail.insert(pattern, RefCell::new(vec![entry]))),
        }
        narrow.len += 1;
        true
    }

    /// Behind the newest record, if all up to there was for others than this cursor, which sleeps.
    pub(crate) fn slept_through(&self, goes_on: &GoesOn) -> Option<Position> {
        let state = self.lock();
        let narrow = state.narrow.as_ref().filter(|narrow| narrow.epoch == state.epoch)?;
        let sleeps = narrow.len > 0 && goes_on.load(Ordering::Acquire) == ASLEEP;
        sleeps.then_some(Position { epoch: state.epoch, seq: state.next_seq })
    }

    /// Takes the cursor out; `None` when it was taken out before, to be woken.
    pub(crate) fn disarm_narrow(&self, (pattern, goes_on): (&Pattern, &GoesOn)) -> Option<Armed> {
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
