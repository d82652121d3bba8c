//! A work group whose claims and deadlines are compared with a simple list.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dunlin_topic::*;

use super::group::{Feed, GroupOutput};
use super::readers::ExpectedLog;
use super::{LIMITS, content};
use crate::fixture::{MANUAL, advance_clock};

const CLAIM_NS: u64 = 1_000_000_000;
const ATTEMPTS_MAX: u32 = 3;
/// How many of the most recent claims the test can still settle. Some of them may have ended.
const RECENT_CLAIMS_MAX: usize = 16;

/// An action of a group's member on its claim: to acknowledge or return the record, or to renew the claim.
#[derive(Debug, Clone, Copy)]
pub enum ClaimAction {
    Ack,
    Nack { delay_ms: u64 },
    Renew,
}

pub(super) struct Workers {
    work: WorkGroup,
    feed: Feed,
    output: GroupOutput,
    /// The most recent claims, each with its member, the newest first.
    recent_claims: VecDeque<(MemberId, Claim)>,
    open: BTreeMap<u64, Open>,
    ends: BTreeMap<u64, End>,
    /// The sequence number of the last record that the group has read from the log.
    last: u64,
    oldest_retained: u64,
}

/// A record that the group has read and that is not settled yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    key: Option<u64>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits {
        from_ns: u64,
        attempts: u32,
    },
    Claimed {
        member: MemberId,
        token: u64,
        deadline_ns: u64,
        attempts: u32,
    },
    /// The record has become a dead letter, which was not taken yet.
    DeadLetter {
        attempts: u32,
        cause: DeadCause,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    Dead,
    LostRecords,
}

impl Workers {
    pub(super) fn of(topic: &Topic) -> Workers {
        Workers {
            work: WorkGroup::new(WorkConfig { claim_ns: CLAIM_NS, attempts_max: ATTEMPTS_MAX }, &LIMITS, 0),
            feed: Feed::of(topic),
            output: GroupOutput::default(),
            recent_claims: VecDeque::new(),
            open: BTreeMap::new(),
            ends: BTreeMap::new(),
            last: 0,
            oldest_retained: 0,
        }
    }

    pub(super) fn join(&mut self) {
        let joined = self.work.join();
        self.output.add_member(joined);
    }

    pub(super) fn leave(&mut self, member: usize, departure: MemberDeparture) {
        let Some(member) = self.output.pick(member) else { return };
        self.work.leave(member, departure, MANUAL.now_ns()).unwrap();
        self.tick();
        self.output.members.retain(|known| *known != member);
        for (seq, Open { state, .. }) in self.open.clone() {
            let State::Claimed { member: holder, attempts, .. } = state else { continue };
            match departure {
                _ if holder != member => {}
                MemberDeparture::Left => self.requeue(seq, 0, attempts - 1),
                MemberDeparture::Died => self.fail(seq, 0, attempts, DeadCause::MemberDied),
            }
        }
    }

    pub(super) fn claim(&mut self, member: usize, max: usize, expected: &ExpectedLog<'_>) {
        let Some(member) = self.output.pick(member) else { return };
        for _ in 0..max {
            if !self.claim_one(member, expected) {
                break;
            }
        }
        self.feed.release();
    }

    fn claim_one(&mut self, member: MemberId, expected: &ExpectedLog<'_>) -> bool {
        self.tick();
        let now_ns = MANUAL.now_ns();
        let Workers { work, feed, open, ends, last: last_read, .. } = self;
        let mut source = || {
            let item = feed.next(expected)?;
            match item {
                SourceItem::Record { seq, key } => {
                    assert_eq!(key, expected.written(seq).key.map(|key| key_hash(&[key])));
                    *last_read = seq;
                    open.insert(seq, Open { key, state: State::Waits { from_ns: 0, attempts: 0 } });
                }
                SourceItem::LostRecords { first, last } => {
                    *last_read = last;
                    ends.extend((first..=last).map(|seq| (seq, End::LostRecords)));
                }
            }
            Some(item)
        };
        let Some(claim) = work.claim(member, now_ns, &mut source).unwrap() else {
            self.check_nothing_to_claim(member, expected);
            return false;
        };
        self.check_claim(&claim);
        let Claim { seq, token, deadline_ns, attempt: attempts } = claim;
        self.set_state(seq, State::Claimed { member, token, deadline_ns, attempts });
        assert!(self.claims_of(member) <= LIMITS.work_member_claims_max as usize);
        let has_expected_content =
            |record: Record<'_>| record.payload() == content(seq, expected.written(seq).bytes);
        match self.feed.log().read(seq, has_expected_content) {
            Some(is_expected) => assert!(is_expected, "content of {seq}"),
            None => {
                assert!(seq < expected.info.oldest_seq, "{seq} is retained");
                self.work.report_claim_dropped(member, &claim);
                self.end(seq, End::LostRecords);
            }
        }
        self.recent_claims.push_front((member, claim));
        self.recent_claims.truncate(RECENT_CLAIMS_MAX);
        true
    }

