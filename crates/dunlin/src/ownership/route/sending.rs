//! Sends batches of this node's publishers to the topic's owner. If this node is the owner, appends them to its own
//! log.
//!
//! Invariant: batches are sent or appended in the order in which they were published. No newer batch is sent to another
//! node, or appended to this node's log, before every older batch has a response or was returned without being
//! appended. Batches that are on their way at the same time form a flight. An owner that refuses one batch of a flight
//! also refuses all later batches of this flight.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use dunlin_control::TopicKind;
use dunlin_topic::{ForwardedBatch, PublishError, Topic};

use super::{RefusedBatch, Route};
use crate::clock::steady_ns;
use crate::ownership::forwarded::{ForwardTarget, InFlightBatch, Sender, begin_flight};
use crate::ownership::{Ownership, housekeeper, lock};

/// Why the owner, which is this node, does not append a batch to its log.
const NO_LEASE: &str = "its lease has expired";

impl Route {
    /// Forwards a batch after all earlier ones. Returns the ticket with which the publisher reads the batch's outcome.
    pub(super) fn send(&self, batch: ForwardedBatch<'_>) -> Result<u64, PublishError> {
        let ownership = self.ownership.upgrade().ok_or(PublishError::Closed)?;
        if batch.relayed {
            return Err(self.owner_away_error("the contacted node is not its owner, or does not know it yet"));
        }
        let _in_order = lock(&self.sending);
        let (owner, has_ended) = {
            let state = lock(&self.state);
            (state.owner, state.has_ended)
        };
        if has_ended {
            return Err(PublishError::Closed);
        }
        let lacks_lease = owner == ownership.id && !ownership.has_lease();
        // A batch of a volatile topic waits for this node's next lease, or for another owner.
        let may_wait = self.kind == TopicKind::Volatile && !ownership.is_leaving.load(Ordering::Acquire);
        if lacks_lease && !may_wait {
            return Err(self.owner_away_error(NO_LEASE));
        }
        if self.kind != TopicKind::Volatile && !ownership.is_alive(owner) {
            return Err(self.owner_away_error("the owner is not a member of the cluster at present"));
        }
        let ticket = ownership.tickets.open(self.forward_target(owner), batch.frames.len() as u64)?;
        let (route, tickets): (Weak<Route>, _) = (Weak::clone(&self.this), &ownership.tickets);
        let forwarded =
            InFlightBatch::new(ticket, route, tickets, &self.name, &self.pattern, &batch, steady_ns());
        self.enqueue(forwarded, lacks_lease.then_some(NO_LEASE));
        let has_more = if owner == ownership.id {
            // Append the batch here: this node's log may already accept further batches, and later records of the
            // publisher must not come before this batch.
            self.topic().is_some_and(|topic| self.append_in_order(&ownership, &topic))
        } else {
            self.send_in_order(&ownership)
        };
        if has_more {
            ownership.housekeeper.check(&self.this);
        }
        Ok(ticket)
    }

    /// The target of the topic's batches. The owner may let publishers of reliable and durable topics wait.
    pub(super) fn forward_target(&self, owner: u64) -> ForwardTarget {
        let may_wait = self.config.reliable.is_some() || self.config.durable.is_some();
        ForwardTarget { owner: Some(owner), topic: may_wait.then(|| Arc::clone(&self.name)) }
    }

    /// Whether the batch must be tried until an owner responds. The outcome of such a batch is unknown. If the
    /// publisher got an error, it would use the batch's numbers for other records.
    fn must_keep(&self, batch: &InFlightBatch) -> bool {
        batch.may_be_appended && self.kind == TopicKind::Volatile
    }

    /// Ends batches that have waited for an owner too long. If `at_once` is set, ends all waiting batches.
    pub(super) fn fail_late_batches(&self, ownership: &Ownership, at_once: bool) {
        let before_ns = steady_ns().saturating_sub(ownership.limits.owner_wait_max.as_nanos() as u64);
        let (late, why) = {
            let mut state = lock(&self.state);
            let has_timed_out = |_: &u64, batch: &mut InFlightBatch| {
                !self.must_keep(batch) && (at_once || batch.published_ns <= before_ns)
            };
            (state.waiting.extract_if(.., has_timed_out).collect::<Vec<_>>(), state.why.clone())
        };
        late.into_iter().for_each(|(_, batch)| self.fail_batch(batch, &why));
    }

    /// Ends the refused batches whose wait is over. If their owner has left the cluster, ends all refused batches: the
    /// owner may have refused them because it was stopping. Returns whether some batches still wait.
    pub(super) fn end_late_refusals(&self, ownership: &Ownership) -> bool {
        let now_ns = steady_ns();
        let (late, has_more) = {
            let mut state = lock(&self.state);
            let is_away = !ownership.is_alive(state.owner);
            let is_late = |refused: &mut RefusedBatch| is_away || refused.until_ns <= now_ns;
            let late: Vec<RefusedBatch> = state.refused.extract_if(.., is_late).collect();
            (late, !state.refused.is_empty())
        };
        late.into_iter().for_each(|refused| refused.batch.end(Err(refused.error)));
        has_more
    }

    /// Ends a batch without a response. The outcome is an error or, if the batch may have been appended, unknown.
    fn fail_batch(&self, batch: InFlightBatch, why: &str) {
        let error = self.owner_away_error(why);
        let error = if batch.may_be_appended { PublishError::Unknown(error.to_string()) } else { error };
        batch.complete(Err(error));
    }

