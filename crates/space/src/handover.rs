//! Hands entities from one region's owner to another's. No entity is ever moved by two regions, lost or
//! duplicated.
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
//!   took over from a standby that knew of an offer ─► ASKING ── AskTarget ─► Taken: gone  |  NotTaken: they stay here
//!   STAGED for long, or the source's epoch changed ── AskSource ─► Commit | Abort | no response before the decision
//! ```
//! Invariants:
//! - The source decides, once. Before the source commits, the target, the target's standby and the source's standby
//!   know of the transfer.
//! - A target takes only committed transfers. After a target has sent `NotTaken` to a new source, it never
//!   takes that transfer: a late Commit belongs to an older epoch.
//! - A target sends `Taken` once its standby knows, and a source settles a transfer once its own standby
//!   knows. A standby can therefore replace its side at any moment, because the other side still has
//!   everything that the standby lacks.
//! - A repeated message is recognised by its [`TransferId`]; messages of older epochs are dropped.
//! - Without a response within [`HandoverTiming::prepare_ns`] the source resumes its entities at once.
//!
//! Between the sending and the receiving of `Commit`, no region moves the entities. If the network is cut, this lasts
//! until it is repaired. Only a third party could decide earlier, and a request to a third party for every entity would
//! cost more than the pause.
//!
//! Without a standby ([`StandbyMode::None`]) the entities of a killed process are lost. The source learns this
//! from `Unknown`, and [`HandoverEffect::Lost`] names the entities.

mod entry;
mod inbound;
mod message;
mod outbound;
mod parcel;
mod snapshot;

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::entity::EntityId;

pub use entry::{HandoverEntry, HandoverStep};
pub use message::{HandoverMessage, MessageBody, MessageSummary};
pub use parcel::{EntityRefusal, Parcel, RefusedEntity, RegionId, TransferId};

use inbound::Inbound;
use outbound::OutboundTransfer;

/// The timeouts of handovers, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoverTiming {
    /// Longest time from `Prepare` to the decision. Afterwards, the source aborts the transfer and resumes its
    /// entities.
    pub prepare_ns: u64,
    /// After this time without a response a message is sent again.
    pub resend_ns: u64,
    /// After this time, a target asks the source for its decision about a staged transfer.
    pub ask_ns: u64,
}

impl Default for HandoverTiming {
    fn default() -> HandoverTiming {
        HandoverTiming { prepare_ns: 500_000_000, resend_ns: 100_000_000, ask_ns: 1_000_000_000 }
    }
}

/// The requirement of a region for a standby, which takes over when the region's owner dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandbyMode {
    /// No standby: the entities of a killed owner are lost.
    None,
    /// A subscriber of the region's topic, which acknowledges records.
    Required,
}

/// Limits of handovers: their number, and the entities of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoverLimits {
    /// Maximum number of transfers in progress with one region, in each direction.
    pub transfers_max: usize,
    /// Maximum number of entities in a transfer.
    pub batch_max: usize,
    /// Maximum number of regions with handover state.
    pub peers_max: usize,
}

impl Default for HandoverLimits {
    fn default() -> HandoverLimits {
        HandoverLimits { transfers_max: 256, batch_max: 16_384, peers_max: 1_024 }
    }
}

/// An action that a handover requests from its caller, such as sending a message; actions are ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandoverEffect {
    /// Send a message; it may get lost.
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
    /// The target refused these entities, which resume here.
    Refused(Vec<(EntityId, EntityRefusal)>),
    /// Remove these entities.
    Depart(Vec<EntityId>),
    /// Insert these entities.
    Admit(Vec<Parcel>),
    /// A region lost its state, which included entities that it had taken from here.
    Lost {
        /// The region.
        to: RegionId,
        /// The lost entities.
        ids: Vec<EntityId>,
    },
}

/// A check that decides which entities a region accepts from another region.
pub trait AdmissionCheck {
    /// Returns the reason why this entity cannot be taken while `others` entities are already reserved; `None` if it
    /// can.
    fn refusal(&self, parcel: &Parcel, others: usize) -> Option<EntityRefusal>;
}

/// The reason why entities could not be offered to another region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The region's epoch is unknown.
    #[error("the owner of region {} is not known yet: offer again later", .0.0)]
    UnknownPeer(RegionId),
    /// The limit of transfers with this region is reached.
    #[error("{max} transfers to this region are in progress already: offer again later")]
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

/// The state machine of one region for giving entities to other regions and taking entities from them.
#[derive(Debug, Clone)]
pub struct Handover {
    region: RegionId,
    epoch: u64,
    standby: StandbyMode,
    timing: HandoverTiming,
    limits: HandoverLimits,
    peers: BTreeMap<RegionId, Peer>,
    /// Staged entities with their source and transfer.
    staged: HashMap<EntityId, (RegionId, TransferId)>,
    /// Number of entries written, and number of these that the standby knows.
    written: u64,
    known: u64,
    /// Steps that wait until the standby knows an entry, in the order of the entries: number of the entry, peer,
    /// transfer, and direction.
    waiting: VecDeque<(u64, RegionId, TransferId, Direction)>,
    /// Latest time seen; it never goes back, even if the caller's clock does.
    now: u64,
    /// The first epoch after the region's earlier state was lost.
    blank_since: u64,
    counts: Counts,
}

