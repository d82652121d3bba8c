//! Members of `share` groups whose topic this node owns.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_topic::{
    Event, Frame, LogName, MemberDeparture, MemberId, Position, ReadDeferred, Record, ShareGroup,
    SubscribeError, Topic,
};

use crate::groups::membership::GroupMember;
use crate::groups::partition::GroupPartition;
use crate::groups::state::MembershipState;

/// A member of a `share` group whose topic this node owns.
#[derive(Debug)]
pub(super) struct LocalMember {
    membership: GroupMember<ShareGroup>,
    ahead: u32,
    taken: VecDeque<Taken>,
    frames: Vec<u8>,
    /// The partition and the sequence number of the last record that the member has received and not confirmed yet.
    last_delivered: Option<(usize, u64)>,
    consumption: ConsumptionMode,
    is_skipping: bool,
}

/// When a record that a member has received counts as consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::groups) enum ConsumptionMode {
    /// When the member reads the next record.
    Implicit,
    /// When the caller reports it with [`ShareMember::consume`](super::ShareMember::consume).
    Explicit,
}

#[derive(Debug)]
struct Taken {
    part: usize,
    position: Position,
    frame: Range<usize>,
}

impl LocalMember {
    pub(super) fn new(
        membership: GroupMember<ShareGroup>,
        ahead: u32,
        consumption: ConsumptionMode,
    ) -> LocalMember {
        LocalMember {
            membership,
            ahead: ahead.max(1),
            taken: VecDeque::new(),
            frames: Vec::new(),
            last_delivered: None,
            consumption,
            is_skipping: false,
        }
    }

    pub(super) fn topic(&self) -> &Arc<Topic> {
        self.membership.topic()
    }

    pub(super) fn group(&self) -> &str {
        self.membership.group()
    }

    pub(super) fn lost(&self) -> u64 {
        self.membership.lost()
    }

    /// The newest epoch from which the group has taken records.
    pub(super) fn epoch(&mut self) -> u32 {
        let max_epoch =
            |state: &mut MembershipState<ShareGroup>| state.parts.iter().map(GroupPartition::epoch).max();
        self.membership.with(|state, _, _| max_epoch(state)).unwrap_or(0)
    }

    /// The newest epoch whose records the group may deliver at this node.
    pub(super) fn owner_epoch(&mut self) -> u32 {
        let newest = |state: &mut MembershipState<ShareGroup>| {
            state.parts.iter_mut().map(|part| part.epochs.refresh()).max()
        };
        self.membership.with(|state, _, _| newest(state)).unwrap_or(0)
    }

    pub(super) fn dropped_records(&self) -> u64 {
        self.membership.dropped_records()
    }

    /// Consumes the last record and leaves the group. Records that the member has taken ahead are lost for the group.
    pub(super) fn leave(mut self) {
        self.confirm_last();
        self.membership.leave(MemberDeparture::Died);
    }

    /// Leaves the group. Records that the member has not confirmed go to other members.
    pub(super) fn leave_unconsumed(mut self) {
        self.membership.leave(MemberDeparture::Left);
    }

    /// The number of records that wait to be delivered, plus the number that were delivered but not confirmed.
    pub(super) fn waiting(&mut self) -> u64 {
        self.membership.with(|state, _, _| state.parts.iter().map(GroupPartition::waiting).sum())
    }

    pub(super) fn sleep(&self, accepts_records: bool) -> bool {
        self.taken.is_empty() && self.membership.sleep(accepts_records)
    }

    pub(super) fn is_skipping(&self) -> bool {
        self.is_skipping
    }

    pub(super) fn consume(&mut self, partition: u16, seq: u64) {
        let part = usize::from(partition);
        self.membership.with(|state, member, _| {
            if part < state.parts.len() {
                state.confirm(member, part, seq);
            }
        });
    }

    fn confirm_last(&mut self) {
        if let Some((part, seq)) = self.last_delivered.take() {
            self.membership.with(|state, member, _| state.confirm(member, part, seq));
        }
    }

    fn confirm_all(&mut self) {
        self.membership.with(|state, member, _| {
            (0..state.parts.len()).for_each(|part| state.confirm(member, part, u64::MAX));
        });
    }

