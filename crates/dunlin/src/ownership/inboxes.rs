//! Publishes records to inboxes of other nodes. This is necessary if a requester and the service that replies are
//! connected to different nodes.
//!
//! An inbox is a topic of the node to which its session is connected. The subjects of an inbox do not tell which node
//! has it. The publisher's node, here called this node, therefore sends a record to the node that accepted the last
//! record for this inbox. If that node does not have the inbox, the record is sent to the other nodes, one after
//! another, until one of them accepts it. For a [reply inbox](crate::reply), this node first [asks](super::interest)
//! the other nodes about the reply's subject. The response contains the name of the reply inbox, and records are then
//! sent to that name. The cluster does not agree on inboxes, because each connection that sends requests opens an inbox
//! for only a few seconds.
//!
//! Invariants:
//! - At most one node appends a record: another node is tried only if the previous one certainly did not append it.
//! - Records for one inbox leave this node in the order in which they were published. Until a node has accepted a
//!   record for the inbox, only one batch is sent at a time. A batch that a node did not append is sent again once no
//!   other batch is on its way, and before all newer batches.
//!
//! Limits: this node remembers at most [`INBOXES_MAX`] inboxes. It also remembers at most this number of reply
//! subjects, each for [`REPLY_KNOWN_FOR`]. If there are too many reply subjects, this node forgets all of them. If
//! there are too many inboxes, this node forgets those without unfinished records, or all inboxes if all have
//! unfinished records. When this node needs a forgotten inbox or subject, it asks the other nodes again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dunlin_topic::{AckProgress, Clock, ForwardedBatch, Log, PublishError, Start, Topic, Upstream, Waiter};

use super::forwarded::{ForwardTarget, InFlightBatch, Sender, begin_flight};
use super::housekeeper::PAUSE;
use super::{Ownership, lock};
use crate::clock::{CLOCK, STEADY, steady_ns};
use crate::inbox::FIRST_TOKEN;
use crate::node::make_reducer;

/// Maximum number of other nodes' inboxes that this node remembers.
const INBOXES_MAX: usize = 4_096;
/// How long this node remembers which node has the inbox for a reply subject.
const REPLY_KNOWN_FOR: Duration = Duration::from_secs(5);
/// The history size, in bytes, of the topic that represents another node's inbox at this node. The topic never contains
/// records, because they go to the other node.
const HISTORY_BYTES: u64 = 64 << 10;

/// Inboxes of other nodes to which this node has published.
#[derive(Debug, Default)]
pub(super) struct RemoteInboxes(Mutex<KnownInboxes>);

#[derive(Debug, Default)]
struct KnownInboxes {
    /// The inboxes by the common prefix of their subjects, or for reply inboxes, by name.
    by_key: HashMap<Box<str>, KnownInbox>,
    /// Reply subjects about which this node has asked all other nodes, so that it knows which node has the inbox.
    replies: HashMap<Box<str>, KnownReply>,
}

#[derive(Debug)]
struct KnownInbox {
    inbox: RemoteInbox,
    route: Arc<InboxRoute>,
}

#[derive(Debug)]
struct KnownReply {
    until_ns: u64,
    /// The inbox, if another node has it; `None` if this node has it.
    inbox: Option<RemoteInbox>,
}

/// An inbox at another node, with the route on which records are sent there.
#[derive(Debug, Clone)]
pub(crate) struct RemoteInbox {
    /// The topic at this node that represents the inbox. Records that are published to it go to the inbox.
    pub(crate) topic: Arc<Topic>,
    pub(crate) upstream: Arc<dyn Upstream>,
}

