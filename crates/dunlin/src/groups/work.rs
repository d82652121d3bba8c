//! Members of `work` groups.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_topic::{
    Frame, LogName, MemberDeparture, MemberId, Notice, Position, ReadDeferred, Record, SubscribeError, Topic,
    WorkGroup,
};

use super::error::StaleClaim;
use super::membership::GroupMember;
use super::state::MembershipState;
use crate::clock::steady_ns;

/// A member with at least this number of open claims removes expired claims from its list.
const SWEEP_MIN: usize = 1_024;

/// A member of a work group. A member claims a record, and then acknowledges it.
///
/// Dropping the value counts as the member's death, and as a failed attempt for each record that the member has
/// claimed. Other members can claim these records at once.
#[derive(Debug)]
pub struct WorkMember {
    membership: GroupMember<WorkGroup>,
    open: HashMap<u64, OpenClaim>,
    /// Events that the caller has not taken yet.
    events: VecDeque<WorkEvent>,
    is_skipping: bool,
}

/// A claim of this member. It may have expired without the member's knowledge.
#[derive(Debug, Clone, Copy)]
struct OpenClaim {
    part: usize,
    seq: u64,
    deadline_ns: u64,
}

/// An event for a member of a work group: a claimed record or a notice.
#[derive(Debug, Clone)]
pub enum WorkEvent {
    /// A claimed record.
    ClaimedRecord(ClaimedRecord),
    /// A notice, such as a gap in the group's records or the deletion of the topic.
    Notice(Notice),
}

/// A record that a member of a work group has claimed until a deadline.
#[derive(Debug, Clone)]
pub struct ClaimedRecord {
    /// The claim's token, with which the member acknowledges, returns or renews the claim.
    pub token: u64,
    /// Time at which the claim ends, ns by the monotonic clock ([`steady_ns`]).
    pub deadline_ns: u64,
    /// The number of this attempt; the first is 1.
    pub attempt: u32,
    position: Position,
    log: Arc<LogName>,
    frame: Vec<u8>,
}

impl ClaimedRecord {
    /// The claimed record, with its position.
    pub fn record(&self) -> Record<'_> {
        let (frame, _) = Frame::split(&self.frame).expect("the frame was copied completely");
        Record { position: self.position, prev_seq: self.position.seq - 1, frame, log: &self.log }
    }

    /// The record's frame with its padding, in the form that frames have in a batch.
    pub fn frame_bytes(&self) -> &[u8] {
        &self.frame
    }
}

impl WorkMember {
    pub(super) fn new(membership: GroupMember<WorkGroup>) -> WorkMember {
        WorkMember { membership, open: HashMap::new(), events: VecDeque::new(), is_skipping: false }
    }

    /// The topic whose records the group shares.
    pub fn topic(&self) -> &Arc<Topic> {
        self.membership.topic()
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        self.membership.group()
    }

    /// The number of records that the group has lost, as far as gaps have reported them to this member.
    pub fn lost(&self) -> u64 {
        self.membership.lost()
    }

    /// Claims available records, at most `max`. Also returns waiting notices, which do not count towards `max`.
    pub fn claim(&mut self, max: usize) -> Result<Vec<WorkEvent>, SubscribeError> {
        self.fetch(max)?;
        while self.is_skipping {
            self.fetch(max)?;
        }
        Ok(self.events.drain(..).collect())
    }

    /// For a listener: returns the next event. Returns a claimed record only if `accepts_records` is set.
    pub fn try_claim(&mut self, accepts_records: bool) -> Result<Option<WorkEvent>, SubscribeError> {
        if self.events.is_empty() {
            self.fetch(usize::from(accepts_records))?;
        }
        Ok(self.events.pop_front())
    }

    /// For a listener: whether the last [`try_claim`](WorkMember::try_claim) ended early because it had skipped as many
    /// expired records as a [`SkipBudget`](dunlin_topic::SkipBudget) allows. The listener then lets other work run, and
    /// tries again.
    pub fn is_skipping(&self) -> bool {
        self.is_skipping
    }

    /// Waits for the next event: a record, which this call claims, or a notice. Returns `None` if `timeout` passes
    /// first.
    pub fn claim_one(&mut self, timeout: Option<Duration>) -> Result<Option<WorkEvent>, SubscribeError> {
        let until_ns = timeout.map(|timeout| steady_ns().saturating_add(saturating_ns(timeout)));
        loop {
            if self.events.is_empty() {
                self.fetch(1)?;
            }
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let remaining =
                until_ns.map(|until_ns| Duration::from_nanos(until_ns.saturating_sub(steady_ns())));
            if !self.wait(remaining) {
                return Ok(None);
            }
        }
    }

