use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn keyed(keys: &[Option<u64>]) -> impl RecordSource {
    let mut records = keys.iter().copied().zip(1..);
    move || records.next().map(|(key, seq)| SourceItem::Record { seq, key })
}

fn work(attempts_max: u32) -> WorkGroup {
    WorkGroup::new(WorkConfig { claim_ns: 10 * SECOND, attempts_max }, &LogLimits::default(), 0)
}

fn seq(claim: Result<Option<Claim>, GroupError>) -> Option<u64> {
    claim.unwrap().map(|claim| claim.seq)
}

#[test]
fn group_position_advances_only_past_acknowledged_records() {
    let mut work = work(5);
    let mut source = keyed(&[None, None]);
    let a = work.join().unwrap();
    let first = work.claim(a, 0, &mut source).unwrap().unwrap();
    let second = work.claim(a, 0, &mut source).unwrap().unwrap();
    assert_eq!((first.seq, first.attempt, first.deadline_ns), (1, 1, 10 * SECOND));
    work.ack(a, second.seq, second.token, 1).unwrap();
    assert_eq!(work.position(), 0);
    work.ack(a, first.seq, first.token, 1).unwrap();
    assert_eq!((work.position(), work.claims(), work.next_tick_ns()), (2, 0, None));
}

#[test]
fn expired_claim_redelivers_its_record_and_refuses_a_late_ack() {
    let mut work = work(5);
    let mut source = keyed(&[None]);
    let (a, b) = (work.join().unwrap(), work.join().unwrap());
    let old = work.claim(a, 0, &mut source).unwrap().unwrap();
    assert_eq!(seq(work.claim(b, 10 * SECOND - 1, &mut source)), None);
    assert_eq!(work.next_tick_ns(), Some(10 * SECOND));
    let new = work.claim(b, 10 * SECOND, &mut source).unwrap().unwrap();
    assert_eq!((new.seq, new.attempt), (1, 2));
    let refused = Err(ClaimError { seq: 1, token: old.token });
    assert_eq!(work.ack(a, 1, old.token, 10 * SECOND), refused);
    assert_eq!(work.nack(a, 1, old.token, 0, 10 * SECOND), refused);
    assert_eq!(work.renew(a, 1, old.token, 10 * SECOND).map(|_| ()), refused);
    assert!(work.ack(a, 1, new.token, 11 * SECOND).is_err(), "the claim belongs to another member");
    assert_eq!(work.ack(b, 1, new.token, 11 * SECOND), Ok(()));
    assert!(work.ack(b, 1, new.token, 11 * SECOND).is_err(), "the record is acknowledged already");
}

#[test]
fn renewed_claim_outlives_its_first_deadline() {
    let mut work = work(5);
    let a = work.join().unwrap();
    let claim = work.claim(a, 0, &mut keyed(&[None])).unwrap().unwrap();
    assert_eq!(work.renew(a, 1, claim.token, 9 * SECOND), Ok(19 * SECOND));
    assert_eq!(work.ack(a, 1, claim.token, 18 * SECOND), Ok(()));
}

#[test]
fn nacked_record_is_delivered_after_its_delay() {
    let mut work = work(5);
    let mut source = keyed(&[None, None]);
    let a = work.join().unwrap();
    let claim = work.claim(a, 0, &mut source).unwrap().unwrap();
    work.nack(a, 1, claim.token, 3 * SECOND, SECOND).unwrap();
    assert_eq!(seq(work.claim(a, 2 * SECOND, &mut source)), Some(2));
    assert_eq!(seq(work.claim(a, 3 * SECOND, &mut source)), None);
    assert_eq!(seq(work.claim(a, 4 * SECOND, &mut source)), Some(1));
}

