//! A region as its owner runs it. The methods `tick`, `receive` and `advance_time` take events and the time, and append
//! their results to [`RegionOutputs`].
//!
//! Invariants:
//! - Every behaviour reads the world as it was after the last tick, both in this region and in neighbouring regions. If
//!   ghosts are sent at every tick, equal inputs give equal bytes, whatever the number of regions.
//! - Messages are handled between ticks. An entity in handover stands still.
//! - The record of a tick contains all changes in order. A [`RegionState`] to which all records were applied equals
//!   this region's state, row by row.
//! - Without a valid lease, the region moves no entity and sends no message.
//! - If a behaviour panics for an entity, or returns a number that is not finite, this entity is frozen. The other
//!   entities continue to move.

mod behaviour_run;
mod crossing;
mod interior;
mod load;
mod mover;
mod outputs;
mod setup;
mod state;
mod ticking;
mod trial;
mod view;
mod viewers;
mod whole;

use crate::behaviour::Behaviour;
use crate::entity::EntityId;
use crate::ghost::{BorderStrip, Ghosts};
use crate::handover::{Handover, HandoverEffect, HandoverMessage, RegionId};
use crate::layout::SpaceDecodeError;
use crate::partition::Partition;
use crate::store::{Entity, EntityStore, StoreError};

pub use outputs::{RegionOutputs, RegionReport};
pub use setup::{GhostStripError, RegionSetup};
pub(crate) use state::put_column;
pub use state::{RecordError, RecordSection, RegionState};
pub use viewers::CommandError;

use interior::InteriorCells;
use mover::TickChanges;
use view::VisibleEntities;
use viewers::RegionViewers;

/// The right of a process to run a region until a given time. The cluster grants this right with a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionAuthority {
    /// The fencing epoch.
    pub epoch: u64,
    /// The time at which the right ends. From then on, the region does nothing.
    pub until_ns: u64,
}

/// The input for taking over a region: the new owner's lease, and the epochs of the other regions' owners.
#[derive(Debug, Clone, Copy)]
pub struct Takeover<'a> {
    /// The new owner's lease.
    pub authority: RegionAuthority,
    /// The epochs of all other regions' owners, read when the lease started or later.
    pub peers: &'a [(RegionId, u64)],
    /// The current time.
    pub now_ns: u64,
}

/// The reason why a region refused a tick or a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The region's lease ended, or there was none.
    #[error("region {} has no lease at {now_ns} ns: its entities do not move until the lease is renewed", .region.0)]
    NoAuthority {
        /// The region that has no valid lease.
        region: RegionId,
        /// Time of the attempt, ns.
        now_ns: u64,
    },
    /// The standby does not know the last tick yet, so the next tick has to wait.
    #[error(
        "the standby has received tick {known}: tick {next} waits until the standby is at most one tick behind"
    )]
    StandbyBehind {
        /// Last tick that the standby knows.
        known: u64,
        /// The tick that has to wait.
        next: u64,
    },
    /// The message cannot be decoded.
    #[error(transparent)]
    Decode(#[from] SpaceDecodeError),
    /// The message's channel is unknown.
    #[error("message channel {0} is not known")]
    Channel(u8),
}

pub(crate) const HANDOVER: u8 = 1;
pub(crate) const GHOSTS: u8 = 2;

/// A region as its owner runs it: its entities, its behaviour, its ghosts and its handovers.
#[derive(Debug)]
pub struct Region<const D: usize, B> {
    setup: RegionSetup<D>,
    behaviour: B,
    state: RegionState<D>,
    partition: Partition,
    authority: Option<RegionAuthority>,
    standby_tick: u64,
    ghosts: Ghosts<D>,
    strip: BorderStrip<D>,
    interior: InteriorCells<D>,
    view: VisibleEntities<D>,
    /// The region's viewers; `None` while there are none.
    viewers: Option<RegionViewers<D>>,
    /// Whether a standby or subscriber receives the records.
    has_subscriber: bool,
    effects: Vec<HandoverEffect>,
    /// Rows that the last tick changed, to be written to the record.
    changes: TickChanges,
    /// Number of ghost batches sent.
    ghosts_sent: u64,
    reports_dropped: u64,
}

impl<const D: usize, B: Behaviour<D>> Region<D, B> {
    /// Creates a region without entities.
    pub fn new(
        setup: RegionSetup<D>,
        behaviour: B,
        partition: Partition,
        authority: RegionAuthority,
    ) -> Region<D, B> {
        let handover = Handover::new(setup.region, authority.epoch, setup.standby, setup.timing);
        let handover = handover.with_limits(setup.limits.handover);
        let store = EntityStore::new(setup.schema.clone(), setup.limits);
        let state = RegionState::new(setup.world, store, handover);
        Region::with_state(setup, behaviour, partition, Some(authority), state)
    }

