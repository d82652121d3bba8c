//! Boids: keep apart, fly alike, stay together (Reynolds 1987).

use super::{Around, Behaviour, Moment, Motion, Other, Own, shorten};

/// Flocks. Everything is in units of the world and seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flock {
    /// How far a member sees.
    pub sight: f32,
    /// How far it keeps others off.
    pub apart: f32,
    /// How fast it flies at most.
    pub speed_max: f32,
    /// How much it changes its velocity in a second at most.
    pub force_max: f32,
    /// Weights of keeping apart, flying alike and staying together.
    pub weights: [f32; 3],
}

impl Default for Flock {
    fn default() -> Flock {
        Flock { sight: 10.0, apart: 3.0, speed_max: 15.0, force_max: 25.0, weights: [1.5, 1.0, 1.0] }
    }
}

impl<const D: usize> Behaviour<D> for Flock {
    fn sight(&self) -> f32 {
        self.sight
    }

    #[inline(always)]
    fn step(&self, own: &Own<D>, around: &impl Around<D>, moment: &Moment<D>) -> Motion<D> {
        let (mut apart, mut alike, mut together, mut count) =
            ([0.0_f32; D], [0.0_f32; D], [0.0_f32; D], 0.0_f32);
        let apart_sq = self.apart * self.apart;
        around.each(|other: &Other<D>| {
            // Whoever is at the same place pushes nowhere. A division costs less than a branch that is foretold wrongly.
            let push = f32::from(u8::from(other.distance_sq < apart_sq)) / other.distance_sq.max(1e-6);
            for axis in 0..D {
                apart[axis] -= other.offset[axis] * push;
                alike[axis] += other.velocity[axis];
                together[axis] += other.offset[axis];
            }
            count += 1.0;
        });
        let mut velocity = own.velocity;
        if count > 0.0 {
            let [push, align, gather] = self.weights;
            let wish: [f32; D] = std::array::from_fn(|axis| {
                let alike = alike[axis] / count - own.velocity[axis];
                push * apart[axis] * self.speed_max + align * alike + gather * (together[axis] / count)
            });
            let change = shorten(wish, self.force_max);
            velocity = std::array::from_fn(|axis| own.velocity[axis] + change[axis] * moment.seconds);
        }
        moment.fly(&own.position, &shorten(velocity, self.speed_max))
    }
}
