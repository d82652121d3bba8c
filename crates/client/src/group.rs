//! Groups of subscribers that share the records of a topic.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_topic::{
    DeadLetterTarget, Frame, LogName, Notice, Position, Start, SubjectError, Subscribe, SubscribeError,
    WaitStrategy,
};
use dunlin_wire::{
    FromClient, FromNode, JoinGroup, MessageKind, MessageList, Nack, NackedToken, Settle, StartAt,
};

use crate::client::{Client, SharedClient};
use crate::follow::lock;
use crate::inbox::InboxItem;
use crate::session::{GroupJoinRequest, SubscriptionRequest};
use crate::subscriber::{ConsumedPosition, Subscriber};
use crate::topics::CallError;

/// The size in bytes of the claim that precedes each frame. The fields of a claim are token, seq, epoch, attempt and
/// claim_ms.
const CLAIM_BYTES: usize = 32;

/// The kind of a group, `share` or `work`. It decides how records are distributed to the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupKind {
    /// Each record goes to one member, at most once.
    #[default]
    Share,
    /// Each record goes to one member at a time, until one acknowledges it.
    Work,
}

/// Returns the subject for dead letters, as the message JOIN_GROUP contains it: an empty one means that dead letters
/// are dropped.
fn wire_subject(target: &DeadLetterTarget, topic: &str) -> Result<String, SubscribeError> {
    match target.subject_for(topic) {
        Some(subject) if subject.is_empty() => Err(SubscribeError::Subject(SubjectError::Empty)),
        subject => Ok(subject.unwrap_or_default()),
    }
}

/// The options of a group member. In a `work` group, the options of the first member about claims and attempts apply to
/// the whole group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupOptions {
    /// The member's name, as operators see it.
    pub member: String,
    /// The kind of the group.
    pub kind: GroupKind,
    /// Where the group starts reading, if this member creates it.
    pub start: Start,
    /// How the member waits for records.
    pub wait: WaitStrategy,
    /// How long a claim lasts; `None` for the node's default.
    pub claim: Option<Duration>,
    /// The number of attempts after which a record becomes a dead letter; 0 for no limit.
    pub attempts_max: u32,
    /// Where dead letters go. Applies only if this member creates the group.
    pub dead_letters: DeadLetterTarget,
    /// Only for `share` groups that a node joins on a client's behalf: whether the group ends when its last member has
    /// left.
    pub ends_with_last: bool,
    /// Only for `share` groups that a node joins on a client's behalf: if set, records that this member has not
    /// [reported as consumed](Member::consume) go to other members when this member is dropped.
    pub returns_unconsumed: bool,
    /// Only for `share` groups that a node joins on a client's behalf: the name of the client's user. A new group
    /// counts towards this user's quota. Empty if the node has no users.
    pub for_user: String,
}

/// The identity of a group: its topic and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The group's name.
    pub name: &'a str,
}

/// A client's membership in a group, through which the client receives some of the topic's records.
#[derive(Debug)]
pub struct Member {
    subscriber: Subscriber,
    kind: GroupKind,
}

/// An event that a group member receives: a record or a notice.
#[derive(Debug, Clone)]
pub enum GroupEvent<'a> {
    /// A record.
    Record {
        /// The token with which the member settles its claim to the record; 0 in a `share` group.
        token: u64,
        /// The record's position.
        position: Position,
        /// The number of the attempt to process the record; the first one is 1.
        attempt: u32,
        /// How long the claim lasts, from the time at which the node sent the record.
        claim: Duration,
        /// The frame of the record.
        frame: Frame<'a>,
        /// The log that contains the record.
        log: &'a Arc<LogName>,
    },
    /// A gap or another notice. It concerns the whole group.
    Notice(Notice),
}

/// The result of acknowledging, giving back or renewing claims: the number of successes, and the claims that had ended
/// before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settlement {
    /// The number of claims that were settled or renewed.
    pub settled: u32,
    /// The tokens of claims that had already ended. Other members may have the records of these claims.
    pub stale: Vec<u64>,
}

impl Client {
    /// Joins a group, and creates the group if it does not exist. Waits for the node's response.
    pub fn join(&self, group: Group<'_>, options: GroupOptions) -> Result<Member, SubscribeError> {
        let (kind, wait) = (options.kind, options.wait);
        Ok(Member { subscriber: self.open_subscription(self.join_request(group, options)?, wait)?, kind })
    }

    /// Joins a group without waiting for the node. If the node refuses, the first read returns the error.
    pub fn join_nowait(&self, group: Group<'_>, options: GroupOptions) -> Result<Member, SubscribeError> {
        let (kind, wait) = (options.kind, options.wait);
        let request = SubscriptionRequest { reports_start: true, ..self.join_request(group, options)? };
        Ok(Member { subscriber: self.open_subscription_nowait(request, Vec::new(), wait), kind })
    }

