//! A behaviour that moves entities back and forth between two walls.

use super::{Behaviour, Motion, NearbyEntities, OwnEntity, TickContext};

/// A behaviour for tests that moves entities back and forth between two walls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Oscillation {
    /// Coordinate of the lower wall.
    pub low: f32,
    /// Coordinate of the upper wall.
    pub high: f32,
}

impl<const D: usize> Behaviour<D> for Oscillation {
    #[inline(always)]
    fn step(&self, own: &OwnEntity<D>, _: &impl NearbyEntities<D>, context: &TickContext<D>) -> Motion<D> {
        let (mut low, mut high) = (context.world.min(), context.world.max());
        (low[0], high[0]) = (self.low, self.high);
        context.move_straight_between(&own.position, &own.velocity, &low, &high)
    }
}
