//! Defines how the entities of a measured world move.

use dunlin::space::behaviour::Flock;
use dunlin::space::{
    Behaviour, LANES, Motion, NearbyEntities, NearbyEntityLanes, OwnEntity, OwnEntityLanes, TickContext,
};
use serde::{Deserialize, Serialize};

/// The axis along which two regions divide the world. The highest bit of a key on the space-filling curve stands for
/// this axis.
pub const ACROSS: usize = 2;

/// How the entities of a measured world move.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum MovementPattern {
    /// Entities move back and forth between two walls. The regions' border is between the walls.
    Oscillate {
        /// The lower wall.
        low: f32,
        /// The upper wall.
        high: f32,
    },
    /// Each entity moves back and forth within its half of the world, so no entity crosses the border between the
    /// halves.
    Halves {
        /// The border between the halves.
        middle: f32,
    },
    /// Entities form a flock: each member adapts its velocity to the members that it sees.
    Flock {
        /// How far a member sees.
        sight: f32,
    },
    /// Entities walk to places around a position, and stay there.
    Gather {
        /// The position to which entities walk.
        at: [f32; 3],
        /// Half of the edge length of the cube in which entities stop. The position is the centre of the cube.
        radius: f32,
    },
}

impl Behaviour<3> for MovementPattern {
    fn sight(&self) -> f32 {
        match self {
            Self::Flock { sight } => *sight,
            _ => 0.0,
        }
    }

    #[inline(always)]
    fn step(
        &self,
        own: &OwnEntity<3>,
        around: &impl NearbyEntities<3>,
        moment: &TickContext<3>,
    ) -> Motion<3> {
        match *self {
            Self::Oscillate { low, high } => {
                let (mut from, mut to) = (moment.world.min(), moment.world.max());
                (from[ACROSS], to[ACROSS]) = (low, high);
                moment.move_straight_between(&own.position, &own.velocity, &from, &to)
            }
            Self::Halves { middle } => {
                let (mut low, mut high) = (moment.world.min(), moment.world.max());
                // The values are selected without a branch, so that the compiler can process eight entities with each
                // instruction.
                let lower = own.position[ACROSS] < middle;
                low[ACROSS] = if lower { low[ACROSS] } else { middle };
                high[ACROSS] = if lower { below(middle) } else { high[ACROSS] };
                moment.move_straight_between(&own.position, &own.velocity, &low, &high)
            }
            Self::Flock { sight } => Flock { sight, ..Flock::default() }.step(own, around, moment),
            Self::Gather { at, radius } => gather(own, moment, at, radius),
        }
    }

    #[inline(always)]
    fn step_lanes(
        &self,
        own: &OwnEntityLanes<3>,
        around: &impl NearbyEntityLanes<3>,
        moment: &TickContext<3>,
    ) -> Option<[Motion<3>; LANES]> {
        let Self::Flock { sight } = *self else { return None };
        Flock { sight, ..Flock::default() }.step_lanes(own, around, moment)
    }
}

/// Returns a coordinate slightly below the border `middle`, which is certainly in the lower half.
fn below(middle: f32) -> f32 {
    middle * (1.0 - 1e-5)
}

/// Moves an entity of kind 1 straight to its own place near the point `at`. Entities of other kinds stay where they
/// are.
fn gather(own: &OwnEntity<3>, moment: &TickContext<3>, at: [f32; 3], radius: f32) -> Motion<3> {
    if own.kind != 1 {
        return Motion { position: own.position, velocity: [0.0; 3] };
    }
    let still = TickContext { tick: 0, ..*moment };
    let goal: [f32; 3] =
        std::array::from_fn(|axis| at[axis] + still.random_signed(own.id, axis as u64) * radius);
    let step = 25.0 * moment.seconds;
    let offset: [f32; 3] = std::array::from_fn(|axis| goal[axis] - own.position[axis]);
    let far = offset.iter().map(|along| along * along).sum::<f32>().sqrt();
    let part = if far <= step { 1.0 } else { step / far };
    let position = std::array::from_fn(|axis| own.position[axis] + offset[axis] * part);
    Motion { position, velocity: offset.map(|along| along * part / moment.seconds) }
}
