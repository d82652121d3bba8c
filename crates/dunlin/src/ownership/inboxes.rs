//! Inboxes that lie with other nodes: whoever answers a request may be anywhere.
//!
//! An inbox is a topic of the node alone to which its session is connected; which one that is, nothing says. What is published to
//! an inbox that is not here goes to the node that took the last record for it, else from one node to the next until one has it.
//! A [reply inbox](crate::reply) is found by a [query](super::interest), for each subject of a reply, and is known by its name then.
//! There is no agreement on inboxes: one is used for seconds, and made by every connection that asks.
//!
//! Invariants:
//! - A record is taken by one node at most: the next is asked only when the one before certainly did not take it.
//! - What is published to one inbox leaves in that order. While it is not known which node has the inbox, one run alone is under way;
//!   what came back goes out again before anything newer, and only when nothing is under way.
//!
//! Limits: [`INBOXES_MAX`] are remembered, and as many subjects of replies, each of those for [`REPLY_KNOWN_FOR`]; then all are forgotten, and
//! found again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dunlin_topic::{Clock, Log, PublishError, Start, StoredState, ToOwner, Topic, Upstream, Waiter};

use super::handed::{Handed, Sender};
use super::keeper::PAUSE;
use super::{Ownership, lock};
use crate::clock::{CLOCK, STEADY, steady_ns};
use crate::inbox::FIRST_TOKEN;
use crate::node::make_fold;

/// Inboxes of other nodes that are remembered.
const INBOXES_MAX: usize = 4_096;
/// How long the answers about the subject of a reply are remembered.
const REPLY_KNOWN_FOR: Duration = Duration::from_secs(5);
/// Bytes that such a topic may hold; it never holds any.
const HELD_BYTES: u64 = 64 << 10;

/// Those that something was published to of late.
#[derive(Debug, Default)]
pub(super) struct Inboxes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By what their subjects begin with; reply inboxes by their names.
    by_key: HashMap<Box<str>, InboxElsewhere>,
    /// Subjects of replies that all nodes have answered for.
    replies: HashMap<Box<str>, KnownReply>,
}

#[derive(Debug)]
struct KnownReply {
    until_ns: u64,
    /// Nothing where the inbox is this node's.
    inbox: Option<InboxElsewhere>,
}

/// An inbox of another node.
#[derive(Debug, Clone)]
pub(crate) struct InboxElsewhere {
    /// To publish to it.
    pub(crate) topic: Arc<Topic>,
    pub(crate) upstream: Arc<dyn Upstream>,
}

/// The way to one.
#[derive(Debug)]
pub(super) struct Path {
    this: Weak<Path>,
    ownership: Weak<Ownership>,
    name: Arc<str>,
    /// By which the node that has it finds it: the pattern of its subjects, or the name of a reply inbox.
    address: Arc<str>,
    /// The only node that can have it, where that is known.
    only_at: Option<u64>,
    /// Held while something is sent: one place sends.
    sending: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The node that took the last record.
    holder: Option<u64>,
    /// What has yet to be sent, by its ticket.
    waiting: BTreeMap<u64, Handed>,
    /// What was sent and has neither an answer nor come back.
    under_way: usize,
    /// The last ticket that was sent.
    sent_through: u64,
    /// The last ticket that waited when the first node was asked for the inbox: what these nodes answer holds for all until it.
    asked_for_through: u64,
    /// Nothing is sent before.
    paused_until_ns: u64,
}

/// What is to be done with the first run that waits.
enum Next {
    Send(u64, Handed),
    Append(Arc<Topic>, Handed),
    /// No node has the inbox.
    End(Vec<Handed>),
}

impl Ownership {
    /// The topic of an inbox that is not this node's, to publish to it; `None` where the subject is none's, or no other node
    /// takes part.
    pub(crate) fn inbox(self: &Arc<Ownership>, subject: &str) -> Option<Arc<Topic>> {
        let (key, name, pattern) = parts(subject)?;
        if self.others().is_empty() {
            return None;
        }
        self.inbox_or_new(key, name, &pattern, None).map(|inbox| inbox.topic)
    }

    /// The reply inbox of another node that takes a reply to this subject, as far as is known.
    pub(crate) fn known_reply_inbox(&self, subject: &str) -> Option<InboxElsewhere> {
        let known = lock(&self.inboxes.0);
        known.replies.get(subject).filter(|reply| steady_ns() < reply.until_ns)?.inbox.clone()
    }

    /// Whether other nodes have yet to be queried for the inbox of this subject.
    pub(crate) fn awaits_reply_inbox(&self, subject: &str) -> bool {
        let known = lock(&self.inboxes.0);
        let is_known = known.replies.get(subject).is_some_and(|reply| steady_ns() < reply.until_ns);
        !is_known && self.has_others()
    }

    /// This node has the reply inbox of the subject, and nobody at another node subscribes to it.
    pub(crate) fn remember_reply_inbox_here(&self, subject: &str) {
        lock(&self.inboxes.0).add_reply(subject, None);
    }

