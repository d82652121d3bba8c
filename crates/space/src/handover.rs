//! Handing entities from one region's owner to another's, so that none is ever moved by two, lost, or there twice.
//!
//! A [`Handover`] is one region's side of all its hand-overs, source and target both. It is told what happens (an offer, a
//! message, what the standby knows, the time) and answers with [`Effect`]s, to be carried out in their order before it is told
//! anything more. Many entities that go to the same region at the same time are one transfer.
//!
//! ```text
//!            source                                                 target
//!   offer ─► PREPARING  ────────── Prepare (whole states) ────────► STAGED   ids kept for it, nobody moves them
//!            stand still           ◄───────── Prepared ───────────  once its standby has them
//!            own standby knows? ─► COMMITTING ─── Commit ─────────► TAKEN    they move again, here
//!            gone from here        ◄────────── Taken ─────────────  once its standby knows
//!            CLOSED     until own standby knows; then the target may forget, by `settled` in any message
//!
//!   PREPARING ── deadline, or the target's epoch changed ─► aborted: they go on here, Abort ─► DROPPED
//!   took over from a standby that knew of an offer ─► ASKING ── AskTarget ─► Taken: gone  |  NotTaken: they go on here
//!   STAGED for long, or the source's epoch changed ── AskSource ─► Commit | Abort | nothing, while it is not decided
//! ```
//! Invariants:
//! - The source decides, once. Before it commits, the target, the target's standby and its own standby know of the transfer.
//! - A target takes only what was committed. One that told a new source `NotTaken` never takes that transfer: the late
//!   Commit is of an older epoch than one it knows.
//! - `Taken` is said when the target's standby knows it, and a source counts a transfer as settled when its own standby does: so
//!   each side can be replaced by its standby at any moment, and the other still remembers what the standby does not.
//! - What comes twice is known by its [`Transfer`]; what an older epoch sent is dropped.
//! - No answer within [`Timing::prepare_ns`]: the source goes on with its entities at once, whatever is still under way.
//!
//! Between Commit sent and Commit received nobody moves the entities; while the network is cut there, that lasts. No protocol
//! can avoid it without a third party, and asking one for every entity costs more than standing still.
//!
//! Without a standby ([`Standby::None`]) a process that is killed takes what it held with it: `Unknown` tells a source so, and
//! [`Effect::Lost`] says which entities that were.

mod entry;
mod inbound;
mod message;
mod outbound;
mod parcel;
mod snapshot;

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::entity::EntityId;

pub use entry::{Entry, Step};
pub use message::{Heading, Message, Saying};
pub use parcel::{Parcel, Refusal, Refused, RegionId, Transfer};

use inbound::Inbound;
use outbound::Outbound;

/// How long things may take, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// From Prepare to the decision; after it the source goes on with its entities.
    pub prepare_ns: u64,
    /// What was not answered for so long is said again.
    pub resend_ns: u64,
    /// A target asks about what was staged for so long.
    pub ask_ns: u64,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { prepare_ns: 500_000_000, resend_ns: 100_000_000, ask_ns: 1_000_000_000 }
    }
}

/// Whether a region has somebody who would go on in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standby {
    /// Nobody: what a killed owner held is lost.
    None,
    /// A subscriber of the region's topic, which says what it knows.
    Required,
}

/// What bounds hand-overs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoverLimits {
    /// Transfers under way with one region, each way.
    pub transfers_max: usize,
    /// Entities in a transfer.
    pub batch_max: usize,
    /// Regions that one can have to do with.
    pub peers_max: usize,
}

impl Default for HandoverLimits {
    fn default() -> HandoverLimits {
        HandoverLimits { transfers_max: 256, batch_max: 16_384, peers_max: 1_024 }
    }
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send it; it may be lost.
    Send {
        /// Where to.
        to: RegionId,
        /// What.
        message: Message,
    },
    /// Put it into the region's topic, behind all before.
    Write(Entry),
    /// They stand still from here on.
    Suspend(Vec<EntityId>),
    /// They go on here.
    Release(Vec<EntityId>),
    /// The other side did not take these, which go on here.
    Refused(Vec<(EntityId, Refusal)>),
    /// They are not here any more.
    Depart(Vec<EntityId>),
    /// They are here now.
    Admit(Vec<Parcel>),
    /// A region that was handed these lost its past before it told of them.
    Lost {
        /// Which region.
        to: RegionId,
        /// What it was handed.
        ids: Vec<EntityId>,
    },
}

/// Says what a target cannot take.
pub trait Holdings {
    /// Why it cannot take this one beside so many others that are kept room for; `None` if it can.
    fn refusal(&self, parcel: &Parcel, others: usize) -> Option<Refusal>;
}

/// Why nothing was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// No epoch of that region is known.
    #[error("region {} is not known", .0.0)]
    UnknownPeer(RegionId),
    /// As many transfers as there may be are under way.
    #[error("{max} transfers to it are under way already")]
    Busy {
        /// The limit.
        max: usize,
    },
    /// The batch has more entities than it may, or none.
    #[error("a transfer has 1 to {max} entities, not {count}")]
    Batch {
        /// How many were offered.
        count: usize,
        /// The limit.
        max: usize,
    },
}

