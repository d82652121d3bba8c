//! Looks up positions in a durable log. Its history is partly in memory and partly on disk, and may span several
//! epochs.
//!
//! A subscriber reads the epochs one by one. For each range of records that an epoch lacks, the subscriber receives a
//! gap. At the end of each epoch, it receives an [`EpochChanged`] notice. No sequence number is therefore skipped
//! silently.

use std::sync::Arc;

use crate::config::TopicConfig;
use crate::event::{EpochChanged, Gap, Position};
use crate::lock::LogGuard;
use crate::log::stored::DiskProgress;
use crate::log::{Log, LogContents, Lookup};
use crate::segment::Segment;
use crate::store::{DiskContent, ReadDeferred, Store};
use crate::subscribe::OnGap;

/// The result of the part of a lookup that runs inside the log's lock.
enum StoredLookup {
    Lookup(Lookup),
    /// The record is on disk. It must be loaded outside of the lock.
    OnDisk {
        store: Arc<dyn Store>,
        /// The sequence number directly after the last record of the epoch.
        end: u64,
        /// The value of [`DiskProgress::retries`] at the time of the lookup.
        retries: u64,
    },
}

impl LogContents {
    pub(super) fn oldest(&self, config: &TopicConfig) -> Position {
        let seq = self.oldest_seq(config);
        let epoch = self.stored().map_or_else(|| self.mirrored_epoch_of(seq), |stored| stored.epoch_of(seq));
        Position { epoch, seq }
    }
}

impl LogContents {
    /// Sequence number of the last record in the earlier epoch to which `next` belongs. `None` if the epoch may have
    /// had later records.
    fn known_end_of(&self, next: Position) -> Option<u64> {
        match self.stored() {
            Some(stored) => {
                stored.end_of(next).and_then(|(last, begin)| DiskProgress::known_through(next, last, &begin))
            }
            None => self.mirror().and_then(|mirror| mirror.end_of(next)),
        }
    }
}

impl Log {
    /// Sequence number of the last record in the epoch of `at`, the last record that a subscriber has received. `None`
    /// if the epoch may have had later records, or if `epoch` is not the next known epoch. Members of groups receive
    /// this number, as other subscribers do, although a group has no position for each member.
    #[cold]
    pub fn end_of_epoch(&self, at: Position, epoch: u32) -> Option<u64> {
        self.first_after_epoch(at.epoch).filter(|first| first.epoch == epoch)?;
        self.lock().known_end_of(Position { seq: at.seq.saturating_add(1), ..at })
    }

    /// Like [`Log::find`], but for a durable log.
    #[cold]
    pub(super) fn find_stored(
        &self,
        state: LogGuard<'_, LogContents>,
        next: Position,
        on_gap: OnGap,
    ) -> Lookup {
        let found = self.find_locked(&state, next, on_gap);
        drop(state);
        match found {
            StoredLookup::Lookup(lookup) => lookup,
            StoredLookup::OnDisk { store, end, retries } => match store.load(next) {
                DiskContent::Segment(segment) => Lookup::Segment(segment.into_segment()),
                DiskContent::Lost { through } => self.gap(next, through.clamp(next.seq, end - 1)),
                DiskContent::Later => Lookup::Later { retries },
            },
        }
    }

    fn find_locked(&self, state: &LogContents, next: Position, on_gap: OnGap) -> StoredLookup {
        let Some(stored) = state.stored() else { return StoredLookup::Lookup(Lookup::Nothing) };
        let visible_next = stored.synced + 1;
        let oldest = state.oldest_seq(&self.config);
        let end = if next.epoch == state.epoch {
            if next.seq >= visible_next {
                return StoredLookup::Lookup(self.find_at_stored_end(state, next));
            }
            visible_next
        } else {
            let Some((last, begin)) = stored.end_of(next) else {
                let resume_at = match on_gap {
                    OnGap::Newest | OnGap::Snapshot => Position { epoch: state.epoch, seq: visible_next },
                    // A cursor must not return to an earlier epoch. It continues at the start of the next epoch, or at
                    // the log's oldest record if that is later.
                    OnGap::Oldest | OnGap::Fail => {
                        let oldest = state.oldest(&self.config);
                        stored.after(next.epoch).map_or(oldest, |begin| begin.max(oldest))
                    }
                };
                return StoredLookup::Lookup(self.epoch_changed(next, None, resume_at));
            };
            if next.seq > last {
                let known_through = DiskProgress::known_through(next, last, &begin);
                let begin = Position { epoch: begin.epoch, seq: begin.first_seq };
                return StoredLookup::Lookup(self.epoch_changed(next, known_through, begin));
            }
            last + 1
        };
        if next.seq < oldest {
            let resume_at =
                if matches!(on_gap, OnGap::Newest | OnGap::Snapshot) { end } else { oldest.min(end) };
            return StoredLookup::Lookup(self.gap(next, resume_at - 1));
        }
        match state.segment_of(next.seq) {
            Some(segment) => StoredLookup::Lookup(Lookup::Segment(Arc::clone(segment))),
            None => StoredLookup::OnDisk { store: Arc::clone(&stored.store), end, retries: stored.retries },
        }
    }