    /// A node has the reply inbox of the subject, of this name and pattern, and nobody at another one subscribes to it.
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
        only_at: Option<u64>,
    ) -> Option<InboxElsewhere> {
        let mut known = lock(&self.inboxes.0);
        if let Some(inbox) = known.by_key.get(key) {
            return Some(inbox.clone());
        }
        let node = self.embedded()?;
        let path = Arc::new_cyclic(|this| Path {
            this: Weak::clone(this),
            ownership: Arc::downgrade(self),
            name: name.into(),
            address: if only_at.is_some() { name } else { pattern }.into(),
            only_at,
            sending: Mutex::default(),
            state: Mutex::new(State { holder: only_at, ..State::default() }),
        });
        let config = Arc::new(node.config().limits.inbox(pattern.to_owned(), HELD_BYTES));
        let upstream: Arc<dyn Upstream> = path;
        let topic = Topic::mirrored(name, config, node.budget(), CLOCK, 1, make_fold, &upstream);
        let inbox = InboxElsewhere { topic: Arc::new(topic.ok()?), upstream };
        if known.by_key.len() >= INBOXES_MAX {
            known.by_key.clear();
        }
        known.by_key.insert(key.into(), inbox.clone());
        Some(inbox)
    }

    /// The other nodes that take part.
    pub(super) fn others(&self) -> Vec<u64> {
        self.nodes().into_iter().filter(|&node| node != self.id).collect()
    }

    fn has_others(&self) -> bool {
        lock(&self.alive).keys().any(|&node| node != self.id)
    }
}

