//! Batches that are forwarded to owners, and their outcomes.
//!
//! Limits:
//! - All batches without a response together take at most `forwarded_bytes_max` bytes.
//! - The batches for one owner leave at least a third of their own size free ([`TIMES_FREE_MAX`]). A single absent
//!   owner thus takes three quarters of the bytes, and each further one three quarters of the rest. Absent owners never
//!   use up the bytes of others.
//! - A batch is accepted regardless of its size while the batches for its owner take no more bytes than are free. The
//!   limits are exceeded by one batch for each owner at most.
//! - At most [`OUTCOMES_MAX`] outcomes that no publisher has read are kept.
//!
//! Rejected alternative: an equal part of the bytes for each owner. Most nodes forward to few owners at a time, so that
//! most of the bytes would stay unused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use dunlin_topic::{
    AckProgress, BatchAppend, CheckedBatch, Position, ProducerMark, PublishError, Receipt, StateClaim, Topic,
    Waiter,
};

use super::lock;
use crate::clock::now_ns;

/// The number of flights that have begun in this process; [`begin_flight`] explains flights.
static FLIGHTS: AtomicU64 = AtomicU64::new(0);

/// The number of the flight that began last. A flight is a series of batches that are on their way at the same time.
pub fn last_flight() -> u64 {
    FLIGHTS.load(Ordering::Acquire)
}

/// Begins a flight: a series of batches that are on their way at the same time. A sender calls this when none of its
/// batches is on its way. A batch that was sent before this call belongs to an earlier flight, even if it comes back
/// later.
pub(super) fn begin_flight() -> u64 {
    FLIGHTS.fetch_add(1, Ordering::AcqRel) + 1
}

/// The number of placements that this process has numbered.
static PLACEMENTS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of a placement that this node applies to a topic: [`InFlightBatch::placement`].
pub(super) fn next_placement() -> u64 {
    PLACEMENTS.fetch_add(1, Ordering::AcqRel) + 1
}

/// Maximum number of outcomes kept for publishers that have not read them.
const OUTCOMES_MAX: usize = 1 << 17;

/// The batches for one owner take at most this many times the bytes that they leave free.
const TIMES_FREE_MAX: u64 = 3;

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
    /// The nodes to which the batch was sent so far. Used for a batch to an inbox if the sender does not know which
    /// node has the inbox.
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
    /// The flight in which the batch was sent. All batches of one flight go over the same relay (the link that forwards
    /// one topic's batches), so that the owner accepts no batch after a refused one. Flights of later batches have
    /// higher numbers.
    pub flight: u64,
    /// The number of the topic's placement with which the batch was sent; 0 for an inbox. Later placements have higher
    /// numbers, also those of a later topic with this name. A relay that was opened with an earlier placement may
    /// belong to a deleted topic.
    pub placement: u64,
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
            placement: 0,
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
            self.tickets.settle(self.ticket, outcome);
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
    /// The bytes of all batches without a response.
    bytes: u64,
    /// The bytes of the batches without a response, by owner. A batch counts for the owner at the time of publishing;
    /// `None` stands for an owner that was not known then.
    bytes_by_owner: BTreeMap<Option<u64>, u64>,
    open: BTreeMap<u64, OpenTicket>,
    settled: BTreeMap<u64, Result<Receipt, PublishError>>,
    /// Publishers that wait for room, by the owner of their batches.
    room_waiters: BTreeMap<Option<u64>, Vec<Arc<Waiter>>>,
}

#[derive(Debug)]
struct OpenTicket {
    owner: Option<u64>,
    bytes: u64,
    waiting: Option<OutcomeWaiter>,
}

#[derive(Debug)]
struct OutcomeWaiter {
    waiter: Arc<Waiter>,
    token: u32,
}

impl State {
    fn bytes_of(&self, owner: Option<u64>) -> u64 {
        self.bytes_by_owner.get(&owner).copied().unwrap_or(0)
    }

    fn add(&mut self, owner: Option<u64>, bytes: u64) {
        self.bytes += bytes;
        *self.bytes_by_owner.entry(owner).or_default() += bytes;
    }

    fn subtract(&mut self, owner: Option<u64>, bytes: u64) {
        self.bytes -= bytes;
        if let Entry::Occupied(mut of_owner) = self.bytes_by_owner.entry(owner) {
            *of_owner.get_mut() -= bytes;
            if *of_owner.get() == 0 {
                of_owner.remove();
            }
        }
    }
}

