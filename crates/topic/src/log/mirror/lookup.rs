//! Looks up positions in a log that has changed owners. A record may be in this log, only at the owner, or lost.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Mirror, PastEpoch, after};
use crate::event::{EpochChanged, Gap, Position};
use crate::log::{Log, LogContents, Lookup};
use crate::subscribe::{OnGap, Start, SubscribeError, SubscribeOptions};

/// How a lookup treats records that the mirror never had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) enum UnfedPolicy {
    /// The subscriber reads these records from the owner.
    ReadFromOwner,
    /// These records are lost to the subscriber, which receives a gap.
    ReportGap,
    /// The subscriber requested no start position. It skips these records without a gap.
    Skip,
}

impl Mirror {
    /// Whether the log is known not to include this record of an earlier epoch. Sequence numbers continue across
    /// epochs, or restart with 1. An epoch that starts at or below the record's sequence number therefore does not
    /// include the record. Only the owner knows this; a mirror returns `false`.
    pub(in crate::log) fn lacks(&self, epoch: u32, record: Position) -> bool {
        let is_before = |first: Position| record.epoch < first.epoch && first.seq <= record.seq;
        let present = match self.fed_from.epoch == epoch {
            true => self.fed_from,
            false => Position { epoch, seq: self.first_seq.max(1) },
        };
        let starts = self.past.iter().map(|past| past.next_start);
        self.is_owner && starts.chain([self.fed_from, present]).any(is_before)
    }

    /// The last record of the earlier epoch to which `next` belongs, if all records of that epoch are known.
    pub(in crate::log) fn end_of(&self, next: Position) -> Option<u64> {
        let is_end =
            |past: &&PastEpoch| past.epoch == next.epoch && past.is_complete && next.seq <= past.next_seq;
        Some(self.past.iter().find(is_end)?.next_seq - 1)
    }
}

impl Log {
    /// Like [`Log::find`], but for a subscriber that cannot read at another node. `is_requested` states whether the
    /// subscriber requested a position or already had a position.
    pub(crate) fn find_local(&self, next: Position, on_gap: OnGap, is_requested: bool) -> Lookup {
        let unfed = if is_requested { UnfedPolicy::ReportGap } else { UnfedPolicy::Skip };
        self.find_mirrored(&self.lock(), next, on_gap, unfed)
    }

    /// Returns a private mirror for a subscriber with this start, if this log lacks records that the subscriber needs.
    #[cold]
    pub(crate) fn find_private_mirror(
        self: &Arc<Log>,
        options: &SubscribeOptions,
        start: Start,
    ) -> Option<Arc<Log>> {
        let upstream = self.upstream.get()?;
        let registered = options.registered && self.config().reliable.is_some();
        let has_records = {
            let state = self.lock();
            let mirror = state.mirror().filter(|mirror| mirror.is_shared())?;
            match start {
                _ if registered => false,
                _ if options.follows_state() => true,
                Start::Latest | Start::Snapshot => true,
                Start::Earliest | Start::Time(_) => false,
                Start::After(_) if !mirror.feed_started => false,
                Start::After(at) => state.can_continue_after(mirror, at),
            }
        };
        if has_records { None } else { upstream.private_mirror(self, start, registered) }
    }

    /// Checks whether this log can feed another node from this start. If this log is a mirror, the other node must read
    /// from the owner, because a mirror does not know the records before its first one.
    #[cold]
    pub(crate) fn check_can_feed(&self, start: Start) -> Result<(), SubscribeError> {
        let state = self.lock();
        let Some(mirror) = state.mirror().filter(|mirror| !mirror.is_owner && !mirror.was_owner) else {
            return Ok(());
        };
        let has_records = match start {
            Start::After(at) => state.had_records_from(mirror, after(at)),
            Start::Earliest | Start::Time(_) => state.had_records_from(mirror, Position::default()),
            Start::Latest | Start::Snapshot => true,
        };
        if mirror.feed_started && has_records {
            return Ok(());
        }
        let topic = &self.name.topic;
        Err(SubscribeError::OwnerAway(format!("topic {topic:?}: this node is not its owner")))
    }