/// The route on which this node sends records to one inbox at another node.
#[derive(Debug)]
pub(super) struct InboxRoute {
    this: Weak<InboxRoute>,
    ownership: Weak<Ownership>,
    name: Arc<str>,
    /// The text by which the other node finds the inbox: the pattern of the inbox's subjects, or the name of a reply
    /// inbox.
    address: Arc<str>,
    /// The node that has the inbox, if it is known from the start; `None` if the node has to be found.
    fixed_node: Option<u64>,
    /// A lock that is held while a batch is sent, so that batches are sent in order.
    sending: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The node that accepted the last record for the inbox.
    owner: Option<u64>,
    /// Batches that are still to be sent, by ticket.
    waiting: BTreeMap<u64, InFlightBatch>,
    /// The number of batches that are on their way: they were sent, and have neither received a response nor been
    /// returned for another attempt.
    in_flight: usize,
    /// The number of the present flight. A flight is a series of batches that are on their way to a node at the same
    /// time.
    flight: u64,
    /// The ticket of the batch that was sent last. As long as batches are on their way, a waiting batch whose ticket is
    /// not higher than this was sent before, and was returned.
    sent_through: u64,
    /// The ticket of the last batch that waited when the search for the inbox's node began. If no node has the inbox,
    /// all batches up to this ticket are refused.
    search_through: u64,
    /// The time before which no batch is sent.
    paused_until_ns: u64,
}

/// The next step with the waiting batches.
enum Next {
    Send(u64, InFlightBatch),
    Append(Arc<Topic>, InFlightBatch),
    /// Refuse these batches, because no node has the inbox.
    End(Vec<InFlightBatch>),
}

impl Ownership {
    /// Returns the topic that represents an inbox of another node, so that a record can be published to the inbox.
    /// `subject` belongs to this inbox. Returns `None` if the subject belongs to no inbox, or if the cluster has no
    /// other node.
    pub(crate) fn inbox(self: &Arc<Ownership>, subject: &str) -> Option<Arc<Topic>> {
        let (key, name, pattern) = split_subject(subject)?;
        if self.others().is_empty() {
            return None;
        }
        self.inbox_or_new(key, name, &pattern, None).map(|inbox| inbox.topic)
    }

    /// The reply inbox that accepts replies to this subject, if the inbox is at another node and this node remembers
    /// it.
    pub(crate) fn known_reply_inbox(&self, subject: &str) -> Option<RemoteInbox> {
        let inboxes = lock(&self.inboxes.0);
        inboxes.replies.get(subject).filter(|reply| steady_ns() < reply.until_ns)?.inbox.clone()
    }

    /// Whether this node has to ask other nodes which of them has the reply inbox for this subject.
    pub(crate) fn needs_reply_query(&self, subject: &str) -> bool {
        let inboxes = lock(&self.inboxes.0);
        let is_known = inboxes.replies.get(subject).is_some_and(|reply| steady_ns() < reply.until_ns);
        !is_known && self.has_others()
    }

    /// Remembers that this node has the reply inbox for the subject, and that no other node has a subscriber for the
    /// subject.
    pub(crate) fn remember_local_reply_inbox(&self, subject: &str) {
        lock(&self.inboxes.0).add_reply(subject, None);
    }

    /// Remembers that `node` has the reply inbox for the subject, and that no other node has a subscriber for the
    /// subject.
    pub(super) fn add_reply_inbox(
        self: &Arc<Ownership>,
        subject: &str,
        (name, pattern): &(String, String),
        node: u64,
    ) {
        if let Some(inbox) = self.inbox_or_new(name, name, pattern, Some(node)) {
            lock(&self.inboxes.0).add_reply(subject, Some(inbox));
        }
    }

