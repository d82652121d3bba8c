//! The part of a cursor for followers: subscribers that keep a copy of a log's state. A follower whose copy lacks
//! records receives a catch-up: the records merged into one, or a snapshot of the state.
//!
//! Limit: a follower receives a checksum at most twice a second, and only when it has read everything.

use std::sync::Arc;

use super::{Cursor, Hint, ReadOutcome};
use crate::event::{Notice, Position};
use crate::log::{CatchUp, CatchUpRequest, Lookup, ReportedPresence, Visibility};
use crate::subscribe::{Resync, Start};
use crate::wake::Waiter;

/// The shortest time between two checksums, ns.
const CHECK_NS_MIN: u64 = 500_000_000;

#[derive(Debug, Default)]
pub(super) struct FollowerState {
    pub(super) conflate: bool,
    /// The catch-up to compute at the next read.
    pub(super) request: Option<CatchUpRequest>,
    /// The computed catch-up. It waits for the pending notice, or until subscribers may receive it.
    catch_up: Option<CatchUp>,
    /// The cursor's position when the last checksum or snapshot was delivered.
    checked: Position,
    checked_ns: u64,
    /// The publisher presence that was reported last.
    reported: ReportedPresence,
}

impl FollowerState {
    /// Creates the state of a follower. At first, a follower receives the publisher presence only if no publisher is
    /// connected; with `resumes`, in any case.
    pub(super) fn new(conflate: bool, request: Option<CatchUpRequest>, resumes: bool) -> FollowerState {
        FollowerState {
            conflate,
            request,
            reported: ReportedPresence::new(resumes),
            ..FollowerState::default()
        }
    }
}

impl Cursor {
    /// Returns what the next read delivers: the pending catch-up or, for a conflated cursor, the changes since its last
    /// read. `None` if the cursor has to read record by record.
    #[cold]
    #[inline(never)]
    pub(super) fn follow(&mut self) -> Option<ReadOutcome> {
        let follower = self.follower.as_mut()?;
        if follower.request.is_some() && !self.log.is_positioned() {
            return Some(ReadOutcome::Empty);
        }
        if let Some(request) = follower.request.take() {
            follower.catch_up = Some(self.log.catch_up(request));
        }
        if let Some(catch_up) = follower.catch_up.take() {
            return self.take_when_visible(catch_up);
        }
        if !follower.conflate || self.ended {
            return None;
        }
        if !self.may_have_records() {
            return None;
        }
        let last = self.log.last();
        if last.epoch != self.next.epoch || last.seq < self.next.seq {
            // The ordinary lookup comes after this one. It reports a new epoch, or finds nothing to read.
            self.hint = Hint::None;
            return None;
        }
        let since = Position { seq: self.next.seq - 1, ..self.next };
        let catch_up = self.log.catch_up(CatchUpRequest::Since(since));
        self.take_when_visible(catch_up)
    }

    /// Delivers the catch-up if subscribers may already receive its last record. If they may do so later, keeps the
    /// catch-up for a later read.
    fn take_when_visible(&mut self, catch_up: CatchUp) -> Option<ReadOutcome> {
        match self.log.visibility(catch_up.position()) {
            Visibility::Now => self.apply_catch_up(catch_up),
            Visibility::Later => {
                self.follower.as_mut()?.catch_up = Some(catch_up);
                Some(ReadOutcome::Empty)
            }
            Visibility::Never => None,
        }
    }

    /// The position of the record for which a sleeping cursor waits.
    pub(super) fn awaited(&self) -> Position {
        let catch_up = self.follower.as_ref().and_then(|follower| follower.catch_up.as_ref());
        catch_up.map_or(self.next, CatchUp::position)
    }

    fn apply_catch_up(&mut self, catch_up: CatchUp) -> Option<ReadOutcome> {
        self.offset = 0;
        match catch_up {
            CatchUp::Nothing(next) => {
                self.seek(next);
                None
            }
            CatchUp::MergedRecord(merged) => {
                self.seek(merged.position);
                self.skipped = merged.position.seq - 1 - merged.since;
                self.hint = Hint::MergedRecord(Box::new(merged));
                Some(ReadOutcome::Records)
            }
            CatchUp::Snapshot(frozen) => {
                let at = frozen.position;
                self.seek(Position { seq: at.seq + 1, ..at });
                let snapshot = frozen.to_snapshot(&self.log);
                if let Some(follower) = &mut self.follower {
                    (follower.checked, follower.checked_ns) = (self.next, self.log.clock.steady_ns());
                }
                Some(ReadOutcome::Notice(Notice::Snapshot(snapshot)))
            }
        }
    }

    /// For a follower that cannot continue at its own position: computes a catch-up, which the next fill delivers.
    /// Returns the position at which the cursor continues after the catch-up.
    pub(super) fn find_state(&mut self, request: CatchUpRequest) -> Option<Position> {
        let follower = self.follower.as_mut()?;
        let catch_up = self.log.catch_up(request);
        let last = catch_up.position();
        follower.catch_up = Some(catch_up);
        Some(Position { seq: last.seq + 1, ..last })
    }

    /// For a conflated cursor that is still in an earlier epoch: replaces the lookup's result by the epoch change. The
    /// cursor then receives the state instead of the remaining records of the earlier epoch.
    pub(super) fn skip_to_state(&self, found: Lookup) -> Lookup {
        match found {
            found @ (Lookup::Segment(_) | Lookup::Later { .. }) if self.is_conflated() => {
                self.log.epoch_end_for_follower(self.next).map_or(found, Lookup::EpochChanged)
            }
            found => found,
        }
    }

