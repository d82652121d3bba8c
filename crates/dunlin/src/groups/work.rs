//! Members of `work` groups.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_topic::{
    Departure, Frame, LogName, MemberId, Notice, Position, Record, SubscribeError, Topic, WorkGroup,
};

use super::error::StaleClaim;
use super::membership::GroupMember;
use super::state::MembershipState;
use crate::clock::now_ns;

/// If a member has at least this number of claims, expired claims are removed from its list.
const OPEN_SWEEP: usize = 1_024;

/// A member of a work group, in which a member claims each record and then acknowledges it.
///
/// Dropping the member counts as its death, and as a failed attempt for its records. Other members can claim these
/// records at once.
#[derive(Debug)]
pub struct WorkMember {
    membership: GroupMember<WorkGroup>,
    open: HashMap<u64, Open>,
    /// Events that were not returned to the caller yet.
    events: VecDeque<WorkEvent>,
}

/// A claim that, as far as this member knows, is still open.
#[derive(Debug, Clone, Copy)]
struct Open {
    part: usize,
    seq: u64,
    deadline_ns: u64,
}

/// An event for a member of a work group: a claimed record or a notice.
#[derive(Debug, Clone)]
pub enum WorkEvent {
    /// A claimed record.
    ClaimedRecord(ClaimedRecord),
    /// A gap for the whole group, or the topic's deletion.
    Notice(Notice),
}

/// A record that a work group's member has claimed until a deadline.
#[derive(Debug, Clone)]
pub struct ClaimedRecord {
    /// The token that settles the claim.
    pub token: u64,
    /// Time at which the claim ends, ns since the Unix epoch.
    pub deadline_ns: u64,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    position: Position,
    log: Arc<LogName>,
    frame: Vec<u8>,
}

impl ClaimedRecord {
    /// The record.
    pub fn record(&self) -> Record<'_> {
        let (frame, _) = Frame::split(&self.frame).expect("the frame was copied completely");
        Record { position: self.position, prev_seq: self.position.seq - 1, frame, log: &self.log }
    }

    /// The record's frame with its padding, as in a batch.
    pub fn frame_bytes(&self) -> &[u8] {
        &self.frame
    }
}

impl WorkMember {
    pub(super) fn new(membership: GroupMember<WorkGroup>) -> WorkMember {
        WorkMember { membership, open: HashMap::new(), events: VecDeque::new() }
    }

    /// The topic.
    pub fn topic(&self) -> &Arc<Topic> {
        self.membership.topic()
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        self.membership.group()
    }

    /// The number of lost records that this member's gaps have reported for the group.
    pub fn lost(&self) -> u64 {
        self.membership.lost()
    }

    /// Claims the available records, at most `max`. Also returns notices, which do not count.
    pub fn claim(&mut self, max: usize) -> Result<Vec<WorkEvent>, SubscribeError> {
        self.fetch(max)?;
        Ok(self.events.drain(..).collect())
    }

    /// For a listener: returns the next event. Returns a claimed record only if the member `wants` one.
    pub fn try_claim(&mut self, wants: bool) -> Result<Option<WorkEvent>, SubscribeError> {
        if self.events.is_empty() {
            self.fetch(usize::from(wants))?;
        }
        Ok(self.events.pop_front())
    }

    /// Waits for a record and claims it. Returns `None` after `timeout` without a record.
    pub fn claim_one(&mut self, timeout: Option<Duration>) -> Result<Option<WorkEvent>, SubscribeError> {
        let until_ns = timeout.map(|timeout| now_ns().saturating_add(saturating_ns(timeout)));
        loop {
            if self.events.is_empty() {
                self.fetch(1)?;
            }
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let left = until_ns.map(|until_ns| Duration::from_nanos(until_ns.saturating_sub(now_ns())));
            if !self.wait(left) {
                return Ok(None);
            }
        }
    }