    fn inbox_or_new(
        self: &Arc<Ownership>,
        key: &str,
        name: &str,
        pattern: &str,
        fixed_node: Option<u64>,
    ) -> Option<RemoteInbox> {
        let mut inboxes = lock(&self.inboxes.0);
        if let Some(known) = inboxes.by_key.get(key) {
            return Some(known.inbox.clone());
        }
        let node = self.node_handle()?;
        let route = Arc::new_cyclic(|this| InboxRoute {
            this: Weak::clone(this),
            ownership: Arc::downgrade(self),
            name: name.into(),
            address: if fixed_node.is_some() { name } else { pattern }.into(),
            fixed_node,
            sending: Mutex::default(),
            state: Mutex::new(State { owner: fixed_node, ..State::default() }),
        });
        let config = Arc::new(node.config().limits.inbox(pattern.to_owned(), HISTORY_BYTES));
        let upstream: Arc<dyn Upstream> = Arc::<InboxRoute>::clone(&route);
        let topic = Topic::mirrored(name, config, node.budget(), CLOCK, 1, make_reducer, &upstream);
        let inbox = RemoteInbox { topic: Arc::new(topic.ok()?), upstream };
        if inboxes.by_key.len() >= INBOXES_MAX {
            inboxes.by_key.retain(|_, known| known.route.is_busy());
        }
        if inboxes.by_key.len() >= INBOXES_MAX {
            inboxes.by_key.clear();
        }
        inboxes.by_key.insert(key.into(), KnownInbox { inbox: inbox.clone(), route });
        Some(inbox)
    }

    pub(super) fn others(&self) -> Vec<u64> {
        self.nodes().into_iter().filter(|&node| node != self.id).collect()
    }

    fn has_others(&self) -> bool {
        lock(&self.members).keys().any(|&node| node != self.id)
    }
}

impl KnownInboxes {
    fn add_reply(&mut self, subject: &str, inbox: Option<RemoteInbox>) {
        let now_ns = steady_ns();
        if self.replies.len() >= INBOXES_MAX {
            self.replies.retain(|_, reply| now_ns < reply.until_ns);
        }
        if self.replies.len() >= INBOXES_MAX {
            self.replies.clear();
        }
        let until_ns = now_ns.saturating_add(REPLY_KNOWN_FOR.as_nanos() as u64);
        self.replies.insert(subject.into(), KnownReply { until_ns, inbox });
    }
}

/// Returns the inbox to which a subject belongs: its key in [`KnownInboxes::by_key`], and its name and pattern at the
/// node that has it. The first two tokens of a subject select the inbox; if the subject has no further tokens, it is
/// the inbox's only subject. Returns `None` if the subject belongs to no inbox.
fn split_subject(subject: &str) -> Option<(&str, &str, String)> {
    let rest = subject.strip_prefix(FIRST_TOKEN)?.strip_prefix('.')?;
    match rest.find('.') {
        Some(at) => {
            let name = &subject[..FIRST_TOKEN.len() + 1 + at];
            Some((&subject[..=name.len()], name, format!("{name}.>")))
        }
        None => Some((subject, subject, subject.to_owned())),
    }
}

impl InboxRoute {
    /// Whether the outcome of some records for the inbox is not known yet. A busy inbox must not be forgotten: its
    /// records could lose their order, or the search for the inbox's node would end.
    fn is_busy(&self) -> bool {
        let state = lock(&self.state);
        state.in_flight > 0 || !state.waiting.is_empty()
    }

    /// Sends the waiting batches in the order in which they were published.
    pub(super) fn send_waiting(&self, ownership: &Ownership) {
        {
            let _in_order = lock(&self.sending);
            self.send_in_order(ownership);
        }
        let is_paused = {
            let state = lock(&self.state);
            state.in_flight == 0 && !state.waiting.is_empty()
        };
        if is_paused {
            ownership.housekeeper.send_to_inbox_after(Weak::clone(&self.this), PAUSE);
        }
    }

    /// Sends the waiting batches one after another. The caller holds [`InboxRoute::sending`].
    fn send_in_order(&self, ownership: &Ownership) {
        let mut last = None;
        while let Some(next) = self.next(ownership, last) {
            match next {
                Next::Send(to, batch) => {
                    last = Some(batch.ticket);
                    ownership.peers.forward_batch(to, batch);
                }
                Next::Append(here, batch) => {
                    let outcome = batch.append_to(&here);
                    batch.end(outcome);
                }
                Next::End(batches) => batches.into_iter().for_each(|batch| batch.end(Err(self.no_inbox()))),
            }
        }
    }

