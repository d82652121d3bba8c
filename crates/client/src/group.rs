//! Groups: members share the records of a topic.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_topic::{Frame, LogName, Notice, Position, Start, Subscribe, SubscribeError, Wait};
use dunlin_wire::{FromClient, FromNode, JoinGroup, Kind, List, Nack, NackedToken, Settle, StartAt};

use crate::client::{Client, Shared};
use crate::follow::lock;
use crate::inbox::Item;
use crate::session::{Asked, GroupAsked};
use crate::subscriber::{Consumed, Subscriber};
use crate::topics::AskError;

/// Bytes of the claim before each frame: token, seq, epoch, attempt, claim_ms.
const CLAIM_BYTES: usize = 32;

/// How a group gives out records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupKind {
    /// Each record to one member, at most once.
    #[default]
    Share,
    /// Each record to one member, again and again until it is acknowledged.
    Work,
}

/// What a member asks for. Those of `work` count for the group that the first member makes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupOptions {
    /// The member's name, which operators see.
    pub member: String,
    /// The group's kind.
    pub kind: GroupKind,
    /// Where the group starts, when this makes it.
    pub start: Start,
    /// How to wait.
    pub wait: Wait,
    /// How long a claim holds; the node's default when there is none.
    pub claim: Option<Duration>,
    /// After so many attempts a record goes to `dead_letter`; 0 for never.
    pub attempts_max: u32,
    /// The subject for records that failed too often; empty to drop them.
    pub dead_letter: String,
    /// Of a `share` group that a node joins for its own client: the group ends with its last member.
    pub ends_with_last: bool,
    /// Of the same: what it was not [said](Member::consume) to have consumed when it is dropped goes to other members.
    pub gives_back: bool,
}

/// Which group of which topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The group's name.
    pub name: &'a str,
}

/// A member of a group.
#[derive(Debug)]
pub struct Member {
    subscriber: Subscriber,
    kind: GroupKind,
}

/// What a member is given.
#[derive(Debug, Clone)]
pub enum Claimed<'a> {
    /// A record.
    Record {
        /// Settles the claim; 0 in a `share` group.
        token: u64,
        /// Where the record stands.
        position: Position,
        /// 1 for the first time it is given out.
        attempt: u32,
        /// How long the claim holds from when the node sent it.
        claim: Duration,
        /// Its bytes.
        frame: Frame<'a>,
        /// Its log.
        log: &'a Arc<LogName>,
    },
    /// What was lost to the whole group.
    Notice(Notice),
}

/// What became of claims that were settled or renewed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settlement {
    /// How many were settled, or renewed.
    pub settled: u32,
    /// Tokens whose deadline had passed: their records went to somebody else.
    pub stale: Vec<u64>,
}

impl Client {
    /// Becomes a member of a group. The group is made by its first member.
    pub fn join(&self, group: Group<'_>, options: GroupOptions) -> Result<Member, SubscribeError> {
        let (kind, wait) = (options.kind, options.wait);
        Ok(Member { subscriber: self.begin(self.membership(group, options)?, wait)?, kind })
    }

    /// A membership that may be used before the node has answered. A refusal is told by the first look.
    pub fn join_at_once(&self, group: Group<'_>, options: GroupOptions) -> Result<Member, SubscribeError> {
        let (kind, wait) = (options.kind, options.wait);
        let asked = Asked { tells_beginning: true, ..self.membership(group, options)? };
        Ok(Member { subscriber: self.begin_at_once(asked, Vec::new(), wait), kind })
    }