/// One region's side of its hand-overs.
#[derive(Debug, Clone)]
pub struct Handover {
    region: RegionId,
    epoch: u64,
    standby: Standby,
    timing: Timing,
    limits: HandoverLimits,
    peers: BTreeMap<RegionId, Peer>,
    /// Who is staged, and for whom.
    staged: HashMap<EntityId, (RegionId, Transfer)>,
    /// Entries written, and how many of them the standby knows.
    written: u64,
    known: u64,
    /// What waits for the standby to know an entry, in the order of entries.
    waiting: VecDeque<(u64, RegionId, Transfer, Way)>,
    /// The time never goes back here, whatever the caller's clock does.
    now: u64,
    /// The first epoch since its past was lost.
    blank_since: u64,
    counts: Counts,
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entities handed over by this side.
    pub departed: u64,
    /// Entities taken by this side.
    pub admitted: u64,
    /// Transfers that this side called off.
    pub aborted: u64,
    /// Entities that others would not take.
    pub refused: u64,
    /// Messages of an owner that is not one any more.
    pub fenced: u64,
    /// Messages that came again, or too late.
    pub repeated: u64,
}

/// Who is being handed to a region.
#[derive(Debug, Clone, Copy)]
pub struct StagedIds<'a>(&'a HashMap<EntityId, (RegionId, Transfer)>);

impl StagedIds<'_> {
    /// Whether this one is.
    pub fn contains(&self, id: EntityId) -> bool {
        self.0.contains_key(&id)
    }

    /// How many are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Out,
    In,
}

#[derive(Debug, Clone, Default)]
struct Peer {
    epoch: u64,
    next: u64,
    outbound: BTreeMap<Transfer, Outbound>,
    inbound: BTreeMap<Transfer, Inbound>,
    /// The peer's transfers before this are over.
    passed: Transfer,
    /// What the peer was last told to be settled.
    told: Transfer,
}

impl Handover {
    /// Of a region without a past: one that is new, or that lost all it held.
    pub fn new(region: RegionId, epoch: u64, standby: Standby, timing: Timing) -> Handover {
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

    /// The same with other limits.
    pub fn with_limits(mut self, limits: HandoverLimits) -> Handover {
        self.limits = limits;
        self
    }

    /// Its region.
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// The epoch in which it is owned.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The epoch of another region's owner, as far as it is known.
    pub fn epoch_of(&self, peer: RegionId) -> Option<u64> {
        self.peers.get(&peer).map(|peer| peer.epoch)
    }

    pub(crate) fn standby(&self) -> Standby {
        self.standby
    }

    pub(crate) fn timing(&self) -> Timing {
        self.timing
    }

    /// How many entries were written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// How many of them the standby knows.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Transfers that are not over, out and in.
    pub fn under_way(&self) -> (usize, usize) {
        let out =
            self.peers.values().map(|peer| peer.outbound.values().filter(|out| !out.is_closed()).count());
        let in_doubt =
            self.peers.values().map(|peer| peer.inbound.values().filter(|one| one.is_staged()).count());
        (out.sum(), in_doubt.sum())
    }

    /// Who is being handed to this region, and has its room here.
    pub fn staged(&self) -> StagedIds<'_> {
        StagedIds(&self.staged)
    }

    /// Entities that are neither surely here nor surely elsewhere: committed to others who have not said that they know, and
    /// staged here.
    pub fn in_doubt(&self) -> Vec<EntityId> {
        let committed =
            self.peers.values().flat_map(|peer| peer.outbound.values().flat_map(Outbound::committed));
        committed.chain(self.staged.keys().copied()).collect()
    }

    /// Another region has this owner's epoch, as the cluster's ownership says or its message shows.
    pub fn meet(&mut self, peer: RegionId, epoch: u64, now: u64, effects: &mut Vec<Effect>) {
        self.see(now);
        self.learn(peer, epoch, effects);
        self.go_on(effects);
    }

    /// The standby knows so many of the entries written.
    pub fn standby_knows(&mut self, entries: u64, now: u64, effects: &mut Vec<Effect>) {
        self.see(now);
        self.known = self.known.max(entries.min(self.written));
        self.go_on(effects);
    }

