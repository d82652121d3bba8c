//! To and fro between two walls.

use super::{Around, Behaviour, Moment, Motion, Own};

/// Flies straight, and turns at walls along the first axis; the document's geometry of hand-overs is this.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Oscillate {
    /// The lower wall.
    pub low: f32,
    /// The upper wall.
    pub high: f32,
}

impl<const D: usize> Behaviour<D> for Oscillate {
    #[inline(always)]
    fn step(&self, own: &Own<D>, _: &impl Around<D>, moment: &Moment<D>) -> Motion<D> {
        let (mut low, mut high) = (moment.world.min(), moment.world.max());
        (low[0], high[0]) = (self.low, self.high);
        moment.fly_between(&own.position, &own.velocity, &low, &high)
    }
}
