//! Behaviours: code that moves entities.
//!
//! A behaviour reads the world as it was after the last tick, and returns the next position of one entity. The result
//! depends neither on the order in which entities are moved nor on the region that moves them. Random numbers come from
//! [`TickContext::random`]; they depend only on the seed, the tick, the entity's id and a number that the behaviour
//! chooses.
//!
//! The bytes that a world computes must not depend on the number of its regions. A behaviour must therefore use only
//! operations that give equal results on every machine: sums, products, quotients and square roots, but not sines.

mod flock;
mod lanes;
mod oscillate;
mod prey;
mod track;
mod walk;

use crate::entity::EntityId;
use crate::world::{Point, WorldBox};

pub use flock::Flock;
pub use lanes::{LANES, NearbyEntityLanes, OtherEntityLanes, OwnEntityLanes, SimdLanes};
pub use oscillate::Oscillation;
pub use prey::{PREDATOR, PREY, PredatorPrey};
pub use track::{Track, TrackError, Tracks};
pub use walk::RandomWalk;

/// Code that decides how entities move.
pub trait Behaviour<const D: usize> {
    /// Distance up to which an entity sees other entities; 0 if the behaviour does not use other entities. The returned
    /// value must always be the same.
    fn sight(&self) -> f32 {
        0.0
    }

    /// Returns the entity's position and velocity after this tick. If this method panics or returns a number that is
    /// not finite, the region freezes the entity and reports the fault.
    fn step(
        &self,
        own: &OwnEntity<D>,
        around: &impl NearbyEntities<D>,
        context: &TickContext<D>,
    ) -> Motion<D>;

    /// Moves [`LANES`] entities at once. The results must equal those of [`Behaviour::step`] in every bit. A behaviour
    /// may return `None`, as the default method does. The region then calls `step` for each entity.
    #[inline(always)]
    fn step_lanes(
        &self,
        _own: &OwnEntityLanes<D>,
        _around: &impl NearbyEntityLanes<D>,
        _moment: &TickContext<D>,
    ) -> Option<[Motion<D>; LANES]> {
        None
    }
}

/// The entity that a behaviour moves, in its state after the last tick.
#[derive(Debug, Clone, Copy)]
pub struct OwnEntity<const D: usize> {
    /// Id of the entity.
    pub id: EntityId,
    /// The entity's kind.
    pub kind: u32,
    /// Position after the last tick, in units of the world.
    pub position: Point<D>,
    /// Velocity, units a second.
    pub velocity: Point<D>,
}

/// The new position and velocity of an entity, as a behaviour returns them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Motion<const D: usize> {
    /// New position. A position outside the world is replaced by the nearest position inside.
    pub position: Point<D>,
    /// New velocity, units a second.
    pub velocity: Point<D>,
}

/// Another entity within sight of the entity that a behaviour moves.
#[derive(Debug, Clone, Copy)]
pub struct OtherEntity<const D: usize> {
    /// The other entity's kind.
    pub kind: u32,
    /// Vector from the moved entity to the other entity.
    pub offset: Point<D>,
    /// Square of the distance between the two entities.
    pub distance_sq: f32,
    /// Velocity of the other entity, units a second.
    pub velocity: Point<D>,
}

/// Iterates over the entities within sight of the entity that a behaviour moves.
pub trait NearbyEntities<const D: usize> {
    /// Calls `visit` once for each entity except the moved one. The order depends on the world's state alone: the
    /// entities come by row of grid cells, within a row by cell, and within a cell by id.
    fn for_each(&self, visit: impl FnMut(&OtherEntity<D>));
}

/// The tick in which a behaviour moves an entity: its number and length, the world, and the seed.
#[derive(Debug, Clone, Copy)]
pub struct TickContext<const D: usize> {
    /// Number of this tick.
    pub tick: u64,
    /// Length of a tick, seconds.
    pub seconds: f32,
    /// The world.
    pub world: WorldBox<D>,
    /// Seed of random numbers.
    pub seed: u64,
}

impl<const D: usize> TickContext<D> {
    /// Returns a pseudorandom number that depends only on the id, the tick, the seed and `which`. A behaviour that
    /// needs several numbers for an entity in one tick calls this method with different values of `which`.
    pub fn random(&self, id: EntityId, which: u64) -> u64 {
        let mut mixed =
            self.seed ^ id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.tick.rotate_left(32) ^ which << 56;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a pseudorandom number from -1 up to 1 that depends on the same values as [`TickContext::random`].
    pub fn random_signed(&self, id: EntityId, which: u64) -> f32 {
        (self.random(id, which) >> 39) as f32 / (1 << 24) as f32 - 1.0
    }

    /// Returns the motion in this tick of an entity that moves straight on and is reflected at the world's walls.
    #[inline(always)]
    pub fn move_straight(&self, position: &Point<D>, velocity: &Point<D>) -> Motion<D> {
        self.move_straight_between(position, velocity, &self.world.min(), &self.world.max())
    }

    /// Returns the motion in this tick of an entity that moves straight on and is reflected at the walls `low` and
    /// `high`.
    #[inline(always)]
    pub fn move_straight_between(
        &self,
        position: &Point<D>,
        velocity: &Point<D>,
        low: &Point<D>,
        high: &Point<D>,
    ) -> Motion<D> {
        let mut motion = Motion { position: *position, velocity: *velocity };
        for axis in 0..D {
            let ahead = position[axis] + velocity[axis] * self.seconds;
            let (below, above) = (ahead < low[axis], ahead > high[axis]);
            let reflected =
                if below { low[axis] + (low[axis] - ahead) } else { high[axis] - (ahead - high[axis]) };
            let inside = if below | above { reflected } else { ahead };
            // An entity that crosses more than the whole world in one tick ends at a wall.
            motion.position[axis] = inside.max(low[axis]).min(high[axis]);
            motion.velocity[axis] = if below | above { -velocity[axis] } else { velocity[axis] };
        }
        motion
    }
}

/// Shortens a vector to the length `max` if it is longer.
#[inline(always)]
pub(crate) fn shorten<const D: usize>(vector: Point<D>, max: f32) -> Point<D> {
    let length_sq: f32 = (0..D).fold(0.0, |sum, axis| sum + vector[axis] * vector[axis]);
    if length_sq <= max * max {
        return vector;
    }
    let factor = max / length_sq.sqrt();
    vector.map(|along| along * factor)
}
