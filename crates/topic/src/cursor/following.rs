//! Cursors of subscribers that follow a log's state.
//!
//! Limit: such a subscriber receives a checksum at most twice a second, and only once it has read everything.

use std::sync::Arc;

use super::{Cursor, Hint, ReadOutcome};
use crate::event::{Notice, Position};
use crate::log::{CatchUp, CatchUpRequest, Lookup, ReportedPresence, Visibility};
use crate::subscribe::{Resync, Start};
use crate::wake::Waiter;

/// The shortest time between two checksums, ns.
const CHECK_NS_MIN: u64 = 500_000_000;

/// What a cursor remembers for a subscriber that follows the log's state.
#[derive(Debug, Default)]
pub(super) struct FollowerState {
    /// Whether each read delivers one merged record.
    pub(super) conflate: bool,
    pub(super) owed: Option<CatchUpRequest>,
    /// The catch-up data to deliver to the follower after the pending notice.
    caught_up: Option<CatchUp>,
    /// The position of the last checksum or snapshot that was delivered.
    checked: Position,
    checked_ns: u64,
    /// The publisher presence that was reported last.
    reported: ReportedPresence,
}

impl FollowerState {
    /// Creates the state of a follower. `goes_on` says whether the follower resumes. A follower that resumes receives
    /// the publisher presence even if a publisher is connected.
    pub(super) fn new(conflate: bool, owed: Option<CatchUpRequest>, goes_on: bool) -> FollowerState {
        FollowerState {
            conflate,
            owed,
            reported: ReportedPresence::nothing(goes_on),
            ..FollowerState::default()
        }
    }
}

impl Cursor {
    /// The pending catch-up, or for a conflated cursor the changes since its last read. `None` if the cursor
    /// reads record by record.
    #[cold]
    #[inline(never)]
    pub(super) fn follow(&mut self) -> Option<ReadOutcome> {
        let following = self.following.as_mut()?;
        if following.owed.is_some() && !self.log.is_placed() {
            return Some(ReadOutcome::Empty);
        }
        if let Some(owed) = following.owed.take() {
            following.caught_up = Some(self.log.catch_up(owed));
        }
        if let Some(caught_up) = following.caught_up.take() {
            return self.take_when_shown(caught_up);
        }
        if !following.conflate || self.ended {
            return None;
        }
        if !self.may_have_records() {
            return None;
        }
        let last = self.log.last();
        if last.epoch != self.next.epoch || last.seq < self.next.seq {
            // In this case, the ordinary lookup reports the new epoch.
            self.hint = Hint::None;
            return None;
        }
        let since = Position { seq: self.next.seq - 1, ..self.next };
        let caught_up = self.log.catch_up(CatchUpRequest::Since(since));
        self.take_when_shown(caught_up)
    }

    /// Returns a catch-up if its position is visible; otherwise keeps it.
    fn take_when_shown(&mut self, caught_up: CatchUp) -> Option<ReadOutcome> {
        match self.log.shows(caught_up.position()) {
            Visibility::Now => self.take_caught_up(caught_up),
            Visibility::Later => {
                self.following.as_mut()?.caught_up = Some(caught_up);
                Some(ReadOutcome::Empty)
            }
            Visibility::Never => None,
        }
    }

    /// The position whose record this cursor needs next.
    pub(super) fn awaited(&self) -> Position {
        let caught_up = self.following.as_ref().and_then(|following| following.caught_up.as_ref());
        caught_up.map_or(self.next, CatchUp::position)
    }

    fn take_caught_up(&mut self, caught_up: CatchUp) -> Option<ReadOutcome> {
        self.offset = 0;
        match caught_up {
            CatchUp::Nothing(next) => {
                self.go_to(next);
                None
            }
            CatchUp::MergedRecord(merged) => {
                self.go_to(merged.position);
                self.skipped = merged.position.seq - 1 - merged.since;
                self.hint = Hint::MergedRecord(Box::new(merged));
                Some(ReadOutcome::Records)
            }
            CatchUp::Snapshot(frost) => {
                let at = frost.position;
                self.go_to(Position { seq: at.seq + 1, ..at });
                let snapshot = frost.thaw(&self.log);
                if let Some(following) = &mut self.following {
                    (following.checked, following.checked_ns) = (self.next, self.log.clock.now_ns());
                }
                Some(ReadOutcome::Notice(Notice::Snapshot(snapshot)))
            }
        }
    }

    /// Finds the position where the cursor continues after the follower has lost its own. The next fill delivers the
    /// catch-up.
    pub(super) fn find_state(&mut self, owed: CatchUpRequest) -> Option<Position> {
        let following = self.following.as_mut()?;
        let caught_up = self.log.catch_up(owed);
        let last = caught_up.position();
        following.caught_up = Some(caught_up);
        Some(Position { seq: last.seq + 1, ..last })
    }

    /// For a conflated cursor: delivers the state in place of the remaining records of an earlier epoch.
    pub(super) fn skip_to_state(&self, found: Lookup) -> Lookup {
        match found {
            Lookup::Segment(segment) if self.is_conflated() => {
                self.log.leave_epoch(self.next).map_or(Lookup::Segment(segment), Lookup::EpochChanged)
            }
            found => found,
        }
    }

