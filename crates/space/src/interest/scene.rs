//! What a viewer makes of what it is told.
//!
//! Each region tells of its own entities. While one is handed over, its old region may say that it left after its new one said that it
//! came, on another way: who is known by a region is taken away by that region alone. What an owner of an older epoch says is late.

use std::collections::{HashMap, HashSet};

use super::{Glimpse, Sight};
use crate::entity::EntityId;
use crate::handover::{Parcel, RegionId};
use crate::layout::DecodeError;
use crate::store::{Entity, Schema, StateError};
use crate::world::Point;

/// Somebody in sight.
#[derive(Debug, Clone, PartialEq)]
pub struct Visible<const D: usize> {
    /// Whose it is.
    pub region: RegionId,
    /// The tick after which it was told where it is.
    pub tick: u64,
    /// Its kind.
    pub kind: u32,
    /// Where it was then.
    pub position: Point<D>,
    /// How fast it was.
    pub velocity: Point<D>,
    /// Its components' bytes, as they were when it came into sight.
    pub components: Vec<u8>,
}

/// What has changed for a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Somebody came into sight.
    Entered(EntityId),
    /// Somebody in sight was told of again.
    Moved(EntityId),
    /// Somebody is out of sight.
    Left(EntityId),
}

/// All who are in a viewer's sight, as it was told.
#[derive(Debug)]
pub struct Scene<const D: usize> {
    schema: Schema,
    visible: HashMap<EntityId, Visible<D>>,
    epochs: HashMap<RegionId, u64>,
}

impl<const D: usize> Scene<D> {
    /// Nobody is in sight; entities are made of these components.
    pub fn new(schema: Schema) -> Scene<D> {
        Scene { schema, visible: HashMap::new(), epochs: HashMap::new() }
    }

    /// Takes in what a region tells, and appends what changes by it. After an error some of it may be taken in: ask anew.
    pub fn take(&mut self, sight: &Sight<'_>, changes: &mut Vec<Change>) -> Result<(), StateError> {
        let known = self.epochs.entry(sight.region).or_insert(sight.epoch);
        if sight.epoch < *known {
            return Ok(());
        }
        // Who was told of before this region began anew, and is not told of again.
        let mut before: HashSet<EntityId> = HashSet::new();
        if std::mem::replace(known, sight.epoch) < sight.epoch {
            before = self.of(sight.region).collect();
        }
        for glimpse in Glimpse::<D>::decode_all(sight.glimpses) {
            match glimpse? {
                Glimpse::Begin => before = self.of(sight.region).collect(),
                Glimpse::Enter { id, generation, state } => {
                    let parcel = Parcel { id, generation, state: state.into() };
                    let was_there = self.visible.insert(id, self.whole(&parcel, sight)?).is_some();
                    before.remove(&id);
                    changes.push(if was_there { Change::Moved(id) } else { Change::Entered(id) });
                }
                Glimpse::Update { id, position, velocity } => {
                    if !position.iter().chain(&velocity).all(|along| along.is_finite()) {
                        return Err(DecodeError::NotFinite.into());
                    }
                    if let Some(visible) = self.visible.get_mut(&id).filter(|one| one.region == sight.region)
                    {
                        (visible.tick, visible.position, visible.velocity) = (sight.tick, position, velocity);
                        changes.push(Change::Moved(id));
                    }
                }
                Glimpse::Leave { id } => self.leave(id, sight.region, changes),
            }
        }
        before.into_iter().for_each(|id| self.leave(id, sight.region, changes));
        Ok(())
    }

    fn whole(&self, parcel: &Parcel, sight: &Sight<'_>) -> Result<Visible<D>, StateError> {
        let Entity { kind, position, velocity, components, .. } = Entity::of_parcel(parcel, &self.schema)?;
        let (region, tick, components) = (sight.region, sight.tick, components.to_vec());
        Ok(Visible { region, tick, kind, position, velocity, components })
    }

    fn of(&self, region: RegionId) -> impl Iterator<Item = EntityId> {
        self.visible.iter().filter(move |(_, one)| one.region == region).map(|(id, _)| *id)
    }

    fn leave(&mut self, id: EntityId, region: RegionId, changes: &mut Vec<Change>) {
        if self.visible.get(&id).is_some_and(|one| one.region == region) {
            self.visible.remove(&id);
            changes.push(Change::Left(id));
        }
    }

    /// All who are in sight.
    pub fn visible(&self) -> &HashMap<EntityId, Visible<D>> {
        &self.visible
    }
}
