//! Hands entities from one region's owner to another's. No entity is ever lost, duplicated or moved by two regions.
//!
//! A [`Handover`] is one region's side of all its handovers, as source and as target. It receives events (an offer, a
//! message, an acknowledgement of the standby, the time) and returns [`HandoverEffect`]s, which the caller carries out
//! in order before the next event. Entities that go to the same region at the same time form one transfer.
//!
//! ```text
//!            source                                                 target
//!   offer ─► PREPARING  ────────── Prepare (whole states) ────────► STAGED   ids are reserved; the entities do not move
//!            stand still           ◄───────── Prepared ───────────  sent once its standby has them
//!            own standby knows? ─► COMMITTING ─── Commit ─────────► TAKEN    the entities move again, here
//!            gone from here        ◄────────── Taken ─────────────  sent once its standby knows
//!            CLOSED     until own standby knows; then `settled` in any message lets the target forget the transfer
//!
//!   PREPARING ── deadline, or the target's epoch changed ─► aborted: the entities stay here, Abort ─► DROPPED
//!   a standby that knew of an offer took over ─► QUERYING ── QueryTarget ─► Taken: gone  |  NotTaken: they stay here
//!   STAGED for long, or the source's epoch changed ── QuerySource ─► Commit | Abort | no response before the decision
//! ```
//! Invariants:
//! - The source decides whether a transfer takes place, and decides only once. Before the source commits a transfer,
//!   the target, the target's standby and the source's own standby know of this transfer.
//! - A target takes only committed transfers. Once a target has sent `NotTaken` to a new owner of the source region, it
//!   never takes the transfer: a late `Commit` of the former owner has an older epoch, and is dropped.
//! - A target sends `Taken` once the target's standby knows that the transfer was taken. A source settles a transfer
//!   once the source's standby knows that the transfer has ended. The standby of either side can therefore take over at
//!   any moment, because the other side still has everything that this standby lacks.
//! - A repeated message is recognised by its [`TransferId`]. Messages of older epochs are dropped.
//! - If the target does not respond within [`HandoverTiming::prepare_ns`], the source moves the entities again at once.
//!
//! After the source has sent `Commit` and before the target has received it, no region moves the entities. If the
//! network is cut, this pause lasts until the network is repaired. Only a third party could end the pause earlier, but
//! asking a third party about every entity would cost more than the pause.
//!
//! Without a standby ([`StandbyMode::None`]) the entities of a killed process are lost. A region that had handed
//! entities to this process learns of the loss from the message `Unknown`, and [`HandoverEffect::Lost`] names the lost
//! entities.

mod entry;
mod inbound;
mod message;
mod outbound;
mod snapshot;
mod transfer;

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::entity::EntityId;

pub use entry::{HandoverEntry, HandoverStep};
pub use message::{HandoverMessage, MessageBody, MessageSummary};
pub use transfer::{EntityRefusal, RefusedEntity, RegionId, TransferId, TransferredEntity};

use inbound::InboundTransfer;
use outbound::OutboundTransfer;

/// The timeouts of handovers, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoverTiming {
    /// Longest time from the message `Prepare` to the source's decision. Afterwards, the source aborts the transfer and
    /// moves the entities again.
    pub prepare_ns: u64,
    /// If a message has no response for this time, the message is sent again.
    pub resend_ns: u64,
    /// How long a transfer stays staged at a target before the target asks the source for its decision.
    pub query_ns: u64,
}

impl Default for HandoverTiming {
    fn default() -> HandoverTiming {
        HandoverTiming { prepare_ns: 500_000_000, resend_ns: 100_000_000, query_ns: 1_000_000_000 }
    }
}

/// Whether a region has a standby, which is a process that takes over when the region's owner dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandbyMode {
    /// No standby: the entities of a killed owner are lost.
    None,
    /// The region has a standby: a process that subscribes to the region's topic and acknowledges the records.
    Required,
}

/// Limits for the handovers of one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoverLimits {
    /// Maximum number of transfers in progress with one other region, in each direction.
    pub transfers_max: usize,
    /// Maximum number of entities in a transfer.
    pub batch_max: usize,
    /// Maximum number of other regions for which handover state is kept.
    pub peers_max: usize,
}

