//! Batches of this node's publishers on their way to the owner, or into the log here if this node is the owner.
//!
//! Invariant: batches leave in the order in which they came. No newer batch goes to another node, or into the log here,
//! before older batches have a response or have come back. Batches that are on their way at the same time form a
//! flight. An owner that refuses one batch of a flight also refuses all later batches of it.

use std::sync::{Arc, Weak};

use dunlin_control::TopicKind;
use dunlin_topic::{ForwardedBatch, PublishError, Topic};

use super::Route;
use crate::clock::steady_ns;
use crate::ownership::forwarded::{InFlightBatch, Sender, begin_flight};
use crate::ownership::{Ownership, housekeeper, lock};

impl Route {
    /// Forwards a batch after all earlier ones. Returns the ticket with which its outcome can be read.
    pub(super) fn send(&self, run: ForwardedBatch<'_>) -> Result<u64, PublishError> {
        let ownership = self.ownership.upgrade().ok_or(PublishError::Closed)?;
        if run.relayed {
            return Err(self.away("the contacted node is not its owner, or does not know it yet"));
        }
        let _in_order = lock(&self.sending);
        let owner = self.owner().0;
        if owner == ownership.id && !ownership.has_lease() {
            return Err(self.away("this node owns the topic, but its lease has expired"));
        }
        if self.kind != TopicKind::Volatile && !ownership.is_alive(owner) {
            return Err(self.away("the owner is not a member of the cluster at present"));
        }
        let ticket = ownership.tickets.open(run.frames.len() as u64)?;
        let (route, tickets): (Weak<Route>, _) = (Weak::clone(&self.this), &ownership.tickets);
        let forwarded =
            InFlightBatch::new(ticket, route, tickets, &self.name, &self.pattern, &run, steady_ns());
        self.wait(forwarded, None);
        let is_left = if owner == ownership.id {
            // The log here may have begun to accept batches in the meantime. Later records of the publisher must not be
            // appended before this batch.
            self.topic().is_some_and(|topic| self.append_in_order(&ownership, &topic))
        } else {
            self.send_in_order(&ownership)
        };
        if is_left {
            ownership.housekeeper.look_at(&self.this);
        }
        Ok(ticket)
    }

    /// Whether to send the batch until an owner responds. A batch that may have been appended must not be refused,
    /// because its publisher would use its number again for other records.
    fn waits_on(&self, run: &InFlightBatch) -> bool {
        run.was_lost && self.kind == TopicKind::Volatile
    }

    /// Ends batches that have waited too long for an owner, or, with `at_once`, all waiting batches.
    pub(super) fn give_up_late(&self, ownership: &Ownership, at_once: bool) {
        let before_ns = steady_ns().saturating_sub(ownership.limits.owner_wait_max.as_nanos() as u64);
        let (late, why) = {
            let mut state = lock(&self.state);
            let is_late = |_: &u64, run: &mut InFlightBatch| {
                !self.waits_on(run) && (at_once || run.handed_ns <= before_ns)
            };
            (state.waiting.extract_if(.., is_late).collect::<Vec<_>>(), state.why.clone())
        };
        late.into_iter().for_each(|(_, run)| self.give_up(run, &why));
    }

    /// Ends a batch without a response: as refused, or with an unknown outcome if it may have been appended.
    fn give_up(&self, run: InFlightBatch, why: &str) {
        let away = self.away(why);
        let error = if run.was_lost { PublishError::Unknown(away.to_string()) } else { away };
        run.answer(Err(error));
    }

    /// Queues a batch after earlier ones, until there is an owner. Ends it if the topic was deleted.
    fn wait(&self, mut run: InFlightBatch, why: Option<&str>) {
        let mut state = lock(&self.state);
        if self.is_over() {
            drop(state);
            return run.answer(Err(PublishError::Closed));
        }
        why.into_iter().for_each(|why| why.clone_into(&mut state.why));
        if std::mem::take(&mut run.is_under_way) {
            state.unanswered -= 1;
        }
        state.waiting.insert(run.ticket, run);
    }

    /// Sends waiting batches in order. Returns whether more work is due soon.
    pub(super) fn send_waiting(&self, ownership: &Ownership) -> bool {
        let is_left = {
            let _in_order = lock(&self.sending);
            self.send_in_order(ownership)
        };
        if is_left {
            self.give_up_late(ownership, false);
        }
        is_left
    }