    /// Waits until there may be an event for this member. Returns `false` if `timeout` passes first.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        !self.events.is_empty() || self.membership.wait(timeout)
    }

    /// Polls for an event, for async code: ready when [`claim`](WorkMember::claim) may return something. The caller
    /// also has to run [`Node::handle_deadlines`](crate::Node::handle_deadlines), which ends claims and delays in time
    /// even if no member calls an operation.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.events.is_empty() { self.membership.poll(cx) } else { Poll::Ready(()) }
    }

    /// For a listener: makes the next event notify the waiter. Events are notices and, if `accepts_records` is set,
    /// records. Returns `false` if an event is already available.
    pub fn sleep(&self, accepts_records: bool) -> bool {
        self.events.is_empty() && self.membership.sleep(accepts_records)
    }

    /// Acknowledges the claimed record, and so ends the claim.
    pub fn ack(&mut self, token: u64) -> Result<(), StaleClaim> {
        let OpenClaim { part, seq, .. } = self.open.remove(&token).ok_or(StaleClaim { token })?;
        self.membership.with(|state, member, now_ns| {
            let part_token = state.to_part_token(token);
            let acked = state.work(part).ack(member, seq, part_token, now_ns);
            acked.map_err(|_| StaleClaim { token })
        })
    }

    /// Reports a failed attempt, and so ends the claim. After `delay`, any member can claim the record again. If this
    /// was the record's last allowed attempt, it becomes a dead letter instead.
    pub fn nack(&mut self, token: u64, delay: Duration) -> Result<(), StaleClaim> {
        let OpenClaim { part, seq, .. } = self.open.remove(&token).ok_or(StaleClaim { token })?;
        let delay_ns = saturating_ns(delay);
        self.membership.with(|state, member, now_ns| {
            let part_token = state.to_part_token(token);
            let nacked = state.work(part).nack(member, seq, part_token, delay_ns, now_ns);
            nacked.map_err(|_| StaleClaim { token })
        })
    }

    /// Extends the claim: it now lasts for a whole claim duration from now. Returns the new deadline, by the monotonic
    /// clock.
    pub fn renew(&mut self, token: u64) -> Result<u64, StaleClaim> {
        let OpenClaim { part, seq, .. } = *self.open.get(&token).ok_or(StaleClaim { token })?;
        let renewed = self.membership.with(|state, member, now_ns| {
            let part_token = state.to_part_token(token);
            state.work(part).renew(member, seq, part_token, now_ns)
        });
        let deadline_ns = renewed.map_err(|_| StaleClaim { token })?;
        self.open.insert(token, OpenClaim { part, seq, deadline_ns });
        Ok(deadline_ns)
    }

    /// Leaves the group. Other members can then claim this member's records at once. The attempts that end in this way
    /// do not count.
    pub fn leave(mut self) {
        self.membership.leave(MemberDeparture::Left);
    }

    /// If the list of open claims is long, removes expired claims, which can no longer be settled.
    fn remove_expired_claims(&mut self) {
        if self.open.len() >= SWEEP_MIN {
            let now_ns = steady_ns();
            self.open.retain(|_, open| open.deadline_ns > now_ns);
        }
    }

    /// Claims records until `events` has `max` entries, no record is available, or the operation has skipped as many
    /// expired records as it may skip.
    fn fetch(&mut self, max: usize) -> Result<(), SubscribeError> {
        if self.events.is_empty() {
            self.membership.check_open()?;
        }
        self.remove_expired_claims();
        let WorkMember { membership, open, events, is_skipping } = self;
        let (claimed, notices, is_budget_spent) = membership.with(|state, member, now_ns| {
            let (mut claimed, mut notices) = (Vec::new(), Vec::new());
            while events.len() + claimed.len() < max {
                let Some(claim) = state.claim(member, now_ns, &mut notices) else { break };
                claimed.push(claim);
            }
            (claimed, notices, state.skips.is_spent())
        });
        membership.push_notices(notices);
        events.extend(std::iter::from_fn(|| membership.pop_notice()).map(WorkEvent::Notice));
        for (part, record) in claimed {
            let deadline_ns = record.deadline_ns;
            open.insert(record.token, OpenClaim { part, seq: record.position.seq, deadline_ns });
            events.push_back(WorkEvent::ClaimedRecord(record));
        }
        events.extend(std::iter::from_fn(|| membership.pop_end()).map(WorkEvent::Notice));
        *is_skipping = is_budget_spent && events.len() < max;
        Ok(())
    }
}

fn saturating_ns(duration: Duration) -> u64 {
    duration.as_nanos().min(u64::MAX.into()) as u64
}

impl MembershipState<WorkGroup> {
    /// Returns the token that the member receives. It combines `token`, the token of the partition's state machine,
    /// with the partition's number.
    fn to_member_token(&self, token: u64, part: usize) -> u64 {
        self.created_ns.wrapping_add(token * self.parts.len() as u64 + part as u64)
    }

    /// Returns the token of the partition's state machine that is contained in a member's token.
    fn to_part_token(&self, token: u64) -> u64 {
        token.wrapping_sub(self.created_ns) / self.parts.len() as u64
    }

    fn work(&mut self, part: usize) -> &mut WorkGroup {
        &mut self.parts[part].machine
    }

    fn claim(
        &mut self,
        member: MemberId,
        now_ns: u64,
        notices: &mut Vec<Notice>,
    ) -> Option<(usize, ClaimedRecord)> {
        let (part, mut claimed) = self.find(|at, part, skips| {
            if part.is_paused() {
                return None;
            }
            let (mut reader, work) = part.reader(skips);
            let copied = loop {
                let claim = work.claim(member, now_ns, &mut reader).ok().flatten();
                notices.append(&mut reader.notices);
                let claim = claim?;
                let mut frame = Vec::new();
                match reader.copy(claim.seq, &mut frame) {
                    Ok(Some(position)) => break Some((claim, position, frame)),
                    Ok(None) => work.report_claim_dropped(member, &claim),
                    Err(ReadDeferred) => {
                        work.withdraw_claim(member, &claim);
                        break None;
                    }
                }
            };
            drop(reader);
            let Some((claim, position, frame)) = copied else {
                part.pause(now_ns);
                return None;
            };
            let log = Arc::clone(part.cursor.log().name());
            let (token, deadline_ns, attempt) = (claim.token, claim.deadline_ns, claim.attempt);
            Some((at, ClaimedRecord { token, deadline_ns, attempt, position, log, frame }))
        })?;
        claimed.token = self.to_member_token(claimed.token, part);
        Some((part, claimed))
    }
}
