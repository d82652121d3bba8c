//! Work groups: a member claims a record until a deadline. If the member does not acknowledge the record by then, the
//! record is delivered again.
//!
//! Invariants:
//! - Each record has at most one valid claim. Of the records with the same key, at most one is claimed at a time.
//!   Records with the same key are claimed in order, each after the previous one is acknowledged, dead-lettered or
//!   lost.
//! - A claim ends when its member acknowledges or returns the record, at its deadline, or when its member leaves. The
//!   group refuses the token of a claim that has ended.
//! - Every record is acknowledged, becomes a [`DeadLetter`], or is reported to the members as [`LostRecords`].
//! - A record is settled when it is acknowledged, dead-lettered or lost. While a record is not settled, only later
//!   records with the same key wait for it, unless a limit is reached.
//!
//! Limits: `work_claims_max`, `work_member_claims_max`, `work_look_ahead_max` and `work_keys_blocked_max` of
//! [`LogLimits`]. At a limit, the group lets members claim no further records, or reads no further records from the
//! log, until earlier records are settled. [`WorkGroup::reached_limit`] names the limit.
//!
//! Rejected alternative: several records with the same key can be claimed at the same time. With few keys, this would
//! be faster, but a later record could be processed before an earlier one is delivered again.

mod backlog;
mod claim;

use super::lost::LostRecords;
use super::members::{MemberId, Members};
use super::{GroupError, RecordSource, SourceItem};
use crate::limits::LogLimits;

use backlog::{Backlog, RecordState};
pub use claim::{Claim, ClaimError, DeadCause, DeadLetter, DeadLetterTarget, MemberDeparture, WorkConfig};

/// The state machine of a work group, in which a record is delivered until a member acknowledges it.
#[derive(Debug)]
pub struct WorkGroup {
    config: WorkConfig,
    limits: LogLimits,
    members: Members<u32>,
    backlog: Backlog,
    claims: u32,
    next_token: u64,
    fed_through: u64,
    /// The sequence number of the oldest record that the log retains.
    oldest_retained: u64,
}

impl WorkGroup {
    /// Creates a group that starts after the record `after_seq`.
    pub fn new(config: WorkConfig, limits: &LogLimits, after_seq: u64) -> WorkGroup {
        WorkGroup {
            config,
            limits: *limits,
            members: Members::new(limits),
            backlog: Backlog::default(),
            claims: 0,
            next_token: 1,
            fed_through: after_seq,
            oldest_retained: 0,
        }
    }

    /// Adds a member.
    pub fn join(&mut self) -> Result<MemberId, GroupError> {
        self.members.join()
    }

    /// Removes a member. Its claims end, and other members can immediately claim the records.
    pub fn leave(
        &mut self,
        member: MemberId,
        departure: MemberDeparture,
        now_ns: u64,
    ) -> Result<(), GroupError> {
        self.tick(now_ns);
        self.members.leave(member)?;
        for seq in self.backlog.claimed_by(member) {
            self.claims -= 1;
            match departure {
                MemberDeparture::Left => {
                    self.backlog.uncount_attempt(seq);
                    self.requeue(seq, 0);
                }
                MemberDeparture::Died => self.fail(seq, 0, DeadCause::MemberDied),
            }
        }
        Ok(())
    }

    /// Claims a record for this member. Prefers records that the group has already read. If none of them can be
    /// claimed, reads the log until it finds a record whose key differs from the keys of all unsettled records. Returns
    /// `None` if there is no such record, or if the member or the group is at a limit.
    pub fn claim(
        &mut self,
        member: MemberId,
        now_ns: u64,
        source: &mut impl RecordSource,
    ) -> Result<Option<Claim>, GroupError> {
        self.tick(now_ns);
        let claims = *self.members.get(member)?;
        if claims >= self.limits.work_member_claims_max || self.claims >= self.limits.work_claims_max {
            return Ok(None);
        }
        let Some(seq) = self.next_ready(source) else { return Ok(None) };
        *self.members.get_mut(member)? += 1;
        self.claims += 1;
        let token = self.next_token;
        self.next_token += 1;
        let deadline_ns = now_ns.saturating_add(self.config.claim_ns);
        let attempt = self.backlog.claim(seq, RecordState::Claimed { member, token, deadline_ns });
        Ok(Some(Claim { seq, token, attempt, deadline_ns }))
    }