    /// Lets a batch wait, in the order of publishing. If this node has removed the topic, ends the batch instead.
    fn enqueue(&self, mut batch: InFlightBatch, why: Option<&str>) {
        let mut state = lock(&self.state);
        if state.has_ended {
            drop(state);
            return batch.complete(Err(PublishError::Closed));
        }
        why.into_iter().for_each(|why| why.clone_into(&mut state.why));
        if std::mem::take(&mut batch.is_in_flight) {
            state.in_flight -= 1;
        }
        state.waiting.insert(batch.ticket, batch);
    }

    /// Sends the waiting batches in order. Returns whether some still wait.
    pub(super) fn send_waiting(&self, ownership: &Ownership) -> bool {
        let has_more = {
            let _in_order = lock(&self.sending);
            self.send_in_order(ownership)
        };
        if has_more {
            self.fail_late_batches(ownership, false);
        }
        has_more
    }

    /// Sends the waiting batches one after another. Returns whether some still wait. The caller holds
    /// [`Route::sending`].
    fn send_in_order(&self, ownership: &Ownership) -> bool {
        let mut last = None;
        loop {
            let (owner, batch) = {
                let mut state = lock(&self.state);
                let owner = state.owner;
                if owner == ownership.id || !ownership.is_alive(owner) {
                    return !state.waiting.is_empty();
                }
                let Some((&ticket, _)) = state.waiting.first_key_value() else { return false };
                // A batch that was returned is sent again only when no batch is on its way: every batch that was sent
                // after the returned one has then received a response, or was returned, too.
                let is_blocked =
                    state.in_flight > 0 && (state.sent_to != owner || ticket <= state.sent_through);
                let was_returned = last.is_some_and(|last| ticket <= last);
                if is_blocked || was_returned {
                    return true;
                }
                let Some((_, mut batch)) = state.waiting.pop_first() else { return false };
                if state.in_flight == 0 {
                    state.flight = begin_flight();
                }
                (batch.is_in_flight, batch.flight) = (true, state.flight);
                batch.placement = state.placement;
                (state.sent_to, state.sent_through) = (owner, ticket);
                state.in_flight += 1;
                (owner, batch)
            };
            last = Some(batch.ticket);
            ownership.peers.forward_batch(owner, batch);
        }
    }

    /// Called if this node is the owner. Appends the waiting batches to its log while the node's lease lasts. Returns
    /// whether some still wait.
    pub(super) fn append_waiting(&self, ownership: &Ownership, topic: &Arc<Topic>) -> bool {
        let has_more = {
            let _in_order = lock(&self.sending);
            self.append_in_order(ownership, topic)
        };
        if has_more {
            self.fail_late_batches(ownership, self.kind != TopicKind::Volatile);
        }
        has_more
    }

    /// Appends the waiting batches one after another. Returns whether some still wait. The caller holds
    /// [`Route::sending`].
    fn append_in_order(&self, ownership: &Ownership, topic: &Arc<Topic>) -> bool {
        {
            let mut state = lock(&self.state);
            if state.owner != ownership.id || state.draining.is_some() || state.in_flight > 0 {
                return !state.waiting.is_empty();
            }
            state.appending = true;
        }
        while ownership.has_lease() {
            let first = lock(&self.state).waiting.pop_first();
            let Some((_, batch)) = first else { break };
            match batch.append_to(topic) {
                // The topic has moved to another owner. Let the batch wait again.
                Err(PublishError::Elsewhere) => {
                    batch.not_appended("the topic has moved again");
                    break;
                }
                outcome => batch.complete(outcome),
            }
        }
        let mut state = lock(&self.state);
        state.appending = false;
        !state.waiting.is_empty()
    }
}

impl Sender for Route {
    fn retry(&self, batch: InFlightBatch, why: &str) {
        let Some(ownership) = self.ownership.upgrade() else { return };
        let waited_ns = steady_ns().saturating_sub(batch.published_ns);
        let has_timed_out = waited_ns >= ownership.limits.owner_wait_max.as_nanos() as u64;
        if has_timed_out && !self.must_keep(&batch) {
            return self.fail_batch(batch, why);
        }
        self.enqueue(batch, Some(why));
        ownership.housekeeper.check_after(&self.this, housekeeper::PAUSE);
    }

    fn on_refused(&self, batch: InFlightBatch, error: PublishError) {
        if !matches!(error, PublishError::Closed | PublishError::NoTopic(_)) {
            return batch.end(Err(error));
        }
        let mut state = lock(&self.state);
        // A relay (the link that forwards one topic's batches) that served a deleted topic cannot publish to a later
        // topic with the same name. Let newer batches wait until this flight has ended. They then form another flight,
        // which uses a new relay.
        state.sent_to = 0;
        if batch.may_be_appended {
            drop(state);
            // A node may have appended the batch before the topic was deleted. Its outcome is unknown.
            return batch.end(Err(PublishError::Unknown(format!("topic {:?} has been deleted", self.name))));
        }
        match self.ownership.upgrade() {
            Some(ownership) if !state.has_ended && batch.placement == state.placement => {
                let wait_max = ownership.limits.owner_wait_max / 2;
                let until_ns = steady_ns().saturating_add(wait_max.as_nanos() as u64);
                state.refused.push(RefusedBatch { batch, error, until_ns });
                drop(state);
                ownership.housekeeper.check_after(&self.this, housekeeper::PAUSE);
            }
            _ => {
                let error = if state.has_ended { PublishError::Closed } else { error };
                drop(state);
                batch.end(Err(error));
            }
        }
    }

    fn on_settled(&self) {
        let has_waiting = {
            let mut state = lock(&self.state);
            state.in_flight -= 1;
            state.in_flight == 0 && !state.waiting.is_empty()
        };
        if has_waiting && let Some(ownership) = self.ownership.upgrade() {
            ownership.housekeeper.check(&self.this);
        }
    }
}