    fn join_request(
        &self,
        group: Group<'_>,
        options: GroupOptions,
    ) -> Result<SubscriptionRequest, SubscribeError> {
        let kind = options.kind;
        Ok(SubscriptionRequest {
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
            // A registered member of a `share` group reports consumed records. If it did not, the node would stop
            // delivering.
            registered: kind == GroupKind::Share && !options.returns_unconsumed,
            follow: None,
            credit_bytes: self.shared.limits.credit_bytes as u64,
            reports_start: false,
            placement: None,
            group: Some(GroupJoinRequest {
                kind: match kind {
                    GroupKind::Share => dunlin_wire::GroupKind::Share,
                    GroupKind::Work => dunlin_wire::GroupKind::Work,
                },
                group: group.name.to_owned(),
                claim_ms: options.claim.map_or(0, |claim| claim.as_millis().try_into().unwrap_or(u32::MAX)),
                attempts_max: match kind {
                    GroupKind::Share => {
                        u32::from(options.ends_with_last) * JoinGroup::ENDS_WITH_LAST
                            + u32::from(options.returns_unconsumed) * JoinGroup::RETURNS_UNCONSUMED
                    }
                    GroupKind::Work => options.attempts_max,
                },
                dead_letter: match kind {
                    GroupKind::Share => options.for_user,
                    GroupKind::Work => wire_subject(&options.dead_letters, group.topic)?,
                },
            }),
        })
    }
}

impl Member {
    /// Returns the newest epoch of the topic's logs, as of the node's response to [`Client::join_nowait`]. For a
    /// `share` group that a node joins on a client's behalf, returns the newest epoch whose records the group delivers.
    ///
    /// Only the first call after the response returns the epoch; all other calls return `None`. Fails if the node
    /// refused the membership.
    pub fn start_epoch(&self) -> Result<Option<u32>, SubscribeError> {
        self.subscriber.is_subscribed()?;
        Ok(self.subscriber.start_positions().and_then(|logs| logs.iter().map(|(_, at)| at.epoch).max()))
    }

    /// Returns a number that identifies the present run of the node to which this member is connected. Each start of
    /// the node has a new number.
    pub fn node(&self) -> u64 {
        lock(&self.subscriber.shared().session).node
    }

    /// Requests `records` more records from a `work` group. Does nothing in a `share` group, which delivers without
    /// requests.
    pub fn claim(&mut self, records: u64) {
        if self.kind == GroupKind::Work {
            let shared = self.subscriber.shared();
            let claim = lock(&shared.session).claim(self.subscriber.number(), records);
            shared.outbox.write(&claim);
        }
    }

    /// Whether a record or a notice has arrived, which [`take`](Member::take) returns.
    pub fn ready(&mut self) -> Result<bool, SubscribeError> {
        self.subscriber.ready()
    }

    /// Takes the record or notice that [`ready`](Member::ready) found.
    ///
    /// # Panics
    /// If the previous call was not a call of `ready` that returned `true`.
    pub fn take(&mut self) -> GroupEvent<'_> {
        let at = self.subscriber.at();
        let item_bytes = match self.subscriber.current_item() {
            (InboxItem::Notice(..), _) => 0,
            (InboxItem::Batch(_), bytes) => {
                let frame = Frame::split(&bytes[at + CLAIM_BYTES..]);
                CLAIM_BYTES + frame.expect("claims are checked when they are received").1
            }
        };
        self.subscriber.step(item_bytes);
        match self.subscriber.current_item() {
            (InboxItem::Notice(notice, _), _) => GroupEvent::Notice(notice.clone()),
            (InboxItem::Batch(batch), bytes) => read_claim(&bytes[at..at + item_bytes], &batch.log)
                .expect("claims are checked when they are received"),
        }
    }

    /// Waits until there may be a record or a notice. Returns `false` if there is none when `timeout` has passed.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        self.subscriber.wait(timeout)
    }

    /// Async form of [`wait`](Member::wait): it resolves when it is useful to call [`ready`](Member::ready) again.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        self.subscriber.poll_ready(cx)
    }

    /// Returns the next record or notice; `None` if none arrives within `timeout`.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<GroupEvent<'_>>, SubscribeError> {
        Ok(if self.subscriber.receive_within(timeout)? { Some(self.take()) } else { None })
    }

    /// Returns the next record or notice if one has arrived.
    pub fn try_next(&mut self) -> Result<Option<GroupEvent<'_>>, SubscribeError> {
        Ok(if self.ready()? { Some(self.take()) } else { None })
    }

    /// Reports the records at these positions as consumed. Each such record includes all records of its log that were
    /// delivered before it. Only for members with [`returns_unconsumed`](GroupOptions::returns_unconsumed).
    pub fn consume(&mut self, consumed: &[ConsumedPosition]) {
        self.subscriber.report_consumed_for(consumed);
    }

    /// Asks the node to deliver no more records. Only for members with
    /// [`returns_unconsumed`](GroupOptions::returns_unconsumed). After the member has read all records that were
    /// delivered to it, its next read returns an error.
    pub fn end(&self) {
        self.subscriber.send_unsubscribe();
    }

    /// Leaves the group.
    ///
    /// In a `work` group, the records that this member has claimed are available to other members at once. Their
    /// deliveries to this member do not count as attempts.
    ///
    /// In a `share` group, the records that this member has taken count as consumed. The group loses the records that
    /// were delivered to this member, but that it has not taken; the other members receive a gap for them. If the
    /// member is dropped without this call, the gap also covers the records that this member took last.
    pub fn leave(mut self) {
        if let Some(last) = self.last_taken() {
            self.subscriber.consume_through(last);
        }
    }

    /// Returns the position of the last record that the member has taken from its current batch.
    fn last_taken(&self) -> Option<ConsumedPosition> {
        let (InboxItem::Batch(batch), bytes) = self.subscriber.current_item_if_any()? else { return None };
        let mut rest = &bytes[batch.start..self.subscriber.at()];
        let mut last = None;
        while let Some(GroupEvent::Record { position, .. }) = read_claim(rest, &batch.log) {
            last = Some((Arc::clone(&batch.log), position));
            rest = &rest[CLAIM_BYTES + Frame::split(&rest[CLAIM_BYTES..])?.1..];
        }
        last
    }

    /// Acknowledges the records of the claims with these tokens, because the work on them is done.
    pub fn ack(&mut self, tokens: &[u64]) -> Result<Settlement, CallError> {
        self.settler().ack(tokens)
    }

    /// Gives claimed records back to the group. Each entry of `claims` is the token of a claim and a delay. The node
    /// does not deliver the claim's record again before this delay has passed.
    pub fn nack(&mut self, claims: &[(u64, Duration)]) -> Result<Settlement, CallError> {
        self.settler().nack(claims)
    }

    /// Renews the claims with these tokens. The full time of each claim starts again now.
    pub fn renew(&mut self, tokens: &[u64]) -> Result<Settlement, CallError> {
        self.settler().renew(tokens)
    }

    /// Returns a handle through which another thread settles this member's claims while the member waits for records.
    pub fn settler(&self) -> ClaimSettler {
        ClaimSettler { shared: Arc::clone(self.subscriber.shared()), subscription: self.subscriber.number() }
    }
}