#[test]
fn record_that_becomes_a_dead_letter_frees_its_key() {
    let mut work = work(2);
    let mut source = keyed(&[Some(7), Some(7)]);
    let a = work.join().unwrap();
    let claim = work.claim(a, 0, &mut source).unwrap().unwrap();
    work.nack(a, 1, claim.token, 0, 0).unwrap();
    assert_eq!(seq(work.claim(a, 0, &mut source)), Some(1));
    work.tick(10 * SECOND);
    assert_eq!(seq(work.claim(a, 10 * SECOND, &mut source)), Some(2));
    assert_eq!(work.position(), 0, "the owner has not taken the dead letter");
    assert_eq!(work.take_dead_letter(), Some(DeadLetter { seq: 1, attempts: 2, cause: DeadCause::Expired }));
    assert_eq!((work.take_dead_letter(), work.position()), (None, 1));
}

#[test]
fn unacknowledged_record_delays_only_records_of_its_key() {
    let mut work = work(5);
    let keys: Vec<Option<u64>> = (0..1_000).map(|n| Some(if n % 10 == 0 { 0 } else { n })).collect();
    let mut source = keyed(&keys);
    let (stuck, busy) = (work.join().unwrap(), work.join().unwrap());
    assert_eq!(seq(work.claim(stuck, 0, &mut source)), Some(1));
    let mut done = 0;
    while let Some(claim) = work.claim(busy, 1, &mut source).unwrap() {
        assert_ne!(claim.seq % 10, 1);
        work.ack(busy, claim.seq, claim.token, 1).unwrap();
        done += 1;
    }
    assert_eq!((done, work.position()), (900, 0));
}

#[test]
fn records_of_a_key_stay_in_order_after_a_member_death_or_nack() {
    let mut work = work(5);
    let mut source = keyed(&[Some(1), Some(1), Some(1)]);
    let (a, b) = (work.join().unwrap(), work.join().unwrap());
    assert_eq!(seq(work.claim(a, 0, &mut source)), Some(1));
    assert_eq!(seq(work.claim(b, 0, &mut source)), None);
    work.leave(a, MemberDeparture::Died, 0).unwrap();
    let retry = work.claim(b, 0, &mut source).unwrap().unwrap();
    assert_eq!((retry.seq, retry.attempt), (1, 2));
    work.nack(b, 1, retry.token, SECOND, 0).unwrap();
    assert_eq!(seq(work.claim(b, 0, &mut source)), None);
    let retry = work.claim(b, SECOND, &mut source).unwrap().unwrap();
    assert_eq!((retry.seq, retry.attempt), (1, 3));
    work.ack(b, 1, retry.token, SECOND).unwrap();
    assert_eq!(seq(work.claim(b, SECOND, &mut source)), Some(2));
}

#[test]
fn death_of_a_member_counts_as_an_attempt_and_leaving_does_not() {
    let mut work = work(1);
    let mut source = keyed(&[None]);
    let (a, b) = (work.join().unwrap(), work.join().unwrap());
    work.claim(a, 0, &mut source).unwrap().unwrap();
    work.leave(a, MemberDeparture::Left, 0).unwrap();
    let claim = work.claim(b, 0, &mut source).unwrap().unwrap();
    assert_eq!(claim.attempt, 1);
    work.leave(b, MemberDeparture::Died, 0).unwrap();
    let letter = work.take_dead_letter();
    assert_eq!(letter, Some(DeadLetter { seq: 1, attempts: 1, cause: DeadCause::MemberDied }));
    assert_eq!((work.members(), work.claims()), (0, 0));
}

#[test]
fn records_dropped_by_the_log_are_reported_to_every_member() {
    let mut work = work(5);
    let mut source = keyed(&[Some(1), Some(1), Some(1), None, None]);
    let (a, b) = (work.join().unwrap(), work.join().unwrap());
    let claim = work.claim(a, 0, &mut source).unwrap().unwrap();
    assert_eq!(seq(work.claim(b, 0, &mut source)), Some(4));
    work.drop_before(5);
    for member in [a, b] {
        assert_eq!(work.take_lost(member), Some(LostRecords::dropped(2, 3)));
        assert_eq!(work.take_lost(member), None);
    }
    work.nack(a, 1, claim.token, 0, 0).unwrap();
    assert_eq!(
        work.take_lost(b),
        Some(LostRecords::dropped(1, 1)),
        "dropped while it was claimed, then returned"
    );
    assert_eq!(seq(work.claim(a, 0, &mut source)), Some(5));
    let mut lost = [SourceItem::LostRecords { first: 6, last: 9 }].into_iter();
    assert_eq!(seq(work.claim(a, 0, &mut || lost.next())), None);
    assert_eq!(work.take_lost(b), Some(LostRecords::dropped(6, 9)), "dropped before the group read them");
}