    /// Returns the notice with the checksum, for a follower that has read everything. `None` if the last checksum was
    /// sent a short time ago, or was the checksum at this position.
    #[cold]
    pub(super) fn take_checksum_notice(&mut self) -> Option<ReadOutcome> {
        let follower = self.follower.as_mut()?;
        if follower.checked == self.next {
            return None;
        }
        let now_ns = self.log.clock.steady_ns();
        if now_ns < follower.checked_ns.saturating_add(CHECK_NS_MIN) {
            return None;
        }
        let checksum = self.log.checksum(self.next)?;
        (follower.checked, follower.checked_ns) = (self.next, now_ns);
        Some(ReadOutcome::Notice(Notice::Checksum(checksum)))
    }

    /// Returns the notice with the publisher presence, for a follower that has read everything. `None` if the presence
    /// has not changed.
    pub(super) fn take_publisher_notice(&mut self) -> Option<ReadOutcome> {
        let publishers = self.follower.as_mut()?.reported.take(&self.log)?;
        Some(ReadOutcome::Notice(Notice::Publishers(publishers)))
    }

    /// Whether a notice with a changed publisher presence is due. `false` while the follower waits for a catch-up, or
    /// until a read from disk can be repeated. Unread records come before the notice, but are not checked here.
    #[inline]
    pub(super) fn has_publisher_change(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| {
            follower.request.is_none()
                && follower.catch_up.is_none()
                && self.deferred_read_retries().is_none()
                && follower.reported.is_due(&self.log)
        })
    }

    /// Whether the follower has not received a checksum for its current position yet.
    pub fn has_pending_checksum(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| follower.checked != self.next)
    }

    /// After a merged record: continues at the place in the log's newest segment at which the merged records end.
    pub(super) fn finish_merged(&mut self) {
        let Hint::MergedRecord(merged) = std::mem::replace(&mut self.hint, Hint::None) else { return };
        if let Some((segment, bytes)) = merged.tail {
            self.hint = Hint::Loose(segment);
            self.offset = bytes;
        }
    }

    fn seek(&mut self, next: Position) {
        self.hint = Hint::None;
        self.offset = 0;
        self.skipped = 0;
        self.next = next;
        self.update_progress();
    }

    /// Position of the last record that was delivered or skipped. The records in a merged record count as unread until
    /// the merged record is delivered.
    pub fn read_through(&self) -> Position {
        let pending = self.follower.as_ref().and_then(|follower| follower.catch_up.as_ref());
        let seq = match (&self.hint, pending) {
            (Hint::MergedRecord(merged), _) if self.offset == 0 => merged.since,
            // This merged record waits for a notice before it, or until subscribers may receive it.
            (_, Some(CatchUp::MergedRecord(merged))) => merged.since,
            _ => self.next.seq - 1,
        };
        Position { seq, ..self.next }
    }

    /// Drops the merged record that was not delivered yet, so that the next read merges it with newer changes.
    pub fn discard_merged(&mut self) {
        if self.follower.is_some()
            && let Hint::MergedRecord(merged) = &self.hint
            && self.offset == 0
        {
            let next = Position { seq: merged.since + 1, ..merged.position };
            self.seek(next);
        }
    }

    /// Removes a sleeping cursor from the log's list of sleepers. The cursor keeps its position. `waiter` and `token`
    /// are those with which the cursor was armed.
    pub fn disarm(&mut self, waiter: &Arc<Waiter>, token: u32) {
        drop(self.disarm_by_subject());
        if let Some(sleeper) = self.armed.take()
            && !self.log.disarm(sleeper, waiter, token)
        {
            self.log.wake_next_two();
        }
    }

    /// Continues at the position that a subscriber requests because its copy of the state is wrong or incomplete.
    pub fn resync(&mut self, resync: Resync) {
        let (start, lost_after) = match resync {
            Resync::After(position) => (Start::After(position), Some(position.seq)),
            Resync::State => (Start::Snapshot, None),
        };
        if let (Some(seq), Some(select)) = (lost_after, &mut self.select) {
            select.stop_withholding_after(seq);
        }
        let stateful = self.log.is_stateful();
        // If the log cannot start at the requested position, the subscriber receives the whole state.
        let begin = self.log.start(start, stateful).or_else(|_| self.log.start(Start::Snapshot, stateful));
        let Ok(begin) = begin else { return };
        self.seek(begin.next);
        self.warned = false;
        if stateful {
            let follower = self.follower.get_or_insert_default();
            (follower.request, follower.catch_up) = (begin.request, None);
            // The next checksum and the publisher presence are sent again, because the subscriber may not have
            // processed the last ones.
            follower.checked = Position::default();
            follower.reported = ReportedPresence::new(true);
        }
    }

    /// Whether the cursor is conflated: each read returns one record that merges all changes since the last read.
    #[inline]
    pub fn is_conflated(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| follower.conflate)
    }

    /// Whether the pending catch-up can be delivered now; `None` if no catch-up is pending.
    #[inline]
    pub(super) fn can_deliver_pending(&self) -> Option<bool> {
        let follower = self.follower.as_ref()?;
        if follower.request.is_some() {
            return Some(self.log.is_positioned());
        }
        match follower.catch_up.as_ref() {
            Some(catch_up) => Some(self.log.visibility(catch_up.position()) != Visibility::Later),
            None if self.deferred_read_retries().is_some() => None,
            None => follower.reported.is_due(&self.log).then_some(true),
        }
    }
}