    fn membership(&self, group: Group<'_>, options: GroupOptions) -> Result<Asked, SubscribeError> {
        let kind = options.kind;
        Ok(Asked {
            pattern: group.topic.to_owned(),
            name: options.member,
            start: match options.start {
                Start::Earliest => StartAt::Earliest,
                Start::Latest => StartAt::Latest,
                Start::After(at) => StartAt::After(dunlin_wire::Position { epoch: at.epoch, seq: at.seq }),
                Start::Time(ns) => StartAt::Time(ns),
                Start::Snapshot => {
                    let (topic, why) = (group.topic.to_owned(), "is shared by a group record by record");
                    return Err(SubscribeError::NoState { topic, why });
                }
            },
            on_gap: dunlin_wire::OnGap::Oldest,
            // What a member of a `share` group has used, the node is told; else it stops giving.
            registered: kind == GroupKind::Share && !options.gives_back,
            follow: None,
            credit_bytes: self.shared.limits.credit_bytes as u64,
            tells_beginning: false,
            group: Some(GroupAsked {
                kind: match kind {
                    GroupKind::Share => dunlin_wire::GroupKind::Share,
                    GroupKind::Work => dunlin_wire::GroupKind::Work,
                },
                group: group.name.to_owned(),
                claim_ms: options.claim.map_or(0, |claim| claim.as_millis().try_into().unwrap_or(u32::MAX)),
                attempts_max: match kind {
                    GroupKind::Share => {
                        u32::from(options.ends_with_last) * JoinGroup::ENDS_WITH_LAST
                            + u32::from(options.gives_back) * JoinGroup::GIVES_BACK
                    }
                    GroupKind::Work => options.attempts_max,
                },
                dead_letter: options.dead_letter,
            }),
        })
    }
}

impl Member {
    /// The newest epoch of the topic's logs when the node answered a membership [made at once](Client::join_at_once): `None`
    /// before, and after the first call that returns it. An error where the node refused.
    pub fn began_in(&self) -> Result<Option<u32>, SubscribeError> {
        self.subscriber.stands()?;
        Ok(self.subscriber.began().and_then(|logs| logs.iter().map(|(_, at)| at.epoch).max()))
    }

    /// Asks for `records` more. Only in `work` groups; members of `share` groups get what there is.
    pub fn claim(&mut self, records: u64) {
        if self.kind == GroupKind::Work {
            let shared = self.subscriber.shared();
            let claim = lock(&shared.session).claim(self.subscriber.number(), records);
            shared.outbox.write(&claim);
        }
    }

    /// Whether a record or a notice is there now.
    pub fn ready(&mut self) -> Result<bool, SubscribeError> {
        self.subscriber.ready()
    }

    /// What [`ready`](Member::ready) found.
    ///
    /// # Panics
    /// When `ready` did not say `true` just before.
    pub fn take(&mut self) -> Claimed<'_> {
        let at = self.subscriber.at();
        let taken = match self.subscriber.item() {
            (Item::Notice(..), _) => 0,
            (Item::Run(_), bytes) => {
                let frame = Frame::split(&bytes[at + CLAIM_BYTES..]);
                CLAIM_BYTES + frame.expect("claims are checked when they are received").1
            }
        };
        self.subscriber.step(taken);
        match self.subscriber.item() {
            (Item::Notice(notice, _), _) => Claimed::Notice(notice.clone()),
            (Item::Run(run), bytes) => read_claim(&bytes[at..at + taken], &run.log)
                .expect("claims are checked when they are received"),
        }
    }

    /// Waits until something may be there; `false` after `timeout` without it.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        self.subscriber.wait(timeout)
    }

    /// Waits as async callers do: ready when [`ready`](Member::ready) is worth another call.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        self.subscriber.poll_ready(cx)
    }

    /// The next record, or `None` after `timeout` without one.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Claimed<'_>>, SubscribeError> {
        while !self.subscriber.has_received()? {
            if !self.subscriber.wait(Some(timeout))? {
                return Ok(None);
            }
        }
        Ok(Some(self.take()))
    }

    /// The next record, if it is there now.
    pub fn try_next(&mut self) -> Result<Option<Claimed<'_>>, SubscribeError> {
        Ok(if self.ready()? { Some(self.take()) } else { None })
    }

    /// Of a member that [gives back](GroupOptions::gives_back): it has consumed these records, and those that it was given before.
    pub fn consume(&mut self, consumed: &[Consumed]) {
        self.subscriber.say_consumed(consumed);
    }

    /// Of such a member: has the node give it nothing more. An error follows what it was given until then.
    pub fn end(&self) {
        self.subscriber.say_end();
    }

    /// Goes, having consumed what it was given; a claim that is open is there for others at once, and the attempt does not
    /// count. Dropping a member of a `share` group is dying: what it was given last is told to the others as lost.
    pub fn leave(mut self) {
        if let Some(last) = self.last_given() {
            self.subscriber.consume_through(last);
        }
    }

    /// The record of the item being read that was taken last.
    fn last_given(&self) -> Option<Consumed> {
        let (Item::Run(run), bytes) = self.subscriber.item_if_any()? else { return None };
        let mut rest = &bytes[run.start..self.subscriber.at()];
        let mut last = None;
        while let Some(Claimed::Record { position, .. }) = read_claim(rest, &run.log) {
            last = Some((Arc::clone(&run.log), position));
            rest = &rest[CLAIM_BYTES + Frame::split(&rest[CLAIM_BYTES..])?.1..];
        }
        last
    }

    /// These claims are done.
    pub fn ack(&mut self, tokens: &[u64]) -> Result<Settlement, AskError> {
        self.settler().ack(tokens)
    }

    /// These claims are given back, each not to be given out again before its delay is over.
    pub fn nack(&mut self, claims: &[(u64, Duration)]) -> Result<Settlement, AskError> {
        self.settler().nack(claims)
    }

    /// These claims take longer: the deadline of each is set anew, to a whole claim from now.
    pub fn renew(&mut self, tokens: &[u64]) -> Result<Settlement, AskError> {
        self.settler().renew(tokens)
    }

    /// Who settles this member's claims while it waits for more.
    pub fn settler(&self) -> Settler {
        Settler { shared: Arc::clone(self.subscriber.shared()), subscription: self.subscriber.number() }
    }
}

