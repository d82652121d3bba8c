//! Looks up positions in a log that is or was a mirror. A record may be in this log, only at the owner, or lost.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Mirror, PastEpoch, after};
use crate::event::{EpochChanged, Gap, Position};
use crate::log::{Log, LogContents, Lookup};
use crate::subscribe::{OnGap, Start, SubscribeError, SubscribeOptions};

/// How a lookup treats records that the mirror never had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) enum UnfedPolicy {
    /// The subscriber reads the records from the owner.
    ReadFromOwner,
    /// The subscriber cannot read the records any more, and receives a gap.
    ReportGap,
    /// The subscriber requested no start position, and therefore skips the records without a gap.
    Skip,
}

impl Mirror {
    /// Whether this log is known to lack `record`, a record of an earlier epoch than `epoch`, the present one. A later
    /// epoch that starts at or below the record's sequence number took the number for another record, so the record is
    /// lost. Only the owner can know this; for a mirror, the result is `false`.
    pub(in crate::log) fn lacks(&self, epoch: u32, record: Position) -> bool {
        let is_before = |first: Position| record.epoch < first.epoch && first.seq <= record.seq;
        let present = match self.fed_from.epoch == epoch {
            true => self.fed_from,
            false => Position { epoch, seq: self.first_seq.max(1) },
        };
        let starts = self.past.iter().map(|past| past.next_start);
        self.is_owner && starts.chain([self.fed_from, present]).any(is_before)
    }

    /// Sequence number of the last record in the earlier epoch to which `next` belongs. `None` if the mirror may not
    /// have all records of this epoch.
    pub(in crate::log) fn end_of(&self, next: Position) -> Option<u64> {
        let is_end =
            |past: &&PastEpoch| past.epoch == next.epoch && past.is_complete && next.seq <= past.next_seq;
        Some(self.past.iter().find(is_end)?.next_seq - 1)
    }
}

impl Log {
    /// Like [`Log::find`], but for a subscriber that cannot read from another node. `is_requested` states whether the
    /// subscriber requested its position, or has read up to it.
    pub(crate) fn find_local(&self, next: Position, on_gap: OnGap, is_requested: bool) -> Lookup {
        let unfed = if is_requested { UnfedPolicy::ReportGap } else { UnfedPolicy::Skip };
        self.find_mirrored(&self.lock(), next, on_gap, unfed)
    }

    /// For a subscriber with this start: returns a private mirror if this shared mirror lacks records that the
    /// subscriber needs, and `None` if the subscriber can use this log.
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
        if has_records {
            return None;
        }
        upstream.private_mirror(self, start, registered, options.keeps_history)
    }

    /// Checks whether this log can feed a mirror at another node from this start. If this log is itself a mirror and
    /// lacks the records after the start, the other node has to read from the owner.
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

    /// Like [`Log::find`], but for a log that is or was a mirror.
    #[cold]
    pub(in crate::log) fn find_mirrored(
        &self,
        state: &LogContents,
        next: Position,
        on_gap: OnGap,
        unfed: UnfedPolicy,
    ) -> Lookup {
        let Some(mirror) = state.mirror() else { return Lookup::Nothing };
        let end_after_loss = state.end_after_loss();
        if end_after_loss.is_some() && next.epoch >= state.epoch {
            return self.find_after_loss(next);
        }
        if next.epoch == state.epoch {
            return match next.seq.cmp(&state.next_seq) {
                Ordering::Less => self.find_within(state, mirror, next, state.next_seq, on_gap, unfed),
                Ordering::Equal => state.find_at_end(next.seq),
                // The subscriber has already read later records at another node. The feed will deliver the records up
                // to the subscriber's position to this log.
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
            // Before the feed of this mirror started, there may have been more records and epochs. Only the owner knows
            // them.
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
                let at = |seq| {
                    let found = Position { epoch: mirror.epoch_of(state, seq), seq };
                    end_after_loss.map_or(found, |end| found.min(end))
                };
                // If records at the start of the new epoch are not retained, the next lookup reports them.
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

    /// Looks up a position after the last known record of a log that was closed without the owner's last records. A
    /// subscriber may have read such records at another node, and then receives the report of the loss, too.
    fn find_after_loss(&self, next: Position) -> Lookup {
        if next.seq <= 1 {
            return Lookup::Closed;
        }
        let new_first = Position { epoch: next.epoch.saturating_add(1), seq: 1 };
        let (log, last_seen) = (Arc::clone(&self.name), next.seq - 1);
        let changed = EpochChanged { log, old: next.epoch, last_seen, known_through: None, new_first };
        Lookup::EpochChanged(changed)
    }

    /// Looks up a position that is before `end`, the known end of the position's epoch.
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
            // The feed began in the middle of the new epoch, and no other node has the earlier records. The next lookup
            // therefore reports all records of the epoch before the feed as a gap. This gap may be too large, because
            // the epoch may have begun at a higher sequence number than 1.
            new_first.seq = 1;
        }
        let last_seen = next.seq.saturating_sub(1);
        let log = Arc::clone(&self.name);
        Lookup::EpochChanged(EpochChanged { log, old: next.epoch, last_seen, known_through, new_first })
    }
}