#[test]
fn work_group_reports_the_limit_that_stops_delivery() {
    let limits = LogLimits { work_look_ahead_max: 3, work_keys_blocked_max: 9, ..LogLimits::default() };
    let mut work = WorkGroup::new(WorkConfig::default(), &limits, 0);
    let mut source = keyed(&[Some(1), Some(1), Some(1), None]);
    let a = work.join().unwrap();
    let claim = work.claim(a, 0, &mut source).unwrap().unwrap();
    assert_eq!(seq(work.claim(a, 0, &mut source)), None);
    assert_eq!(work.reached_limit(), Some("work_look_ahead_max"));
    work.ack(a, 1, claim.token, 0).unwrap();
    assert_eq!((seq(work.claim(a, 0, &mut source)), seq(work.claim(a, 0, &mut source))), (Some(2), Some(4)));
}

#[derive(Debug, Clone)]
enum Step {
    Join,
    Leave { member: usize, died: bool },
    Claim { member: usize },
    Ack { claim: usize },
    Nack { claim: usize, delay_ns: u64 },
    Renew { claim: usize },
    AdvanceTime { ns: u64 },
    Drop { back: u64 },
    TakeDeadLetters,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Join),
        1 => (0..4usize, any::<bool>()).prop_map(|(member, died)| Step::Leave { member, died }),
        12 => (0..4usize).prop_map(|member| Step::Claim { member }),
        6 => (0..6usize).prop_map(|claim| Step::Ack { claim }),
        3 => (0..6usize, 0..3u64).prop_map(|(claim, delay_ns)| Step::Nack { claim, delay_ns: 4 * delay_ns }),
        1 => (0..6usize).prop_map(|claim| Step::Renew { claim }),
        4 => (0..8u64).prop_map(|ns| Step::AdvanceTime { ns }),
        1 => (0..12u64).prop_map(|back| Step::Drop { back }),
        2 => Just(Step::TakeDeadLetters),
    ]
}

/// A work group and its expected state: the claims that were made, and how each record was settled.
struct Model {
    work: WorkGroup,
    now_ns: u64,
    keys: Vec<Option<u64>>,
    members: Vec<MemberId>,
    /// All claims that were made, each with its member, the newest first.
    claims: Vec<(MemberId, Claim)>,
    /// The claims that have not ended, each with its member, by the sequence number of the record.
    current: BTreeMap<u64, (MemberId, Claim)>,
    attempts: BTreeMap<u64, u32>,
    acked: BTreeSet<u64>,
    dead: BTreeSet<u64>,
    lost: BTreeSet<u64>,
}

const CLAIM_NS: u64 = 10;
const ATTEMPTS_MAX: u32 = 3;

impl Model {
    fn new(keys: Vec<Option<u64>>) -> Model {
        let limits = LogLimits {
            group_members_max: 3,
            group_lost_ranges_max: 10_000,
            work_claims_max: 5,
            work_member_claims_max: 3,
            work_look_ahead_max: 9,
            work_keys_blocked_max: 2,
            ..LogLimits::default()
        };
        let config = WorkConfig { claim_ns: CLAIM_NS, attempts_max: ATTEMPTS_MAX };
        Model {
            work: WorkGroup::new(config, &limits, 0),
            now_ns: 0,
            keys,
            members: Vec::new(),
            claims: Vec::new(),
            current: BTreeMap::new(),
            attempts: BTreeMap::new(),
            acked: BTreeSet::new(),
            dead: BTreeSet::new(),
            lost: BTreeSet::new(),
        }
    }

