//! A reply inbox is a topic that receives replies to subjects which do not begin with `_INBOX`.
//!
//! A client may subscribe to `acme.reply.7f.*`, and name `acme.reply.7f.1` in a request as the subject for the reply.
//! The node creates no topic for this subject, because it is used only once. The reply goes to a reply inbox: a topic
//! of the requester's node. The reply inbox is read by the requester's subscription, and by every other subscription at
//! this node whose pattern overlaps the inbox's pattern.
//!
//! Invariants:
//! - A reply inbox owns no subject: topics are created and found as if the inbox did not exist.
//! - A record goes to a reply inbox only under three conditions: a request has named the record's subject, no topic
//!   owns the subject, and no other node has a subscriber for it. A node that does not respond is assumed to have no
//!   subscriber.
//!
//! Limits: each inbox remembers the latest [`SUBJECTS_MAX`] subjects, each for [`SUBJECT_AGE_MAX`] and [`USES_MAX`]
//! uses. The memory budget is charged for these subjects. A publisher that was opened for such a subject is closed
//! after [`SUBJECT_AGE_MAX`] or after [`RECORDS_MAX`] records. Its later records go to an ordinary topic.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dunlin_topic::frame::Frame;
use dunlin_topic::{
    AckProgress, BatchAppend, CheckedBatch, Clock, ForwardedBatch, Log, LogName, MemoryBudget, MemoryCharge,
    Pattern, PublishError, Start, Subject, Topic, Upstream, Waiter,
};

use crate::clock::{CLOCK, STEADY, now_ns, steady_ns};
use crate::control::block_on;
use crate::error::TopicError;
use crate::inbox::{FIRST_TOKEN, Inbox};
use crate::node::{Inner, Node, make_reducer};
use crate::ownership::{ForwardTarget, RemoteInbox, Tickets};
use crate::registry::{cost_of, is_reserved};

/// Maximum number of subjects that one reply inbox remembers.
const SUBJECTS_MAX: usize = 4_096;
/// How long a reply inbox accepts replies to a subject after a request has named the subject.
const SUBJECT_AGE_MAX: Duration = Duration::from_secs(300);
/// Maximum number of times that publishers may find a reply inbox by the same subject.
const USES_MAX: u32 = 1_024;
/// Maximum number of records that one publisher may send to one subject.
const RECORDS_MAX: u32 = 4_096;
/// The approximate memory that a remembered subject takes in addition to its text, bytes.
const SUBJECT_BYTES: usize = 160;
/// The history size, in bytes, of a topic to which a publisher publishes replies. Such a topic never contains records,
/// because they go to the reply inbox.
const HISTORY_BYTES: u64 = 64 << 10;

/// The subjects to which a reply inbox accepts replies, because requests have named them.
#[derive(Debug)]
pub(crate) struct ReplySubjects {
    budget: Arc<MemoryBudget>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_subject: HashMap<Arc<str>, NamedSubject>,
    /// The subjects in the order in which requests named them. Each has the time until which the inbox remembers it.
    order: VecDeque<(Arc<str>, u64)>,
}

#[derive(Debug)]
struct NamedSubject {
    until_ns: u64,
    uses_left: u32,
    _charge: MemoryCharge,
}

impl ReplySubjects {
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> ReplySubjects {
        ReplySubjects { budget: Arc::clone(budget), state: Mutex::default() }
    }

    /// Remembers a subject that a request has named for its reply, if the memory budget has room.
    fn add(&self, subject: &str, now_ns: u64) {
        let mut state = self.lock();
        while let Some((_, until_ns)) = state.order.front()
            && (*until_ns <= now_ns || state.order.len() >= SUBJECTS_MAX)
        {
            state.remove_oldest();
        }
        let Ok(charge) = MemoryCharge::of(&self.budget, SUBJECT_BYTES + subject.len()) else { return };
        let until_ns = now_ns.saturating_add(SUBJECT_AGE_MAX.as_nanos() as u64);
        let subject: Arc<str> = subject.into();
        state.order.push_back((Arc::clone(&subject), until_ns));
        state.by_subject.insert(subject, NamedSubject { until_ns, uses_left: USES_MAX, _charge: charge });
    }