    /// Confirms the last record and takes further records. Returns whether there are events. A listener's call also
    /// returns after it has skipped as many expired records as one operation may skip.
    fn fetch(&mut self) -> Result<bool, SubscribeError> {
        loop {
            let (is_found, is_budget_spent) = self.fetch_within_budget()?;
            self.is_skipping = is_budget_spent && !is_found;
            if !self.is_skipping || self.consumption == ConsumptionMode::Explicit {
                return Ok(is_found);
            }
        }
    }

    /// Confirms the last record and takes further records, in one operation of the group. Returns whether there are
    /// events, and whether the operation has skipped as many expired records as it may skip.
    fn fetch_within_budget(&mut self) -> Result<(bool, bool), SubscribeError> {
        if let Err(why) = self.membership.check_open() {
            if matches!(why, SubscribeError::Closed) {
                // The topic was deleted, and the member has received its last records. They are not lost if the member
                // leaves now.
                self.confirm_all();
            }
            return Err(why);
        }
        self.frames.clear();
        let LocalMember { membership, ahead, taken, frames, last_delivered, .. } = self;
        let (notices, is_budget_spent) = membership.with(|state, member, now_ns| {
            if let Some((part, seq)) = last_delivered.take() {
                state.confirm(member, part, seq);
            }
            let mut notices = Vec::new();
            for _ in 0..*ahead {
                let Some(one) = state.take(member, now_ns, frames, &mut notices) else { break };
                taken.push_back(one);
            }
            (notices, state.skips.is_spent())
        });
        membership.push_notices(notices);
        Ok((!self.taken.is_empty() || self.membership.has_notice(), is_budget_spent))
    }

    fn record(&self, taken: &Taken) -> Record<'_> {
        let log: &Arc<LogName> = self.membership.topic().logs()[taken.part].name();
        let (frame, _) =
            Frame::split(&self.frames[taken.frame.clone()]).expect("the frame was copied completely");
        Record { position: taken.position, prev_seq: taken.position.seq - 1, frame, log }
    }
}

impl MembershipState<ShareGroup> {
    fn confirm(&mut self, member: MemberId, part: usize, seq: u64) {
        // Ignore the error: it cannot occur, because a member belongs to its group until it leaves.
        let _ = self.parts[part].machine.confirm(member, seq);
    }

    fn take(
        &mut self,
        member: MemberId,
        now_ns: u64,
        frames: &mut Vec<u8>,
        notices: &mut Vec<dunlin_topic::Notice>,
    ) -> Option<Taken> {
        self.find(|at, part, skips| {
            if part.is_paused() {
                return None;
            }
            let (mut reader, share) = part.reader(skips);
            let start = frames.len();
            let copied = loop {
                let taken = share.take(member, &mut reader).ok().flatten();
                notices.append(&mut reader.notices);
                let seq = taken?;
                match reader.copy(seq, frames) {
                    Ok(Some(position)) => break Some(position),
                    Ok(None) => share.report_dropped(member, seq).ok()?,
                    Err(ReadDeferred) => {
                        share.withdraw(member, seq).ok()?;
                        break None;
                    }
                }
            };
            drop(reader);
            let Some(position) = copied else {
                part.pause(now_ns);
                return None;
            };
            Some(Taken { part: at, position, frame: start..frames.len() })
        })
    }
}

/// The methods of [`Subscribe`](dunlin_topic::Subscribe) for a [`ShareMember`](super::ShareMember) whose topic this
/// node owns.
impl LocalMember {
    pub(super) fn ready(&mut self) -> Result<bool, SubscribeError> {
        if !self.taken.is_empty() || self.membership.has_notice() {
            return Ok(true);
        }
        self.fetch()
    }

    pub(super) fn take(&mut self) -> Event<'_> {
        if let Some(notice) = self.membership.pop_notice() {
            return Event::Notice(notice);
        }
        let Some(taken) = self.taken.pop_front() else {
            return Event::Notice(
                self.membership.pop_end().expect("an event is available after `ready` has returned true"),
            );
        };
        if self.consumption == ConsumptionMode::Implicit {
            self.last_delivered = Some((taken.part, taken.position.seq));
        }
        Event::Record(self.record(&taken))
    }

    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        self.confirm_last();
        Ok(!self.taken.is_empty() || self.membership.wait(timeout))
    }

    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        self.confirm_last();
        if self.taken.is_empty() { self.membership.poll(cx).map(Ok) } else { Poll::Ready(Ok(())) }
    }
}
