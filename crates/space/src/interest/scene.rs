//! A viewer's scene: the entities in sight, built from the updates of all regions.
//!
//! Each region sends its own entities. When an entity changes from one region to another, the old region's `Leave` may
//! arrive after the new region's `Enter`. A region's updates may even arrive so late that the entity is back in the old
//! region by then. An entity is therefore in sight until each region that sent `Enter` for the entity has also sent
//! `Leave`. Updates of an older epoch are ignored.

use std::collections::{HashMap, HashSet};

use super::{ViewerEvent, ViewerUpdate};
use crate::entity::EntityId;
use crate::handover::{RegionId, TransferredEntity};
use crate::layout::SpaceDecodeError;
use crate::store::{Entity, Schema, StateError};
use crate::world::Point;

/// An entity in a viewer's sight, with the state of its last update.
#[derive(Debug, Clone, PartialEq)]
pub struct VisibleEntity<const D: usize> {
    /// Region of the entity.
    pub region: RegionId,
    /// Tick of the region at the last update.
    pub tick: u64,
    /// The entity's kind.
    pub kind: u32,
    /// Position at the last update.
    pub position: Point<D>,
    /// Velocity at the last update.
    pub velocity: Point<D>,
    /// Encoded components, as they were when the entity came into sight.
    pub components: Vec<u8>,
}

/// A change in a viewer's sight: an entity appeared, moved or disappeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SceneChange {
    /// An entity came into sight.
    Entered(EntityId),
    /// An entity in sight was updated.
    Moved(EntityId),
    /// An entity went out of sight.
    Left(EntityId),
}

/// The entities that are in a viewer's sight at present.
#[derive(Debug)]
pub struct Scene<const D: usize> {
    schema: Schema,
    visible: HashMap<EntityId, VisibleEntity<D>>,
    /// Several regions may have sent `Enter`, and not yet `Leave`, for one entity. `visible` then has the state from
    /// one of these regions, and this map has the states from the others.
    others: HashMap<EntityId, Vec<VisibleEntity<D>>>,
    epochs: HashMap<RegionId, u64>,
}

impl<const D: usize> Scene<D> {
    /// Creates an empty scene of entities with these components.
    pub fn new(schema: Schema) -> Scene<D> {
        Scene { schema, visible: HashMap::new(), others: HashMap::new(), epochs: HashMap::new() }
    }

    /// Applies a region's update, and appends the resulting changes to `changes`. After an error, a part of the update
    /// may have been applied. The viewer must then send its watch again.
    pub fn apply(
        &mut self,
        update: &ViewerUpdate<'_>,
        changes: &mut Vec<SceneChange>,
    ) -> Result<(), StateError> {
        let known = self.epochs.entry(update.region).or_insert(update.epoch);
        if update.epoch < *known {
            return Ok(());
        }
        // The entities of this region that the viewer knew before the region began anew. Those of them that the region
        // does not send again leave the viewer's sight.
        let mut before: HashSet<EntityId> = HashSet::new();
        if std::mem::replace(known, update.epoch) < update.epoch {
            before = self.ids_of(update.region).collect();
        }
        for event in ViewerEvent::<D>::decode_all(update.events) {
            match event? {
                ViewerEvent::Begin => before = self.ids_of(update.region).collect(),
                ViewerEvent::Enter { id, generation, state } => {
                    let entity = TransferredEntity { id, generation, state: state.into() };
                    let entered = self.decode_entity(&entity, update)?;
                    before.remove(&id);
                    self.enter(id, entered, changes);
                }
                ViewerEvent::Update { id, position, velocity } => {
                    if !position.iter().chain(&velocity).all(|along| along.is_finite()) {
                        return Err(SpaceDecodeError::NotFinite.into());
                    }
                    let is_sender = |one: &&mut VisibleEntity<D>| one.region == update.region;
                    let moved = match self.visible.get_mut(&id).filter(is_sender) {
                        Some(visible) => {
                            changes.push(SceneChange::Moved(id));
                            Some(visible)
                        }
                        None => self.others.get_mut(&id).and_then(|all| all.iter_mut().find(is_sender)),
                    };
                    if let Some(moved) = moved {
                        (moved.tick, moved.position, moved.velocity) = (update.tick, position, velocity);
                    }
                }
                ViewerEvent::Leave { id } => self.leave(id, update.region, changes),
            }
        }
        before.into_iter().for_each(|id| self.leave(id, update.region, changes));
        Ok(())
    }

    fn decode_entity(
        &self,
        entity: &TransferredEntity,
        update: &ViewerUpdate<'_>,
    ) -> Result<VisibleEntity<D>, StateError> {
        let Entity { kind, position, velocity, components, .. } = Entity::decode(entity, &self.schema)?;
        let (region, tick, components) = (update.region, update.tick, components.to_vec());
        Ok(VisibleEntity { region, tick, kind, position, velocity, components })
    }

    fn ids_of(&self, region: RegionId) -> impl Iterator<Item = EntityId> {
        let visible = self.visible.iter().filter(move |(_, one)| one.region == region).map(|(id, _)| *id);
        let is_sender = move |one: &VisibleEntity<D>| one.region == region;
        let others = self.others.iter().filter(move |(_, all)| all.iter().any(is_sender));
        visible.chain(others.map(|(id, _)| *id))
    }

    fn enter(&mut self, id: EntityId, entered: VisibleEntity<D>, changes: &mut Vec<SceneChange>) {
        let region = entered.region;
        self.remove_other(id, region);
        let before = self.visible.insert(id, entered);
        changes.push(if before.is_some() { SceneChange::Moved(id) } else { SceneChange::Entered(id) });
        if let Some(before) = before.filter(|before| before.region != region) {
            self.others.entry(id).or_default().push(before);
        }
    }

    fn leave(&mut self, id: EntityId, region: RegionId, changes: &mut Vec<SceneChange>) {
        if self.visible.get(&id).is_none_or(|one| one.region != region) {
            return self.remove_other(id, region);
        }
        // If another region has sent `Enter` but not `Leave` for the entity, the entity stays in sight, with that
        // region's state.
        let other = self.others.get(&id).and_then(|all| all.last()).cloned();
        match other {
            Some(other) => {
                self.remove_other(id, other.region);
                self.visible.insert(id, other);
                changes.push(SceneChange::Moved(id));
            }
            None => {
                self.visible.remove(&id);
                changes.push(SceneChange::Left(id));
            }
        }
    }

    fn remove_other(&mut self, id: EntityId, region: RegionId) {
        let Some(all) = self.others.get_mut(&id) else { return };
        all.retain(|one| one.region != region);
        if all.is_empty() {
            self.others.remove(&id);
        }
    }

    /// All entities in sight.
    pub fn visible(&self) -> &HashMap<EntityId, VisibleEntity<D>> {
        &self.visible
    }
}