    /// Returns the next step, or `None` if no batch waits or none can be sent now. `last` is the ticket of the batch
    /// that was sent in the previous step.
    fn next(&self, ownership: &Ownership, last: Option<u64>) -> Option<Next> {
        let mut state = lock(&self.state);
        let (ticket, tried) =
            state.waiting.first_key_value().map(|(ticket, batch)| (*ticket, batch.tried.clone()))?;
        let is_blocked = state.in_flight > 0 && (state.owner.is_none() || ticket <= state.sent_through);
        let was_returned = last.is_some_and(|last| ticket <= last);
        if is_blocked || was_returned || steady_ns() < state.paused_until_ns {
            return None;
        }
        let to = match (state.owner, self.fixed_node) {
            (Some(owner), _) => Some(owner),
            (None, Some(_)) => None,
            (None, None) => {
                // The client may have reconnected to this node, so that this node has the inbox now.
                let here =
                    ownership.node_handle().and_then(|node| node.registry().get_pattern(&self.address));
                if let Some(here) = here {
                    return state.waiting.pop_first().map(|(_, batch)| Next::Append(here, batch));
                }
                ownership.others().into_iter().find(|node| !tried.contains(node))
            }
        };
        if tried.is_empty()
            && let Some((&through, _)) = state.waiting.last_key_value()
        {
            state.search_through = through;
        }
        let Some(to) = to else {
            // Refuse only the batches that already waited when the search for the inbox's node began.
            let through = state.search_through.max(ticket);
            let later = state.waiting.split_off(&(through + 1));
            let ended = std::mem::replace(&mut state.waiting, later);
            return Some(Next::End(ended.into_values().collect()));
        };
        let (_, mut batch) = state.waiting.pop_first()?;
        batch.tried.push(to);
        if state.in_flight == 0 {
            state.flight = begin_flight();
        }
        (batch.is_in_flight, batch.flight) = (true, state.flight);
        state.in_flight += 1;
        state.sent_through = ticket;
        Some(Next::Send(to, batch))
    }

    /// Takes back a batch that the asked node has not accepted, and changes the state with `change`. After the pause,
    /// the batch is sent again, before all newer batches.
    fn requeue(
        &self,
        ownership: &Ownership,
        mut batch: InFlightBatch,
        pause: Duration,
        change: impl FnOnce(&mut State),
    ) {
        let (before, owner) = {
            let mut state = lock(&self.state);
            if std::mem::take(&mut batch.is_in_flight) {
                state.in_flight -= 1;
            }
            let before = state.owner;
            change(&mut state);
            let until_ns = steady_ns().saturating_add(pause.as_nanos() as u64);
            state.paused_until_ns = state.paused_until_ns.max(until_ns);
            state.waiting.insert(batch.ticket, batch);
            (before, state.owner)
        };
        if before != owner {
            ownership.tickets.owner_changed(before);
        }
        // Let the housekeeping thread send the batch: the present call reports a response, and its caller holds a lock
        // that sending needs.
        ownership.housekeeper.send_to_inbox_after(Weak::clone(&self.this), pause);
    }

    fn no_inbox(&self) -> PublishError {
        PublishError::NoTopic(self.address.to_string())
    }
}

impl Sender for InboxRoute {
    fn retry(&self, mut batch: InFlightBatch, _why: &str) {
        let Some(ownership) = self.ownership.upgrade() else { return batch.end(Err(PublishError::Closed)) };
        let waited_ns = steady_ns().saturating_sub(batch.published_ns);
        let last_node = batch.tried.last().copied();
        let is_retried = last_node.is_some_and(|node| ownership.is_alive(node))
            && waited_ns < ownership.limits.owner_wait_max.as_nanos() as u64;
        if is_retried {
            batch.tried.pop();
            return self.requeue(&ownership, batch, PAUSE, |_| {});
        }
        self.requeue(&ownership, batch, Duration::ZERO, |state| {
            state.owner = state.owner.filter(|owner| Some(*owner) != last_node);
        });
    }