    /// Sends the batches one after another. Returns whether some still wait. The caller holds [`Route::sending`].
    fn send_in_order(&self, ownership: &Ownership) -> bool {
        let mut last = None;
        loop {
            let (owner, run) = {
                let mut state = lock(&self.state);
                let owner = state.owner;
                if owner == ownership.id || !ownership.is_alive(owner) {
                    return !state.waiting.is_empty();
                }
                let Some((&ticket, _)) = state.waiting.first_key_value() else { return false };
                // A batch that came back is sent again only when every batch that was sent after it has a response or
                // has come back, too.
                let is_held_up =
                    state.unanswered > 0 && (state.sent_to != owner || ticket <= state.sent_through);
                let has_come_back = last.is_some_and(|last| ticket <= last);
                if is_held_up || has_come_back {
                    return true;
                }
                let Some((_, mut run)) = state.waiting.pop_first() else { return false };
                if state.unanswered == 0 {
                    state.flight = begin_flight();
                }
                (run.is_under_way, run.flight) = (true, state.flight);
                (state.sent_to, state.sent_through) = (owner, ticket);
                state.unanswered += 1;
                (owner, run)
            };
            last = Some(run.ticket);
            ownership.peers.forward_batch(owner, run);
        }
    }

    /// As the owner, appends waiting batches to the log here, while the lease lasts. A node that was unreachable first
    /// applies the changes of owners that it missed. Returns whether more work is due soon.
    pub(super) fn append_waiting(&self, ownership: &Ownership, topic: &Arc<Topic>) -> bool {
        let is_left = {
            let _in_order = lock(&self.sending);
            self.append_in_order(ownership, topic)
        };
        if is_left {
            self.give_up_late(ownership, self.kind != TopicKind::Volatile);
        }
        is_left
    }

    /// Appends the batches one after another. Returns whether some still wait. The caller holds [`Route::sending`].
    fn append_in_order(&self, ownership: &Ownership, topic: &Arc<Topic>) -> bool {
        {
            let mut state = lock(&self.state);
            if state.owner != ownership.id || state.draining.is_some() || state.unanswered > 0 {
                return !state.waiting.is_empty();
            }
            state.appending = true;
        }
        while ownership.has_lease() {
            let first = lock(&self.state).waiting.pop_first();
            let Some((_, run)) = first else { break };
            match run.append_to(topic) {
                // The batch waits again, because the topic has moved to another owner.
                Err(PublishError::Elsewhere) => {
                    run.not_taken("the topic has moved again");
                    break;
                }
                outcome => run.answer(outcome),
            }
        }
        let mut state = lock(&self.state);
        state.appending = false;
        !state.waiting.is_empty()
    }
}

impl Sender for Route {
    fn again(&self, run: InFlightBatch, why: &str) {
        let Some(ownership) = self.ownership.upgrade() else { return };
        let waited_ns = steady_ns().saturating_sub(run.handed_ns);
        let is_late = waited_ns >= ownership.limits.owner_wait_max.as_nanos() as u64;
        if is_late && !self.waits_on(&run) {
            return self.give_up(run, why);
        }
        self.wait(run, Some(why));
        ownership.housekeeper.look_at_after(&self.this, housekeeper::PAUSE);
    }

    fn refused(&self, run: InFlightBatch, error: PublishError) {
        let is_gone = matches!(error, PublishError::Closed | PublishError::NoTopic(_));
        if is_gone {
            // A relay that was used for a deleted topic cannot publish to a later topic of the same name. Newer batches
            // therefore wait until this flight has ended. They then form another flight, which uses a new relay.
            lock(&self.state).sent_to = 0;
        }
        if run.was_lost && is_gone {
            // An earlier owner may have appended the batch before the topic was deleted: the outcome is unknown.
            return run.end(Err(PublishError::Unknown(format!("topic {:?} has been deleted", self.name))));
        }
        run.end(Err(error));
    }

    fn landed(&self) {
        let is_awaited = {
            let mut state = lock(&self.state);
            state.unanswered -= 1;
            state.unanswered == 0 && !state.waiting.is_empty()
        };
        if is_awaited && let Some(ownership) = self.ownership.upgrade() {
            ownership.housekeeper.look_at(&self.this);
        }
    }
}