    /// Like [`Log::find`], but for a log that has changed owners.
    #[cold]
    pub(in crate::log) fn find_mirrored(
        &self,
        state: &LogContents,
        next: Position,
        on_gap: OnGap,
        unfed: UnfedPolicy,
    ) -> Lookup {
        let Some(mirror) = state.mirror() else { return Lookup::Nothing };
        if next.epoch == state.epoch {
            return match next.seq.cmp(&state.next_seq) {
                Ordering::Less => self.find_within(state, mirror, next, state.next_seq, on_gap, unfed),
                Ordering::Equal => state.find_at_end(next.seq),
                // The subscriber has read more records at another node than this node has. The feed will deliver those
                // records to this log.
                Ordering::Greater => Lookup::Nothing,
            };
        }
        if next.epoch > state.epoch {
            return Lookup::Nothing;
        }
        match mirror.past.iter().find(|past| past.epoch == next.epoch) {
            Some(past) if next.seq < past.next_seq => {
                self.find_within(state, mirror, next, past.next_seq, on_gap, unfed)
            }
            // Before the start of the feed, there may have been more records and epochs, which only the owner knows.
            _ if unfed == UnfedPolicy::ReadFromOwner && mirror.is_shared() && next < mirror.fed_from => {
                Lookup::PrivateMirror
            }
            Some(past) => {
                let is_end_known = past.is_complete && next.seq == past.next_seq;
                self.epoch_changed_in_mirror(
                    mirror,
                    next,
                    unfed,
                    is_end_known.then(|| past.next_seq - 1),
                    past.next_start,
                )
            }
            None => {
                let dropped = mirror.dropped_epoch.filter(|past| past.epoch == next.epoch);
                let known = dropped.map(|past| past.next_seq - 1).filter(|&last| last >= next.seq);
                let at = |seq| Position { epoch: mirror.epoch_of(state, seq), seq };
                // Records of the new epoch that are not retained are reported by the next lookup.
                let new_first = match on_gap {
                    OnGap::Newest | OnGap::Snapshot => at(state.next_seq),
                    _ if unfed == UnfedPolicy::Skip => at(state.oldest_seq(&self.config)),
                    _ => mirror
                        .epoch_start_after(next.epoch)
                        .unwrap_or_else(|| at(state.oldest_seq(&self.config))),
                };
                self.epoch_changed_in_mirror(mirror, next, unfed, known, new_first)
            }
        }
    }

    /// Looks up a position of an epoch whose known end is `end`. The position is before `end`.
    fn find_within(
        &self,
        state: &LogContents,
        mirror: &Mirror,
        next: Position,
        end: u64,
        on_gap: OnGap,
        unfed: UnfedPolicy,
    ) -> Lookup {
        if let Some(skip) = mirror.skipped.iter().find(|skip| skip.contains(&next.seq)) {
            return Lookup::Skip(Position { seq: skip.end.min(end), ..next });
        }
        let retained = next.seq >= state.oldest_seq(&self.config) || self.config.reliable.is_some();
        if retained && let Some(segment) = state.segment_of(next.seq) {
            return Lookup::Segment(Arc::clone(segment));
        }
        let was_fed = next >= mirror.fed_from && !mirror.owner_is_durable;
        let is_at_owner = unfed == UnfedPolicy::ReadFromOwner && mirror.is_shared() && !was_fed;
        if is_at_owner && next.seq < state.oldest_in_memory() {
            return Lookup::PrivateMirror;
        }
        let skips_to_end = matches!(on_gap, OnGap::Newest | OnGap::Snapshot);
        let begin = if skips_to_end { end } else { state.first_after(next.seq, &self.config).min(end) };
        let gap = Gap { log: Arc::clone(&self.name), epoch: next.epoch, first: next.seq, last: begin - 1 };
        Lookup::Gap(gap, Position { seq: begin, ..next })
    }

    fn epoch_changed_in_mirror(
        &self,
        mirror: &Mirror,
        next: Position,
        unfed: UnfedPolicy,
        known_through: Option<u64>,
        mut new_first: Position,
    ) -> Lookup {
        let is_lost = mirror.is_owner || unfed == UnfedPolicy::ReportGap;
        if is_lost && next < mirror.fed_from && new_first.epoch == mirror.fed_from.epoch {
            // The feed began within the new epoch, and no other node has earlier records. The log therefore reports a
            // gap for all records before the feed. The gap may be too large, because sequence numbers may have
            // restarted.
            new_first.seq = 1;
        }
        let last_seen = next.seq.saturating_sub(1);
        let log = Arc::clone(&self.name);
        Lookup::EpochChanged(EpochChanged { log, old: next.epoch, last_seen, known_through, new_first })
    }
}