/// Settles a member's claims, on any thread. What it settles after the member left was given to others.
#[derive(Debug, Clone)]
pub struct Settler {
    shared: Arc<Shared>,
    subscription: u32,
}

impl Settler {
    /// These claims are done.
    pub fn ack(&self, tokens: &[u64]) -> Result<Settlement, AskError> {
        let subscription = self.subscription;
        self.settle(|request| FromClient::Ack(Settle { request, subscription, tokens: List::new(tokens) }))
    }

    /// These claims are given back, each not to be given out again before its delay is over.
    pub fn nack(&self, claims: &[(u64, Duration)]) -> Result<Settlement, AskError> {
        let subscription = self.subscription;
        let tokens: Vec<NackedToken> = claims
            .iter()
            .map(|&(token, delay)| NackedToken {
                token,
                delay_ms: delay.as_millis().try_into().unwrap_or(u32::MAX),
            })
            .collect();
        self.settle(|request| FromClient::Nack(Nack { request, subscription, tokens: List::new(&tokens) }))
    }

    /// These claims take longer: the deadline of each is set anew, to a whole claim from now.
    pub fn renew(&self, tokens: &[u64]) -> Result<Settlement, AskError> {
        self.shared.check_version(Kind::Renew)?;
        let subscription = self.subscription;
        self.settle(|request| FromClient::Renew(Settle { request, subscription, tokens: List::new(tokens) }))
    }

    fn settle<'a>(&self, request: impl FnOnce(u32) -> FromClient<'a>) -> Result<Settlement, AskError> {
        let bytes = self.shared.ask(request)?;
        match self.shared.read_answer(&bytes) {
            Some(FromNode::Settled(settled)) => {
                Ok(Settlement { settled: settled.settled, stale: settled.stale.iter().collect() })
            }
            _ => Ok(Settlement::default()),
        }
    }
}

fn read_claim<'a>(bytes: &'a [u8], log: &'a Arc<LogName>) -> Option<Claimed<'a>> {
    let (claim, frame) = bytes.split_at_checked(CLAIM_BYTES)?;
    let u32_at = |at: usize| claim.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
    let u64_at = |at: usize| claim.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
    Some(Claimed::Record {
        token: u64_at(0)?,
        position: Position { epoch: u32_at(16)?, seq: u64_at(8)? },
        attempt: u32_at(20)?,
        claim: Duration::from_millis(u32_at(24)?.into()),
        frame: Frame::split(frame)?.0,
        log,
    })
}