impl Default for HandoverLimits {
    fn default() -> HandoverLimits {
        HandoverLimits { transfers_max: 256, batch_max: 16_384, peers_max: 1_024 }
    }
}

/// An action that a [`Handover`] requests from its caller, such as sending a message. The caller must carry out all
/// requested actions, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandoverEffect {
    /// Send a message. It does no harm if the message gets lost.
    Send {
        /// The receiver.
        to: RegionId,
        /// The message.
        message: HandoverMessage,
    },
    /// Append this entry to the region's topic.
    Write(HandoverEntry),
    /// Stop moving these entities.
    Suspend(Vec<EntityId>),
    /// Resume moving these entities.
    Release(Vec<EntityId>),
    /// The other region refused these entities, so this region moves them again.
    Refused(Vec<(EntityId, EntityRefusal)>),
    /// Remove these entities.
    Depart(Vec<EntityId>),
    /// Insert these entities.
    Admit(Vec<TransferredEntity>),
    /// Another region lost its state. The lost state included entities that the other region had taken from this
    /// region.
    Lost {
        /// The region that lost its state.
        to: RegionId,
        /// The lost entities.
        ids: Vec<EntityId>,
    },
}

/// A check that decides which entities a region accepts from another region.
pub trait AdmissionCheck {
    /// Returns the reason why the region cannot take this entity, if it has already reserved room for `others` other
    /// entities. Returns `None` if the region can take the entity.
    fn refusal(&self, entity: &TransferredEntity, others: usize) -> Option<EntityRefusal>;
}

/// The reason why entities could not be offered to another region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The epoch of the other region's owner is unknown.
    #[error("the owner of region {} is not known yet: offer the transfer again later", .0.0)]
    UnknownPeer(RegionId),
    /// The limit of transfers with the other region is reached.
    #[error("{max} transfers to this region are in progress already: offer the transfer again later")]
    Busy {
        /// The limit.
        max: usize,
    },
    /// The batch is empty or too large.
    #[error("a transfer must have 1 to {max} entities, not {count}")]
    Batch {
        /// How many entities were offered.
        count: usize,
        /// The limit.
        max: usize,
    },
}

/// The handovers of one region as a state machine: those in which the region gives entities, and those in which it
/// takes entities.
#[derive(Debug, Clone)]
pub struct Handover {
    region: RegionId,
    epoch: u64,
    standby: StandbyMode,
    timing: HandoverTiming,
    limits: HandoverLimits,
    peers: BTreeMap<RegionId, Peer>,
    /// Entities that are staged at this region, each with the region from which it comes and its transfer.
    staged: HashMap<EntityId, (RegionId, TransferId)>,
    /// How many entries were written to the region's topic, and how many of these entries the standby knows.
    written: u64,
    known: u64,
    /// Steps that wait until the standby knows an entry, in the order of the entries: number of the entry, peer,
    /// transfer, and direction.
    waiting: VecDeque<(u64, RegionId, TransferId, Direction)>,
    /// Latest time seen; it never goes back, even if the caller's clock does.
    now: u64,
    /// If the region has lost its state, the epoch in which it began after the last loss. Otherwise the epoch in which
    /// it first began.
    state_lost_epoch: u64,
    counts: HandoverCounts,
}

/// Counters of one region's handovers: entities that were handed over, taken and refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandoverCounts {
    /// Number of entities that this region handed over.
    pub departed: u64,
    /// Number of entities that this region took.
    pub admitted: u64,
    /// Number of transfers that this region aborted.
    pub aborted: u64,
    /// Number of entities that other regions refused.
    pub refused: u64,
    /// Number of messages that were ignored because they came from replaced owners.
    pub fenced: u64,
    /// Number of messages that were ignored because they were repeated or late.
    pub repeated: u64,
}

/// The ids of the entities that are staged at a region. Staged means that the region has accepted the entities, and
/// that their source has not decided yet.
#[derive(Debug, Clone, Copy)]
pub struct StagedIds<'a>(&'a HashMap<EntityId, (RegionId, TransferId)>);