impl Known {
    fn add_reply(&mut self, subject: &str, inbox: Option<InboxElsewhere>) {
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

/// What all subjects of an inbox begin with, and the name and the pattern that it has where it is: those that begin with the same
/// two tokens and have more are one, and one of two tokens is itself.
fn parts(subject: &str) -> Option<(&str, &str, String)> {
    let rest = subject.strip_prefix(FIRST_TOKEN)?.strip_prefix('.')?;
    match rest.find('.') {
        Some(at) => {
            let name = &subject[..FIRST_TOKEN.len() + 1 + at];
            Some((&subject[..=name.len()], name, format!("{name}.>")))
        }
        None => Some((subject, subject, subject.to_owned())),
    }
}

impl Path {
    /// Sends what waits, in the order in which it was published.
    pub(super) fn send_waiting(&self, ownership: &Ownership) {
        {
            let _one_place = lock(&self.sending);
            self.send_in_order(ownership);
        }
        let is_paused = {
            let state = lock(&self.state);
            state.under_way == 0 && !state.waiting.is_empty()
        };
        if is_paused {
            ownership.keeper.send_to_inbox_after(Weak::clone(&self.this), PAUSE);
        }
    }

    /// [`Path::sending`] is held.
    fn send_in_order(&self, ownership: &Ownership) {
        let mut last = None;
        while let Some(next) = self.next(ownership, last) {
            match next {
                Next::Send(to, run) => {
                    last = Some(run.ticket);
                    ownership.peers.hand_on(to, run);
                }
                Next::Append(here, run) => {
                    let outcome = run.append_to(&here);
                    run.end(outcome);
                }
                Next::End(runs) => runs.into_iter().for_each(|run| run.end(Err(self.nobody()))),
            }
        }
    }

    /// What is to be done now; `last` is the ticket of what was sent just before.
    fn next(&self, ownership: &Ownership, last: Option<u64>) -> Option<Next> {
        let mut state = lock(&self.state);
        let (ticket, tried) =
            state.waiting.first_key_value().map(|(ticket, run)| (*ticket, run.tried.clone()))?;
        let is_held_up = state.under_way > 0 && (state.holder.is_none() || ticket <= state.sent_through);
        let has_come_back = last.is_some_and(|last| ticket <= last);
        if is_held_up || has_come_back || steady_ns() < state.paused_until_ns {
            return None;
        }
        let to = match (state.holder, self.only_at) {
            (Some(holder), _) => Some(holder),
            (None, Some(_)) => None,
            (None, None) => {
                // Its client may have come to this node meanwhile.
                let here = ownership.embedded().and_then(|node| node.registry().get_pattern(&self.address));
                if let Some(here) = here {
                    return state.waiting.pop_first().map(|(_, run)| Next::Append(here, run));
                }
                ownership.others().into_iter().find(|node| !tried.contains(node))
            }
        };
        if tried.is_empty()
            && let Some((&through, _)) = state.waiting.last_key_value()
        {
            state.asked_for_through = through;
        }
        let Some(to) = to else {
            // What the others would be told is the same.
            let through = state.asked_for_through.max(ticket);
            let later = state.waiting.split_off(&(through + 1));
            let ended = std::mem::replace(&mut state.waiting, later);
            return Some(Next::End(ended.into_values().collect()));
        };
        let (_, mut run) = state.waiting.pop_first()?;
        run.tried.push(to);
        run.is_under_way = true;
        state.under_way += 1;
        state.sent_through = ticket;
        Some(Next::Send(to, run))
    }

    /// A run has come back: it goes out again after the pause, before all that is newer.
    fn come_back(
        &self,
        ownership: &Ownership,
        mut run: Handed,
        pause: Duration,
        change: impl FnOnce(&mut State),
    ) {
        {
            let mut state = lock(&self.state);
            if std::mem::take(&mut run.is_under_way) {
                state.under_way -= 1;
            }
            change(&mut state);
            let until_ns = steady_ns().saturating_add(pause.as_nanos() as u64);
            state.paused_until_ns = state.paused_until_ns.max(until_ns);
            state.waiting.insert(run.ticket, run);
        }
        // Not here: whoever tells of an answer holds what sending takes.
        ownership.keeper.send_to_inbox_after(Weak::clone(&self.this), pause);
    }

    fn nobody(&self) -> PublishError {
        PublishError::NoTopic(self.address.to_string())
    }
}

impl Sender for Path {
    fn again(&self, mut run: Handed, _why: &str) {
        let Some(ownership) = self.ownership.upgrade() else { return run.end(Err(PublishError::Closed)) };
        let waited_ns = steady_ns().saturating_sub(run.handed_ns);
        let asked = run.tried.last().copied();
        let is_asked_again = asked.is_some_and(|node| ownership.is_alive(node))
            && waited_ns < ownership.limits.owner_wait_max.as_nanos() as u64;
        if is_asked_again {
            run.tried.pop();
            return self.come_back(&ownership, run, PAUSE, |_| {});
        }
        self.come_back(&ownership, run, Duration::ZERO, |state| {
            state.holder = state.holder.filter(|holder| Some(*holder) != asked);
        });
    }

    fn refused(&self, run: Handed, error: PublishError) {
        let is_not_there = matches!(error, PublishError::NoTopic(_) | PublishError::Closed);
        let Some(ownership) = self.ownership.upgrade().filter(|_| is_not_there && self.only_at.is_none())
        else {
            return run.end(Err(error));
        };
        let asked = run.tried.last().copied();
        let refusals = run.tried.iter().filter(|&&node| Some(node) == asked).count();
        let is_of_holder = lock(&self.state).holder == asked;
        if is_of_holder && refusals == 1 {
            // Its client may have left the inbox and come back: what was refused went to the inbox before.
            return self.come_back(&ownership, run, PAUSE, |_| {});
        }
        self.come_back(&ownership, run, Duration::ZERO, |state| {
            state.holder = state.holder.filter(|holder| Some(*holder) != asked);
        });
    }

    fn taken_by(&self, node: u64) {
        lock(&self.state).holder = Some(node);
    }

    fn landed(&self) {
        let is_awaited = {
            let mut state = lock(&self.state);
            state.under_way -= 1;
            !state.waiting.is_empty()
        };
        if is_awaited && let Some(ownership) = self.ownership.upgrade() {
            ownership.keeper.send_to_inbox_after(Weak::clone(&self.this), Duration::ZERO);
        }
    }
}

impl Upstream for Path {
    fn clock(&self) -> Clock {
        STEADY
    }

    fn owned_until_ns(&self) -> u64 {
        0
    }

    fn forward(&self, run: ToOwner<'_>) -> Result<u64, PublishError> {
        let ownership = self.ownership.upgrade().ok_or(PublishError::Closed)?;
        if run.relayed || ownership.others().is_empty() {
            // Who asks goes on to the next node.
            return Err(self.nobody());
        }
        let _one_place = lock(&self.sending);
        let ticket = ownership.tickets.open(run.frames.len() as u64)?;
        let (path, tickets): (Weak<Path>, _) = (Weak::clone(&self.this), &ownership.tickets);
        let handed = Handed::new(ticket, path, tickets, &self.name, &self.address, &run, steady_ns());
        lock(&self.state).waiting.insert(ticket, handed);
        self.send_in_order(&ownership);
        Ok(ticket)
    }

    fn outcome(&self, ticket: u64, waiter: &Arc<Waiter>, token: u32) -> StoredState {
        match self.ownership.upgrade() {
            Some(ownership) => ownership.tickets.outcome(ticket, waiter, token),
            None => StoredState::Failed(PublishError::Closed),
        }
    }

    fn leave(&self, waiter: &Arc<Waiter>) {
        if let Some(ownership) = self.ownership.upgrade() {
            ownership.tickets.leave(waiter);
        }
    }

    fn await_room(&self, waiter: &Arc<Waiter>) {
        if let Some(ownership) = self.ownership.upgrade() {
            ownership.tickets.await_room(waiter);
        }
    }

    /// Nobody does: it is in no registry.
    fn is_read(&self, _log: &Arc<Log>, _start: Start) {}

    fn detour(&self, _log: &Arc<Log>, _start: Start, _registered: bool) -> Option<Arc<Log>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn inbox_subjects_share_their_first_two_tokens() {
        assert_eq!(parts("_INBOX.a.b.c"), Some(("_INBOX.a.", "_INBOX.a", "_INBOX.a.>".to_owned())));
        assert_eq!(parts("_INBOX.a"), Some(("_INBOX.a", "_INBOX.a", "_INBOX.a".to_owned())));
        assert_eq!(parts("orders.a"), None);
        assert_eq!(parts("_INBOXES.a"), None);
    }
}
