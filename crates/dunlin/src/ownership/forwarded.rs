//! Batches that are forwarded to owners, and their outcomes. Limits: `forwarded_bytes_max` bytes without a response,
//! except that a batch is accepted regardless of its size while half of these bytes are free. At most [`OUTCOMES_MAX`]
//! outcomes that no publisher has read are kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use dunlin_topic::{
    AckProgress, BatchAppend, CheckedBatch, Position, ProducerMark, PublishError, Receipt, StateClaim, Topic,
    Waiter,
};

use super::lock;
use crate::clock::now_ns;

/// The number of flights that have begun in this process.
static FLIGHTS: AtomicU64 = AtomicU64::new(0);

/// The number of the last flight that has begun.
pub fn last_flight() -> u64 {
    FLIGHTS.load(Ordering::Acquire)
}

/// Begins a flight: a series of batches that are on their way at the same time. A sender calls this when none of its
/// batches is on its way. A batch that was sent before this call belongs to an earlier flight, even if it comes back
/// later.
pub(super) fn begin_flight() -> u64 {
    FLIGHTS.fetch_add(1, Ordering::AcqRel) + 1
}

/// Maximum number of outcomes kept for publishers that have not read them.
const OUTCOMES_MAX: usize = 1 << 17;

/// The sender of a batch, which is informed about the outcome.
pub(super) trait Sender: Send + Sync + std::fmt::Debug {
    /// Called if the batch was certainly not appended, because the node could not be reached or is not the owner.
    fn retry(&self, batch: InFlightBatch, why: &str);

    /// Called when the owner has refused the batch.
    fn on_refused(&self, batch: InFlightBatch, error: PublishError) {
        batch.end(Err(error));
    }

    /// Called when the node `_node` has appended the batch.
    fn on_appended(&self, _node: u64) {}

    /// Called when the outcome of a batch that was [in flight](InFlightBatch::is_in_flight) is final.
    fn on_settled(&self) {}
}

/// A batch of records that this node forwards to a topic's owner. If the value is dropped without an outcome, the
/// outcome counts as unknown.
#[derive(Debug)]
pub struct InFlightBatch {
    pub(super) ticket: u64,
    sender: Weak<dyn Sender>,
    /// The nodes to which the batch was sent so far. Used if the sender does not know which node has the inbox.
    pub(super) tried: Vec<u64>,
    pub(super) tickets: Arc<Tickets>,
    /// The topic's name.
    pub topic: Arc<str>,
    /// The subjects that the topic owns.
    pub pattern: Arc<str>,
    /// The partition.
    pub partition: usize,
    /// The frames of the batch, complete and valid.
    pub frames: Bytes,
    /// Number of frames.
    pub count: u32,
    /// The producer, and the producer's number for the batch's first record; `None` without a producer.
    pub mark: Option<ProducerMark>,
    /// The condition of the append: the sequence number that the log's last record must have.
    pub expect_last: Option<u64>,
    /// The publisher's claim that it knows the topic's state. The claim is read when the batch is sent.
    pub claim: Option<Arc<StateClaim>>,
    /// The flight in which the batch was sent. All batches of one flight go over the same relay, so that the owner
    /// accepts no batch after a refused one. Flights of later batches have higher numbers.
    pub flight: u64,
    pub(super) published_ns: u64,
    /// Whether a node may have appended the batch although its response was lost.
    pub(super) may_be_appended: bool,
    /// Whether the sender counts the batch among those that are on their way.
    pub(super) is_in_flight: bool,
    is_settled: bool,
}

impl InFlightBatch {
    pub(super) fn new(
        ticket: u64,
        sender: Weak<dyn Sender>,
        tickets: &Arc<Tickets>,
        topic: &Arc<str>,
        pattern: &Arc<str>,
        batch: &dunlin_topic::ForwardedBatch<'_>,
        published_ns: u64,
    ) -> InFlightBatch {
        let dunlin_topic::ForwardedBatch { partition, frames, count, mark, expect_last, claim, .. } = *batch;
        InFlightBatch {
            ticket,
            sender,
            tried: Vec::new(),
            tickets: Arc::clone(tickets),
            topic: Arc::clone(topic),
            pattern: Arc::clone(pattern),
            partition,
            frames: Bytes::copy_from_slice(frames),
            count,
            mark,
            expect_last,
            claim: claim.cloned(),
            flight: 0,
            published_ns,
            may_be_appended: false,
            is_in_flight: false,
            is_settled: false,
        }
    }

    /// The publisher's last acknowledged record of the partition.
    ///
    /// # Errors
    ///
    /// The publisher has lost the state: this batch was sent before the publisher learned of the loss.
    pub fn last_acknowledged(&self) -> Result<Option<Position>, PublishError> {
        self.claim.as_ref().map_or(Ok(None), |claim| claim.last(&self.topic))
    }

    /// Reports the owner's response.
    pub fn complete(self, outcome: Result<Receipt, PublishError>) {
        match (self.sender.upgrade(), outcome) {
            (Some(sender), Err(error)) => sender.on_refused(self, error),
            (Some(sender), Ok(receipt)) => {
                self.tried.last().into_iter().for_each(|&node| sender.on_appended(node));
                self.end(Ok(receipt));
            }
            (None, outcome) => self.end(outcome),
        }
    }

    /// Sets the final outcome.
    pub(super) fn end(mut self, outcome: Result<Receipt, PublishError>) {
        self.settle(outcome);
    }

    /// Called if the batch was certainly not appended, because the node could not be reached or is not the owner. The
    /// batch is sent to the next owner.
    pub fn not_appended(self, why: &str) {
        match self.sender.upgrade() {
            Some(sender) => sender.retry(self, why),
            None => self.end(Err(PublishError::Closed)),
        }
    }