/// Counters of one region's handovers: entities that were handed over, taken and refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of entities handed over by this side.
    pub departed: u64,
    /// Number of entities taken by this side.
    pub admitted: u64,
    /// Number of transfers that this side aborted.
    pub aborted: u64,
    /// Number of entities that other regions refused.
    pub refused: u64,
    /// Number of messages that were ignored because they came from replaced owners.
    pub fenced: u64,
    /// Number of messages that were ignored because they were repeated or late.
    pub repeated: u64,
}

/// The ids of entities whose handover to this region has begun and is not finished.
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
    Out,
    In,
}

#[derive(Debug, Clone, Default)]
struct Peer {
    epoch: u64,
    next: u64,
    outbound: BTreeMap<TransferId, OutboundTransfer>,
    inbound: BTreeMap<TransferId, Inbound>,
    /// All transfers from the peer before this one have ended.
    passed: TransferId,
    /// Value of `settled` that was last sent to the peer.
    told: TransferId,
}

impl Handover {
    /// Creates the handovers of a region without earlier state.
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
            blank_since: epoch,
            counts: Counts::default(),
        }
    }

    /// Sets the limits.
    pub fn with_limits(mut self, limits: HandoverLimits) -> Handover {
        self.limits = limits;
        self
    }

    /// The region.
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

    /// Number of entries written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Number of entries that the standby knows.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Counters so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Number of transfers in progress, outbound and inbound.
    pub fn under_way(&self) -> (usize, usize) {
        let out =
            self.peers.values().map(|peer| peer.outbound.values().filter(|out| !out.is_closed()).count());
        let in_doubt =
            self.peers.values().map(|peer| peer.inbound.values().filter(|one| one.is_staged()).count());
        (out.sum(), in_doubt.sum())
    }

    /// Ids that are being handed to this region and have room reserved here.
    pub fn staged(&self) -> StagedIds<'_> {
        StagedIds(&self.staged)
    }

    /// Entities whose owner is undecided here: entities that are committed to another region without confirmation, and
    /// entities staged here.
    pub fn in_doubt(&self) -> Vec<EntityId> {
        let committed =
            self.peers.values().flat_map(|peer| peer.outbound.values().flat_map(OutboundTransfer::committed));
        committed.chain(self.staged.keys().copied()).collect()
    }

    /// Records the epoch of another region's owner, read from the cluster's ownership or a message.
    pub fn meet(&mut self, peer: RegionId, epoch: u64, now: u64, effects: &mut Vec<HandoverEffect>) {
        self.see(now);
        self.learn(peer, epoch, effects);
        self.go_on(effects);
    }

    /// Records that the standby knows `entries` entries.
    pub fn standby_acknowledged(&mut self, entries: u64, now: u64, effects: &mut Vec<HandoverEffect>) {
        self.see(now);
        self.known = self.known.max(entries.min(self.written));
        self.go_on(effects);
    }

    /// Handles a message from another region. A message contains at most one batch of entities.
    pub fn receive(
        &mut self,
        message: HandoverMessage,
        holdings: &dyn AdmissionCheck,
        now: u64,
        effects: &mut Vec<HandoverEffect>,
    ) {
        self.see(now);
        let from = message.from;
        let newcomer = !self.peers.contains_key(&from) && self.peers.len() >= self.limits.peers_max;
        if newcomer || from == self.region {
            return;
        }
        if message.epoch < self.peers.entry(from).or_default().epoch {
            self.counts.fenced += 1;
            return;
        }
        self.learn(from, message.epoch, effects);
        self.pass(from, message.settled, effects);
        self.hear(message, holdings, effects);
        self.go_on(effects);
    }

    fn hear(
        &mut self,
        message: HandoverMessage,
        holdings: &dyn AdmissionCheck,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let HandoverMessage { from, transfer, saying, .. } = message;
        match saying {
            MessageBody::Prepare(parcels) => self.hear_prepare(from, transfer, parcels, holdings, effects),
            MessageBody::Prepared(refused) => self.hear_prepared(from, transfer, refused, effects),
            MessageBody::Commit => self.hear_commit(from, transfer, effects),
            MessageBody::Taken(refused) => self.hear_taken(from, transfer, refused, effects),
            MessageBody::Abort => self.hear_abort(from, transfer, effects),
            MessageBody::AskTarget { addressed } => {
                self.hear_target_asked(from, transfer, addressed, effects)
            }
            MessageBody::NotTaken => self.hear_not_taken(from, transfer, effects),
            MessageBody::AskSource => self.hear_source_asked(from, transfer, effects),
            MessageBody::Unknown => self.hear_unknown(from, transfer, effects),
            MessageBody::Settled => {}
        }
    }

    /// Sets the time. Aborts transfers whose deadline has passed, and sends messages without a response again.
    pub fn elapse(&mut self, now: u64, effects: &mut Vec<HandoverEffect>) {
        self.see(now);
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            self.elapse_outbound(peer, effects);
            self.elapse_inbound(peer, effects);
        }
        self.go_on(effects);
    }

    /// Applies an entry that was read from the topic or the journal, as a standby or a restarting owner does. This
    /// call sends nothing.
    pub fn follow(&mut self, entry: HandoverEntry, effects: &mut Vec<HandoverEffect>) {
        self.written += 1;
        self.known = self.written;
        let (peer, transfer) = (entry.peer, entry.transfer);
        self.enact(entry, effects);
        let Some(peer) = self.peers.get_mut(&peer) else { return };
        if peer.outbound.get(&transfer).is_some_and(OutboundTransfer::is_closed) {
            peer.outbound.remove(&transfer);
        }
        if let Some(one) = peer.inbound.get_mut(&transfer) {
            one.known = true;
        }
    }

    /// Takes the region over in a higher epoch, with the given epochs of other regions' owners. `blank` means that the
    /// earlier state is lost.
    pub fn take_over(
        &mut self,
        epoch: u64,
        blank: bool,
        peers: &[(RegionId, u64)],
        now: u64,
        effects: &mut Vec<HandoverEffect>,
    ) {
        self.see(now);
        self.epoch = epoch;
        if blank {
            self.blank_since = epoch;
        }
        self.waiting.clear();
        for peer in self.peers.values_mut() {
            peer.next = 0;
            peer.outbound.retain(|_, out| !out.is_closed());
            peer.inbound.values_mut().for_each(|one| (one.known, one.ask_at) = (true, now));
            peer.outbound.values_mut().for_each(|out| (out.known, out.resend_at) = (true, now));
        }
        for (peer, epoch) in peers {
            self.learn(*peer, *epoch, effects);
        }
        self.elapse(now, effects);
    }

    /// Copies this state for a new standby, with the number of entries in it.
    pub fn standby_starts(&mut self) -> (Handover, u64) {
        let mut copy = self.clone();
        (copy.waiting, copy.known) = (VecDeque::new(), copy.written);
        for peer in copy.peers.values_mut() {
            peer.outbound.retain(|_, out| !out.is_closed());
            peer.outbound.values_mut().for_each(OutboundTransfer::as_followed);
            peer.inbound.values_mut().for_each(|one| one.known = true);
        }
        (copy, self.written)
    }

    /// Advances the time; an earlier time is ignored.
    fn see(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    fn learn(&mut self, peer: RegionId, epoch: u64, effects: &mut Vec<HandoverEffect>) {
        let known = &mut self.peers.entry(peer).or_default().epoch;
        if epoch <= *known {
            return;
        }
        *known = epoch;
        self.outbound_meets_new_owner(peer, effects);
        self.inbound_meets_new_owner(peer, effects);
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
        self.enact(entry, effects);
        self.written
    }

    fn enact(&mut self, entry: HandoverEntry, effects: &mut Vec<HandoverEffect>) {
        let HandoverEntry { peer, transfer, step } = entry;
        match step {
            HandoverStep::Leaving { addressed, ids } => {
                self.enact_leaving(peer, transfer, addressed, ids, effects)
            }
            HandoverStep::Committed(refused) => self.enact_committed(peer, transfer, refused, effects),
            HandoverStep::Aborted => self.enact_aborted(peer, transfer, effects),
            HandoverStep::Settled => self.enact_settled(peer, transfer),
            HandoverStep::Staged { parcels, refused } => self.enact_staged(peer, transfer, parcels, refused),
            HandoverStep::Taken => self.enact_taken(peer, transfer, effects),
            HandoverStep::Dropped => self.enact_dropped(peer, transfer),
            HandoverStep::Passed => self.enact_passed(peer, transfer),
        }
    }

    /// Carries out the steps that waited for the standby.
    fn go_on(&mut self, effects: &mut Vec<HandoverEffect>) {
        while self.waiting.front().is_some_and(|(entry, ..)| *entry <= self.known) {
            let Some((_, peer, transfer, way)) = self.waiting.pop_front() else { return };
            match way {
                Direction::Out => self.outbound_known(peer, transfer, effects),
                Direction::In => self.inbound_known(peer, transfer, effects),
            }
        }
    }

    fn send(
        &mut self,
        to: RegionId,
        transfer: TransferId,
        saying: MessageBody,
        effects: &mut Vec<HandoverEffect>,
    ) {
        let settled = self.settled(to);
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.told = settled;
        }
        let message = HandoverMessage { from: self.region, epoch: self.epoch, settled, transfer, saying };
        effects.push(HandoverEffect::Send { to, message });
    }

    /// The oldest transfer to a peer that has not ended.
    fn settled(&self, to: RegionId) -> TransferId {
        let Some(peer) = self.peers.get(&to) else { return TransferId::default() };
        let next = TransferId { epoch: self.epoch, number: peer.next };
        peer.outbound.keys().next().copied().unwrap_or(next)
    }
}
