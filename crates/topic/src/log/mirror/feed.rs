//! Implements the feed of a mirror: the functions with which a mirror applies the records, states and notices that it
//! receives from the topic's owner.

use std::sync::atomic::Ordering;

use dunlin_frame::Frame;

use super::after;
use crate::checked_batch::CheckedBatch;
use crate::event::{EpochChanged, Position};
use crate::log::{AppendOptions, Log, LogContents, LossCause};
use crate::publish::PublishError;
use crate::reducer::ReducerError;

/// The reason why a mirror did not accept records from the topic's owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorFeedError {
    /// This process owns the log, or the log is closed.
    #[error(
        "the log accepts no records from another node, because this process owns the log or the log is closed"
    )]
    Own,
    /// The mirror is private and full. The mirror's subscriber has to read records first.
    #[error("the mirror is full: its subscriber must read records first")]
    Full,
    /// The memory budget is exhausted, or the reducer refuses the records.
    #[error("{0}")]
    Refused(PublishError),
    /// Records are missing between the mirror's state and the received records. The mirror needs a snapshot of the
    /// owner's state.
    #[error("the state of the mirror differs from the owner's")]
    StateLost,
}

impl Log {
    /// The position of the last record that the mirror has received, after which the feed continues; `None` before the
    /// feed has begun.
    pub fn fed_through(&self) -> Option<Position> {
        let state = self.lock();
        state.mirror().filter(|mirror| mirror.feed_started).map(|_| state.last())
    }

    /// Begins the feed: the next record that the owner sends follows the position `at`. Does nothing if the feed has
    /// already begun.
    pub fn feed_from(&self, at: Position) {
        let next = after(at);
        self.update_mirror(|state| {
            if state.mirror().is_some_and(|mirror| mirror.feed_started) {
                return;
            }
            if next.epoch > state.epoch {
                state.begin_epoch(next, false);
            } else if next.epoch == state.epoch && next.seq > state.next_seq {
                state.skip_to(next.seq);
            }
            // The feed starts at the mirror's next record. The mirror may still have earlier records; if the owner
            // sends them again, they are skipped.
            state.start_feed_at_end();
        });
    }