    /// Waits until there may be a record to claim. Returns `false` after `timeout`.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        !self.events.is_empty() || self.membership.wait(timeout)
    }

    /// Waits in async code: ready when [`claim`](WorkMember::claim) may return something.
    /// [`Node::see_to_due`](crate::Node::see_to_due) handles deadlines and delays, as does every operation of a
    /// member.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.events.is_empty() { self.membership.poll(cx) } else { Poll::Ready(()) }
    }

    /// For a listener: lets the next event notify the waiter. Events are notices and, if the member `wants` them,
    /// records. Returns `false` if an event is available at once.
    pub fn sleep(&self, wants: bool) -> bool {
        self.events.is_empty() && self.membership.sleep(wants)
    }

    /// Acknowledges the record.
    pub fn ack(&mut self, token: u64) -> Result<(), StaleClaim> {
        let Open { part, seq, .. } = self.open.remove(&token).ok_or(StaleClaim { token })?;
        self.membership.with(|state, member, now_ns| {
            let token_here = state.part_token(token);
            let acked = state.work(part).ack(member, seq, token_here, now_ns);
            acked.map_err(|_| StaleClaim { token })
        })
    }

    /// Reports a failed attempt. Any member can receive the record again after `delay`. If the attempts of the record
    /// are used up, it becomes a dead letter instead.
    pub fn nack(&mut self, token: u64, delay: Duration) -> Result<(), StaleClaim> {
        let Open { part, seq, .. } = self.open.remove(&token).ok_or(StaleClaim { token })?;
        let delay_ns = saturating_ns(delay);
        self.membership.with(|state, member, now_ns| {
            let token_here = state.part_token(token);
            let nacked = state.work(part).nack(member, seq, token_here, delay_ns, now_ns);
            nacked.map_err(|_| StaleClaim { token })
        })
    }

    /// Extends the claim by a whole claim duration from now. Returns the new deadline.
    pub fn renew(&mut self, token: u64) -> Result<u64, StaleClaim> {
        let Open { part, seq, .. } = *self.open.get(&token).ok_or(StaleClaim { token })?;
        let renewed = self.membership.with(|state, member, now_ns| {
            let token_here = state.part_token(token);
            state.work(part).renew(member, seq, token_here, now_ns)
        });
        let deadline_ns = renewed.map_err(|_| StaleClaim { token })?;
        self.open.insert(token, Open { part, seq, deadline_ns });
        Ok(deadline_ns)
    }

    /// Leaves the group. Other members can claim this member's records at once, and the attempt does not count.
    pub fn leave(mut self) {
        self.membership.leave(Departure::Left);
    }

    /// Removes expired claims from the list, because they cannot be settled.
    fn forget_ended(&mut self) {
        if self.open.len() >= OPEN_SWEEP {
            let now_ns = now_ns();
            self.open.retain(|_, open| open.deadline_ns > now_ns);
        }
    }

    /// Claims records until the member has `max` events or no record is available.
    fn fetch(&mut self, max: usize) -> Result<(), SubscribeError> {
        if self.events.is_empty() {
            self.membership.check_open()?;
        }
        self.forget_ended();
        let WorkMember { membership, open, events } = self;
        let (claimed, notices) = membership.with(|state, member, now_ns| {
            let (mut claimed, mut notices) = (Vec::new(), Vec::new());
            while events.len() + claimed.len() < max {
                let Some(one) = state.claim(member, now_ns, &mut notices) else { break };
                claimed.push(one);
            }
            (claimed, notices)
        });
        membership.push_notices(notices);
        events.extend(std::iter::from_fn(|| membership.pop_notice()).map(WorkEvent::Notice));
        for (part, one) in claimed {
            let deadline_ns = one.deadline_ns;
            open.insert(one.token, Open { part, seq: one.position.seq, deadline_ns });
            events.push_back(WorkEvent::ClaimedRecord(one));
        }
        events.extend(std::iter::from_fn(|| membership.pop_end()).map(WorkEvent::Notice));
        Ok(())
    }
}

fn saturating_ns(duration: Duration) -> u64 {
    duration.as_nanos().min(u64::MAX.into()) as u64
}

impl MembershipState<WorkGroup> {
    /// Returns the token that the member receives, which combines a token of the partition with the partition's number.
    fn member_token(&self, token: u64, part: usize) -> u64 {
        self.made_ns.wrapping_add(token * self.parts.len() as u64 + part as u64)
    }

    /// Extracts the partition's token from a token of the member.
    fn part_token(&self, token: u64) -> u64 {
        token.wrapping_sub(self.made_ns) / self.parts.len() as u64
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
        let (part, mut claimed) = self.find(|at, part| {
            let (mut feed, work) = part.feed();
            let (claim, frame) = loop {
                let claim = work.claim(member, now_ns, &mut feed).ok().flatten();
                notices.append(&mut feed.notices);
                let claim = claim?;
                let mut frame = Vec::new();
                if feed.copy(claim.seq, &mut frame) {
                    break (claim, frame);
                }
                work.lose_claim(member, &claim);
            };
            drop(feed);
            let log = part.cursor.log();
            let position = Position { epoch: log.last().epoch, seq: claim.seq };
            let token = claim.token;
            let (deadline_ns, attempt, log) = (claim.deadline_ns, claim.attempt, Arc::clone(log.name()));
            Some((at, ClaimedRecord { token, deadline_ns, attempt, position, log, frame }))
        })?;
        claimed.token = self.member_token(claimed.token, part);
        Some((part, claimed))
    }
}