    /// Returns the change from an earlier epoch to the present end of the log, for a follower of the state, which
    /// receives the state instead of the earlier epoch's remaining records. `None` if `next` is in the present epoch.
    #[cold]
    pub(crate) fn epoch_end_for_follower(&self, next: Position) -> Option<EpochChanged> {
        let state = self.lock();
        let end = Position { epoch: state.epoch, seq: state.visible_next() };
        if next.epoch >= end.epoch {
            return None;
        }
        let known_through = state.known_end_of(next);
        let last_seen = next.seq.saturating_sub(1);
        let log = Arc::clone(&self.name);
        let new_first = state.end_after_loss().unwrap_or(end);
        Some(EpochChanged { log, old: next.epoch, last_seen, known_through, new_first })
    }

    /// Looks up the position directly after all visible records. A record becomes visible once it is on disk.
    fn find_at_stored_end(&self, state: &LogContents, next: Position) -> Lookup {
        let next_is_in = |segment: &&Arc<Segment>| {
            segment.first_seq + u64::from(segment.commit().count) == next.seq && segment.first_seq <= next.seq
        };
        match state.writer.as_ref().map(|writer| writer.segment()).filter(next_is_in) {
            Some(segment) => Lookup::Segment(Arc::clone(segment)),
            None if state.has_ended() => Lookup::Closed,
            None => Lookup::Nothing,
        }
    }

    fn gap(&self, next: Position, last: u64) -> Lookup {
        let gap = Gap { log: Arc::clone(&self.name), epoch: next.epoch, first: next.seq, last };
        Lookup::Gap(gap, Position { seq: last + 1, ..next })
    }

    fn epoch_changed(&self, next: Position, known_through: Option<u64>, new_first: Position) -> Lookup {
        Lookup::EpochChanged(EpochChanged {
            log: Arc::clone(&self.name),
            old: next.epoch,
            last_seen: next.seq.saturating_sub(1),
            known_through,
            new_first,
        })
    }

    /// Returns a position from which a subscriber finds all records that were appended at the time `ns` or later.
    pub(super) fn position_since(&self, state: LogGuard<'_, LogContents>, ns: u64) -> Position {
        let oldest = state.oldest(&self.config);
        let end = Position { epoch: state.epoch, seq: state.visible_next() };
        // The search uses the segments in memory if the oldest of them ends before `ns`. Otherwise, the wanted record
        // may be older than all segments in memory, so that the store is searched.
        let in_memory = state.retained.front().filter(|retained| retained.last_append_ns < ns).map(|_| {
            let after = state.retained.partition_point(|retained| retained.last_append_ns < ns);
            let tail = || state.writer.as_ref().map_or(state.next_seq, |w| w.segment().first_seq);
            let seq = state.retained.get(after).map_or_else(tail, |retained| retained.segment.first_seq);
            Position { seq: seq.min(end.seq), ..end }
        });
        let store = state.stored().map(|stored| Arc::clone(&stored.store));
        drop(state);
        in_memory.or_else(|| store?.seek_time(ns)).unwrap_or(end).max(oldest)
    }

    /// Loads the segment of record `seq` from disk, because the record is not in memory. [`Log::try_read`] calls this
    /// function. `None` if the record is not retained, or if the log is not durable.
    #[cold]
    pub(super) fn load_record(
        &self,
        state: LogGuard<'_, LogContents>,
        seq: u64,
    ) -> Result<Option<(Arc<Segment>, u32)>, ReadDeferred> {
        let is_stored = |stored: &&DiskProgress| (stored.oldest_seq..=stored.synced).contains(&seq);
        let Some(stored) = state.stored().filter(is_stored) else { return Ok(None) };
        let epoch = stored.epoch_of(seq);
        let store = Arc::clone(&stored.store);
        drop(state);
        match store.load(Position { epoch, seq }) {
            DiskContent::Segment(segment) => Ok(Some((segment.into_segment(), epoch))),
            DiskContent::Lost { .. } => Ok(None),
            DiskContent::Later => Err(ReadDeferred),
        }
    }
}

impl LogContents {
    /// Whether the log has ended: it is closed, and each of its records is visible or can never become visible.
    pub(super) fn has_ended(&self) -> bool {
        self.closed
            && self.stored().is_none_or(|stored| stored.synced + 1 == self.next_seq || stored.info().failed)
    }
}
