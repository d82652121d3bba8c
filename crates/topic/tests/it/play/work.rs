//! A work group, compared with a simple record of claims and deadlines.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dunlin_topic::*;

use super::group::{Feed, GroupOutput};
use super::readers::Truth;
use super::{LIMITS, content};
use crate::fixture::{MANUAL, pass};

const CLAIM_NS: u64 = 1_000_000_000;
const ATTEMPTS_MAX: u32 = 3;
/// Maximum number of claims that the test remembers for members, including ended claims.
const GIVEN_MAX: usize = 16;

/// How a member ends or renews a claim.
#[derive(Debug, Clone, Copy)]
pub enum Settling {
    Ack,
    Nack { delay_ms: u64 },
    Renew,
}

pub(super) struct Workers {
    work: WorkGroup,
    feed: Feed,
    told: GroupOutput,
    /// Claims in order of delivery, the newest first.
    given: VecDeque<(MemberId, Claim)>,
    open: BTreeMap<u64, Open>,
    over: BTreeMap<u64, End>,
    /// The sequence number of the last record that the group has read.
    last: u64,
    oldest_held: u64,
}

/// A record that the group has read and not settled.
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
    /// A dead letter that was not taken yet.
    Buried {
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
            told: GroupOutput::default(),
            given: VecDeque::new(),
            open: BTreeMap::new(),
            over: BTreeMap::new(),
            last: 0,
            oldest_held: 0,
        }
    }

    pub(super) fn join(&mut self) {
        let joined = self.work.join();
        self.told.joined(joined);
    }

    pub(super) fn leave(&mut self, member: usize, departure: Departure) {
        let Some(member) = self.told.pick(member) else { return };
        self.work.leave(member, departure, MANUAL.now_ns()).unwrap();
        self.tick();
        self.told.members.retain(|known| *known != member);
        for (seq, Open { state, .. }) in self.open.clone() {
            let State::Claimed { member: holder, attempts, .. } = state else { continue };
            match departure {
                _ if holder != member => {}
                Departure::Left => self.come_back(seq, 0, attempts - 1),
                Departure::Died => self.fail(seq, 0, attempts, DeadCause::MemberDied),
            }
        }
    }

    pub(super) fn claim(&mut self, member: usize, max: usize, truth: &Truth<'_>) {
        let Some(member) = self.told.pick(member) else { return };
        for _ in 0..max {
            if !self.claim_one(member, truth) {
                break;
            }
        }
        self.feed.rest();
    }

    fn claim_one(&mut self, member: MemberId, truth: &Truth<'_>) -> bool {
        self.tick();
        let now_ns = MANUAL.now_ns();
        let Workers { work, feed, open, over, last: come_to, .. } = self;
        let mut source = || {
            let incoming = feed.next(truth)?;
            match incoming {
                SourceItem::Record { seq, key } => {
                    assert_eq!(key, truth.written(seq).key.map(|key| key_hash(&[key])));
                    *come_to = seq;
                    open.insert(seq, Open { key, state: State::Waits { from_ns: 0, attempts: 0 } });
                }
                SourceItem::LostRecords { first, last } => {
                    *come_to = last;
                    over.extend((first..=last).map(|seq| (seq, End::LostRecords)));
                }
            }
            Some(incoming)
        };
        let Some(claim) = work.claim(member, now_ns, &mut source).unwrap() else {
            self.check_nothing_to_claim(member, truth);
            return false;
        };
        self.check_claim(&claim);
        let Claim { seq, token, deadline_ns, attempt: attempts } = claim;
        self.set_state(seq, State::Claimed { member, token, deadline_ns, attempts });
        assert!(self.claims_of(member) <= LIMITS.work_member_claims_max as usize);
        let right = |record: Record<'_>| record.payload() == content(seq, truth.written(seq).bytes);
        match self.feed.log().read(seq, right) {
            Some(right) => assert!(right, "content of {seq}"),
            None => {
                assert!(seq < truth.info.oldest_seq, "{seq} is held");
                self.work.lose_claim(member, &claim);
                self.end(seq, End::LostRecords);
            }
        }
        self.given.push_front((member, claim));
        self.given.truncate(GIVEN_MAX);
        true
    }

    /// Checks that the claimed record could be claimed.
    fn check_claim(&self, claim: &Claim) {
        let Some(State::Waits { from_ns, attempts }) = self.state(claim.seq) else {
            panic!("{claim:?} of {:?}, {:?}", self.state(claim.seq), self.over.get(&claim.seq));
        };
        let now_ns = MANUAL.now_ns();
        assert!(from_ns <= now_ns, "{claim:?} is delayed until {from_ns}");
        assert!(self.is_key_free(claim.seq), "{claim:?} is not the first of its key");
        assert_eq!((claim.attempt, claim.deadline_ns), (attempts + 1, now_ns + CLAIM_NS));
        assert!(self.given.iter().all(|(_, before)| before.token != claim.token));
    }

    /// Checks that the member was right to receive nothing: it is at its limit, or no record is available.
    fn check_nothing_to_claim(&self, member: MemberId, truth: &Truth<'_>) {
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
        match self.work.held_up_by() {
            None => assert!(self.feed.has_seen_all(truth), "it stopped at {}", self.feed.next),
            Some("work_look_ahead_max") => assert!(open >= LIMITS.work_look_ahead_max as usize),
            Some("work_keys_blocked_max") => assert!(open > LIMITS.work_keys_blocked_max as usize),
            Some(other) => panic!("held up by {other} with {open} records open"),
        }
    }

    pub(super) fn settle(&mut self, claim: usize, how: Settling) {
        self.tick();
        let Some(&(member, Claim { seq, token, .. })) = self.given.get(claim) else { return };
        let now_ns = MANUAL.now_ns();
        // If this claim is valid, the number of attempts of its record.
        let counts = match self.state(seq) {
            Some(State::Claimed { token: current, attempts, .. }) if current == token => Some(attempts),
            _ => None,
        };
        let expected = counts.map(|_| ()).ok_or(ClaimError { seq, token });
        match how {
            Settling::Ack => {
                assert_eq!(self.work.ack(member, seq, token, now_ns), expected);
                if counts.is_some() {
                    self.end(seq, End::Done);
                }
            }
            Settling::Nack { delay_ms } => {
                let delay_ns = delay_ms * 1_000_000;
                assert_eq!(self.work.nack(member, seq, token, delay_ns, now_ns), expected);
                if let Some(attempts) = counts {
                    let from_ns = if delay_ns == 0 { 0 } else { now_ns + delay_ns };
                    self.fail(seq, from_ns, attempts, DeadCause::Refused);
                }
            }
            Settling::Renew => {
                let deadline_ns = now_ns + CLAIM_NS;
                assert_eq!(self.work.renew(member, seq, token, now_ns), expected.map(|()| deadline_ns));
                if let Some(attempts) = counts {
                    self.set_state(seq, State::Claimed { member, token, deadline_ns, attempts });
                }
            }
        }
    }

    pub(super) fn take_dead_letters(&mut self) {
        self.tick();
        self.work.tick(MANUAL.now_ns());
        while let Some(DeadLetter { seq, attempts, cause }) = self.work.take_dead_letter() {
            assert_eq!(self.state(seq), Some(State::Buried { attempts, cause }));
            assert_eq!(attempts, ATTEMPTS_MAX);
            self.end(seq, End::Dead);
        }
        assert!(!self.open.values().any(|open| matches!(open.state, State::Buried { .. })));
    }

    pub(super) fn check(&mut self, oldest: u64) {
        self.tick();
        self.work.tick(MANUAL.now_ns());
        self.give_up_before(oldest);
        let Workers { work, told, over, .. } = self;
        told.hear(
            |member| work.take_lost(member),
            |seq, lost| {
                assert_eq!(
                    (over.get(&seq), lost.unconfirmed),
                    (Some(&End::LostRecords), 0),
                    "{seq} is told lost"
                );
            },
        );
        assert_eq!(self.work.claims() as usize, self.claims());
        assert_eq!(self.work.position(), self.open.first_key_value().map_or(self.last, |(seq, _)| seq - 1));
        let is_due =
            |open: &Open| matches!(open.state, State::Claimed { .. } | State::Waits { from_ns: 1.., .. });
        assert_eq!(self.work.next_tick_ns().is_some(), self.open.values().any(is_due));
    }

    /// Lets one member process the remaining records. Then checks that every record was settled exactly once.
    pub(super) fn finish(&mut self, truth: &Truth<'_>) {
        while !self.told.members.is_empty() {
            self.leave(0, Departure::Died);
        }
        self.join();
        self.check(truth.info.oldest_seq);
        while !self.feed.has_seen_all(truth) || !self.open.is_empty() {
            pass(Duration::from_nanos(CLAIM_NS));
            self.take_dead_letters();
            self.claim(0, 1, truth);
            self.settle(0, Settling::Ack);
            self.check(truth.info.oldest_seq);
        }
        for seq in 1..truth.info.next_seq {
            match self.over.get(&seq) {
                Some(End::Done | End::Dead) => assert!(!self.told.were_told(seq)),
                Some(End::LostRecords) => assert!(self.told.were_told(seq), "{seq} was lost in silence"),
                None => assert!(truth.has_expired(seq), "{seq} was skipped in silence"),
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
        assert_eq!(self.over.insert(seq, end), None);
    }

    fn claims(&self) -> usize {
        self.open.values().filter(|open| matches!(open.state, State::Claimed { .. })).count()
    }

    fn claims_of(&self, member: MemberId) -> usize {
        let of =
            |open: &&Open| matches!(open.state, State::Claimed { member: holder, .. } if holder == member);
        self.open.values().filter(of).count()
    }

    /// Whether no earlier record of the record's key is unsettled.
    fn is_key_free(&self, seq: u64) -> bool {
        let Some(key) = self.open[&seq].key else { return true };
        let is_free = |open: &Open| open.key != Some(key) || matches!(open.state, State::Buried { .. });
        self.open.range(..seq).all(|(_, open)| is_free(open))
    }

    /// Ends expired claims and delays.
    fn tick(&mut self) {
        let now_ns = MANUAL.now_ns();
        for (seq, Open { state, .. }) in self.open.clone() {
            match state {
                State::Claimed { deadline_ns, attempts, .. } if deadline_ns <= now_ns => {
                    self.fail(seq, 0, attempts, DeadCause::Expired);
                }
                State::Waits { from_ns: from_ns @ 1.., attempts } if from_ns <= now_ns => {
                    self.come_back(seq, 0, attempts);
                }
                _ => {}
            }
        }
    }

    fn give_up_before(&mut self, oldest: u64) {
        self.work.give_up_before(oldest);
        self.oldest_held = oldest;
        for (seq, Open { state, .. }) in self.open.clone() {
            if seq < oldest && matches!(state, State::Waits { .. }) {
                self.end(seq, End::LostRecords);
            }
        }
    }

    fn fail(&mut self, seq: u64, from_ns: u64, attempts: u32, cause: DeadCause) {
        if attempts >= ATTEMPTS_MAX {
            self.set_state(seq, State::Buried { attempts, cause });
        } else {
            self.come_back(seq, from_ns, attempts);
        }
    }

    fn come_back(&mut self, seq: u64, from_ns: u64, attempts: u32) {
        if seq < self.oldest_held {
            self.end(seq, End::LostRecords);
        } else {
            self.set_state(seq, State::Waits { from_ns, attempts });
        }
    }
}
