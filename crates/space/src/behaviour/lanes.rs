//! Some entities that stand near each other, asked at once: a processor does with eight numbers what it does with one.

use super::Own;
use crate::entity::EntityId;
use crate::world::Point;

/// How many are asked at once.
pub const LANES: usize = 8;

/// A number for each of them.
pub type Lanes = [f32; LANES];

/// The entities that are asked. Where fewer are left, the last stands in the lanes that are over as well, and nobody looks at what is said there.
#[derive(Debug, Clone, Copy)]
pub struct OwnLanes<const D: usize> {
    /// Their numbers.
    pub ids: [EntityId; LANES],
    /// Their kinds.
    pub kinds: [u32; LANES],
    /// Where they are, by axis.
    pub position: [Lanes; D],
    /// How fast they are, by axis.
    pub velocity: [Lanes; D],
}

/// Another entity that some of them may see, or none.
#[derive(Debug, Clone, Copy)]
pub struct OtherLanes<const D: usize> {
    /// Its kind.
    pub kind: u32,
    /// How fast it is.
    pub velocity: Point<D>,
    /// From each of those asked to it, by axis.
    pub offset: [Lanes; D],
    /// The squares of the distances.
    pub distance_sq: Lanes,
    /// 1 for whom it is within sight, 0 for whom it is not, or who it is itself.
    pub seen: Lanes,
}

/// The entities within sight of some of those asked, and some more beside them.
pub trait AroundLanes<const D: usize> {
    /// Each once, in an order in which each of those asked finds its own in the order of [`Around::each`](super::Around::each). To be
    /// gone through by a loop: what is in a loop is compiled for the vectors of the processor at hand, what is in a closure may not be.
    fn others(&self) -> impl Iterator<Item = OtherLanes<D>>;
}

impl<const D: usize> OwnLanes<D> {
    /// One of them.
    #[inline(always)]
    pub fn own(&self, lane: usize) -> Own<D> {
        let (mut position, mut velocity) = ([0.0; D], [0.0; D]);
        for axis in 0..D {
            position[axis] = self.position[axis][lane];
            velocity[axis] = self.velocity[axis][lane];
        }
        Own { id: self.ids[lane], kind: self.kinds[lane], position, velocity }
    }
}