    fn with_state(
        setup: RegionSetup<D>,
        behaviour: B,
        partition: Partition,
        authority: Option<RegionAuthority>,
        state: RegionState<D>,
    ) -> Region<D, B> {
        let ghosts = Ghosts::new(setup.limits.ghosts_max);
        let strip = BorderStrip::new(setup.world, setup.strip);
        let interior = InteriorCells::new(setup.world, stretch(&partition, setup.region), setup.strip);
        let view = VisibleEntities::new(setup.world, behaviour.sight());
        let standby_tick = state.tick();
        let (effects, reports_dropped) = (Vec::new(), 0);
        Region {
            setup,
            behaviour,
            state,
            partition,
            authority,
            standby_tick,
            ghosts,
            strip,
            interior,
            view,
            viewers: None,
            has_subscriber: true,
            effects,
            changes: TickChanges::default(),
            ghosts_sent: 0,
            reports_dropped,
        }
    }

    /// Creates a region that continues from a given state, which was built from the former owner's records. If a
    /// standby is required, the region's first tick waits until a standby has started.
    pub fn take_over(
        setup: RegionSetup<D>,
        behaviour: B,
        partition: Partition,
        state: RegionState<D>,
        succession: &Takeover<'_>,
        out: &mut RegionOutputs,
    ) -> Region<D, B> {
        let Takeover { authority, peers, now_ns } = *succession;
        let mut region = Region::with_state(setup, behaviour, partition, Some(authority), state);
        region.standby_tick = 0;
        let handover = region.state.handover_mut();
        handover.take_over(authority.epoch, false, peers, now_ns, &mut region.effects);
        region.apply_effects(out);
        region
    }

    /// Copies the state for a new standby.
    pub fn copy_for_standby(&mut self) -> RegionState<D> {
        self.state.copy_for_standby()
    }

    /// The entities.
    pub fn store(&self) -> &EntityStore<D> {
        self.state.store()
    }

    /// The state of the region's handovers to and from other regions.
    pub fn handover(&self) -> &Handover {
        self.state.handover()
    }

    /// The region's state. A standby follows the records to keep a copy of this state.
    pub fn state(&self) -> &RegionState<D> {
        &self.state
    }

    /// Number of ticks so far.
    pub fn tick_number(&self) -> u64 {
        self.state.tick()
    }

    /// Last tick that the standby knows.
    pub fn known_tick(&self) -> u64 {
        self.standby_tick
    }

    /// Ghosts of the neighbours.
    pub fn ghosts(&self) -> &Ghosts<D> {
        &self.ghosts
    }

    /// The number of reports dropped because of the limit `reports_max`.
    pub fn reports_dropped(&self) -> u64 {
        self.reports_dropped
    }

    /// Sets the lease after it was granted, renewed or lost.
    pub fn set_authority(&mut self, authority: Option<RegionAuthority>) {
        // Ignores a lease with another epoch than this region's. Such a lease belongs to a new owner, which runs the
        // region from its own copy of the state.
        let own = self.state.handover().epoch();
        self.authority = authority.filter(|lease| lease.epoch == own);
    }

    /// Replaces the partition if the given one has a higher version. Entities in another region's stretch are handed
    /// over from the next tick on.
    pub fn set_partition(&mut self, partition: Partition) {
        if partition.version() > self.partition.version() {
            let stretch = stretch(&partition, self.setup.region);
            self.interior = InteriorCells::new(self.setup.world, stretch, self.setup.strip);
            self.partition = partition;
            self.strip.clear();
        }
    }

    /// Sets whether a standby or subscriber receives the records; initially `true`. While `false`, records may be
    /// skipped, so a new standby or subscriber must begin with a [copy](Region::copy_for_standby).
    pub fn set_has_subscriber(&mut self, has_subscriber: bool) {
        self.has_subscriber = has_subscriber;
    }

    /// Inserts an entity that is new in the world.
    pub fn spawn(&mut self, entity: &Entity<'_, D>, out: &mut RegionOutputs) -> Result<(), StoreError> {
        let staged = self.state.handover().staged();
        if staged.contains(entity.id) {
            return Err(StoreError::Duplicate(entity.id));
        }
        let max = self.setup.limits.entities_max;
        if self.state.store().len() + staged.len() >= max as usize {
            return Err(StoreError::Full { max });
        }
        let row = self.state.store_mut().insert_within(entity, &self.setup.world)?;
        let entity = self.state.store().transferred_entity(row);
        RecordSection::Insert(entity).encode(&mut out.record);
        Ok(())
    }

    /// Removes an entity from the world. Refuses an entity that is being handed over.
    pub fn despawn(&mut self, id: EntityId, out: &mut RegionOutputs) -> Result<(), StoreError> {
        let row = self.state.store().row(id).ok_or(StoreError::Unknown(id))?;
        if self.state.store().is_suspended(row) {
            return Err(StoreError::Leaving(id));
        }
        self.state.store_mut().remove(id)?;
        RecordSection::Remove(id).encode(&mut out.record);
        Ok(())
    }

