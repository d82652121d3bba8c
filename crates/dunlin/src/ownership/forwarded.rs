//! Batches of records that this node forwards to topics' owners, and the outcomes of these batches.
//!
//! Limits:
//! - All batches without a response together take at most `forwarded_bytes_max` bytes.
//! - The batches for one owner may take at most [`TIMES_FREE_MAX`] times the bytes that are still free. If one owner
//!   does not respond, its batches therefore take at most three quarters of all bytes. Batches for a second such owner
//!   take at most three quarters of the rest, and so on. Owners that do not respond never use up all bytes.
//! - The batches of a topic whose publishers may have to wait for room take at most a [`TOPIC_PART`]th of all bytes. A
//!   full topic therefore leaves most bytes to other topics of its owner.
//! - While the batches for an owner take no more bytes than are free, a batch of any size is accepted. The same applies
//!   while the batches of a topic take at most half of the topic's part. The limits are thus exceeded by at most one
//!   batch for each owner and each such topic.
//! - At most [`OUTCOMES_MAX`] outcomes that no publisher has read are kept.
//!
//! Rejected alternative: an equal part of the bytes for each owner. Most nodes forward to few owners at a time, so that
//! most of the bytes would stay unused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use dunlin_topic::{
    AckProgress, BatchAppend, CheckedBatch, Position, ProducerMark, PublishError, Receipt, StateClaim, Topic,
    Waiter,
};

use super::lock;
use crate::clock::now_ns;

/// How many flights have begun in this process. [`begin_flight`] explains what a flight is.
static FLIGHTS: AtomicU64 = AtomicU64::new(0);

/// The number of the newest flight. A flight is a series of batches that are on their way at the same time.
pub fn last_flight() -> u64 {
    FLIGHTS.load(Ordering::Acquire)
}

/// Begins a flight, which is a series of batches that are on their way at the same time. A sender calls this function
/// when none of its batches is on its way. Batches that were sent before this call belong to an earlier flight, even if
/// they are returned after the call.
pub(super) fn begin_flight() -> u64 {
    FLIGHTS.fetch_add(1, Ordering::AcqRel) + 1
}

/// The number of the newest placement in this process. A placement says which node owns a topic, and in which epoch.
static PLACEMENTS: AtomicU64 = AtomicU64::new(0);

/// Returns a number for a placement that this node now applies to a topic. [`InFlightBatch::placement`] contains it.
pub(super) fn next_placement() -> u64 {
    PLACEMENTS.fetch_add(1, Ordering::AcqRel) + 1
}

/// Maximum number of outcomes that are kept until their publishers read them.
const OUTCOMES_MAX: usize = 1 << 17;

/// The highest ratio of the bytes that the batches for one owner take to the bytes that are still free. With the ratio
/// 3, the batches for one owner take at most three quarters of all bytes.
const TIMES_FREE_MAX: u64 = 3;

/// The batches of a topic whose publishers may have to wait for room take at most all bytes divided by this number.
const TOPIC_PART: u64 = 16;

/// The sender of batches, which is notified of the outcome of each batch.
pub(super) trait Sender: Send + Sync + std::fmt::Debug {
    /// Called if the batch was certainly not appended: the node could not be reached, or is not the owner.
    fn retry(&self, batch: InFlightBatch, why: &str);

    /// Called when the owner has refused the batch.
    fn on_refused(&self, batch: InFlightBatch, error: PublishError) {
        batch.end(Err(error));
    }

    /// Called when the node `_node` has appended the batch.
    fn on_appended(&self, _node: u64) {}

    /// Called when a batch that was [in flight](InFlightBatch::is_in_flight) has its final outcome.
    fn on_settled(&self) {}
}

