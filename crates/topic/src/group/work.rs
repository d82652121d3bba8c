//! Work: a record is claimed by one member, and comes again until it is acknowledged.
//!
//! Invariants:
//! - A record has at most one claim that counts, and so has a key: the records of a key are claimed one at
//!   a time, in order, the next when the one before is acknowledged, dead-lettered or lost.
//! - A claim ends with its deadline, its nack, or its member; from then on its token is refused.
//! - Every record is acknowledged, becomes a [`DeadLetter`], or is told to the members as [`Lost`].
//! - A key that is stuck holds up itself alone, as long as what waits behind it fits the limits.
//!
//! Limits: `work_claims_max`, `work_member_claims_max`, `work_look_ahead_max` and `work_keys_blocked_max`
//! of [`Limits`]; at each the group takes nothing new until something ends
//! ([`Work::held_up_by`] says which it is).
//!
//! Turned down: several records of a key claimed at once by one member. It is faster for few keys, but the
//! second would be done although the first came back.

mod backlog;
mod claim;

use super::lost::Lost;
use super::members::{MemberId, Members};
use super::{GroupError, Incoming, Source};
use crate::limits::Limits;

use backlog::{Backlog, State};
pub use claim::{Claim, ClaimError, DeadCause, DeadLetter, Departure, WorkConfig};

/// A group whose records are each claimed until someone acknowledges them.
#[derive(Debug)]
pub struct Work {
    config: WorkConfig,
    limits: Limits,
    members: Members<u32>,
    backlog: Backlog,
    claims: u32,
    next_token: u64,
    fed_through: u64,
    /// Records before this one are gone from the log.
    oldest_held: u64,
}

impl Work {
    /// A group that begins after the record `after_seq`.
    pub fn new(config: WorkConfig, limits: &Limits, after_seq: u64) -> Work {
        Work {
            config,
            limits: *limits,
            members: Members::new(limits),
            backlog: Backlog::default(),
            claims: 0,
            next_token: 1,
            fed_through: after_seq,
            oldest_held: 0,
        }
    }

    /// Lets one more take part.
    pub fn join(&mut self) -> Result<MemberId, GroupError> {
        self.members.join()
    }

    /// Ends a membership; what it had claimed is there for the others at once.
    pub fn leave(&mut self, member: MemberId, departure: Departure, now_ns: u64) -> Result<(), GroupError> {
        self.tick(now_ns);
        self.members.leave(member)?;
        for seq in self.backlog.claimed_by(member) {
            self.claims -= 1;
            match departure {
                Departure::Left => {
                    self.backlog.uncount_attempt(seq);
                    self.bring_back(seq, 0);
                }
                Departure::Died => self.fail(seq, 0, DeadCause::MemberDied),
            }
        }
        Ok(())
    }

    /// Claims a record for this member: one that came back, or the next of the log whose key is free.
    pub fn claim(
        &mut self,
        member: MemberId,
        now_ns: u64,
        source: &mut impl Source,
    ) -> Result<Option<Claim>, GroupError> {
        self.tick(now_ns);
        let held = *self.members.get(member)?;
        if held >= self.limits.work_member_claims_max || self.claims >= self.limits.work_claims_max {
            return Ok(None);
        }
        let Some(seq) = self.next_ready(source) else { return Ok(None) };
        *self.members.get_mut(member)? += 1;
        self.claims += 1;
        let token = self.next_token;
        self.next_token += 1;
        let deadline_ns = now_ns.saturating_add(self.config.claim_ns);
        let attempt = self.backlog.claim(seq, State::Claimed { member, token, deadline_ns });
        Ok(Some(Claim { seq, token, attempt, deadline_ns }))
    }

    /// The record is done.
    pub fn ack(&mut self, member: MemberId, seq: u64, token: u64, now_ns: u64) -> Result<(), ClaimError> {
        self.end_claim(member, seq, token, now_ns)?;
        self.backlog.settle(seq);
        Ok(())
    }

    /// The record could not be done: it comes again after `delay_ns`, or is a dead letter when it was tried often enough.
    pub fn nack(
        &mut self,
        member: MemberId,
        seq: u64,
        token: u64,
        delay_ns: u64,
        now_ns: u64,
    ) -> Result<(), ClaimError> {
        self.end_claim(member, seq, token, now_ns)?;
        let until_ns = if delay_ns == 0 { 0 } else { now_ns.saturating_add(delay_ns) };
        self.fail(seq, until_ns, DeadCause::Refused);
        Ok(())
    }

    /// The member needs longer: the deadline is set anew from now, and returned.
    pub fn renew(&mut self, member: MemberId, seq: u64, token: u64, now_ns: u64) -> Result<u64, ClaimError> {
        self.tick(now_ns);
        self.check_claim(member, seq, token)?;
        let deadline_ns = now_ns.saturating_add(self.config.claim_ns);
        self.backlog.set_state(seq, State::Claimed { member, token, deadline_ns });
        Ok(deadline_ns)
    }

    /// Ends what is over at this time. Everything that takes a time does it by itself; the owner calls this when
    /// [`next_tick_ns`](Work::next_tick_ns) has come.
    pub fn tick(&mut self, now_ns: u64) {
        while let Some((seq, state)) = self.backlog.due(now_ns) {
            match state {
                State::Claimed { member, .. } => {
                    self.uncount_claim(member);
                    self.fail(seq, 0, DeadCause::Expired);
                }
                _ => self.bring_back(seq, 0),
            }
        }
    }

