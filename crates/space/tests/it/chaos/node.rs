//! A simulated process. It owns a region, or follows a region as the standby.

use std::collections::{BTreeMap, VecDeque};

use dunlin_space::{
    AdmissionCheck, EntityId, EntityRefusal, Handover, HandoverEffect, HandoverEntry, HandoverMessage,
    RegionId, TransferredEntity,
};

/// An entity in a simulated process.
#[derive(Debug, Clone, Copy)]
pub struct EntityState {
    pub generation: u32,
    pub steps: u64,
    /// Whether the entity is in handover and does not move.
    pub suspended: bool,
}

/// An item of the stream from an owner to its standby.
#[derive(Debug, Clone)]
pub enum StandbyItem {
    HandoverEntry(HandoverEntry),
    /// The number of a tick, and the step number of each entity after the tick.
    Tick(u64, Vec<(EntityId, u64)>),
}

/// Something that a process does to others: it sends a message to another region, sends an item to its standby, or
/// loses entities.
#[derive(Debug)]
pub enum ProcessEffect {
    Send(RegionId, HandoverMessage),
    Stream(StandbyItem),
    Lost(Vec<EntityId>),
}

/// A simulated process that owns a region, or follows a region as its standby.
#[derive(Debug, Clone)]
pub struct SimulatedProcess {
    pub region: RegionId,
    pub handover: Handover,
    pub held: ProcessEntities,
    pub alive: bool,
    pub owner: bool,
    /// End of the lease. Afterwards the process does nothing until the lease is renewed.
    pub lease_until: u64,
    /// The process is paused until this time.
    pub paused_until: u64,
    /// Last tick that this process has run or followed.
    pub tick: u64,
    /// Last tick that the standby knows.
    pub tick_known: u64,
    /// Number of the process that is the standby, once this standby has a state to start from.
    pub standby: Option<usize>,
    /// Effects that are still to be carried out.
    pub effects: VecDeque<HandoverEffect>,
    pub moved_over: u64,
    pub refused: u64,
}

/// The entities of a simulated process, by id.
#[derive(Debug, Clone, Default)]
pub struct ProcessEntities(pub BTreeMap<EntityId, EntityState>);

impl std::ops::Deref for ProcessEntities {
    type Target = BTreeMap<EntityId, EntityState>;
    fn deref(&self) -> &BTreeMap<EntityId, EntityState> {
        &self.0
    }
}

impl std::ops::DerefMut for ProcessEntities {
    fn deref_mut(&mut self) -> &mut BTreeMap<EntityId, EntityState> {
        &mut self.0
    }
}

impl AdmissionCheck for ProcessEntities {
    fn refusal(&self, entity: &TransferredEntity, others: usize) -> Option<EntityRefusal> {
        if entity.state.len() != 8 {
            return Some(EntityRefusal::Unreadable);
        }
        if self.contains_key(&entity.id) {
            return Some(EntityRefusal::Held);
        }
        (self.len() + others >= 14).then_some(EntityRefusal::Full)
    }
}

impl SimulatedProcess {
    /// Carries out one effect of the handover. Returns what leaves the process, if anything: a message, an item for the
    /// standby, or lost entities.
    pub fn apply_effect(&mut self, effect: HandoverEffect) -> Result<Option<ProcessEffect>, String> {
        let region = self.region.0;
        match effect {
            HandoverEffect::Send { to, message } => return Ok(Some(ProcessEffect::Send(to, message))),
            HandoverEffect::Write(entry) => {
                return Ok(Some(ProcessEffect::Stream(StandbyItem::HandoverEntry(entry))));
            }
            HandoverEffect::Lost { ids, .. } => return Ok(Some(ProcessEffect::Lost(ids))),
            HandoverEffect::Suspend(ids) => self.set_suspended(&ids, true)?,
            HandoverEffect::Release(ids) => self.set_suspended(&ids, false)?,
            HandoverEffect::Refused(refused) => self.refused += refused.len() as u64,
            HandoverEffect::Depart(ids) => {
                for id in ids {
                    self.held
                        .remove(&id)
                        .ok_or(format!("region {region} hands over {id}, which it has not"))?;
                    self.moved_over += 1;
                }
            }
            HandoverEffect::Admit(entities) => {
                for TransferredEntity { id, generation, state } in entities {
                    let steps = u64::from_le_bytes(state[..].try_into().unwrap());
                    if self.held.insert(id, EntityState { generation, steps, suspended: false }).is_some() {
                        return Err(format!("region {region} takes {id}, which it has"));
                    }
                }
            }
        }
        Ok(None)
    }

    fn set_suspended(&mut self, ids: &[EntityId], suspended: bool) -> Result<(), String> {
        for id in ids {
            let held = self.held.get_mut(id).ok_or(format!("region {} has no entity {id}", self.region.0))?;
            if held.suspended == suspended {
                return Err(format!("entity {id} is in two handovers at once, or in none"));
            }
            held.suspended = suspended;
        }
        Ok(())
    }

    /// Applies an item of the owner's stream, as a standby.
    pub fn follow(&mut self, item: StandbyItem) -> Result<(), String> {
        match item {
            StandbyItem::HandoverEntry(entry) => {
                let mut effects = Vec::new();
                self.handover.follow(entry, &mut effects);
                for effect in effects {
                    self.apply_effect(effect)?;
                }
            }
            StandbyItem::Tick(tick, moved) => {
                self.tick = tick;
                for (id, steps) in moved {
                    self.held.get_mut(&id).ok_or(format!("{id} moves where it is not"))?.steps = steps;
                }
            }
        }
        Ok(())
    }

    pub fn transferred_entity(&self, id: EntityId) -> TransferredEntity {
        let held = self.held[&id];
        TransferredEntity { id, generation: held.generation, state: held.steps.to_le_bytes().into() }
    }

    pub fn can_act(&self, now: u64) -> bool {
        self.alive && self.owner && now < self.lease_until && now >= self.paused_until
    }
}