impl Tickets {
    pub(crate) fn new(bytes_max: u64) -> Tickets {
        Tickets { bytes_max, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn free_bytes(&self, state: &State) -> u64 {
        self.bytes_max.saturating_sub(state.bytes)
    }

    /// Whether the batches for this owner take no more bytes than are free. Publishers that wait for room for this
    /// owner are notified only while this is true.
    fn has_room(&self, state: &State, owner: Option<u64>) -> bool {
        state.bytes_of(owner) <= self.free_bytes(state)
    }

    fn accepts(&self, state: &State, owner: Option<u64>, bytes: u64) -> bool {
        // A batch is accepted whenever `has_room` is true. Otherwise `await_room` would notify its publisher at once,
        // and the publisher would repeat the batch without a pause.
        self.has_room(state, owner) || {
            let free_bytes = self.free_bytes(state).saturating_sub(bytes);
            state.bytes_of(owner) + bytes <= free_bytes.saturating_mul(TIMES_FREE_MAX)
        }
    }

    /// Returns a ticket with which the publisher of a batch of `bytes` bytes for this owner can ask for the outcome.
    pub(crate) fn open(&self, owner: Option<u64>, bytes: u64) -> Result<u64, PublishError> {
        let mut state = self.state();
        if !self.accepts(&state, owner, bytes) {
            let unanswered_bytes = state.bytes_of(owner);
            return Err(PublishError::OwnerBehind { unanswered_bytes, waited: std::time::Duration::ZERO });
        }
        state.add(owner, bytes);
        state.last += 1;
        let ticket = state.last;
        state.open.insert(ticket, OpenTicket { owner, bytes, waiting: None });
        Ok(ticket)
    }

    pub(crate) fn settle(&self, ticket: u64, outcome: Result<Receipt, PublishError>) {
        let (waiting, room) = {
            let mut state = self.state();
            let waiting = state.open.remove(&ticket).and_then(|open| {
                state.subtract(open.owner, open.bytes);
                open.waiting
            });
            state.settled.insert(ticket, outcome);
            if state.settled.len() > OUTCOMES_MAX {
                state.settled.pop_first();
            }
            (waiting, self.take_room_waiters(&mut state))
        };
        if let Some(OutcomeWaiter { waiter, token }) = waiting {
            waiter.notify(token);
        }
        room.into_iter().for_each(|waiter| waiter.notify(Waiter::ROOM));
    }

    /// Takes the publishers for whose batches there is room. The room for one owner also grows with the outcomes of
    /// batches for others.
    fn take_room_waiters(&self, state: &mut State) -> Vec<Arc<Waiter>> {
        let awaited = state.room_waiters.keys().copied();
        let owners: Vec<_> = awaited.filter(|owner| self.has_room(state, *owner)).collect();
        owners.iter().filter_map(|owner| state.room_waiters.remove(owner)).flatten().collect()
    }

    pub(crate) fn outcome(&self, ticket: u64, waiter: &Arc<Waiter>, token: u32) -> AckProgress {
        let mut state = self.state();
        if let Some(outcome) = state.settled.remove(&ticket) {
            return outcome.map_or_else(AckProgress::Failed, AckProgress::ByOwner);
        }
        match state.open.get_mut(&ticket) {
            Some(open) => {
                open.waiting = Some(OutcomeWaiter { waiter: Arc::clone(waiter), token });
                AckProgress::Waiting
            }
            None => AckProgress::Failed(PublishError::Unknown(
                "the connection ended before the outcome was known".to_owned(),
            )),
        }
    }

    pub(crate) fn leave(&self, waiter: &Arc<Waiter>) {
        let mut state = self.state();
        state.room_waiters.retain(|_, waiters| {
            waiters.retain(|other| !Arc::ptr_eq(other, waiter));
            !waiters.is_empty()
        });
    }

    /// Notifies the publishers that wait for room for this owner, because a topic or an inbox has another owner now.
    /// Publishers to other topics of the owner then wait again.
    pub(crate) fn owner_changed(&self, owner: Option<u64>) {
        let waiters = self.state().room_waiters.remove(&owner).unwrap_or_default();
        waiters.into_iter().for_each(|waiter| waiter.notify(Waiter::ROOM));
    }

    /// Notifies the waiter when there is room for a batch for this owner.
    pub(crate) fn await_room(&self, owner: Option<u64>, waiter: &Arc<Waiter>) {
        let mut state = self.state();
        if self.has_room(&state, owner) {
            drop(state);
            return waiter.notify(Waiter::ROOM);
        }
        let waiters = state.room_waiters.entry(owner).or_default();
        if !waiters.iter().any(|other| Arc::ptr_eq(other, waiter)) {
            waiters.push(Arc::clone(waiter));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_without_room_waits_until_another_batch_is_finished() {
        for used in [1, 40, 50, 51, 100] {
            let (tickets, owner) = (Tickets::new(100), Some(1));
            let ticket = tickets.open(owner, used).unwrap();
            if tickets.open(owner, 80).is_err() {
                let waiter = Waiter::new();
                tickets.await_room(owner, &waiter);
                assert!(!waiter.is_ready(), "{used} bytes in use");
                tickets.settle(ticket, Err(PublishError::Closed));
                assert!(waiter.is_ready(), "{used} bytes in use");
            }
        }
    }

    #[test]
    fn batches_to_absent_owners_leave_room_for_other_owners() {
        let tickets = Tickets::new(10_000);
        let fill = |owner: u64| {
            let open = std::iter::from_fn(|| tickets.open(Some(owner), 10).ok());
            open.collect::<Vec<u64>>()
        };
        let of_first = fill(1);
        assert_eq!(of_first.len(), 750);
        for owner in 2..=4 {
            assert!(!fill(owner).is_empty(), "owner {owner}");
        }
        assert!(tickets.state().bytes <= 10_000);
        // The first batch for an owner is accepted, whatever its size.
        let large = tickets.open(Some(5), 20_000).unwrap();
        let small = tickets.open(None, 1).unwrap();
        let waiters = [1, 2].map(|owner| {
            let waiter = Waiter::new();
            tickets.await_room(Some(owner), &waiter);
            assert!(!waiter.is_ready(), "owner {owner}");
            waiter
        });
        let settle = |ticket| tickets.settle(ticket, Err(PublishError::Closed));
        [large, small].into_iter().for_each(settle);
        of_first.into_iter().for_each(settle);
        assert!(waiters.iter().all(|waiter| waiter.is_ready()));
    }

    #[test]
    fn forwarded_batches_free_their_bytes_when_settled() {
        let tickets = Tickets::new(100);
        let open = [(None, 10), (Some(1), 20), (Some(1), 0)];
        let open = open.map(|(owner, bytes)| tickets.open(owner, bytes).unwrap());
        open.into_iter().for_each(|ticket| tickets.settle(ticket, Err(PublishError::Closed)));
        let state = tickets.state();
        assert!(state.bytes == 0 && state.bytes_by_owner.is_empty() && state.open.is_empty(), "{state:?}");
    }
}