/// A batch of records that this node forwards to a topic's owner. If the value is dropped before an outcome is
/// reported, the publisher learns that the outcome is unknown.
#[derive(Debug)]
pub struct InFlightBatch {
    pub(super) ticket: u64,
    sender: Weak<dyn Sender>,
    /// The nodes to which the batch was sent so far. Needed for a batch to an inbox, if the sender does not know which
    /// node has the inbox.
    pub(super) tried: Vec<u64>,
    pub(super) tickets: Arc<Tickets>,
    /// The topic's name.
    pub topic: Arc<str>,
    /// The pattern of the topic's subjects.
    pub pattern: Arc<str>,
    /// The index of the topic's partition.
    pub partition: usize,
    /// The frames of the batch, complete and valid.
    pub frames: Bytes,
    /// The number of frames.
    pub count: u32,
    /// The producer, and the number that the producer has given to the batch's first record; `None` without a producer.
    pub mark: Option<ProducerMark>,
    /// If set, the batch is appended only if the log's last record has this sequence number.
    pub expect_last: Option<u64>,
    /// If set, the publisher claims to know the topic's state. Whether it does is checked when the batch is sent.
    pub claim: Option<Arc<StateClaim>>,
    /// The number of the flight in which the batch was sent; later flights have higher numbers. All batches of one
    /// flight go over the same relay (the link that forwards one topic's batches). After the owner has refused one
    /// batch, it therefore also refuses the later batches of the flight.
    pub flight: u64,
    /// The number of the topic's placement when the batch was sent; 0 for an inbox. Later placements have higher
    /// numbers, even those of a later topic with this name. A relay that was opened under an earlier placement may
    /// belong to a deleted topic.
    pub placement: u64,
    pub(super) published_ns: u64,
    /// Whether a node may have appended the batch: it was sent, but the response was lost.
    pub(super) may_be_appended: bool,
    /// Whether the sender's count of batches on their way includes this batch.
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

    /// If the publisher claims to know the topic's state, returns the last record of the partition that was
    /// acknowledged to the publisher.
    ///
    /// # Errors
    ///
    /// An owner has already refused a record of this publisher because acknowledged records were lost. The publisher
    /// sent this batch before it learned of the refusal.
    pub fn last_acknowledged(&self) -> Result<Option<Position>, PublishError> {
        self.claim.as_ref().map_or(Ok(None), |claim| claim.last(&self.topic))
    }

    /// Reports the owner's response. The sender may keep a refused batch to try it again.
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

    /// Sets the final outcome of the batch.
    pub(super) fn end(mut self, outcome: Result<Receipt, PublishError>) {
        self.settle(outcome);
    }

    /// Called if the batch was certainly not appended: the node could not be reached, or is not the owner. The sender
    /// then sends the batch to the next owner.
    pub fn not_appended(self, why: &str) {
        match self.sender.upgrade() {
            Some(sender) => sender.retry(self, why),
            None => self.end(Err(PublishError::Closed)),
        }
    }

    /// Called if the response was lost. If the producer has numbered the batch, it is sent again; otherwise its outcome
    /// is unknown.
    pub fn response_lost(mut self, why: &str) {
        if self.mark.is_some() {
            self.may_be_appended = true;
            return self.not_appended(why);
        }
        self.complete(Err(PublishError::Unknown(why.to_owned())));
    }

    /// Appends the batch to this node's log, because this node now owns the topic.
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

/// The batches that have no outcome yet, and the outcomes that no publisher has read. A ticket is the number of a
/// batch.
#[derive(Debug)]
pub(crate) struct Tickets {
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// The number of bytes in all batches without a response.
    bytes: u64,
    /// The number of bytes in batches without a response, by owner. The owner is the one at the time of publishing;
    /// `None` if the node did not know the owner then.
    bytes_by_owner: BTreeMap<Option<u64>, u64>,
    /// The number of bytes in batches without a response, for each topic whose publishers may have to wait for room.
    bytes_by_topic: BTreeMap<Arc<str>, u64>,
    open: BTreeMap<u64, OpenTicket>,
    settled: BTreeMap<u64, Result<Receipt, PublishError>>,
    /// Publishers that wait for room for another batch.
    room_waiters: BTreeMap<ForwardTarget, Vec<Arc<Waiter>>>,
}

/// The owner and the topic to which a batch goes. They decide which limits on bytes without a response apply to the
/// batch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ForwardTarget {
    /// The topic's owner; `None` if it is not known.
    pub(crate) owner: Option<u64>,
    /// The topic's name, if its publishers may have to wait for room.
    pub(crate) topic: Option<Arc<str>>,
}

impl ForwardTarget {
    /// The target of batches that never wait for room in their topic.
    pub(crate) fn for_owner(owner: Option<u64>) -> ForwardTarget {
        ForwardTarget { owner, topic: None }
    }
}

#[derive(Debug)]
struct OpenTicket {
    to: ForwardTarget,
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