    /// Acknowledges record `seq`, which the member has claimed with this token.
    pub fn ack(&mut self, member: MemberId, seq: u64, token: u64, now_ns: u64) -> Result<(), ClaimError> {
        self.end_claim(member, seq, token, now_ns)?;
        self.backlog.settle(seq);
        Ok(())
    }

    /// Ends the member's claim with this token on record `seq`, without an acknowledgement. The record is delivered
    /// again after `delay_ns`. If this was the record's last attempt, the record becomes a dead letter instead.
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

    /// Extends the member's claim to record `seq`. Returns the new deadline, which is a full claim time after `now_ns`.
    pub fn renew(&mut self, member: MemberId, seq: u64, token: u64, now_ns: u64) -> Result<u64, ClaimError> {
        self.tick(now_ns);
        self.check_claim(member, seq, token)?;
        let deadline_ns = now_ns.saturating_add(self.config.claim_ns);
        self.backlog.set_state(seq, RecordState::Claimed { member, token, deadline_ns });
        Ok(deadline_ns)
    }

    /// Ends the claims and delays whose time is over at `now_ns`. Every method with a `now_ns` parameter does this
    /// first. In addition, the owner calls this method at [`next_tick_ns`](WorkGroup::next_tick_ns).
    pub fn tick(&mut self, now_ns: u64) {
        while let Some((seq, state)) = self.backlog.due(now_ns) {
            match state {
                RecordState::Claimed { member, .. } => {
                    self.uncount_claim(member);
                    self.fail(seq, 0, DeadCause::Expired);
                }
                _ => self.requeue(seq, 0),
            }
        }
    }

    /// Time at which the next claim or delay ends, ns; `None` without claims and delays.
    pub fn next_tick_ns(&self) -> Option<u64> {
        self.backlog.next_due_ns()
    }

    /// Reports that the log has dropped records before `oldest_seq`. Of the dropped records, those without a claim are
    /// lost. A claimed record is lost only when it would otherwise be delivered again.
    pub fn drop_before(&mut self, oldest_seq: u64) {
        self.oldest_retained = self.oldest_retained.max(oldest_seq);
        for seq in self.backlog.unclaimed_before(oldest_seq) {
            self.report_dropped(seq);
        }
    }

    /// Takes a dead letter, which the owner then stores.
    pub fn take_dead_letter(&mut self) -> Option<DeadLetter> {
        self.backlog.take_dead_letter()
    }

    /// Number of dead letters that the owner has not taken yet.
    pub fn dead_letters(&self) -> usize {
        self.backlog.dead_letters()
    }

    /// Reports that the log has dropped the record of a claim that was just made. The record is lost.
    pub fn report_claim_dropped(&mut self, member: MemberId, claim: &Claim) {
        if self.check_claim(member, claim.seq, claim.token).is_ok() {
            self.uncount_claim(member);
            self.report_dropped(claim.seq);
        }
    }

    /// Takes back a claim whose record cannot be read at present. The record can be claimed again, and the attempt does
    /// not count.
    pub fn withdraw_claim(&mut self, member: MemberId, claim: &Claim) {
        if self.check_claim(member, claim.seq, claim.token).is_ok() {
            self.uncount_claim(member);
            self.backlog.uncount_attempt(claim.seq);
            self.requeue(claim.seq, 0);
        }
    }

    /// Reports that a dead letter could not be stored. Its record then counts as lost.
    pub fn report_dead_letter_lost(&mut self, letter: DeadLetter) {
        self.members.report(LostRecords::dropped(letter.seq, letter.seq));
    }

    /// Takes the next report of lost records that this member has to receive.
    pub fn take_lost(&mut self, member: MemberId) -> Option<LostRecords> {
        self.members.take_lost(member)
    }