    /// Adds a batch of records from the owner. `first` is the position of the batch's first record. No record between
    /// `prev_seq` and `first` is missing: those in between were filtered, have expired, or are merged into the first
    /// record. Records that the mirror already has are skipped. If the log keeps a state and the batch is one merged
    /// record, this record changes only the state, and is not added to the log.
    pub fn feed(
        &self,
        first: Position,
        prev_seq: u64,
        batch: CheckedBatch<'_>,
    ) -> Result<(), MirrorFeedError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if !state.accepts_feed() {
            return Err(MirrorFeedError::Own);
        }
        let end = first.seq + u64::from(batch.count());
        if first.epoch < state.epoch || (first.epoch == state.epoch && end <= state.next_seq) {
            return Ok(());
        }
        let feed_started = state.feed_started();
        let continues = feed_started && first.epoch == state.epoch;
        if state.reducer_state().is_some() && !state.state_continues_with(first) {
            drop(guard);
            return self.feed_merged(first, prev_seq, &batch);
        }
        if first.epoch > state.epoch {
            state.begin_epoch(first, false);
        } else if first.seq > state.next_seq {
            if prev_seq < state.next_seq || !feed_started {
                state.skip_to(first.seq)
            } else {
                let lost_from = Position { epoch: state.epoch, seq: state.next_seq };
                self.record_known_loss(LossCause::Mirror, lost_from, Some(prev_seq));
                state.leave_gap_to(first.seq)
            }
        }
        if !continues {
            // The feed starts again at this position. If the feed has delivered records of an earlier epoch, the owner
            // reports the end of that epoch separately.
            state.start_feed_at_end();
        }
        let (bytes, count, time_ns) = without_known(batch, state.next_seq - first.seq);
        let append = AppendOptions { now_ns: time_ns, ..AppendOptions::default() };
        let pushed = self.make_room(state, bytes.len(), 0, &append).map(|writer| {
            let from = writer.written();
            writer.push(bytes.len(), count, |out| out.copy_from_slice(bytes));
            from
        });
        if let Err(refused) = pushed.and_then(|from| self.apply_to_state(state, from, &append)) {
            let error = MirrorFeedError::from(refused);
            if state.reducer_state().is_some() && error != MirrorFeedError::Full {
                state.invalidate_state();
            }
            return Err(error);
        }
        let time_ns = state.last_append_ns.max(time_ns);
        self.publish(guard, append, time_ns, count.into(), bytes.len() as u64);
        Ok(())
    }

    /// Applies a record at position `at` that merges all changes since `prev_seq`. Afterwards, the state equals the
    /// owner's state, but this log lacks the records in between.
    fn feed_merged(
        &self,
        at: Position,
        prev_seq: u64,
        batch: &CheckedBatch<'_>,
    ) -> Result<(), MirrorFeedError> {
        let merged = self.update_mirror(|state| {
            let follows = at.epoch == state.epoch && prev_seq + 1 == state.next_seq && batch.count() == 1;
            let frame = batch.frames().next().filter(|_| follows && state.feed_started())?;
            state.with_reducer(|reducer| reducer.check(&mut std::iter::once(frame))).ok()?;
            state.with_reducer(|reducer| reducer.apply(at.seq, &frame)).ok()?;
            state.skip_to(at.seq + 1);
            Some(())
        });
        match merged {
            None => Err(MirrorFeedError::Own),
            Some(Some(())) => Ok(()),
            Some(None) => {
                self.invalidate_state();
                Err(MirrorFeedError::StateLost)
            }
        }
    }

    /// Reports that the owner cannot send the records up to `last`, because it has dropped them. A log that keeps a
    /// state continues with the snapshot that the owner sends next.
    pub fn feed_gap(&self, last: Position) {
        self.update_mirror(|state| {
            if state.reducer_state().is_none() && last.epoch == state.epoch && last.seq >= state.next_seq {
                let first = Position { epoch: state.epoch, seq: state.next_seq };
                self.record_known_loss(LossCause::Mirror, first, Some(last.seq));
                state.leave_gap_to(last.seq + 1);
            }
        });
    }

    /// Warns the subscriber of a private mirror that the owner may drop records before the feed has read them: the feed
    /// has not read `behind` records, and the owner retains `retained` records.
    pub fn feed_lagging(&self, behind: u64, retained: u64) {
        if !self.is_private() {
            return;
        }
        self.update_mirror(|state| {
            let next_seq = state.next_seq;
            let end = next_seq.saturating_add(behind);
            state.mirror_or_new().at_owner = Some(end.saturating_sub(retained)..end);
            self.warn_before.store(next_seq.saturating_add(1), Ordering::Relaxed);
        });
    }

    /// Reports that the owner has begun a new epoch. If the log keeps a state and lacks a part of the old epoch, the
    /// log stays in the old epoch until the owner sends a snapshot. Subscribers therefore never see the state of one
    /// epoch in another.
    pub fn feed_epoch(&self, changed: &EpochChanged) {
        self.update_mirror(|state| {
            if changed.new_first.epoch > state.epoch {
                let is_complete = changed.old == state.epoch
                    && changed.known_through.is_some_and(|last| last + 1 == state.next_seq);
                if is_complete || state.reducer_state().is_none() {
                    state.begin_epoch(changed.new_first, is_complete);
                }
            }
        });
    }

    /// Replaces the state by the owner's state after the record at `position`. If the received state is older than the
    /// mirror's state, it is ignored, unless the mirror's state is marked as wrong.
    pub fn feed_state(&self, position: Position, snapshot: &[u8]) -> Result<(), ReducerError> {
        let next = after(position);
        let fed = self.update_mirror(|state| {
            let feed_started = state.feed_started();
            let end = Position { epoch: state.epoch, seq: state.next_seq };
            if next.epoch < end.epoch || feed_started && next < end {
                return Ok(());
            }
            if let Err(refused) = state.with_reducer(|reducer| reducer.restore(position.seq, snapshot)) {
                state.invalidate_state();
                return Err(refused);
            }
            if next.epoch > end.epoch {
                state.begin_epoch(next, false);
            } else if next.seq > end.seq {
                state.skip_to(next.seq);
            } else if next.seq < end.seq {
                state.rewind_to(next.seq);
            }
            if !feed_started {
                state.start_feed_at_end();
            }
            Ok(())
        });
        fed.unwrap_or(Ok(()))
    }

    /// Compares the checksum of the owner's state after the record at `position` with the mirror's state, if the mirror
    /// is at the same position. If the checksums differ, marks the mirror's state as wrong and returns `false`.
    pub fn feed_checksum(&self, position: Position, checksum: u64) -> bool {
        let agrees = self.state_info().is_none_or(|(at, info)| at != position || info.checksum == checksum);
        if !agrees {
            self.invalidate_state();
        }
        agrees
    }

    fn invalidate_state(&self) {
        self.update_mirror(LogContents::invalidate_state);
    }

    /// Drops all records of a mirror that has no subscribers. A new feed may then start at another position.
    pub fn clear_mirror(&self) {
        self.update_mirror(|state| {
            self.publisher_presence.set_unknown();
            state.drop_all();
            let mirror = state.mirror_or_new();
            (mirror.feed_started, mirror.was_owner) = (false, false);
            mirror.past.clear();
            mirror.skipped.clear();
            mirror.dropped_epoch = None;
        });
    }

    /// Closes the log of a deleted topic. A mirror may lack the owner's last records. Its subscribers therefore receive
    /// the remaining records, an [`EpochChanged`] that reports an unknown loss, and the end. `epoch` is an epoch of the
    /// topic. Does nothing if the log is already closed.
    ///
    /// A later topic with the same name may begin with the epoch that is reported. The reported position is therefore
    /// before the first record of that epoch: a subscriber that continues there misses nothing of the later topic.
    pub fn close_unfed(&self, epoch: u32) {
        if self.is_closed() {
            return;
        }
        self.update_mirror(|state| {
            if state.epoch == 0 {
                state.epoch = epoch;
            }
            let lost_from = Position { epoch: state.epoch, seq: state.next_seq };
            let next_epoch = state.epoch.max(epoch).saturating_add(1);
            state.begin_epoch(Position { epoch: next_epoch, ..lost_from }, false);
            let mirror = state.mirror_or_new();
            mirror.past.back_mut().into_iter().for_each(|past| past.next_start.seq = 1);
            (mirror.lost_from, mirror.feed_started) = (Some(lost_from), true);
        });
        self.close();
    }

    /// Calls `update` inside the log's lock, and wakes all sleeping cursors. Returns `None`, without the call, if the
    /// log is not a mirror or is closed.
    pub(in crate::log) fn update_mirror<T>(&self, update: impl FnOnce(&mut LogContents) -> T) -> Option<T> {
        let (outcome, dropped_payloads, armed) = {
            let mut guard = self.lock();
            if !guard.accepts_feed() {
                return None;
            }
            let outcome = update(&mut guard);
            (outcome, guard.take_dropped_payloads(), guard.take_all_sleepers())
        };
        drop(dropped_payloads);
        armed.into_iter().for_each(|armed| armed.waiter.notify(armed.token));
        Some(outcome)
    }
}

/// The batch without its first `known` records: the bytes, the number of records, and the append time of the last
/// record.
fn without_known(batch: CheckedBatch<'_>, known: u64) -> (&[u8], u32, u64) {
    let mut bytes = batch.bytes();
    for _ in 0..known {
        bytes = &bytes[Frame::split(bytes).map_or(0, |(_, stride)| stride)..];
    }
    let last = batch.frames().last().map_or(0, |frame| frame.append_time_ns());
    (bytes, batch.count() - known as u32, last)
}

impl From<PublishError> for MirrorFeedError {
    fn from(error: PublishError) -> MirrorFeedError {
        match error {
            PublishError::Full { .. } => MirrorFeedError::Full,
            other => MirrorFeedError::Refused(other),
        }
    }
}
