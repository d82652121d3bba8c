//! A viewer's scene: the entities in sight, built from the updates of all regions.
//!
//! Each region sends its own entities. During a handover, the old region's `Leave` may arrive after the new
//! region's `Enter`. Only the region that last sent `Enter` for an entity can therefore remove it. Updates of
//! an older epoch are ignored.

use std::collections::{HashMap, HashSet};

use super::{ViewerEvent, ViewerUpdate};
use crate::entity::EntityId;
use crate::handover::{Parcel, RegionId};
use crate::layout::SpaceDecodeError;
use crate::store::{Entity, Schema, StateError};
use crate::world::Point;

/// An entity in a viewer's sight, with the state of its last update.
#[derive(Debug, Clone, PartialEq)]
pub struct VisibleEntity<const D: usize> {
    /// Region of the entity.
    pub region: RegionId,
    /// Tick of the last update.
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
    epochs: HashMap<RegionId, u64>,
}

impl<const D: usize> Scene<D> {
    /// Creates an empty scene of entities with these components.
    pub fn new(schema: Schema) -> Scene<D> {
        Scene { schema, visible: HashMap::new(), epochs: HashMap::new() }
    }

    /// Applies a region's update and appends the changes. After an error, the update may be applied in part; the viewer
    /// must then watch again.
    pub fn apply(
        &mut self,
        update: &ViewerUpdate<'_>,
        changes: &mut Vec<SceneChange>,
    ) -> Result<(), StateError> {
        let known = self.epochs.entry(update.region).or_insert(update.epoch);
        if update.epoch < *known {
            return Ok(());
        }
        // Entities of this region that were known before it restarted and have not entered again.
        let mut before: HashSet<EntityId> = HashSet::new();
        if std::mem::replace(known, update.epoch) < update.epoch {
            before = self.ids_of(update.region).collect();
        }
        for event in ViewerEvent::<D>::decode_all(update.events) {
            match event? {
                ViewerEvent::Begin => before = self.ids_of(update.region).collect(),
                ViewerEvent::Enter { id, generation, state } => {
                    let parcel = Parcel { id, generation, state: state.into() };
                    let existed = self.visible.insert(id, self.decode_entity(&parcel, update)?).is_some();
                    before.remove(&id);
                    changes.push(if existed { SceneChange::Moved(id) } else { SceneChange::Entered(id) });
                }
                ViewerEvent::Update { id, position, velocity } => {
                    if !position.iter().chain(&velocity).all(|along| along.is_finite()) {
                        return Err(SpaceDecodeError::NotFinite.into());
                    }
                    if let Some(visible) = self.visible.get_mut(&id).filter(|one| one.region == update.region)
                    {
                        (visible.tick, visible.position, visible.velocity) =
                            (update.tick, position, velocity);
                        changes.push(SceneChange::Moved(id));
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
        parcel: &Parcel,
        update: &ViewerUpdate<'_>,
    ) -> Result<VisibleEntity<D>, StateError> {
        let Entity { kind, position, velocity, components, .. } = Entity::of_parcel(parcel, &self.schema)?;
        let (region, tick, components) = (update.region, update.tick, components.to_vec());
        Ok(VisibleEntity { region, tick, kind, position, velocity, components })
    }

    fn ids_of(&self, region: RegionId) -> impl Iterator<Item = EntityId> {
        self.visible.iter().filter(move |(_, one)| one.region == region).map(|(id, _)| *id)
    }

    fn leave(&mut self, id: EntityId, region: RegionId, changes: &mut Vec<SceneChange>) {
        if self.visible.get(&id).is_some_and(|one| one.region == region) {
            self.visible.remove(&id);
            changes.push(SceneChange::Left(id));
        }
    }

    /// All entities in sight.
    pub fn visible(&self) -> &HashMap<EntityId, VisibleEntity<D>> {
        &self.visible
    }
}