    /// Called if the response was lost. A batch with a producer's number is sent again; for any other batch, the
    /// outcome is unknown.
    pub fn response_lost(mut self, why: &str) {
        if self.mark.is_some() {
            self.may_be_appended = true;
            return self.not_appended(why);
        }
        self.complete(Err(PublishError::Unknown(why.to_owned())));
    }

    /// Appends the batch to a topic that this node owns now.
    pub(super) fn append_to(&self, topic: &Topic) -> Result<Receipt, PublishError> {
        let batch = CheckedBatch::check(&self.frames, self.count, topic.config().record_bytes_max as usize)?;
        let InFlightBatch { partition, mark, expect_last, .. } = *self;
        let claim = self.claim.as_ref();
        let append = BatchAppend { batch, partition, mark, expect_last, claim, evict: false, relayed: true };
        topic.append_as_owner(now_ns(), append)
    }

    fn settle(&mut self, outcome: Result<Receipt, PublishError>) {
        if !std::mem::replace(&mut self.is_settled, true) {
            if std::mem::take(&mut self.is_in_flight) {
                self.sender.upgrade().into_iter().for_each(|sender| sender.on_settled());
            }
            if let Some(claim) = &self.claim {
                claim.record_outcome(outcome.as_ref().map(|receipt| receipt.position));
            }
            self.tickets.settle(self.ticket, self.frames.len() as u64, outcome);
        }
    }
}

impl Drop for InFlightBatch {
    fn drop(&mut self) {
        self.settle(Err(PublishError::Unknown("this node is stopping".to_owned())));
    }
}

/// The outcomes of forwarded batches, by ticket.
#[derive(Debug)]
pub(crate) struct Tickets {
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    bytes: u64,
    open: BTreeMap<u64, Option<OutcomeWaiter>>,
    settled: BTreeMap<u64, Result<Receipt, PublishError>>,
    room_waiters: Vec<Arc<Waiter>>,
}

#[derive(Debug)]
struct OutcomeWaiter {
    waiter: Arc<Waiter>,
    token: u32,
}

impl Tickets {
    pub(crate) fn new(bytes_max: u64) -> Tickets {
        Tickets { bytes_max, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether at least half of the bytes are free. Publishers that wait for room are notified only then.
    fn has_room(&self, state: &State) -> bool {
        state.bytes <= self.bytes_max / 2
    }

    /// Returns a ticket with which the publisher of a batch of `bytes` bytes can ask for the outcome.
    pub(crate) fn open(&self, bytes: u64) -> Result<u64, PublishError> {
        let mut state = self.state();
        // `await_room` would notify a batch that is refused with half of the bytes free at once, again and again.
        if !self.has_room(&state) && state.bytes + bytes > self.bytes_max {
            let unanswered_bytes = state.bytes;
            return Err(PublishError::OwnerBehind { unanswered_bytes, waited: std::time::Duration::ZERO });
        }
        state.bytes += bytes;
        state.last += 1;
        let ticket = state.last;
        state.open.insert(ticket, None);
        Ok(ticket)
    }

    pub(crate) fn settle(&self, ticket: u64, bytes: u64, outcome: Result<Receipt, PublishError>) {
        let (waiting, room) = {
            let mut state = self.state();
            state.bytes = state.bytes.saturating_sub(bytes);
            let waiting = state.open.remove(&ticket).flatten();
            state.settled.insert(ticket, outcome);
            if state.settled.len() > OUTCOMES_MAX {
                state.settled.pop_first();
            }
            let has_room = self.has_room(&state);
            (waiting, if has_room { std::mem::take(&mut state.room_waiters) } else { Vec::new() })
        };
        if let Some(OutcomeWaiter { waiter, token }) = waiting {
            waiter.notify(token);
        }
        room.into_iter().for_each(|waiter| waiter.notify(Waiter::ROOM));
    }

    pub(crate) fn outcome(&self, ticket: u64, waiter: &Arc<Waiter>, token: u32) -> AckProgress {
        let mut state = self.state();
        if let Some(outcome) = state.settled.remove(&ticket) {
            return outcome.map_or_else(AckProgress::Failed, AckProgress::ByOwner);
        }
        match state.open.get_mut(&ticket) {
            Some(waiting) => {
                *waiting = Some(OutcomeWaiter { waiter: Arc::clone(waiter), token });
                AckProgress::Waiting
            }
            None => AckProgress::Failed(PublishError::Unknown(
                "the connection ended before the outcome was known".to_owned(),
            )),
        }
    }

    pub(crate) fn leave(&self, waiter: &Arc<Waiter>) {
        let mut state = self.state();
        state.room_waiters.retain(|other| !Arc::ptr_eq(other, waiter));
    }

    pub(crate) fn await_room(&self, waiter: &Arc<Waiter>) {
        let mut state = self.state();
        if self.has_room(&state) {
            drop(state);
            return waiter.notify(Waiter::ROOM);
        }
        if !state.room_waiters.iter().any(|other| Arc::ptr_eq(other, waiter)) {
            state.room_waiters.push(Arc::clone(waiter));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_batch_waits_until_another_has_its_outcome() {
        for used in [1, 40, 50, 51, 100] {
            let tickets = Tickets::new(100);
            let ticket = tickets.open(used).unwrap();
            if tickets.open(80).is_err() {
                let waiter = Waiter::new();
                tickets.await_room(&waiter);
                assert!(!waiter.is_ready(), "{used} bytes in use");
                tickets.settle(ticket, used, Err(PublishError::Closed));
                assert!(waiter.is_ready(), "{used} bytes in use");
            }
        }
    }
}