    /// Checks that the record could be claimed, and that the claim has the expected attempt and deadline.
    fn check_claim(&self, claim: &Claim) {
        let Some(State::Waits { from_ns, attempts }) = self.state(claim.seq) else {
            panic!("{claim:?} of {:?}, {:?}", self.state(claim.seq), self.ends.get(&claim.seq));
        };
        let now_ns = MANUAL.now_ns();
        assert!(from_ns <= now_ns, "{claim:?} is delayed until {from_ns}");
        assert!(self.is_key_free(claim.seq), "{claim:?} is not the first of its key");
        assert_eq!((claim.attempt, claim.deadline_ns), (attempts + 1, now_ns + CLAIM_NS));
        assert!(self.recent_claims.iter().all(|(_, before)| before.token != claim.token));
    }

    /// The member has received no record: checks that it is at a limit, or that no record can be claimed.
    fn check_nothing_to_claim(&self, member: MemberId, expected: &ExpectedLog<'_>) {
        let has_room = self.claims_of(member) < LIMITS.work_member_claims_max as usize
            && self.claims() < LIMITS.work_claims_max as usize;
        assert_eq!(self.work.has_room(member), has_room);
        if !has_room {
            return;
        }
        let now_ns = MANUAL.now_ns();
        let is_ready = |state| matches!(state, State::Waits { from_ns, .. } if from_ns <= now_ns);
        let ready = self.open.iter().find(|(seq, open)| is_ready(open.state) && self.is_key_free(**seq));
        assert_eq!(ready, None, "it could have been claimed");
        let open = self.open.len();
        match self.work.reached_limit() {
            None => assert!(self.feed.has_read_all(expected), "it stopped at {}", self.feed.next),
            Some("work_look_ahead_max") => assert!(open >= LIMITS.work_look_ahead_max as usize),
            Some("work_keys_blocked_max") => assert!(open > LIMITS.work_keys_blocked_max as usize),
            Some(other) => panic!("limited by {other} with {open} records open"),
        }
    }

    pub(super) fn settle(&mut self, claim: usize, how: ClaimAction) {
        self.tick();
        let Some(&(member, Claim { seq, token, .. })) = self.recent_claims.get(claim) else { return };
        let now_ns = MANUAL.now_ns();
        let attempts_if_valid = match self.state(seq) {
            Some(State::Claimed { token: current, attempts, .. }) if current == token => Some(attempts),
            _ => None,
        };
        let expected = attempts_if_valid.map(|_| ()).ok_or(ClaimError { seq, token });
        match how {
            ClaimAction::Ack => {
                assert_eq!(self.work.ack(member, seq, token, now_ns), expected);
                if attempts_if_valid.is_some() {
                    self.end(seq, End::Done);
                }
            }
            ClaimAction::Nack { delay_ms } => {
                let delay_ns = delay_ms * 1_000_000;
                assert_eq!(self.work.nack(member, seq, token, delay_ns, now_ns), expected);
                if let Some(attempts) = attempts_if_valid {
                    let from_ns = if delay_ns == 0 { 0 } else { now_ns + delay_ns };
                    self.fail(seq, from_ns, attempts, DeadCause::Refused);
                }
            }
            ClaimAction::Renew => {
                let deadline_ns = now_ns + CLAIM_NS;
                assert_eq!(self.work.renew(member, seq, token, now_ns), expected.map(|()| deadline_ns));
                if let Some(attempts) = attempts_if_valid {
                    self.set_state(seq, State::Claimed { member, token, deadline_ns, attempts });
                }
            }
        }
    }

    pub(super) fn take_dead_letters(&mut self) {
        self.tick();
        self.work.tick(MANUAL.now_ns());
        while let Some(DeadLetter { seq, attempts, cause }) = self.work.take_dead_letter() {
            assert_eq!(self.state(seq), Some(State::DeadLetter { attempts, cause }));
            assert_eq!(attempts, ATTEMPTS_MAX);
            self.end(seq, End::Dead);
        }
        assert!(!self.open.values().any(|open| matches!(open.state, State::DeadLetter { .. })));
    }

