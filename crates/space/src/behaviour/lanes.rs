//! Types with which a behaviour moves several nearby entities at once by vector instructions.

use super::OwnEntity;
use crate::entity::EntityId;
use crate::world::Point;

/// How many entities are moved together.
pub const LANES: usize = 8;

/// An array with one number for each of the [`LANES`] entities that vector instructions process together.
pub type SimdLanes = [f32; LANES];

/// Up to [`LANES`] entities that a behaviour moves together by vector instructions. If there are fewer than [`LANES`]
/// entities, the remaining lanes contain copies of the last entity. The results of these lanes are ignored.
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

/// One neighbour of the entities that a behaviour moves together. Lane by lane, it contains the offset and the distance
/// from the lane's entity to the neighbour.
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
    /// One number for each lane: 1 if the lane's entity has the other entity in sight, 0 if it does not. The number is
    /// also 0 if the lane's entity is the other entity itself.
    pub seen: SimdLanes,
}

/// The entities near the entities that a behaviour moves together by vector instructions.
///
/// A nearby entity may be in sight of some lanes' entities only. For the other lanes, [`OtherEntityLanes::seen`] is 0.
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