    /// Whether there is a report of lost records that this member has to receive.
    pub fn has_lost(&self, member: MemberId) -> bool {
        self.members.has_lost(member)
    }

    /// Number of losses so far. When it has grown, members have reports of lost records to receive.
    pub fn losses(&self) -> u64 {
        self.members.losses()
    }

    /// Whether this member may claim more records.
    pub fn has_room(&self, member: MemberId) -> bool {
        let claims = self.members.get(member).copied();
        claims.is_ok_and(|claims| claims < self.limits.work_member_claims_max)
            && self.claims < self.limits.work_claims_max
    }

    /// The sequence number up to which every record is acknowledged, lost, or a dead letter that the owner has taken.
    pub fn position(&self) -> u64 {
        self.backlog.oldest().map_or(self.fed_through, |seq| seq - 1)
    }

    /// Sequence number of the last record that the group has taken from the log.
    pub fn fed_through(&self) -> u64 {
        self.fed_through
    }

    /// Whether a record can be claimed without reading the log.
    pub fn has_ready(&self) -> bool {
        self.backlog.has_ready_record()
    }

    /// The name of the limit that prevents further claims or reads; `None` if no limit is reached.
    pub fn reached_limit(&self) -> Option<&'static str> {
        let limits = &self.limits;
        [
            (self.claims >= limits.work_claims_max, "work_claims_max"),
            (self.backlog.len() >= limits.work_look_ahead_max as usize, "work_look_ahead_max"),
            (self.backlog.keys_blocked() >= limits.work_keys_blocked_max as usize, "work_keys_blocked_max"),
        ]
        .into_iter()
        .find_map(|(reached, limit)| reached.then_some(limit))
    }

    /// Number of claims that have not ended.
    pub fn claims(&self) -> u32 {
        self.claims
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Finds a record that can be claimed. If there is none, reads further records from the log, unless a limit is
    /// reached.
    fn next_ready(&mut self, source: &mut impl RecordSource) -> Option<u64> {
        loop {
            if let Some(seq) = self.backlog.first_ready() {
                return Some(seq);
            }
            if self.reached_limit().is_some() {
                return None;
            }
            match source.next()? {
                SourceItem::Record { seq, key } => {
                    assert!(seq > self.fed_through, "a source returns ascending records");
                    self.fed_through = seq;
                    self.backlog.add(seq, key);
                }
                SourceItem::LostRecords { first, last } => {
                    assert!(first > self.fed_through && last >= first, "a source returns ascending records");
                    self.fed_through = last;
                    self.members.report(LostRecords::dropped(first, last));
                }
            }
        }
    }

    fn check_claim(&self, member: MemberId, seq: u64, token: u64) -> Result<(), ClaimError> {
        match self.backlog.state(seq) {
            Some(RecordState::Claimed { member: holder, token: current, .. })
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
        if let Ok(claims) = self.members.get_mut(member) {
            *claims -= 1;
        }
    }

    /// Handles a claim that ended without an acknowledgement: the record can be claimed again at `until_ns`, or becomes
    /// a dead letter after its last attempt.
    fn fail(&mut self, seq: u64, until_ns: u64, cause: DeadCause) {
        let attempts = self.backlog.attempts(seq);
        if attempts >= self.config.attempts_max {
            self.backlog.add_dead_letter(DeadLetter { seq, attempts, cause });
        } else {
            self.requeue(seq, until_ns);
        }
    }

    /// Makes the record claimable again: at `until_ns`, or at once if `until_ns` is 0. A record that the log has
    /// dropped is lost instead.
    fn requeue(&mut self, seq: u64, until_ns: u64) {
        if seq < self.oldest_retained {
            self.report_dropped(seq);
        } else if until_ns == 0 {
            self.backlog.set_state(seq, RecordState::Ready);
        } else {
            self.backlog.set_state(seq, RecordState::Delayed { until_ns });
        }
    }

    fn report_dropped(&mut self, seq: u64) {
        self.backlog.settle(seq);
        self.members.report(LostRecords::dropped(seq, seq));
    }
}

#[cfg(test)]
mod tests;