    fn key(&self, seq: u64) -> Option<u64> {
        self.keys[seq as usize - 1]
    }

    fn is_settled(&self, seq: u64) -> bool {
        self.acked.contains(&seq) || self.dead.contains(&seq) || self.lost.contains(&seq)
    }

    fn step(&mut self, step: Step) {
        let now_ns = self.now_ns;
        match step {
            Step::Join => self.members.extend(self.work.join().ok()),
            Step::Leave { member, died } => self.leave(member, died),
            Step::Claim { member } => {
                if let Some(member) = self.pick(member) {
                    self.claim(member);
                }
            }
            Step::Ack { claim } => {
                self.end(claim, |work, member, claim| work.ack(member, claim.seq, claim.token, now_ns), true);
            }
            Step::Nack { claim, delay_ns } => {
                let nack = |work: &mut WorkGroup, member, claim: Claim| {
                    work.nack(member, claim.seq, claim.token, delay_ns, now_ns)
                };
                self.end(claim, nack, false);
            }
            Step::Renew { claim } => self.renew(claim),
            Step::AdvanceTime { ns } => {
                self.now_ns += ns;
                self.work.tick(self.now_ns);
            }
            Step::Drop { back } => self.work.drop_before(self.work.fed_through.saturating_sub(back)),
            Step::TakeDeadLetters => self.take_dead_letters(),
        }
        self.check();
    }

    fn pick(&self, member: usize) -> Option<MemberId> {
        (!self.members.is_empty()).then(|| self.members[member % self.members.len()])
    }

    fn leave(&mut self, member: usize, died: bool) {
        let Some(member) = self.pick(member) else { return };
        self.take_losses();
        self.work
            .leave(member, if died { MemberDeparture::Died } else { MemberDeparture::Left }, self.now_ns)
            .unwrap();
        self.members.retain(|known| *known != member);
        for (seq, _) in self.current.extract_if(.., |_, (holder, _)| *holder == member) {
            *self.attempts.get_mut(&seq).unwrap() -= u32::from(!died);
        }
    }

    fn claim(&mut self, member: MemberId) {
        let (mut next, keys) = (self.work.fed_through, self.keys.clone());
        let mut source = || {
            next += 1;
            let key = *keys.get(next as usize - 1)?;
            Some(match next % 17 {
                0 => SourceItem::LostRecords { first: next, last: next },
                _ => SourceItem::Record { seq: next, key },
            })
        };
        let Some(claim) = self.work.claim(member, self.now_ns, &mut source).unwrap() else { return };
        self.take_losses();
        assert!(!self.current.contains_key(&claim.seq), "two claims of record {}", claim.seq);
        assert!(!self.is_settled(claim.seq));
        if let Some(key) = self.key(claim.seq) {
            let older = (1..claim.seq).filter(|seq| self.key(*seq) == Some(key));
            older.for_each(|seq| {
                assert!(self.work.backlog.state(seq).is_none(), "{seq} before {}", claim.seq)
            });
            assert!(self.current.keys().all(|seq| self.key(*seq) != Some(key)), "two claims of key {key}");
        }
        let attempts = self.attempts.entry(claim.seq).or_default();
        *attempts += 1;
        assert_eq!(claim.attempt, *attempts);
        assert!(*attempts <= ATTEMPTS_MAX);
        assert!(self.claims.iter().all(|(_, before)| before.token != claim.token));
        self.current.insert(claim.seq, (member, claim));
        self.claims.insert(0, (member, claim));
        assert!(self.current.len() <= 5);
        assert!(self.current.values().filter(|(holder, _)| *holder == member).count() <= 3);
    }