    /// Replaces an entity's state, including all components.
    pub fn command(&mut self, entity: &Entity<'_, D>, out: &mut RegionOutputs) -> Result<(), StoreError> {
        let row = self.state.store().row(entity.id).ok_or(StoreError::Unknown(entity.id))?;
        if self.state.store().is_suspended(row) {
            return Err(StoreError::Leaving(entity.id));
        }
        if !self.setup.world.contains(&entity.position)
            && entity.position.iter().all(|along| along.is_finite())
        {
            return Err(StoreError::Outside(entity.id));
        }
        self.state.store_mut().overwrite(row, entity)?;
        let entity = self.state.store().transferred_entity(row);
        RecordSection::Put(entity).encode(&mut out.record);
        Ok(())
    }

    /// Records the epoch of another region's owner.
    pub fn record_peer_epoch(
        &mut self,
        peer: RegionId,
        epoch: u64,
        now_ns: u64,
        out: &mut RegionOutputs,
    ) -> Result<(), StepError> {
        self.check_authority(now_ns)?;
        self.state.handover_mut().record_peer_epoch(peer, epoch, now_ns, &mut self.effects);
        self.apply_effects(out);
        Ok(())
    }

    /// Handles a message from another region.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64, out: &mut RegionOutputs) -> Result<(), StepError> {
        let (channel, rest) = bytes.split_first().ok_or(SpaceDecodeError::Short)?;
        match *channel {
            HANDOVER => {
                let message = HandoverMessage::decode(rest)?;
                self.check_authority(now_ns)?;
                self.state.receive_handover(message, now_ns, &mut self.effects);
                self.apply_effects(out);
            }
            GHOSTS => {
                let batch = self.ghosts.read(rest)?;
                let known = self.state.handover().epoch_of(batch.from).unwrap_or(0);
                self.ghosts.store(batch, known, self.state.tick());
            }
            other => return Err(StepError::Channel(other)),
        }
        Ok(())
    }

    /// Records that the standby has applied the first `entries` handover entries, and the ticks up to `tick`.
    pub fn standby_acknowledged(&mut self, entries: u64, tick: u64, now_ns: u64, out: &mut RegionOutputs) {
        self.standby_tick = self.standby_tick.max(tick.min(self.state.tick()));
        self.state.handover_mut().standby_acknowledged(entries, now_ns, &mut self.effects);
        self.apply_effects(out);
    }

    /// Sets the current time between ticks. Aborts transfers whose deadline has passed. Sends each message again that
    /// has had no response for too long.
    pub fn advance_time(&mut self, now_ns: u64, out: &mut RegionOutputs) -> Result<(), StepError> {
        self.check_authority(now_ns)?;
        self.state.handover_mut().advance_time(now_ns, &mut self.effects);
        self.apply_effects(out);
        Ok(())
    }

    fn check_authority(&self, now_ns: u64) -> Result<(), StepError> {
        match self.authority {
            Some(authority) if now_ns < authority.until_ns => Ok(()),
            _ => Err(StepError::NoAuthority { region: self.setup.region, now_ns }),
        }
    }

    /// Carries out the handovers' effects.
    fn apply_effects(&mut self, out: &mut RegionOutputs) {
        let mut effects = std::mem::take(&mut self.effects);
        let cooldown_until = self.state.tick() + u64::from(self.setup.cooldown_ticks);
        for effect in effects.drain(..) {
            match effect {
                HandoverEffect::Send { to, message } => {
                    let mut bytes = vec![HANDOVER];
                    message.encode(&mut bytes);
                    out.messages.push((to, bytes));
                }
                HandoverEffect::Write(entry) if self.has_subscriber => {
                    RecordSection::HandoverEntry(entry).encode(&mut out.record)
                }
                HandoverEffect::Refused(refused) => {
                    let until = cooldown_until.max(self.state.tick() + 1);
                    for (id, why) in refused {
                        self.state.store_mut().start_cooldown(id, until);
                        self.report(RegionReport::Refused { id, why }, out);
                    }
                }
                HandoverEffect::Lost { to, ids } => self.report(RegionReport::Lost { to, ids }, out),
                HandoverEffect::Admit(entities) => {
                    let ids: Vec<EntityId> = entities.iter().map(|entity| entity.id).collect();
                    self.state.apply_effect(HandoverEffect::Admit(entities));
                    ids.into_iter().for_each(|id| self.state.store_mut().start_cooldown(id, cooldown_until));
                }
                HandoverEffect::Depart(ids) => {
                    out.departed.extend_from_slice(&ids);
                    self.state.apply_effect(HandoverEffect::Depart(ids));
                }
                other => self.state.apply_effect(other),
            }
        }
        self.effects = effects;
    }

    /// First key of this region's stretch, and the first key after the stretch.
    fn stretch(&self) -> (u64, u64) {
        stretch(&self.partition, self.setup.region)
    }

    fn report(&mut self, report: RegionReport, out: &mut RegionOutputs) {
        if out.reports.len() < self.setup.limits.reports_max as usize {
            out.reports.push(report);
        } else {
            self.reports_dropped += 1;
        }
    }
}

/// The stretch of a region: its first key, and the first key after the stretch. For a region that is not in the
/// partition, the stretch is empty.
fn stretch(partition: &Partition, region: RegionId) -> (u64, u64) {
    partition.stretch(region).unwrap_or((0, 0))
}