    pub(super) fn check(&mut self, oldest: u64) {
        self.tick();
        self.work.tick(MANUAL.now_ns());
        self.drop_before(oldest);
        let Workers { work, output, ends, .. } = self;
        output.take_losses(
            |member| work.take_lost(member),
            |seq, lost| {
                assert_eq!(
                    (ends.get(&seq), lost.unconfirmed),
                    (Some(&End::LostRecords), 0),
                    "{seq} is reported lost"
                );
            },
        );
        assert_eq!(self.work.claims() as usize, self.claims());
        assert_eq!(self.work.position(), self.open.first_key_value().map_or(self.last, |(seq, _)| seq - 1));
        let is_due =
            |open: &Open| matches!(open.state, State::Claimed { .. } | State::Waits { from_ns: 1.., .. });
        assert_eq!(self.work.next_tick_ns().is_some(), self.open.values().any(is_due));
    }

    /// Lets a single member process the records that are left. Then checks that every record was settled exactly once.
    pub(super) fn finish(&mut self, expected: &ExpectedLog<'_>) {
        while !self.output.members.is_empty() {
            self.leave(0, MemberDeparture::Died);
        }
        self.join();
        self.check(expected.info.oldest_seq);
        while !self.feed.has_read_all(expected) || !self.open.is_empty() {
            advance_clock(Duration::from_nanos(CLAIM_NS));
            self.take_dead_letters();
            self.claim(0, 1, expected);
            self.settle(0, ClaimAction::Ack);
            self.check(expected.info.oldest_seq);
        }
        for seq in 1..expected.info.next_seq {
            match self.ends.get(&seq) {
                Some(End::Done | End::Dead) => assert!(!self.output.was_reported_lost(seq)),
                Some(End::LostRecords) => {
                    assert!(self.output.was_reported_lost(seq), "{seq} was lost without a report")
                }
                None => assert!(expected.has_expired(seq), "{seq} was skipped without a report"),
            }
        }
    }

    fn state(&self, seq: u64) -> Option<State> {
        self.open.get(&seq).map(|open| open.state)
    }

    fn set_state(&mut self, seq: u64, state: State) {
        self.open.get_mut(&seq).unwrap().state = state;
    }

    fn end(&mut self, seq: u64, end: End) {
        assert!(self.open.remove(&seq).is_some());
        assert_eq!(self.ends.insert(seq, end), None);
    }

    fn claims(&self) -> usize {
        self.open.values().filter(|open| matches!(open.state, State::Claimed { .. })).count()
    }

    fn claims_of(&self, member: MemberId) -> usize {
        let of =
            |open: &&Open| matches!(open.state, State::Claimed { member: holder, .. } if holder == member);
        self.open.values().filter(of).count()
    }

    /// Whether all earlier records with the same key as record `seq` are settled or dead letters.
    fn is_key_free(&self, seq: u64) -> bool {
        let Some(key) = self.open[&seq].key else { return true };
        let is_free = |open: &Open| open.key != Some(key) || matches!(open.state, State::DeadLetter { .. });
        self.open.range(..seq).all(|(_, open)| is_free(open))
    }

    /// Ends the claims and delays whose time is over.
    fn tick(&mut self) {
        let now_ns = MANUAL.now_ns();
        for (seq, Open { state, .. }) in self.open.clone() {
            match state {
                State::Claimed { deadline_ns, attempts, .. } if deadline_ns <= now_ns => {
                    self.fail(seq, 0, attempts, DeadCause::Expired);
                }
                State::Waits { from_ns: from_ns @ 1.., attempts } if from_ns <= now_ns => {
                    self.requeue(seq, 0, attempts);
                }
                _ => {}
            }
        }
    }

    fn drop_before(&mut self, oldest: u64) {
        self.work.drop_before(oldest);
        self.oldest_retained = oldest;
        for (seq, Open { state, .. }) in self.open.clone() {
            if seq < oldest && matches!(state, State::Waits { .. }) {
                self.end(seq, End::LostRecords);
            }
        }
    }

    fn fail(&mut self, seq: u64, from_ns: u64, attempts: u32, cause: DeadCause) {
        if attempts >= ATTEMPTS_MAX {
            self.set_state(seq, State::DeadLetter { attempts, cause });
        } else {
            self.requeue(seq, from_ns, attempts);
        }
    }

    fn requeue(&mut self, seq: u64, from_ns: u64, attempts: u32) {
        if seq < self.oldest_retained {
            self.end(seq, End::LostRecords);
        } else {
            self.set_state(seq, State::Waits { from_ns, attempts });
        }
    }
}
