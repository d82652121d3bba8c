//! Asks the other nodes of the cluster whether they have a subscriber for a subject. A node that has one is called
//! interested in the subject.
//!
//! No node keeps a list of the other nodes' subscriptions. A node asks all other nodes at the same time before it
//! publishes a request, or a record that needs a new topic. As soon as one of them responds that it has a subscriber,
//! the asking node stops waiting. Before the asking node publishes a reply, it waits for all responses: a reply goes to
//! a reply inbox only if no node has another subscriber for the reply's subject.
//!
//! Invariant: before a node publishes a request or a record, it assumes that a subject has no subscriber only if every
//! other member has responded that it has none. Replies are an exception: a member that does not respond is assumed to
//! have no subscriber. Without this exception, a topic would be created for each reply while a member is unreachable.
//!
//! Limits: at most [`REMEMBERED_MAX`] subjects that have a subscriber at another node are remembered, each for
//! [`REMEMBERED_FOR`]. During that time, a request may be published although the last subscriber has left. A node that
//! did not respond is not asked for the next five seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dunlin_topic::{Pattern, Subject};
use tokio::sync::oneshot;

use super::{Ownership, lock};
use crate::clock::steady_ns;
use crate::control::block_on;
use crate::error::TopicError;
use crate::node::Node;
use crate::registry::is_of_system;
use crate::waiting::TopicFuture;

const REMEMBERED_MAX: usize = 4_096;
const REMEMBERED_FOR: Duration = Duration::from_millis(100);

/// A node's response to an [`InterestQuery`]: whether the node has subscribers for a subject, and its inbox for replies
/// to the subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interest {
    /// Whether the node has a subscriber for the subject.
    pub is_subscribed: bool,
    /// The name and the pattern of the node's reply inbox that accepts replies to the subject, if there is one.
    pub inbox: Option<(String, String)>,
    /// The user of the node's inbox with the same pattern as the query. Empty if no user is known; `None` if the node
    /// has no such inbox.
    pub inbox_user: Option<String>,
}

/// A query that asks one node whether it has subscribers for a subject. Dropping the query without a response means
/// that the node did not respond.
#[derive(Debug)]
pub struct InterestQuery {
    node: u64,
    round: Arc<InterestRound>,
}

/// The reason for a query. It decides what is assumed about a node that does not respond.
#[derive(Debug, Clone, PartialEq, Eq)]
enum QueryPurpose {
    /// A record is to be published. A node that does not respond may have a subscriber.
    Record,
    /// A reply is to be published. A node that does not respond is assumed to have no subscriber.
    Reply,
    /// A client of this user opens an inbox with the query's pattern, and no other user may have such an inbox. A node
    /// that does not respond is assumed to have no such inbox.
    InboxOfOtherUser(String),
}

/// The queries about one subject, which are sent to all other nodes at the same time.
#[derive(Debug)]
struct InterestRound {
    ownership: Weak<Ownership>,
    pattern: Arc<str>,
    purpose: QueryPurpose,
    /// The time until which the nodes have to respond, by the monotonic clock.
    until_ns: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    unanswered: Vec<u64>,
    /// The first node that has responded with a reply inbox for the subject, and the inbox's name and pattern.
    reply_inbox: Option<(u64, (String, String))>,
    /// Whether at least one node did not respond.
    is_uncertain: bool,
    outcome: Option<oneshot::Sender<Result<bool, TopicError>>>,
}

/// Subjects for which some other node has a subscriber, each with the time at which this knowledge expires.
#[derive(Debug, Default)]
pub(super) struct InterestCache(Mutex<HashMap<Box<str>, u64>>);

impl InterestCache {
    fn has(&self, pattern: &str) -> bool {
        lock(&self.0).get(pattern).is_some_and(|until_ns| steady_ns() < *until_ns)
    }

    fn add(&self, pattern: &str) {
        let until_ns = steady_ns().saturating_add(REMEMBERED_FOR.as_nanos() as u64);
        let mut remembered = lock(&self.0);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(pattern.into(), until_ns);
    }
}

impl InterestQuery {
    /// The subject or pattern that the query is about.
    pub fn pattern(&self) -> &str {
        &self.round.pattern
    }

