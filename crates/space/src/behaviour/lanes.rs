//! Types with which a behaviour moves several nearby entities at once by vector instructions.

use super::OwnEntity;
use crate::entity::EntityId;
use crate::world::Point;

/// How many entities are moved together.
pub const LANES: usize = 8;

/// An array with one number for each of the [`LANES`] entities that vector instructions process together.
pub type SimdLanes = [f32; LANES];

/// Up to [`LANES`] entities that a behaviour moves together by vector instructions.
/// If there are fewer than [`LANES`] entities, the last one fills the remaining lanes, whose results are ignored.
#[derive(Debug, Clone, Copy)]
pub struct OwnEntityLanes<const D: usize> {
    /// Id of each lane's entity.
    pub ids: [EntityId; LANES],
    /// Kind of each lane's entity.
    pub kinds: [u32; LANES],
    /// Position of each lane's entity, by axis and lane.
    pub position: [SimdLanes; D],
    /// Velocity of each lane's entity, by axis and lane.
    pub velocity: [SimdLanes; D],
}

/// One neighbour of the entities that a behaviour moves together. Each lane has the neighbour's offset and distance from
/// one of these entities.
#[derive(Debug, Clone, Copy)]
pub struct OtherEntityLanes<const D: usize> {
    /// The other entity's kind.
    pub kind: u32,
    /// Velocity of the other entity, units a second.
    pub velocity: Point<D>,
    /// Vectors from each lane's entity to the other entity, by axis and lane.
    pub offset: [SimdLanes; D],
    /// Square of the distance between each lane's entity and the other entity.
    pub distance_sq: SimdLanes,
    /// 1 for each lane whose entity has the other entity in sight, and 0 for each lane whose entity does not. Also 0
    /// for a lane that holds the other entity itself.
    pub seen: SimdLanes,
}

/// The entities near those that a behaviour moves together by vector instructions.
///
/// Some of the nearby entities may be out of sight of a lane's entity; [`OtherEntityLanes::seen`] is then 0 for this
/// lane.
pub trait NearbyEntityLanes<const D: usize> {
    /// Yields each entity once. The entities that a lane's entity has in sight come in the order of
    /// [`NearbyEntities::for_each`](super::NearbyEntities::for_each).
    ///
    /// Use a loop over the iterator: the compiler uses the processor's vector instructions for a loop, but perhaps not
    /// for a closure.
    fn others(&self) -> impl Iterator<Item = OtherEntityLanes<D>>;
}

impl<const D: usize> OwnEntityLanes<D> {
    /// Returns the entity of one lane.
    #[inline(always)]
    pub fn own(&self, lane: usize) -> OwnEntity<D> {
        let (mut position, mut velocity) = ([0.0; D], [0.0; D]);
        for axis in 0..D {
            position[axis] = self.position[axis][lane];
            velocity[axis] = self.velocity[axis][lane];
        }
        OwnEntity { id: self.ids[lane], kind: self.kinds[lane], position, velocity }
    }
}