    /// A checksum for a follower that has read everything, unless one was sent recently.
    #[cold]
    pub(super) fn check(&mut self) -> Option<ReadOutcome> {
        let following = self.following.as_mut()?;
        if following.checked == self.next {
            return None;
        }
        let now_ns = self.log.clock.now_ns();
        if now_ns < following.checked_ns.saturating_add(CHECK_NS_MIN) {
            return None;
        }
        let checksum = self.log.checksum(self.next)?;
        (following.checked, following.checked_ns) = (self.next, now_ns);
        Some(ReadOutcome::Notice(Notice::Checksum(checksum)))
    }

    /// The publisher presence, if it has changed, for a follower that has read everything.
    pub(super) fn tell_publishers(&mut self) -> Option<ReadOutcome> {
        let publishers = self.following.as_mut()?.reported.take(&self.log)?;
        Some(ReadOutcome::Notice(Notice::Publishers(publishers)))
    }

    /// Whether [`tell_publishers`](Cursor::tell_publishers) has a change to report once everything is read.
    #[inline]
    pub(super) fn has_news_of_publishers(&self) -> bool {
        self.following.as_ref().is_some_and(|following| {
            following.owed.is_none() && following.caught_up.is_none() && following.reported.is_due(&self.log)
        })
    }

    /// Whether a checksum for the current position is pending.
    pub fn owes_checksum(&self) -> bool {
        self.following.as_ref().is_some_and(|following| following.checked != self.next)
    }

    /// After a merged record, sets the hint to the log's tail.
    pub(super) fn leave_merged(&mut self) {
        let Hint::MergedRecord(merged) = std::mem::replace(&mut self.hint, Hint::None) else { return };
        if let Some((segment, bytes)) = merged.tail {
            self.hint = Hint::Loose(segment);
            self.offset = bytes;
        }
    }

    fn go_to(&mut self, next: Position) {
        self.hint = Hint::None;
        self.offset = 0;
        self.skipped = 0;
        self.next = next;
        self.show();
    }

    /// Position of the last record that was delivered or skipped. A merged record that was not delivered counts as
    /// unread.
    pub fn read_through(&self) -> Position {
        let waiting = self.following.as_ref().and_then(|following| following.caught_up.as_ref());
        let seq = match (&self.hint, waiting) {
            (Hint::MergedRecord(merged), _) if self.offset == 0 => merged.since,
            // The merged record is still to be delivered, after a notice.
            (_, Some(CatchUp::MergedRecord(merged))) => merged.since,
            _ => self.next.seq - 1,
        };
        Position { seq, ..self.next }
    }

    /// Drops a merged record that was not delivered, so that the next read includes newer changes.
    pub fn forget_merged(&mut self) {
        if self.following.is_some()
            && let Hint::MergedRecord(merged) = &self.hint
            && self.offset == 0
        {
            let next = Position { seq: merged.since + 1, ..merged.position };
            self.go_to(next);
        }
    }

    /// Removes the sleeping cursor from the log's sleepers, and keeps its position. `token` is the token with which the
    /// cursor was armed.
    pub fn rouse(&mut self, waiter: &Arc<Waiter>, token: u32) {
        drop(self.disarm_narrow());
        if let Some(sleeper) = self.armed.take()
            && !self.log.disarm(sleeper, waiter, token)
        {
            self.log.pass_wake_on();
        }
    }

    /// Continues at the position that a subscriber requests because its copy of the state is faulty. Wakes a sleeping
    /// cursor.
    pub fn resync(&mut self, resync: Resync) {
        let (start, spare) = match resync {
            Resync::After(position) => (Start::After(position), Some(position.seq)),
            Resync::State => (Start::Snapshot, None),
        };
        if let (Some(seq), Some(select)) = (spare, &mut self.select) {
            select.spare_after(seq);
        }
        let stateful = self.log.is_stateful();
        // If the log never had this position, the subscriber starts with the state.
        let begin = self.log.start(start, stateful).or_else(|_| self.log.start(Start::Snapshot, stateful));
        let Ok(begin) = begin else { return };
        self.go_to(begin.next);
        self.warned = false;
        if stateful {
            let following = self.following.get_or_insert_default();
            (following.owed, following.caught_up) = (begin.owed, None);
            // Sends a checksum and the publisher presence again, because the subscriber may not have processed the last
            // ones.
            following.checked = Position::default();
            following.reported = ReportedPresence::nothing(true);
        }
    }

    /// Whether each read returns one record that merges all changes since the last read.
    #[inline]
    pub fn is_conflated(&self) -> bool {
        self.following.as_ref().is_some_and(|following| following.conflate)
    }

    /// Whether the pending catch-up can be delivered now; `None` if there is none.
    #[inline]
    pub(super) fn can_tell(&self) -> Option<bool> {
        let following = self.following.as_ref()?;
        if following.owed.is_some() {
            return Some(self.log.is_placed());
        }
        match following.caught_up.as_ref() {
            Some(caught_up) => Some(self.log.shows(caught_up.position()) != Visibility::Later),
            None => following.reported.is_due(&self.log).then_some(true),
        }
    }
}