    /// Reports the node's response to the query.
    pub fn respond(&self, interest: Interest) {
        self.round.on_response(self.node, Some(interest));
    }

    /// Reports that the node has not responded to the query, or will not.
    pub fn fail(&self) {
        self.round.on_response(self.node, None);
    }

    /// Whether a response to the query is no longer needed. If the time for a response has passed, also reports that
    /// the node has not responded.
    pub fn is_over(&self) -> bool {
        if lock(&self.round.state).outcome.is_none() {
            return true;
        }
        let is_overdue = steady_ns() >= self.round.until_ns;
        if is_overdue {
            if let Some(ownership) = self.round.ownership.upgrade() {
                ownership.record_late(self.node);
            }
            self.fail();
        }
        is_overdue
    }
}

impl Drop for InterestQuery {
    fn drop(&mut self) {
        self.fail();
    }
}

impl InterestRound {
    fn on_response(&self, node: u64, interest: Option<Interest>) {
        let ownership = self.ownership.upgrade();
        let is_member = || ownership.as_ref().is_some_and(|ownership| ownership.is_alive(node));
        let has_responded = interest.is_some();
        let Interest { is_subscribed, inbox: reply_inbox, inbox_user } = interest.unwrap_or_default();
        let mut state = lock(&self.state);
        let Some(at) = state.unanswered.iter().position(|other| *other == node) else { return };
        state.unanswered.swap_remove(at);
        state.is_uncertain |= !has_responded && is_member();
        let is_last = state.unanswered.is_empty();
        let is_of_user = matches!(self.purpose, QueryPurpose::InboxOfOtherUser(_));
        let is_first_inbox = !is_of_user && reply_inbox.is_some() && state.reply_inbox.is_none();
        let is_found = match &self.purpose {
            QueryPurpose::InboxOfOtherUser(user) => inbox_user.is_some_and(|other| other != *user),
            // The first reply inbox does not count as a subscriber. A second one at another node does, because then
            // clients of two nodes wait for the reply.
            _ => (is_subscribed || reply_inbox.is_some()) && !is_first_inbox,
        };
        if is_first_inbox && let Some(inbox) = reply_inbox {
            state.reply_inbox = Some((node, inbox));
        }
        let outcome = if is_found || is_last { state.outcome.take() } else { None };
        let reply_inbox = if is_last && !is_found { state.reply_inbox.take() } else { None };
        let is_uncertain = is_last && state.is_uncertain && self.purpose == QueryPurpose::Record;
        drop(state);
        let Some(outcome) = outcome else { return };
        if let Some(ownership) = ownership.filter(|_| !is_of_user) {
            match &reply_inbox {
                Some((node, inbox)) => ownership.add_reply_inbox(&self.pattern, inbox, *node),
                None if is_found => ownership.interest_cache.add(&self.pattern),
                None => {}
            }
        }
        // Ignore the error: the caller has stopped waiting.
        let _ = outcome.send(Ok(is_found || is_uncertain || reply_inbox.is_some()));
    }
}

impl Ownership {
    /// Whether another node has a subscriber for the pattern. If that subscriber is a reply inbox for the subject, this
    /// node remembers the inbox.
    pub(crate) fn has_remote_subscriber(self: &Arc<Ownership>, pattern: &str) -> TopicFuture<bool> {
        self.query_others(pattern, QueryPurpose::Record)
    }

    /// Whether another node has a subscriber for the subject of a reply. Unlike in `has_remote_subscriber`, a node that
    /// does not respond is assumed to have no subscriber.
    pub(crate) fn has_remote_reply_subscriber(self: &Arc<Ownership>, pattern: &str) -> TopicFuture<bool> {
        self.query_others(pattern, QueryPurpose::Reply)
    }