/// A handle with which any thread acknowledges, gives back and renews the claims of a member. The handle is valid until
/// the member leaves the group.
#[derive(Debug, Clone)]
pub struct ClaimSettler {
    shared: Arc<SharedClient>,
    subscription: u32,
}

impl ClaimSettler {
    /// Acknowledges the records of the claims with these tokens, because the work on them is done.
    pub fn ack(&self, tokens: &[u64]) -> Result<Settlement, CallError> {
        let subscription = self.subscription;
        self.settle(|request| {
            FromClient::Ack(Settle { request, subscription, tokens: MessageList::new(tokens) })
        })
    }

    /// Gives claimed records back to the group. Each entry of `claims` is the token of a claim and a delay. The node
    /// does not deliver the claim's record again before this delay has passed.
    pub fn nack(&self, claims: &[(u64, Duration)]) -> Result<Settlement, CallError> {
        let subscription = self.subscription;
        let tokens: Vec<NackedToken> = claims
            .iter()
            .map(|&(token, delay)| NackedToken {
                token,
                delay_ms: delay.as_millis().try_into().unwrap_or(u32::MAX),
            })
            .collect();
        self.settle(|request| {
            FromClient::Nack(Nack { request, subscription, tokens: MessageList::new(&tokens) })
        })
    }

    /// Renews the claims with these tokens. The full time of each claim starts again now.
    pub fn renew(&self, tokens: &[u64]) -> Result<Settlement, CallError> {
        self.shared.check_version(MessageKind::Renew)?;
        let subscription = self.subscription;
        self.settle(|request| {
            FromClient::Renew(Settle { request, subscription, tokens: MessageList::new(tokens) })
        })
    }

    fn settle<'a>(&self, request: impl FnOnce(u32) -> FromClient<'a>) -> Result<Settlement, CallError> {
        let bytes = self.shared.call(request)?;
        match self.shared.decode_response(&bytes) {
            Some(FromNode::Settled(settled)) => {
                Ok(Settlement { settled: settled.settled, stale: settled.stale.iter().collect() })
            }
            _ => Ok(Settlement::default()),
        }
    }
}

fn read_claim<'a>(bytes: &'a [u8], log: &'a Arc<LogName>) -> Option<GroupEvent<'a>> {
    let (claim, frame) = bytes.split_at_checked(CLAIM_BYTES)?;
    let u32_at = |at: usize| claim.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
    let u64_at = |at: usize| claim.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
    Some(GroupEvent::Record {
        token: u64_at(0)?,
        position: Position { epoch: u32_at(16)?, seq: u64_at(8)? },
        attempt: u32_at(20)?,
        claim: Duration::from_millis(u32_at(24)?.into()),
        frame: Frame::split(frame)?.0,
        log,
    })
}
