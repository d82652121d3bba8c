//! A behaviour that moves entities in flocks, by the three rules of Reynolds' boids (1987): separation, alignment and
//! cohesion.

use super::{
    Behaviour, LANES, Motion, NearbyEntities, NearbyEntityLanes, OtherEntity, OwnEntity, OwnEntityLanes,
    SimdLanes, TickContext, shorten,
};
use crate::world::Point;

/// A behaviour that moves entities like a flock of birds. Lengths are in units of the world, times in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flock {
    /// How far a member of the flock sees.
    pub sight: f32,
    /// Distance that a member keeps from other members.
    pub apart: f32,
    /// Highest speed.
    pub speed_max: f32,
    /// Highest change of velocity in a second.
    pub force_max: f32,
    /// Weights of separation, alignment and cohesion.
    pub weights: [f32; 3],
}

impl Default for Flock {
    fn default() -> Flock {
        Flock { sight: 10.0, apart: 3.0, speed_max: 15.0, force_max: 25.0, weights: [1.5, 1.0, 1.0] }
    }
}

/// Sums over all members of the flock within sight.
#[derive(Debug, Clone, Copy)]
struct Sums<const D: usize> {
    separation: Point<D>,
    alignment: Point<D>,
    cohesion: Point<D>,
    count: f32,
}

impl Flock {
    #[inline(always)]
    fn motion<const D: usize>(
        &self,
        own: &OwnEntity<D>,
        sums: &Sums<D>,
        context: &TickContext<D>,
    ) -> Motion<D> {
        let Sums { separation, alignment, cohesion, count } = sums;
        let mut velocity = own.velocity;
        if *count > 0.0 {
            let [push, align, gather] = self.weights;
            let desired: [f32; D] = std::array::from_fn(|axis| {
                let alignment = alignment[axis] / count - own.velocity[axis];
                push * separation[axis] * self.speed_max
                    + align * alignment
                    + gather * (cohesion[axis] / count)
            });
            let change = shorten(desired, self.force_max);
            velocity = std::array::from_fn(|axis| own.velocity[axis] + change[axis] * context.seconds);
        }
        context.move_straight(&own.position, &shorten(velocity, self.speed_max))
    }
}

impl<const D: usize> Behaviour<D> for Flock {
    fn sight(&self) -> f32 {
        self.sight
    }

    #[inline(always)]
    fn step(
        &self,
        own: &OwnEntity<D>,
        around: &impl NearbyEntities<D>,
        context: &TickContext<D>,
    ) -> Motion<D> {
        let mut sums = Sums { separation: [0.0; D], alignment: [0.0; D], cohesion: [0.0; D], count: 0.0 };
        let apart_sq = self.apart * self.apart;
        around.for_each(|other: &OtherEntity<D>| {
            // The lower bound of the divisor prevents a division by 0 for a member at the same position. Dividing in
            // every case costs less than a mispredicted branch.
            let push = f32::from(u8::from(other.distance_sq < apart_sq)) / other.distance_sq.max(1e-6);
            for axis in 0..D {
                sums.separation[axis] -= other.offset[axis] * push;
                sums.alignment[axis] += other.velocity[axis];
                sums.cohesion[axis] += other.offset[axis];
            }
            sums.count += 1.0;
        });
        self.motion(own, &sums, context)
    }

    /// Members out of sight add exactly 0 to the sums.
    #[inline(always)]
    fn step_lanes(
        &self,
        own: &OwnEntityLanes<D>,
        around: &impl NearbyEntityLanes<D>,
        context: &TickContext<D>,
    ) -> Option<[Motion<D>; LANES]> {
        let mut separation: [SimdLanes; D] = [[0.0; LANES]; D];
        let (mut alignment, mut cohesion, mut count) = (separation, separation, [0.0; LANES]);
        let apart_sq = self.apart * self.apart;
        for other in around.others() {
            let mut push = [0.0; LANES];
            for lane in 0..LANES {
                let close = if other.distance_sq[lane] < apart_sq { other.seen[lane] } else { 0.0 };
                push[lane] = close / other.distance_sq[lane].max(1e-6);
                count[lane] += other.seen[lane];
            }
            for axis in 0..D {
                for lane in 0..LANES {
                    separation[axis][lane] -= other.offset[axis][lane] * push[lane];
                    alignment[axis][lane] += other.velocity[axis] * other.seen[lane];
                    cohesion[axis][lane] += other.offset[axis][lane] * other.seen[lane];
                }
            }
        }
        let mut motions = [Motion { position: [0.0; D], velocity: [0.0; D] }; LANES];
        for lane in 0..LANES {
            let of = |sums: &[SimdLanes; D]| sums.map(|along| along[lane]);
            let sums = Sums {
                separation: of(&separation),
                alignment: of(&alignment),
                cohesion: of(&cohesion),
                count: count[lane],
            };
            motions[lane] = self.motion(&own.own(lane), &sums, context);
        }
        Some(motions)
    }
}