    fn query_others(self: &Arc<Ownership>, pattern: &str, purpose: QueryPurpose) -> TopicFuture<bool> {
        let others = self.others();
        if others.is_empty() {
            return TopicFuture::ready(Ok(false));
        }
        let (late, queried): (Vec<u64>, Vec<u64>) = others.into_iter().partition(|&node| self.is_late(node));
        if queried.is_empty() {
            return TopicFuture::ready(Ok(purpose == QueryPurpose::Record));
        }
        let (outcome, found) = oneshot::channel();
        let is_uncertain = !late.is_empty();
        let state =
            State { unanswered: queried.clone(), reply_inbox: None, is_uncertain, outcome: Some(outcome) };
        let (ownership, pattern) = (Arc::downgrade(self), Arc::from(pattern));
        let until_ns = steady_ns().saturating_add(self.limits.mirror_wait_max.as_nanos() as u64);
        let round =
            Arc::new(InterestRound { ownership, pattern, purpose, until_ns, state: Mutex::new(state) });
        for node in queried {
            self.peers.query_interest(node, InterestQuery { node, round: Arc::clone(&round) });
        }
        TopicFuture::pending(found)
    }
}

/// The pattern as a subject; `None` if the pattern has wildcards.
fn subject_of(pattern: &Pattern) -> Option<Subject<'_>> {
    Subject::parse(pattern.as_str()).ok().filter(|_| pattern.is_literal())
}

impl Node {
    /// This node's response to another node's query about a subject or pattern.
    pub fn local_interest(&self, pattern: &Pattern) -> Interest {
        let is_subscribed = self.is_subscribed_locally(pattern);
        let inbox = subject_of(pattern).and_then(|subject| self.offer_reply_inbox(subject));
        let inbox_user = self.registry().get_pattern(pattern.as_str()).map(|_| String::new());
        Interest { is_subscribed, inbox, inbox_user }
    }

    fn is_subscribed_locally(&self, pattern: &Pattern) -> bool {
        match subject_of(pattern) {
            Some(subject) => self.has_local_subscriber(subject),
            None => self.registry().is_pattern_watched(pattern),
        }
    }

    /// Whether the cluster has a subscriber for the pattern. Returns `None` if this node has to ask the other nodes.
    fn known_interest(&self, pattern: &Pattern) -> Option<bool> {
        if self.is_subscribed_locally(pattern) {
            return Some(true);
        }
        match self.ownership().filter(|_| !is_of_system(pattern.as_str())) {
            None => Some(false),
            Some(ownership) if ownership.others().is_empty() => Some(false),
            Some(ownership) if ownership.interest_cache.has(pattern.as_str()) => Some(true),
            Some(_) => None,
        }
    }

    /// Whether the cluster has a subscriber for the pattern. A subscriber that waits for a topic with this pattern
    /// counts. A durable topic also counts, because its records can be read later. If this node has no subscriber, it
    /// asks all other nodes. For code that must not block.
    pub fn has_subscriber_async(&self, pattern: &Pattern) -> TopicFuture<bool> {
        if let Some(has_subscriber) = self.known_interest(pattern) {
            return TopicFuture::ready(Ok(has_subscriber));
        }
        match self.ownership() {
            Some(ownership) => ownership.has_remote_subscriber(pattern.as_str()),
            None => TopicFuture::ready(Ok(false)),
        }
    }

    /// Whether another node has a subscriber for the subject of a reply. A node that does not respond is assumed to
    /// have no subscriber. For code that must not block.
    pub fn has_remote_reply_subscriber_async(&self, pattern: &Pattern) -> TopicFuture<bool> {
        match self.ownership() {
            Some(ownership) => ownership.has_remote_reply_subscriber(pattern.as_str()),
            None => TopicFuture::ready(Ok(false)),
        }
    }

    /// Whether another node has an inbox with this pattern that belongs to another user than `user`. A node that does
    /// not respond is assumed to have no such inbox. For code that must not block.
    pub fn is_inbox_of_other_user_async(&self, pattern: &Pattern, user: &str) -> TopicFuture<bool> {
        match self.ownership() {
            Some(ownership) => {
                ownership.query_others(pattern.as_str(), QueryPurpose::InboxOfOtherUser(user.to_owned()))
            }
            None => TopicFuture::ready(Ok(false)),
        }
    }

    /// Like [`has_subscriber_async`](Node::has_subscriber_async), but blocks until the result is known.
    pub fn has_subscriber(&self, subject: Subject<'_>) -> bool {
        let pattern = Pattern::from(subject);
        // If the other nodes cannot be asked, assume that there is a subscriber.
        self.known_interest(&pattern)
            .unwrap_or_else(|| block_on(self.has_subscriber_async(&pattern)).unwrap_or(true))
    }
}
