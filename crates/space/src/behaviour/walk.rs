//! A behaviour that moves entities along random paths.

use super::{Behaviour, Motion, NearbyEntities, OwnEntity, TickContext, shorten};

/// A behaviour that moves entities at random: the velocity changes a little in every tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomWalk {
    /// Highest speed, units a second.
    pub speed_max: f32,
    /// Highest change of velocity in a tick, on each axis.
    pub turn: f32,
}

impl<const D: usize> Behaviour<D> for RandomWalk {
    #[inline(always)]
    fn step(&self, own: &OwnEntity<D>, _: &impl NearbyEntities<D>, context: &TickContext<D>) -> Motion<D> {
        let turned = std::array::from_fn(|axis| {
            own.velocity[axis] + self.turn * context.random_signed(own.id, axis as u64)
        });
        context.move_straight(&own.position, &shorten(turned, self.speed_max))
    }
}