    fn on_refused(&self, batch: InFlightBatch, error: PublishError) {
        let is_missing = matches!(error, PublishError::NoTopic(_) | PublishError::Closed);
        let Some(ownership) = self.ownership.upgrade().filter(|_| is_missing && self.fixed_node.is_none())
        else {
            return batch.end(Err(error));
        };
        let last_node = batch.tried.last().copied();
        let refusals = batch.tried.iter().filter(|&&node| Some(node) == last_node).count();
        let is_of_owner = lock(&self.state).owner == last_node;
        if is_of_owner && refusals == 1 {
            // The client may have closed the inbox and opened it again at the same node, while this batch was sent to
            // the closed inbox. Try the node once more.
            return self.requeue(&ownership, batch, PAUSE, |_| {});
        }
        self.requeue(&ownership, batch, Duration::ZERO, |state| {
            state.owner = state.owner.filter(|owner| Some(*owner) != last_node);
        });
    }

    fn on_appended(&self, node: u64) {
        let before = lock(&self.state).owner.replace(node);
        if before != Some(node)
            && let Some(ownership) = self.ownership.upgrade()
        {
            ownership.tickets.owner_changed(before);
        }
    }

    fn on_settled(&self) {
        let has_waiting = {
            let mut state = lock(&self.state);
            state.in_flight -= 1;
            !state.waiting.is_empty()
        };
        if has_waiting && let Some(ownership) = self.ownership.upgrade() {
            ownership.housekeeper.send_to_inbox_after(Weak::clone(&self.this), Duration::ZERO);
        }
    }
}

impl Upstream for InboxRoute {
    fn clock(&self) -> Clock {
        STEADY
    }

    fn owned_until_ns(&self) -> u64 {
        0
    }

    fn forward(&self, batch: ForwardedBatch<'_>) -> Result<u64, PublishError> {
        let ownership = self.ownership.upgrade().ok_or(PublishError::Closed)?;
        if batch.relayed || ownership.others().is_empty() {
            // The batch comes from another node. After this error, that node tries the next node.
            return Err(self.no_inbox());
        }
        let _in_order = lock(&self.sending);
        let owner = lock(&self.state).owner;
        let ticket = ownership.tickets.open(ForwardTarget::for_owner(owner), batch.frames.len() as u64)?;
        let (route, tickets): (Weak<InboxRoute>, _) = (Weak::clone(&self.this), &ownership.tickets);
        let forwarded =
            InFlightBatch::new(ticket, route, tickets, &self.name, &self.address, &batch, steady_ns());
        lock(&self.state).waiting.insert(ticket, forwarded);
        self.send_in_order(&ownership);
        Ok(ticket)
    }

    fn outcome(&self, ticket: u64, waiter: &Arc<Waiter>, token: u32) -> AckProgress {
        match self.ownership.upgrade() {
            Some(ownership) => ownership.tickets.outcome(ticket, waiter, token),
            None => AckProgress::Failed(PublishError::Closed),
        }
    }

    fn leave(&self, waiter: &Arc<Waiter>) {
        if let Some(ownership) = self.ownership.upgrade() {
            ownership.tickets.leave(waiter);
        }
    }

    fn await_room(&self, waiter: &Arc<Waiter>) {
        if let Some(ownership) = self.ownership.upgrade() {
            let owner = lock(&self.state).owner;
            ownership.tickets.await_room(ForwardTarget::for_owner(owner), waiter);
            let is_changed = lock(&self.state).owner != owner;
            if is_changed {
                // The owner has changed before the waiter was registered, so nothing else would notify the waiter.
                waiter.notify(Waiter::ROOM);
            }
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
    use super::split_subject;

    #[test]
    fn subjects_of_one_inbox_share_their_first_two_tokens() {
        assert_eq!(split_subject("_INBOX.a.b.c"), Some(("_INBOX.a.", "_INBOX.a", "_INBOX.a.>".to_owned())));
        assert_eq!(split_subject("_INBOX.a"), Some(("_INBOX.a", "_INBOX.a", "_INBOX.a".to_owned())));
        assert_eq!(split_subject("orders.a"), None);
        assert_eq!(split_subject("_INBOXES.a"), None);
    }
}