    /// The number of bytes in batches for the target's topic that have no response; 0 if the topic's publishers never
    /// wait for room.
    fn bytes_of_topic(&self, to: &ForwardTarget) -> u64 {
        to.topic.as_ref().and_then(|topic| self.bytes_by_topic.get(topic)).copied().unwrap_or(0)
    }

    fn add(&mut self, to: &ForwardTarget, bytes: u64) {
        self.bytes += bytes;
        *self.bytes_by_owner.entry(to.owner).or_default() += bytes;
        if let Some(topic) = &to.topic {
            *self.bytes_by_topic.entry(Arc::clone(topic)).or_default() += bytes;
        }
    }

    fn subtract(&mut self, to: ForwardTarget, bytes: u64) {
        self.bytes -= bytes;
        subtract_from(self.bytes_by_owner.entry(to.owner), bytes);
        if let Some(topic) = to.topic {
            subtract_from(self.bytes_by_topic.entry(topic), bytes);
        }
    }
}

/// Subtracts `bytes` from the entry, and removes the entry if nothing is left.
fn subtract_from<K: Ord>(entry: Entry<'_, K, u64>, bytes: u64) {
    if let Entry::Occupied(mut entry) = entry {
        *entry.get_mut() -= bytes;
        if *entry.get() == 0 {
            entry.remove();
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

    /// Whether the batches for the target take so few bytes that a batch of any size is accepted. Publishers that wait
    /// for room are notified only when this is the case.
    fn has_room(&self, state: &State, to: &ForwardTarget) -> bool {
        self.has_owner_room(state, to) && self.has_topic_room(state, to)
    }

    fn has_owner_room(&self, state: &State, to: &ForwardTarget) -> bool {
        state.bytes_of(to.owner) <= self.free_bytes(state)
    }

    fn has_topic_room(&self, state: &State, to: &ForwardTarget) -> bool {
        state.bytes_of_topic(to) <= self.bytes_max / TOPIC_PART / 2
    }

    // While there is room, each of the two functions below accepts a batch of any size. If a large batch were refused
    // in spite of this room, `await_room` would notify the batch's publisher at once, and the publisher would try again
    // and again without a pause.

    fn owner_accepts(&self, state: &State, to: &ForwardTarget, bytes: u64) -> bool {
        self.has_owner_room(state, to) || {
            let free_bytes = self.free_bytes(state).saturating_sub(bytes);
            state.bytes_of(to.owner) + bytes <= free_bytes.saturating_mul(TIMES_FREE_MAX)
        }
    }

    fn topic_accepts(&self, state: &State, to: &ForwardTarget, bytes: u64) -> bool {
        self.has_topic_room(state, to) || state.bytes_of_topic(to) + bytes <= self.bytes_max / TOPIC_PART
    }

    /// Opens a ticket for a batch of `bytes` bytes to this target. With the ticket, the publisher reads the batch's
    /// outcome.
    pub(crate) fn open(&self, to: ForwardTarget, bytes: u64) -> Result<u64, PublishError> {
        let mut state = self.state();
        let behind =
            |unanswered_bytes| PublishError::OwnerBehind { unanswered_bytes, waited: Duration::ZERO };
        if !self.owner_accepts(&state, &to, bytes) {
            return Err(behind(state.bytes_of(to.owner)));
        }
        if !self.topic_accepts(&state, &to, bytes) {
            return Err(behind(state.bytes_of_topic(&to)));
        }
        state.add(&to, bytes);
        state.last += 1;
        let ticket = state.last;
        state.open.insert(ticket, OpenTicket { to, bytes, waiting: None });
        Ok(ticket)
    }

    pub(crate) fn settle(&self, ticket: u64, outcome: Result<Receipt, PublishError>) {
        let (waiting, room) = {
            let mut state = self.state();
            let waiting = state.open.remove(&ticket).and_then(|open| {
                state.subtract(open.to, open.bytes);
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

    /// Removes from `state` the waiters of the publishers for whose batches there is room now, and returns these
    /// waiters. When a batch for one owner has its outcome, there may also be room for batches to other owners.
    fn take_room_waiters(&self, state: &mut State) -> Vec<Arc<Waiter>> {
        let awaited = state.room_waiters.keys();
        let targets: Vec<_> = awaited.filter(|to| self.has_room(state, to)).cloned().collect();
        targets.iter().filter_map(|to| state.room_waiters.remove(to)).flatten().collect()
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

    /// Notifies the publishers that wait for room for the owner `owner`, because one of this owner's topics or inboxes
    /// has another owner now. The publishers to the other topics of `owner` then begin to wait again.
    pub(crate) fn owner_changed(&self, owner: Option<u64>) {
        let waiters: Vec<_> = {
            let mut state = self.state();
            state.room_waiters.extract_if(.., |to, _| to.owner == owner).flat_map(|(_, of)| of).collect()
        };
        waiters.into_iter().for_each(|waiter| waiter.notify(Waiter::ROOM));
    }

    /// Notifies the waiter when there is room for a batch to this target.
    pub(crate) fn await_room(&self, to: ForwardTarget, waiter: &Arc<Waiter>) {
        let mut state = self.state();
        if self.has_room(&state, &to) {
            drop(state);
            return waiter.notify(Waiter::ROOM);
        }
        let waiters = state.room_waiters.entry(to).or_default();
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
            let tickets = Tickets::new(100);
            let to = || ForwardTarget::for_owner(Some(1));
            let ticket = tickets.open(to(), used).unwrap();
            if tickets.open(to(), 80).is_err() {
                let waiter = Waiter::new();
                tickets.await_room(to(), &waiter);
                assert!(!waiter.is_ready(), "{used} bytes in use");
                tickets.settle(ticket, Err(PublishError::Closed));
                assert!(waiter.is_ready(), "{used} bytes in use");
            }
        }
    }

    #[test]
    fn pending_batches_for_one_owner_block_no_other_owner() {
        let tickets = Tickets::new(10_000);
        let fill = |owner: u64| {
            let open = std::iter::from_fn(|| tickets.open(ForwardTarget::for_owner(Some(owner)), 10).ok());
            open.collect::<Vec<u64>>()
        };
        let of_first = fill(1);
        assert_eq!(of_first.len(), 750);
        for owner in 2..=4 {
            assert!(!fill(owner).is_empty(), "owner {owner}");
        }
        assert!(tickets.state().bytes <= 10_000);
        // The first batch for an owner is accepted even if it is larger than the limit.
        let large = tickets.open(ForwardTarget::for_owner(Some(5)), 20_000).unwrap();
        let small = tickets.open(ForwardTarget::for_owner(None), 1).unwrap();
        let waiters = [1, 2].map(|owner| {
            let waiter = Waiter::new();
            tickets.await_room(ForwardTarget::for_owner(Some(owner)), &waiter);
            assert!(!waiter.is_ready(), "owner {owner}");
            waiter
        });
        let settle = |ticket| tickets.settle(ticket, Err(PublishError::Closed));
        [large, small].into_iter().for_each(settle);
        of_first.into_iter().for_each(settle);
        assert!(waiters.iter().all(|waiter| waiter.is_ready()));
    }

    #[test]
    fn full_topic_leaves_room_for_other_topics_of_its_owner() {
        let tickets = Tickets::new(16_000);
        let to = |topic: &str| ForwardTarget { owner: Some(1), topic: Some(topic.into()) };
        let fill = |topic: &str| {
            let open = std::iter::from_fn(|| tickets.open(to(topic), 10).ok());
            open.collect::<Vec<u64>>()
        };
        let of_first = fill("a");
        assert_eq!(of_first.len(), 100);
        let waiter = Waiter::new();
        tickets.await_room(to("a"), &waiter);
        assert!(!waiter.is_ready());
        assert_eq!(fill("b").len(), 100);
        assert!(tickets.open(ForwardTarget::for_owner(Some(1)), 10).is_ok());
        of_first[..50].iter().for_each(|ticket| tickets.settle(*ticket, Err(PublishError::Closed)));
        assert!(waiter.is_ready() && tickets.open(to("a"), 10).is_ok());
    }

    #[test]
    fn forwarded_batch_frees_its_bytes_when_its_outcome_is_known() {
        let tickets = Tickets::new(100);
        let open = [(None, 10), (Some(1), 20), (Some(1), 0)];
        let open = open.map(|(owner, bytes)| tickets.open(ForwardTarget::for_owner(owner), bytes).unwrap());
        open.into_iter().for_each(|ticket| tickets.settle(ticket, Err(PublishError::Closed)));
        let state = tickets.state();
        assert!(state.bytes == 0 && state.bytes_by_owner.is_empty() && state.open.is_empty(), "{state:?}");
    }
}