    /// A message has come, of a whole batch or less.
    pub fn receive(
        &mut self,
        message: Message,
        holdings: &dyn Holdings,
        now: u64,
        effects: &mut Vec<Effect>,
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

    fn hear(&mut self, message: Message, holdings: &dyn Holdings, effects: &mut Vec<Effect>) {
        let Message { from, transfer, saying, .. } = message;
        match saying {
            Saying::Prepare(parcels) => self.hear_prepare(from, transfer, parcels, holdings, effects),
            Saying::Prepared(refused) => self.hear_prepared(from, transfer, refused, effects),
            Saying::Commit => self.hear_commit(from, transfer, effects),
            Saying::Taken(refused) => self.hear_taken(from, transfer, refused, effects),
            Saying::Abort => self.hear_abort(from, transfer, effects),
            Saying::AskTarget { addressed } => self.hear_target_asked(from, transfer, addressed, effects),
            Saying::NotTaken => self.hear_not_taken(from, transfer, effects),
            Saying::AskSource => self.hear_source_asked(from, transfer, effects),
            Saying::Unknown => self.hear_unknown(from, transfer, effects),
            Saying::Settled => {}
        }
    }

    /// Time has passed: deadlines are kept, and what was not answered is said again.
    pub fn elapse(&mut self, now: u64, effects: &mut Vec<Effect>) {
        self.see(now);
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            self.elapse_outbound(peer, effects);
            self.elapse_inbound(peer, effects);
        }
        self.go_on(effects);
    }

    /// A standby, or an owner that reads its own journal: what was written happens here as well. It sends nothing.
    pub fn follow(&mut self, entry: Entry, effects: &mut Vec<Effect>) {
        self.written += 1;
        self.known = self.written;
        let (peer, transfer) = (entry.peer, entry.transfer);
        self.enact(entry, effects);
        let Some(peer) = self.peers.get_mut(&peer) else { return };
        if peer.outbound.get(&transfer).is_some_and(Outbound::is_closed) {
            peer.outbound.remove(&transfer);
        }
        if let Some(one) = peer.inbound.get_mut(&transfer) {
            one.known = true;
        }
    }

    /// Becomes the owner, in a higher epoch, beside these owners of other regions. `blank` says that the past is lost.
    pub fn take_over(
        &mut self,
        epoch: u64,
        blank: bool,
        peers: &[(RegionId, u64)],
        now: u64,
        effects: &mut Vec<Effect>,
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

    /// A new standby starts from this state, which stands after so many entries.
    pub fn standby_starts(&mut self) -> (Handover, u64) {
        let mut copy = self.clone();
        (copy.waiting, copy.known) = (VecDeque::new(), copy.written);
        for peer in copy.peers.values_mut() {
            peer.outbound.retain(|_, out| !out.is_closed());
            peer.outbound.values_mut().for_each(Outbound::as_followed);
            peer.inbound.values_mut().for_each(|one| one.known = true);
        }
        (copy, self.written)
    }

    /// The time, as far as it went on.
    fn see(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    fn learn(&mut self, peer: RegionId, epoch: u64, effects: &mut Vec<Effect>) {
        let known = &mut self.peers.entry(peer).or_default().epoch;
        if epoch <= *known {
            return;
        }
        *known = epoch;
        self.outbound_meets_new_owner(peer, effects);
        self.inbound_meets_new_owner(peer, effects);
    }

    /// Writes an entry and lives by it. The number of the entry.
    fn write(&mut self, peer: RegionId, transfer: Transfer, step: Step, effects: &mut Vec<Effect>) -> u64 {
        let entry = Entry { peer, transfer, step };
        effects.push(Effect::Write(entry.clone()));
        self.written += 1;
        if self.standby == Standby::None {
            self.known = self.written;
        }
        self.enact(entry, effects);
        self.written
    }

    fn enact(&mut self, entry: Entry, effects: &mut Vec<Effect>) {
        let Entry { peer, transfer, step } = entry;
        match step {
            Step::Leaving { addressed, ids } => self.enact_leaving(peer, transfer, addressed, ids, effects),
            Step::Committed(refused) => self.enact_committed(peer, transfer, refused, effects),
            Step::Aborted => self.enact_aborted(peer, transfer, effects),
            Step::Settled => self.enact_settled(peer, transfer),
            Step::Staged { parcels, refused } => self.enact_staged(peer, transfer, parcels, refused),
            Step::Taken => self.enact_taken(peer, transfer, effects),
            Step::Dropped => self.enact_dropped(peer, transfer),
            Step::Passed => self.enact_passed(peer, transfer),
        }
    }

    /// Does what waited for the standby.
    fn go_on(&mut self, effects: &mut Vec<Effect>) {
        while self.waiting.front().is_some_and(|(entry, ..)| *entry <= self.known) {
            let Some((_, peer, transfer, way)) = self.waiting.pop_front() else { return };
            match way {
                Way::Out => self.outbound_known(peer, transfer, effects),
                Way::In => self.inbound_known(peer, transfer, effects),
            }
        }
    }

    fn send(&mut self, to: RegionId, transfer: Transfer, saying: Saying, effects: &mut Vec<Effect>) {
        let settled = self.settled(to);
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.told = settled;
        }
        let message = Message { from: self.region, epoch: self.epoch, settled, transfer, saying };
        effects.push(Effect::Send { to, message });
    }

    /// The oldest transfer to a peer that is not over.
    fn settled(&self, to: RegionId) -> Transfer {
        let Some(peer) = self.peers.get(&to) else { return Transfer::default() };
        let next = Transfer { epoch: self.epoch, number: peer.next };
        peer.outbound.keys().next().copied().unwrap_or(next)
    }
}
