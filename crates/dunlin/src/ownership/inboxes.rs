//! Inboxes that lie with other nodes: whoever answers a request may be anywhere.
//!
//! An inbox is a topic of the node alone to which its session is connected; which one that is, nothing says. What is published to
//! an inbox that is not here goes to the node that took the last record for it, else from one node to the next until one has it.
//! An inbox with a prefix of its client's own is found by a [query](super::interest), and has the same path then. There is no
//! agreement on inboxes: one is used for seconds, and made by every connection that asks.
//!
//! Invariant: a record is taken by one node at most: the next is asked only when the one before certainly did not take it.
//!
//! Limits: [`INBOXES_MAX`] are remembered; then all are forgotten, and found again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dunlin_topic::{Clock, Log, PublishError, Start, StoredState, ToOwner, Topic, Upstream, Waiter};

use super::handed::{Handed, Sender};
use super::keeper::PAUSE;
use super::{Ownership, lock};
use crate::clock::{CLOCK, STEADY, steady_ns};
use crate::inbox::{FIRST_TOKEN, Inbox};
use crate::node::make_fold;

/// Inboxes of other nodes that are remembered.
const INBOXES_MAX: usize = 4_096;
/// Bytes that such a topic may hold; it never holds any.
const HELD_BYTES: u64 = 64 << 10;

/// Those that something was published to of late, by what their subjects begin with.
#[derive(Debug, Default)]
pub(super) struct Inboxes(Mutex<HashMap<Box<str>, Arc<Topic>>>);

/// The way to one.
#[derive(Debug)]
struct Path {
    this: Weak<Path>,
    ownership: Weak<Ownership>,
    name: Arc<str>,
    pattern: Arc<str>,
    /// The node that took the last record; 0 for none.
    holder: AtomicU64,
}

impl Ownership {
    /// The topic of an inbox that is not this node's, to publish to it; `None` where the subject is none's, or no other node
    /// takes part.
    pub(crate) fn inbox(self: &Arc<Ownership>, subject: &str) -> Option<Arc<Topic>> {
        let (key, name, pattern) = parts(subject)?;
        if self.others().is_empty() {
            return None;
        }
        self.inbox_or_new(key, name, &pattern, 0)
    }

    /// The inbox with a prefix of its client's own that was found at another node for this subject.
    pub(crate) fn known_inbox(&self, subject: &str) -> Option<Arc<Topic>> {
        let patterns = Inbox::patterns_of(subject)?;
        let known = lock(&self.inboxes.0);
        patterns.iter().find_map(|pattern| known.get(pattern.as_str())).cloned()
    }

    /// The inbox with a prefix of its client's own that `node` has.
    pub(super) fn add_inbox(
        self: &Arc<Ownership>,
        name: &str,
        pattern: &str,
        node: u64,
    ) -> Option<Arc<Topic>> {
        self.inbox_or_new(pattern, name, pattern, node)
    }

    fn inbox_or_new(
        self: &Arc<Ownership>,
        key: &str,
        name: &str,
        pattern: &str,
        holder: u64,
    ) -> Option<Arc<Topic>> {
        let mut known = lock(&self.inboxes.0);
        if let Some(topic) = known.get(key) {
            return Some(Arc::clone(topic));
        }
        let node = self.embedded()?;
        let path = Arc::new_cyclic(|this| Path {
            this: Weak::clone(this),
            ownership: Arc::downgrade(self),
            name: name.into(),
            pattern: pattern.into(),
            holder: AtomicU64::new(holder),
        });
        let config = Arc::new(node.config().limits.inbox(pattern.to_owned(), HELD_BYTES));
        let upstream: Arc<dyn Upstream> = path;
        let topic = Topic::mirrored(name, config, node.budget(), CLOCK, 1, make_fold, &upstream);
        let topic = Arc::new(topic.ok()?);
        if known.len() >= INBOXES_MAX {
            known.clear();
        }
        known.insert(key.into(), Arc::clone(&topic));
        Some(topic)
    }

    /// The other nodes that take part.
    pub(super) fn others(&self) -> Vec<u64> {
        self.nodes().into_iter().filter(|&node| node != self.id).collect()
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
    /// The node that took the last record, if it has refused this one once: its client may have left the inbox and come back, and
    /// what was refused went to the inbox before.
    fn once_more(&self, run: &Handed) -> Option<u64> {
        let holder = self.holder.load(Ordering::Relaxed);
        let refusals = run.tried.iter().filter(|&&node| node == holder).count();
        (run.tried.last() == Some(&holder) && refusals == 1).then_some(holder)
    }

    /// Sends it to a node that was not asked yet, if there is one.
    fn further(&self, ownership: &Ownership, mut run: Handed) {
        let asked = run.tried.last().copied().unwrap_or(0);
        let _ = self.holder.compare_exchange(asked, 0, Ordering::Relaxed, Ordering::Relaxed);
        // Its client may have come to this node meanwhile.
        let here = ownership.embedded().and_then(|node| node.registry().get_pattern(&self.pattern));
        if let Some(here) = here {
            let outcome = run.append_to(&here);
            return run.end(outcome);
        }
        match ownership.others().into_iter().find(|node| !run.tried.contains(node)) {
            Some(next) => {
                run.tried.push(next);
                // Not here: whoever tells of an answer holds what sending takes.
                ownership.keeper.hand_on_after(next, run, Duration::ZERO);
            }
            None => {
                // An inbox with a prefix of its client's own is found anew, if there is one.
                lock(&ownership.inboxes.0).remove(&*self.pattern);
                run.end(Err(PublishError::NoTopic(self.pattern.to_string())));
            }
        }
    }
}

impl Sender for Path {
    fn again(&self, run: Handed, _why: &str) {
        let Some(ownership) = self.ownership.upgrade() else { return run.end(Err(PublishError::Closed)) };
        let waited_ns = steady_ns().saturating_sub(run.handed_ns);
        match run.tried.last() {
            Some(&node)
                if ownership.is_alive(node)
                    && waited_ns < ownership.limits.owner_wait_max.as_nanos() as u64 =>
            {
                ownership.keeper.hand_on_after(node, run, PAUSE);
            }
            _ => self.further(&ownership, run),
        }
    }

    fn refused(&self, run: Handed, error: PublishError) {
        match (error, self.ownership.upgrade()) {
            (PublishError::NoTopic(_) | PublishError::Closed, Some(ownership)) => {
                match self.once_more(&run) {
                    Some(holder) => {
                        let mut run = run;
                        run.tried.push(holder);
                        ownership.keeper.hand_on_after(holder, run, PAUSE);
                    }
                    None => self.further(&ownership, run),
                }
            }
            (error, _) => run.end(Err(error)),
        }
    }

    fn taken_by(&self, node: u64) {
        self.holder.store(node, Ordering::Relaxed);
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
        if run.relayed {
            // Who asks goes on to the next node.
            return Err(PublishError::NoTopic(self.pattern.to_string()));
        }
        let others = ownership.others();
        let holder = self.holder.load(Ordering::Relaxed);
        let first = others.iter().find(|&&node| node == holder).or(others.first()).copied();
        let first = first.ok_or_else(|| PublishError::NoTopic(self.pattern.to_string()))?;
        let ticket = ownership.tickets.open(run.frames.len() as u64)?;
        let (path, tickets): (Weak<Path>, _) = (Weak::clone(&self.this), &ownership.tickets);
        let mut handed = Handed::new(ticket, path, tickets, &self.name, &self.pattern, &run, steady_ns());
        handed.tried.push(first);
        ownership.peers.hand_on(first, handed);
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