    /// When the next deadline or delay ends.
    pub fn next_tick_ns(&self) -> Option<u64> {
        self.backlog.next_due_ns()
    }

    /// The log gave up its records before `oldest_seq`. Those that nobody has claimed are lost; a claimed one
    /// is lost if it comes back.
    pub fn give_up_before(&mut self, oldest_seq: u64) {
        self.oldest_held = self.oldest_held.max(oldest_seq);
        for seq in self.backlog.unclaimed_before(oldest_seq) {
            self.lose(seq);
        }
    }

    /// A record that was tried in vain as often as it may be; the owner puts it where dead letters go.
    pub fn take_dead_letter(&mut self) -> Option<DeadLetter> {
        self.backlog.take_dead_letter()
    }

    /// The owner could not read a record that was just claimed: the log gave it up.
    pub fn lose_claim(&mut self, member: MemberId, claim: &Claim) {
        if self.check_claim(member, claim.seq, claim.token).is_ok() {
            self.uncount_claim(member);
            self.lose(claim.seq);
        }
    }

    /// A dead letter that was taken cannot be put anywhere: its record is lost.
    pub fn lose_dead_letter(&mut self, letter: DeadLetter) {
        self.members.report(Lost::given_up(letter.seq, letter.seq));
    }

    /// A loss this member has yet to be told.
    pub fn take_lost(&mut self, member: MemberId) -> Option<Lost> {
        self.members.take_lost(member)
    }

    /// Whether there is a loss that this member has yet to be told.
    pub fn has_lost(&self, member: MemberId) -> bool {
        self.members.has_lost(member)
    }

    /// How many losses there were so far: when it grows, members have something to be told.
    pub fn losses(&self) -> u64 {
        self.members.losses()
    }

    /// Whether this member may claim more before it settles what it has.
    pub fn has_room(&self, member: MemberId) -> bool {
        let held = self.members.get(member).copied();
        held.is_ok_and(|held| held < self.limits.work_member_claims_max)
            && self.claims < self.limits.work_claims_max
    }

    /// Every record up to and with this one was acknowledged, lost, or taken as a dead letter.
    pub fn position(&self) -> u64 {
        self.backlog.oldest().map_or(self.fed_through, |seq| seq - 1)
    }

    /// Whether a record could be claimed without another look at the log.
    pub fn has_ready(&self) -> bool {
        self.backlog.has_ready()
    }

    /// The name of the limit that keeps the group from looking further ahead, or from new claims.
    pub fn held_up_by(&self) -> Option<&'static str> {
        let limits = &self.limits;
        [
            (self.claims >= limits.work_claims_max, "work_claims_max"),
            (self.backlog.len() >= limits.work_look_ahead_max as usize, "work_look_ahead_max"),
            (self.backlog.keys_blocked() >= limits.work_keys_blocked_max as usize, "work_keys_blocked_max"),
        ]
        .into_iter()
        .find_map(|(reached, limit)| reached.then_some(limit))
    }

    /// How many claims are in flight.
    pub fn claims(&self) -> u32 {
        self.claims
    }

    /// How many members it has.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// A record to claim; looks further into the log as long as it must and may.
    fn next_ready(&mut self, source: &mut impl Source) -> Option<u64> {
        loop {
            if let Some(seq) = self.backlog.first_ready() {
                return Some(seq);
            }
            if self.held_up_by().is_some() {
                return None;
            }
            match source.next()? {
                Incoming::Record { seq, key } => {
                    assert!(seq > self.fed_through, "a source goes forward");
                    self.fed_through = seq;
                    self.backlog.add(seq, key);
                }
                Incoming::Lost { first, last } => {
                    assert!(first > self.fed_through && last >= first, "a source goes forward");
                    self.fed_through = last;
                    self.members.report(Lost::given_up(first, last));
                }
            }
        }
    }

    fn check_claim(&self, member: MemberId, seq: u64, token: u64) -> Result<(), ClaimError> {
        match self.backlog.state(seq) {
            Some(State::Claimed { member: holder, token: current, .. })
                if (holder, current) == (member, token) =>
            {
                Ok(())
            }
            _ => Err(ClaimError { seq, token }),
        }
    }

    fn end_claim(&mut self, member: MemberId, seq: u64, token: u64, now_ns: u64) -> Result<(), ClaimError> {
        self.tick(now_ns);
        self.check_claim(member, seq, token)?;
        self.uncount_claim(member);
        Ok(())
    }

    fn uncount_claim(&mut self, member: MemberId) {
        self.claims -= 1;
        if let Ok(held) = self.members.get_mut(member) {
            *held -= 1;
        }
    }

    /// A claim ended without success.
    fn fail(&mut self, seq: u64, until_ns: u64, cause: DeadCause) {
        let attempts = self.backlog.attempts(seq);
        if attempts >= self.config.attempts_max {
            self.backlog.bury(DeadLetter { seq, attempts, cause });
        } else {
            self.bring_back(seq, until_ns);
        }
    }

    /// Lets the record be claimed again: now, or from a later time on.
    fn bring_back(&mut self, seq: u64, until_ns: u64) {
        if seq < self.oldest_held {
            self.lose(seq);
        } else if until_ns == 0 {
            self.backlog.set_state(seq, State::Ready);
        } else {
            self.backlog.set_state(seq, State::Delayed { until_ns });
        }
    }

    fn lose(&mut self, seq: u64) {
        self.backlog.settle(seq);
        self.members.report(Lost::given_up(seq, seq));
    }
}

#[cfg(test)]
mod tests;
