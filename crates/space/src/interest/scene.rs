//! What a viewer is told, and what it makes of it.
//!
//! ```text
//!  sight:  version u8, region u32, tick u64, glimpses
//! ```
//! Each region tells of its own entities. While one is handed over, its old region may say that it left after its new one said that it
//! came, on another way: who is known by a region is taken away by that region alone.

use std::collections::HashMap;

use super::Glimpse;
use crate::entity::EntityId;
use crate::handover::{Parcel, RegionId};
use crate::layout::{DecodeError, Fields, VERSION, put_u32, put_u64};
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

/// All who are in a viewer's sight, as it was told.
#[derive(Debug)]
pub struct Scene<const D: usize> {
    schema: Schema,
    visible: HashMap<EntityId, Visible<D>>,
}

/// Appends what comes before a region's glimpses.
pub fn put_sight(region: RegionId, tick: u64, out: &mut Vec<u8>) {
    out.push(VERSION);
    put_u32(out, region.0);
    put_u64(out, tick);
}

impl<const D: usize> Scene<D> {
    /// Nobody is in sight; entities are made of these components.
    pub fn new(schema: Schema) -> Scene<D> {
        Scene { schema, visible: HashMap::new() }
    }

    /// Takes in what a region tells; which that is. After an error some of it may be taken in: ask anew.
    pub fn take(&mut self, sight: &[u8]) -> Result<RegionId, StateError> {
        let mut fields = Fields::versioned(sight)?;
        let (region, tick) = (RegionId(fields.u32()?), fields.u64()?);
        for glimpse in Glimpse::<D>::decode_all(fields.rest()) {
            match glimpse? {
                Glimpse::Enter { id, generation, state } => {
                    let parcel = Parcel { id, generation, state: state.into() };
                    let Entity { kind, position, velocity, components, .. } =
                        Entity::of_parcel(&parcel, &self.schema)?;
                    let components = components.to_vec();
                    let visible = Visible { region, tick, kind, position, velocity, components };
                    self.visible.insert(id, visible);
                }
                Glimpse::Update { id, position, velocity } => {
                    if !position.iter().chain(&velocity).all(|along| along.is_finite()) {
                        return Err(DecodeError::NotFinite.into());
                    }
                    if let Some(visible) = self.visible.get_mut(&id).filter(|one| one.region == region) {
                        (visible.tick, visible.position, visible.velocity) = (tick, position, velocity);
                    }
                }
                Glimpse::Leave { id } => {
                    if self.visible.get(&id).is_some_and(|one| one.region == region) {
                        self.visible.remove(&id);
                    }
                }
            }
        }
        Ok(region)
    }

    /// A region is not heard of any more, or begins anew: its entities are not in sight.
    pub fn forget(&mut self, region: RegionId) {
        self.visible.retain(|_, visible| visible.region != region);
    }

    /// All who are in sight.
    pub fn visible(&self) -> &HashMap<EntityId, Visible<D>> {
        &self.visible
    }
}
