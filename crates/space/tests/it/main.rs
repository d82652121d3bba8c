//! Tests of the crate's public interface.

mod census;
mod chaos;
mod golden;
mod handover;
mod index;
mod interest;
mod lockstep;
mod partition;
mod reducer;
mod region;

use dunlin_space::*;

/// A generator of pseudorandom numbers, which are the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to, but not including, 1.
    fn unit(&mut self) -> f32 {
        (self.roll() >> 40) as f32 / (1 << 24) as f32
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }
}

/// Gives a sight to a behaviour without changing the results of the behaviour. The region then runs the code for
/// behaviours with sight.
#[derive(Clone, Copy)]
struct Sees<B>(B);

impl<const D: usize, B: Behaviour<D>> Behaviour<D> for Sees<B> {
    fn sight(&self) -> f32 {
        1.0
    }

    fn step(
        &self,
        own: &OwnEntity<D>,
        around: &impl NearbyEntities<D>,
        context: &TickContext<D>,
    ) -> Motion<D> {
        self.0.step(own, around, context)
    }
}
