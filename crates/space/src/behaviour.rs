//! What makes entities move.
//!
//! A behaviour sees the world as it was after the last tick, and says where one entity is after this one. So it does not matter
//! in which order, or in which region, entities are asked. What it needs by chance it draws from [`Moment::chance`], which
//! follows from the seed, the tick and the id.
//!
//! To give the same bytes on any number of regions, a behaviour uses operations that are exact everywhere: sums, products,
//! quotients and square roots, not sines.

mod flock;
mod lanes;
mod oscillate;
mod prey;
mod track;
mod walk;

use crate::entity::EntityId;
use crate::world::{Point, World};

pub use flock::Flock;
pub use lanes::{AroundLanes, LANES, Lanes, OtherLanes, OwnLanes};
pub use oscillate::Oscillate;
pub use prey::{PREDATOR, PREY, Prey};
pub use track::{Track, TrackError, Tracks};
pub use walk::Walk;

/// Moves entities.
pub trait Behaviour<const D: usize> {
    /// How far an entity sees others; 0 if it looks at nobody. It stays the same.
    fn sight(&self) -> f32 {
        0.0
    }

    /// Where an entity is after this tick, and how fast. What is not finite, or panics, freezes the entity, and is reported.
    fn step(&self, own: &Own<D>, around: &impl Around<D>, moment: &Moment<D>) -> Motion<D>;

    /// The same for [`LANES`] entities at once, for who sees and gains by it: each is moved as [`Behaviour::step`] would move it, to the bit.
    /// Nothing, which is what is said unless this is written: they are asked one by one.
    #[inline(always)]
    fn step_lanes(
        &self,
        _own: &OwnLanes<D>,
        _around: &impl AroundLanes<D>,
        _moment: &Moment<D>,
    ) -> Option<[Motion<D>; LANES]> {
        None
    }
}

/// The entity that is asked.
#[derive(Debug, Clone, Copy)]
pub struct Own<const D: usize> {
    /// Its number.
    pub id: EntityId,
    /// Its kind.
    pub kind: u32,
    /// Where it is.
    pub position: Point<D>,
    /// How fast it is, units a second.
    pub velocity: Point<D>,
}

/// Where it is next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Motion<const D: usize> {
    /// Its position; outside of the world the nearest inside is taken.
    pub position: Point<D>,
    /// Its velocity, units a second.
    pub velocity: Point<D>,
}

/// Another entity within sight.
#[derive(Debug, Clone, Copy)]
pub struct Other<const D: usize> {
    /// Its kind.
    pub kind: u32,
    /// From the entity that is asked to it.
    pub offset: Point<D>,
    /// The square of the distance.
    pub distance_sq: f32,
    /// How fast it is.
    pub velocity: Point<D>,
}

/// The entities within sight.
pub trait Around<const D: usize> {
    /// Visits each once, itself left out, in an order that follows from the world's state alone: row by row of the world's
    /// cells, within a cell by id.
    fn each(&self, visit: impl FnMut(&Other<D>));
}

/// Which tick it is, and of what world.
#[derive(Debug, Clone, Copy)]
pub struct Moment<const D: usize> {
    /// The tick that is being made.
    pub tick: u64,
    /// How long it is, seconds.
    pub seconds: f32,
    /// The world.
    pub world: World<D>,
    /// What chance follows from.
    pub seed: u64,
}

impl<const D: usize> Moment<D> {
    /// A number that looks random: the same for the same entity, tick, seed and `which`.
    pub fn chance(&self, id: EntityId, which: u64) -> u64 {
        let mut mixed =
            self.seed ^ id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.tick.rotate_left(32) ^ which << 56;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From -1 up to 1.
    pub fn swing(&self, id: EntityId, which: u64) -> f32 {
        (self.chance(id, which) >> 39) as f32 / (1 << 24) as f32 - 1.0
    }

    /// Goes on straight, and is thrown back by the walls of the world.
    #[inline(always)]
    pub fn fly(&self, position: &Point<D>, velocity: &Point<D>) -> Motion<D> {
        self.fly_between(position, velocity, &self.world.min(), &self.world.max())
    }

    /// The same between other walls.
    #[inline(always)]
    pub fn fly_between(
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
            let thrown =
                if below { low[axis] + (low[axis] - ahead) } else { high[axis] - (ahead - high[axis]) };
            let inside = if below | above { thrown } else { ahead };
            // Whoever is faster than the world is wide ends at a wall.
            motion.position[axis] = inside.max(low[axis]).min(high[axis]);
            motion.velocity[axis] = if below | above { -velocity[axis] } else { velocity[axis] };
        }
        motion
    }
}

/// Makes a vector no longer than this.
#[inline(always)]
pub(crate) fn shorten<const D: usize>(vector: Point<D>, max: f32) -> Point<D> {
    let length_sq: f32 = (0..D).fold(0.0, |sum, axis| sum + vector[axis] * vector[axis]);
    if length_sq <= max * max {
        return vector;
    }
    let factor = max / length_sq.sqrt();
    vector.map(|along| along * factor)
}