impl StagedIds<'_> {
    /// Whether this entity is among the ids.
    pub fn contains(&self, id: EntityId) -> bool {
        self.0.contains_key(&id)
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Outbound,
    Inbound,
}

#[derive(Debug, Clone, Default)]
struct Peer {
    epoch: u64,
    next: u64,
    outbound: BTreeMap<TransferId, OutboundTransfer>,
    inbound: BTreeMap<TransferId, InboundTransfer>,
    /// All transfers from the peer to this region with an id below this one have ended, as the peer has reported.
    peer_settled: TransferId,
    /// Value of `settled` that was last sent to the peer.
    settled_sent: TransferId,
}

impl Handover {
    /// Creates the handover state of a region that has no earlier state.
    pub fn new(region: RegionId, epoch: u64, standby: StandbyMode, timing: HandoverTiming) -> Handover {
        Handover {
            region,
            epoch,
            standby,
            timing,
            limits: HandoverLimits::default(),
            peers: BTreeMap::new(),
            staged: HashMap::new(),
            written: 0,
            known: 0,
            waiting: VecDeque::new(),
            now: 0,
            state_lost_epoch: epoch,
            counts: HandoverCounts::default(),
        }
    }

    /// Sets the limits.
    pub fn with_limits(mut self, limits: HandoverLimits) -> Handover {
        self.limits = limits;
        self
    }

    /// The region to which this handover state belongs.
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// Epoch of the region's owner.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Epoch of another region's owner, if known.
    pub fn epoch_of(&self, peer: RegionId) -> Option<u64> {
        self.peers.get(&peer).map(|peer| peer.epoch)
    }

    pub(crate) fn standby(&self) -> StandbyMode {
        self.standby
    }

    pub(crate) fn timing(&self) -> HandoverTiming {
        self.timing
    }

    /// Number of handover entries that were written to the region's topic so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Number of handover entries that the standby knows.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Counters of this region's handovers so far.
    pub fn counts(&self) -> HandoverCounts {
        self.counts
    }

    /// Number of transfers in progress, outbound and inbound.
    pub fn in_progress(&self) -> (usize, usize) {
        let out =
            self.peers.values().map(|peer| peer.outbound.values().filter(|out| !out.is_closed()).count());
        let in_doubt =
            self.peers.values().map(|peer| peer.inbound.values().filter(|one| one.is_staged()).count());
        (out.sum(), in_doubt.sum())
    }

    /// Number of other regions with handover state, plus the number of transfers from and to them.
    pub(crate) fn transfer_count(&self) -> usize {
        self.peers.values().map(|peer| 1 + peer.outbound.len() + peer.inbound.len()).sum()
    }

