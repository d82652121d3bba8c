//! A random walk.

use super::{Around, Behaviour, Moment, Motion, Own, shorten};

/// Changes its mind at every tick, a little.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Walk {
    /// How fast it goes at most, units a second.
    pub speed_max: f32,
    /// By how much its velocity changes in a tick, along each axis.
    pub turn: f32,
}

impl<const D: usize> Behaviour<D> for Walk {
    #[inline(always)]
    fn step(&self, own: &Own<D>, _: &impl Around<D>, moment: &Moment<D>) -> Motion<D> {
        let turned =
            std::array::from_fn(|axis| own.velocity[axis] + self.turn * moment.swing(own.id, axis as u64));
        moment.fly(&own.position, &shorten(turned, self.speed_max))
    }
}