    /// Whether the inbox accepts a reply to the subject now.
    fn accepts(&self, subject: &str, now_ns: u64) -> bool {
        self.lock().by_subject.get(subject).is_some_and(|named| named.accepts_reply(now_ns))
    }

    /// Like [`accepts`](ReplySubjects::accepts), but counts this call as one use of the subject.
    fn try_use(&self, subject: &str, now_ns: u64) -> bool {
        let mut state = self.lock();
        let named = state.by_subject.get_mut(subject).filter(|named| named.accepts_reply(now_ns));
        named.is_some_and(|named| {
            named.uses_left -= 1;
            true
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove_oldest(&mut self) {
        let Some((subject, until_ns)) = self.order.pop_front() else { return };
        // If a later request has named the subject again, keep it.
        if self.by_subject.get(&subject).is_some_and(|named| named.until_ns == until_ns) {
            self.by_subject.remove(&subject);
        }
    }
}

impl NamedSubject {
    fn accepts_reply(&self, now_ns: u64) -> bool {
        self.uses_left > 0 && now_ns < self.until_ns
    }
}

pub(crate) fn is_reply_inbox_log(log: &LogName) -> bool {
    let of_inbox = log.topic.strip_prefix(FIRST_TOKEN).is_some_and(|rest| rest.starts_with('.'));
    of_inbox && !is_reserved(&log.subject_prefix)
}

/// The reply inbox for a reply, at this node or at another one.
#[derive(Debug, Clone)]
enum ReplyTarget {
    /// This node has the inbox, which is this topic.
    Local(Arc<Topic>),
    Remote(RemoteInbox),
}

impl Node {
    /// Creates the topic of a reply inbox. `pattern` is the pattern of the subscriptions that read it.
    pub(crate) fn create_reply_inbox(
        &self,
        name: &str,
        pattern: &str,
        bytes_max: u64,
    ) -> Result<Arc<Topic>, TopicError> {
        let parsed = Pattern::parse(pattern)?;
        let config = Arc::new(self.config().limits.inbox(pattern.to_owned(), bytes_max));
        config.check()?;
        let epoch = self.next_epoch(name, now_ns());
        self.registry().add_reply_inbox(name, parsed, ReplySubjects::new(self.charge_budget()), || {
            let charge = MemoryCharge::of(self.charge_budget(), cost_of(name, config.partitions));
            let charge = charge.map_err(|spent| self.memory_limit_error(&spent))?;
            Ok((Topic::stateful(name, config, self.charge_budget(), CLOCK, epoch, make_reducer)?, charge))
        })
    }

    /// Makes the reply inbox `inbox` accept replies to a subject that a request has named.
    pub(crate) fn add_reply_subject(&self, inbox: &str, subject: &str) {
        self.registry().with_reply_inbox(inbox, |_, replies| replies.add(subject, steady_ns()));
    }

    /// Returns the reply inbox with this name, to which another node sends a reply.
    pub fn reply_inbox_by_name(&self, name: &str) -> Option<Arc<Topic>> {
        if !name.starts_with(FIRST_TOKEN) {
            return None;
        }
        self.registry().with_reply_inbox(name, |topic, _| Arc::clone(topic))
    }

    /// Returns this node's response to another node's query: the name and the pattern of the reply inbox at this node
    /// that accepts replies to the subject.
    pub(crate) fn offer_reply_inbox(&self, subject: Subject<'_>) -> Option<(String, String)> {
        if self.registry().owner(subject).is_some() {
            return None;
        }
        let now_ns = steady_ns();
        self.registry().find_reply_inbox(subject, |topic, replies| {
            let is_accepted = replies.try_use(subject.as_str(), now_ns);
            is_accepted.then(|| (topic.name().to_owned(), topic.pattern().to_owned()))
        })
    }

    /// Returns the reply inbox for a subject, without asking other nodes. `None` if a topic owns the subject, if this
    /// node knows of no request that has named the subject, or if clients of two nodes wait for the reply.
    pub fn reply_inbox(&self, subject: Subject<'_>) -> Option<Arc<Topic>> {
        match self.reply_target(subject)? {
            ReplyTarget::Local(topic) | ReplyTarget::Remote(RemoteInbox { topic, .. }) => Some(topic),
        }
    }

    fn reply_target(&self, subject: Subject<'_>) -> Option<ReplyTarget> {
        if !Inbox::has_client_prefix(subject.as_str()) || self.registry().owner(subject).is_some() {
            return None;
        }
        let local = self.local_reply_inbox(subject);
        let remote = self.ownership().and_then(|ownership| ownership.known_reply_inbox(subject.as_str()));
        match (local, remote) {
            (Some(local), None) => Some(ReplyTarget::Local(local)),
            (None, Some(remote)) => Some(ReplyTarget::Remote(remote)),
            // This node knows of no reply inbox for the subject, or clients of two nodes wait for the reply.
            _ => None,
        }
    }

    fn local_reply_inbox(&self, subject: Subject<'_>) -> Option<Arc<Topic>> {
        let now_ns = steady_ns();
        self.registry().find_reply_inbox(subject, |topic, replies| {
            replies.accepts(subject.as_str(), now_ns).then(|| Arc::clone(topic))
        })
    }

    /// Whether this node has to ask other nodes before it knows the destination of a record with this subject.
    pub(crate) fn needs_reply_query(&self, subject: Subject<'_>) -> bool {
        Inbox::has_client_prefix(subject.as_str())
            && self.registry().owner(subject).is_none()
            && self.ownership().is_some_and(|ownership| ownership.needs_reply_query(subject.as_str()))
    }

    /// Whether a record with this subject goes to a reply inbox. If necessary, asks the other nodes about the inbox,
    /// and remembers which node has it.
    pub(crate) fn resolve_reply_inbox(&self, subject: Subject<'_>) -> bool {
        if !self.needs_reply_query(subject) {
            return self.reply_target(subject).is_some();
        }
        let is_here = self.local_reply_inbox(subject).is_some();
        let Some(ownership) = self.ownership().filter(|_| is_here || !self.has_local_subscriber(subject))
        else {
            return false;
        };
        // If another node has the inbox, this query makes this node remember the inbox.
        let has_subscriber =
            block_on(ownership.has_remote_reply_subscriber(subject.as_str())).unwrap_or(true);
        if is_here && !has_subscriber {
            ownership.remember_local_reply_inbox(subject.as_str());
        }
        is_here != has_subscriber && self.reply_target(subject).is_some()
    }

    /// Returns the topic for a publisher of replies to this subject; `None` if no reply inbox accepts them. If
    /// necessary, asks the other nodes.
    pub(crate) fn reply_topic(&self, subject: Subject<'_>) -> Option<Arc<Topic>> {
        if !self.resolve_reply_inbox(subject) {
            return None;
        }
        let target = self.reply_target(subject)?;
        if let ReplyTarget::Local(inbox) = &target {
            let now_ns = steady_ns();
            let try_use = |_: &_, replies: &ReplySubjects| replies.try_use(subject.as_str(), now_ns);
            self.registry().with_reply_inbox(inbox.name(), try_use).filter(|is_used| *is_used)?;
        }
        ReplyTopic::open(self, subject.as_str(), target)
    }
}

/// The connection from a publisher's topic to a reply inbox. The connection closes after [`SUBJECT_AGE_MAX`], or after
/// [`RECORDS_MAX`] records. For the next record, the publisher then looks for a topic again.
#[derive(Debug)]
struct ReplyTopic {
    node: Weak<Inner>,
    target: ReplyTarget,
    tail: Box<str>,
    until_ns: u64,
    records_left: AtomicU32,
    /// The outcomes of records that were appended to a reply inbox at this node.
    tickets: Tickets,
}

impl ReplyTopic {
    fn open(node: &Node, subject: &str, target: ReplyTarget) -> Option<Arc<Topic>> {
        let (ReplyTarget::Local(inbox) | ReplyTarget::Remote(RemoteInbox { topic: inbox, .. })) = &target;
        let (name, pattern) = (inbox.name().to_owned(), inbox.pattern().to_owned());
        let prefix = inbox.logs()[0].name().subject_prefix.as_str();
        let tail = subject.strip_prefix(prefix).unwrap_or_default().into();
        let config = Arc::new(node.config().limits.inbox(pattern, HISTORY_BYTES));
        let upstream: Arc<dyn Upstream> = Arc::new(ReplyTopic {
            node: Arc::downgrade(&node.0),
            target,
            tail,
            until_ns: steady_ns().saturating_add(SUBJECT_AGE_MAX.as_nanos() as u64),
            records_left: AtomicU32::new(RECORDS_MAX),
            tickets: Tickets::new(u64::MAX),
        });
        Topic::mirrored(&name, config, node.budget(), CLOCK, 1, make_reducer, &upstream).ok().map(Arc::new)
    }

    /// Whether all records of the batch have the subject for which this topic was opened.
    fn has_only_subject(&self, batch: &ForwardedBatch<'_>) -> bool {
        let mut frames = batch.frames;
        while let Some((frame, stride)) = Frame::split(frames) {
            if frame.subject_tail() != &*self.tail {
                return false;
            }
            frames = &frames[stride..];
        }
        true
    }
}

impl Upstream for ReplyTopic {
    fn clock(&self) -> Clock {
        STEADY
    }

    fn owned_until_ns(&self) -> u64 {
        0
    }

    fn forward(&self, batch: ForwardedBatch<'_>) -> Result<u64, PublishError> {
        if batch.relayed || !self.has_only_subject(&batch) || self.node.strong_count() == 0 {
            return Err(PublishError::Closed);
        }
        let subtract = |left: u32| left.checked_sub(batch.count);
        let left = self.records_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        if left.is_err() || steady_ns() >= self.until_ns {
            return Err(PublishError::Closed);
        }
        match &self.target {
            ReplyTarget::Remote(inbox) => inbox.upstream.forward(batch),
            ReplyTarget::Local(inbox) => {
                let ForwardedBatch { partition, frames, count, mark, expect_last, claim, .. } = batch;
                let checked = CheckedBatch::check(frames, count, inbox.config().record_bytes_max as usize)?;
                let append = BatchAppend {
                    batch: checked,
                    partition,
                    mark,
                    expect_last,
                    claim,
                    evict: false,
                    relayed: false,
                };
                let receipt = inbox.append_batch(now_ns(), append)?;
                let ticket = self.tickets.open(ForwardTarget::for_owner(None), 0)?;
                self.tickets.settle(ticket, Ok(receipt));
                Ok(ticket)
            }
        }
    }

    fn outcome(&self, ticket: u64, waiter: &Arc<Waiter>, token: u32) -> AckProgress {
        match &self.target {
            ReplyTarget::Local(_) => self.tickets.outcome(ticket, waiter, token),
            ReplyTarget::Remote(inbox) => inbox.upstream.outcome(ticket, waiter, token),
        }
    }

    fn leave(&self, waiter: &Arc<Waiter>) {
        match &self.target {
            ReplyTarget::Local(_) => self.tickets.leave(waiter),
            ReplyTarget::Remote(inbox) => inbox.upstream.leave(waiter),
        }
    }

    fn await_room(&self, waiter: &Arc<Waiter>) {
        match &self.target {
            ReplyTarget::Local(_) => self.tickets.await_room(ForwardTarget::for_owner(None), waiter),
            ReplyTarget::Remote(inbox) => inbox.upstream.await_room(waiter),
        }
    }

    /// Does nothing: the topic is in no registry, so that no subscriber reads it.
    fn start_feed(&self, _log: &Arc<Log>, _start: Start) {}

    fn private_mirror(&self, _log: &Arc<Log>, _: Start, _: bool, _: bool) -> Option<Arc<Log>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_subject_expires_after_its_age_or_number_of_uses() {
        let replies = ReplySubjects::new(&MemoryBudget::node(1 << 30, 0));
        let age_ns = SUBJECT_AGE_MAX.as_nanos() as u64;
        replies.add("acme.reply.1", 1);
        assert!(replies.accepts("acme.reply.1", age_ns) && !replies.accepts("acme.reply.1", age_ns + 1));
        assert!(!replies.accepts("acme.reply.2", 1));
        assert!((0..USES_MAX).all(|_| replies.try_use("acme.reply.1", 1)));
        assert!(!replies.try_use("acme.reply.1", 1) && !replies.accepts("acme.reply.1", 1));
        replies.add("acme.reply.1", 2);
        assert!(replies.accepts("acme.reply.1", 2), "another request has named it");
    }

    #[test]
    fn only_the_newest_reply_subjects_are_remembered() {
        let budget = MemoryBudget::node(1 << 30, 0);
        let replies = ReplySubjects::new(&budget);
        (0..2 * SUBJECTS_MAX).for_each(|number| replies.add(&format!("acme.reply.{number}"), 1));
        let has = |number: usize| replies.accepts(&format!("acme.reply.{number}"), 1);
        assert!(!has(0) && !has(SUBJECTS_MAX - 1) && has(SUBJECTS_MAX) && has(2 * SUBJECTS_MAX - 1));
        assert_eq!(replies.lock().order.len(), SUBJECTS_MAX);
        assert!(budget.used() >= (SUBJECTS_MAX * SUBJECT_BYTES) as u64);
        replies.add("acme.reply.again", 1 + SUBJECT_AGE_MAX.as_nanos() as u64);
        assert_eq!(replies.lock().by_subject.len(), 1, "the other subjects have expired");
    }

    #[test]
    fn topic_of_a_subject_takes_precedence_over_a_reply_inbox() {
        let node = Node::start(crate::Config::default()).unwrap();
        let subject = |text| Subject::parse(text).unwrap();
        let mut inbox = Inbox::of_pattern(node.clone(), "shop.orders.*");
        let topic = Arc::clone(inbox.open().unwrap());
        inbox.accept_reply(subject("shop.orders.1"));
        assert!(node.reply_inbox(subject("shop.orders.1")).is_some_and(|found| Arc::ptr_eq(&found, &topic)));
        assert!(node.reply_inbox(subject("shop.orders.2")).is_none());
        assert!(!node.has_owner(subject("shop.orders.1")));
        // The reply inbox does not prevent this topic from being created. From now on, the topic receives the replies.
        node.publisher("shop.orders.2").unwrap();
        assert!(node.topic("shop.orders.2").is_some());
        node.create_topic("shop.orders.1", Default::default(), false).unwrap();
        assert!(node.reply_inbox(subject("shop.orders.1")).is_none());
        drop(inbox);
        assert!(node.has_owner(subject("shop.orders.1")) && node.topic(topic.name()).is_none());
    }

    #[test]
    fn reply_publisher_publishes_only_to_its_own_subject() {
        use dunlin_topic::{Draft, Payload, RecordMeta};
        let node = Node::start(crate::Config::default()).unwrap();
        let mut inbox = Inbox::of_pattern(node.clone(), "shop.orders.*");
        let log = Arc::clone(&inbox.open().unwrap().logs()[0]);
        inbox.accept_reply(Subject::parse("shop.orders.1").unwrap());
        let topic = node.owning_topic(Subject::parse("shop.orders.1").unwrap()).unwrap();
        let publish = |tail| {
            let meta = RecordMeta { subject_tail: tail, ..RecordMeta::default() };
            let drafts = std::iter::once(Draft { meta, payload: Payload::Copied(b"reply") });
            topic.append_drafts(now_ns(), 0, false, drafts).map(drop)
        };
        assert_eq!(publish("2"), Err(PublishError::Closed));
        (0..RECORDS_MAX).for_each(|_| publish("1").unwrap());
        assert_eq!(publish("1"), Err(PublishError::Closed));
        assert_eq!(log.last().seq, u64::from(RECORDS_MAX));
        // After `USES_MAX` uses of the subject, a topic is created for further records.
        let subject = Subject::parse("shop.orders.1").unwrap();
        (1..USES_MAX).for_each(|_| drop(node.owning_topic(subject).unwrap()));
        assert!(node.topic("shop.orders.1").is_none());
        node.owning_topic(subject).unwrap();
        assert!(node.topic("shop.orders.1").is_some());
    }
}