    /// Approximate memory in use, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let of_peer = |peer: &Peer| {
            let outbound: usize = peer.outbound.values().map(OutboundTransfer::bytes).sum();
            let inbound: usize = peer.inbound.values().map(InboundTransfer::bytes).sum();
            size_of::<Peer>() + outbound + inbound
        };
        let staged = self.staged.capacity() * size_of::<(EntityId, (RegionId, TransferId))>();
        self.peers.values().map(of_peer).sum::<usize>() + staged
    }

    /// Ids of the entities that are staged at this region: another region is handing them over, and this region has
    /// reserved room for them.
    pub fn staged(&self) -> StagedIds<'_> {
        StagedIds(&self.staged)
    }

    /// Entities that may belong to this region or to another one; this region does not know which. Such an entity is
    /// either in a transfer that this region has committed and the target has not confirmed, or staged at this region.
    pub fn in_doubt(&self) -> Vec<EntityId> {
        let committed =
            self.peers.values().flat_map(|peer| peer.outbound.values().flat_map(OutboundTransfer::committed));
        committed.chain(self.staged.keys().copied()).collect()
    }

    /// Records the epoch of another region's owner. The caller has read the epoch from the cluster's record of owners,
    /// or from a message.
    pub fn record_peer_epoch(
        &mut self,
        peer: RegionId,
        epoch: u64,
        now: u64,
        effects: &mut Vec<HandoverEffect>,
    ) {
        self.set_now(now);
        self.update_peer_epoch(peer, epoch, effects);
        self.resume_waiting(effects);
    }

    /// Records that the standby knows the first `entries` entries.
    pub fn standby_acknowledged(&mut self, entries: u64, now: u64, effects: &mut Vec<HandoverEffect>) {
        self.set_now(now);
        self.known = self.known.max(entries.min(self.written));
        self.resume_waiting(effects);
    }

    /// Handles a message from another region. If the message offers entities, `admission` decides which of the entities
    /// are accepted.
    pub fn receive(
        &mut self,
        message: HandoverMessage,
        admission: &dyn AdmissionCheck,
        now: u64,
        effects: &mut Vec<HandoverEffect>,
    ) {
        self.set_now(now);
        let from = message.from;
        let exceeds_peers_max = !self.peers.contains_key(&from) && self.peers.len() >= self.limits.peers_max;
        if exceeds_peers_max || from == self.region {
            return;
        }
        if message.epoch < self.peers.entry(from).or_default().epoch {
            self.counts.fenced += 1;
            return;
        }
        self.update_peer_epoch(from, message.epoch, effects);
        self.discard_settled(from, message.settled, effects);
        self.handle(message, admission, effects);
        self.resume_waiting(effects);
    }

    fn handle(
        &mut self,
        message: HandoverMessage,
        admission: &dyn AdmissionCheck,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let HandoverMessage { from, transfer, body, .. } = message;
        match body {
            MessageBody::Prepare(entities) => self.on_prepare(from, transfer, entities, admission, effects),
            MessageBody::Prepared(refused) => self.on_prepared(from, transfer, refused, effects),
            MessageBody::Commit => self.on_commit(from, transfer, effects),
            MessageBody::Taken(refused) => self.on_taken(from, transfer, refused, effects),
            MessageBody::Abort => self.on_abort(from, transfer, effects),
            MessageBody::QueryTarget { addressed } => {
                self.on_query_target(from, transfer, addressed, effects)
            }
            MessageBody::NotTaken => self.on_not_taken(from, transfer, effects),
            MessageBody::QuerySource => self.on_query_source(from, transfer, effects),
            MessageBody::Unknown => self.on_unknown(from, transfer, effects),
            MessageBody::Settled => {}
        }
    }

    /// Sets the time. Aborts transfers whose deadline has passed. Sends each message again that has had no response for
    /// too long.
    pub fn advance_time(&mut self, now: u64, effects: &mut Vec<HandoverEffect>) {
        self.set_now(now);
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            self.advance_outbound(peer, effects);
            self.advance_inbound(peer, effects);
        }
        self.resume_waiting(effects);
    }

    /// Applies an entry that was read from the topic or the journal. A standby calls this method, and an owner that
    /// restarts. It sends no message.
    pub fn follow(&mut self, entry: HandoverEntry, effects: &mut Vec<HandoverEffect>) {
        self.written += 1;
        self.known = self.written;
        let (peer, transfer) = (entry.peer, entry.transfer);
        self.apply(entry, effects);
        let Some(peer) = self.peers.get_mut(&peer) else { return };
        if peer.outbound.get(&transfer).is_some_and(OutboundTransfer::is_closed) {
            peer.outbound.remove(&transfer);
        }
        if let Some(one) = peer.inbound.get_mut(&transfer) {
            one.known = true;
        }
    }

    /// Takes the region over in a higher epoch. `peers` has the epochs of the other regions' owners. `is_state_lost`
    /// means that the region's earlier state is lost.
    pub fn take_over(
        &mut self,
        epoch: u64,
        is_state_lost: bool,
        peers: &[(RegionId, u64)],
        now: u64,
        effects: &mut Vec<HandoverEffect>,
    ) {
        self.set_now(now);
        self.epoch = epoch;
        if is_state_lost {
            self.state_lost_epoch = epoch;
        }
        self.waiting.clear();
        for peer in self.peers.values_mut() {
            peer.next = 0;
            peer.outbound.retain(|_, out| !out.is_closed());
            peer.inbound.values_mut().for_each(|one| (one.known, one.query_at) = (true, now));
            peer.outbound.values_mut().for_each(|out| (out.known, out.resend_at) = (true, now));
        }
        for (peer, epoch) in peers {
            self.update_peer_epoch(*peer, *epoch, effects);
        }
        self.advance_time(now, effects);
    }

    /// Copies this state for a new standby. The copy includes all [entries](Handover::written).
    pub fn copy_for_standby(&mut self) -> Handover {
        let mut copy = self.clone();
        (copy.waiting, copy.known) = (VecDeque::new(), copy.written);
        for peer in copy.peers.values_mut() {
            peer.outbound.retain(|_, out| !out.is_closed());
            peer.outbound.values_mut().for_each(OutboundTransfer::reset_to_standby);
            peer.inbound.values_mut().for_each(|one| one.known = true);
        }
        copy
    }

    /// Advances the time; an earlier time is ignored.
    fn set_now(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    fn update_peer_epoch(&mut self, peer: RegionId, epoch: u64, effects: &mut Vec<HandoverEffect>) {
        let known = &mut self.peers.entry(peer).or_default().epoch;
        if epoch <= *known {
            return;
        }
        *known = epoch;
        self.on_new_owner_outbound(peer, effects);
        self.on_new_owner_inbound(peer, effects);
    }

    /// Writes an entry and applies it. Returns the entry's number.
    fn write(
        &mut self,
        peer: RegionId,
        transfer: TransferId,
        step: HandoverStep,
        effects: &mut Vec<HandoverEffect>,
    ) -> u64 {
        let entry = HandoverEntry { peer, transfer, step };
        effects.push(HandoverEffect::Write(entry.clone()));
        self.written += 1;
        if self.standby == StandbyMode::None {
            self.known = self.written;
        }
        self.apply(entry, effects);
        self.written
    }

    fn apply(&mut self, entry: HandoverEntry, effects: &mut Vec<HandoverEffect>) {
        let HandoverEntry { peer, transfer, step } = entry;
        match step {
            HandoverStep::Leaving { addressed, ids } => {
                self.apply_leaving(peer, transfer, addressed, ids, effects)
            }
            HandoverStep::Committed(refused) => self.apply_committed(peer, transfer, refused, effects),
            HandoverStep::Aborted => self.apply_aborted(peer, transfer, effects),
            HandoverStep::Settled => self.apply_settled(peer, transfer),
            HandoverStep::Staged { entities, refused } => {
                self.apply_staged(peer, transfer, entities, refused)
            }
            HandoverStep::Taken => self.apply_taken(peer, transfer, effects),
            HandoverStep::Dropped => self.apply_dropped(peer, transfer),
            HandoverStep::PeerSettled => self.apply_peer_settled(peer, transfer),
        }
    }

    /// Carries out the steps that waited for an entry which the standby now knows.
    fn resume_waiting(&mut self, effects: &mut Vec<HandoverEffect>) {
        while self.waiting.front().is_some_and(|(entry, ..)| *entry <= self.known) {
            let Some((_, peer, transfer, direction)) = self.waiting.pop_front() else { return };
            match direction {
                Direction::Outbound => self.on_outbound_known(peer, transfer, effects),
                Direction::Inbound => self.on_inbound_known(peer, transfer, effects),
            }
        }
    }

    fn send(
        &mut self,
        to: RegionId,
        transfer: TransferId,
        body: MessageBody,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let settled = self.settled(to);
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.settled_sent = settled;
        }
        let message = HandoverMessage { from: self.region, epoch: self.epoch, settled, transfer, body };
        effects.push(HandoverEffect::Send { to, message });
    }

    /// Of the transfers to region `to` that have not ended, returns the lowest id; if all have ended, returns the id of
    /// the next transfer. All transfers with lower ids have therefore ended.
    fn settled(&self, to: RegionId) -> TransferId {
        let Some(peer) = self.peers.get(&to) else { return TransferId::default() };
        let next = TransferId { epoch: self.epoch, number: peer.next };
        peer.outbound.keys().next().copied().unwrap_or(next)
    }
}