    /// Acknowledges, returns or renews a claim that was made before. The claim may have ended already.
    fn end(
        &mut self,
        claim: usize,
        end: impl FnOnce(&mut WorkGroup, MemberId, Claim) -> Result<(), ClaimError>,
        acks: bool,
    ) {
        let Some(&(member, claim)) = self.claims.get(claim) else { return };
        let counts = self.current.get(&claim.seq).is_some_and(|(_, current)| current.token == claim.token);
        assert_eq!(end(&mut self.work, member, claim).is_ok(), counts, "{claim:?}");
        if counts {
            self.current.remove(&claim.seq);
            if acks {
                self.acked.insert(claim.seq);
            }
        }
    }

    fn renew(&mut self, claim: usize) {
        let Some(&(member, claim)) = self.claims.get(claim) else { return };
        let counts = self.current.get(&claim.seq).is_some_and(|(_, current)| current.token == claim.token);
        let renewed = self.work.renew(member, claim.seq, claim.token, self.now_ns);
        assert_eq!(renewed.is_ok(), counts);
        if let Ok(deadline_ns) = renewed {
            for (_, known) in self.claims.iter_mut().filter(|(_, known)| known.token == claim.token) {
                known.deadline_ns = deadline_ns;
            }
            self.current.insert(claim.seq, (member, Claim { deadline_ns, ..claim }));
        }
    }

    fn take_dead_letters(&mut self) {
        while let Some(letter) = self.work.take_dead_letter() {
            assert!(letter.attempts == ATTEMPTS_MAX && !self.is_settled(letter.seq));
            self.dead.insert(letter.seq);
        }
    }

    /// Takes all reports of lost records, and checks that the reports of all members are equal.
    fn take_losses(&mut self) {
        let mut reports = self
            .members
            .iter()
            .map(|member| std::iter::from_fn(|| self.work.take_lost(*member)).collect::<Vec<LostRecords>>());
        let Some(first) = reports.next() else { return };
        assert!(reports.all(|other| other == first));
        for lost in first {
            assert!(lost.is_exact() && lost.unconfirmed == 0);
            for seq in lost.first..=lost.last {
                assert!(!self.acked.contains(&seq) && self.lost.insert(seq));
                self.current.remove(&seq);
            }
        }
    }

    fn check(&mut self) {
        let now_ns = self.now_ns;
        self.current.retain(|_, (_, claim)| claim.deadline_ns > now_ns);
        self.work.backlog.assert_sound();
        assert!(self.work.backlog.len() <= 9);
        assert_eq!(self.work.claims() as usize, self.current.len());
        if !self.members.is_empty() {
            self.take_losses();
            let known = |seq: &u64| self.is_settled(*seq);
            let position = (1..).take_while(known).last().unwrap_or(0);
            assert_eq!(self.work.position(), position.min(self.work.fed_through));
        }
    }

    /// Lets a single member process all records that are left.
    fn finish(&mut self) {
        while !self.members.is_empty() {
            self.step(Step::Leave { member: 0, died: false });
        }
        self.step(Step::Join);
        for _ in 0..10 * self.keys.len() {
            self.step(Step::AdvanceTime { ns: CLAIM_NS });
            self.step(Step::TakeDeadLetters);
            let claims = self.claims.len();
            self.step(Step::Claim { member: 0 });
            if self.claims.len() > claims {
                self.step(Step::Ack { claim: 0 });
            }
        }
        self.take_losses();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn each_record_is_acked_dead_or_lost_exactly_once(
        keys in prop::collection::vec(prop::option::weighted(0.7, 0..4u64), 1..40),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut model = Model::new(keys);
        steps.into_iter().for_each(|step| model.step(step));
        model.finish();
        let last = model.keys.len() as u64;
        prop_assert_eq!(model.work.position(), last);
        for seq in 1..=last {
            let ends = [&model.acked, &model.dead, &model.lost].map(|set| usize::from(set.contains(&seq)));
            prop_assert_eq!(ends.iter().sum::<usize>(), 1, "record {} ended {:?}", seq, ends);
        }
    }
}
