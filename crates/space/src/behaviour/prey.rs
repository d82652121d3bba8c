//! A behaviour in which predators chase the nearest prey. Prey flees from predators, and flies in flocks while no
//! predator is in sight.

use super::{Behaviour, Flock, Motion, NearbyEntities, OtherEntity, OwnEntity, TickContext, shorten};
use crate::world::Point;

/// The entity kind of prey.
pub const PREY: u32 = 1;
/// The entity kind of predators.
pub const PREDATOR: u32 = 2;

/// A behaviour that moves predators and prey. Entities of other kinds fly straight on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredatorPrey {
    /// How prey flies while no predator is in sight.
    pub flock: Flock,
    /// Speed of fleeing prey.
    pub panic_speed: f32,
    /// Speed of predators.
    pub chase_speed: f32,
    /// How far predators and prey see.
    pub sight: f32,
}

impl Default for PredatorPrey {
    fn default() -> PredatorPrey {
        let flock = Flock { sight: 25.0, speed_max: 18.0, ..Flock::default() };
        PredatorPrey { flock, panic_speed: 25.0, chase_speed: 16.0, sight: 25.0 }
    }
}

impl PredatorPrey {
    /// Returns the motion of `own` in this tick at `speed` in `direction`.
    fn towards<const D: usize>(
        direction: Point<D>,
        speed: f32,
        own: &OwnEntity<D>,
        context: &TickContext<D>,
    ) -> Motion<D> {
        context.move_straight(&own.position, &shorten(direction.map(|along| along * 1e6), speed))
    }
}

impl<const D: usize> Behaviour<D> for PredatorPrey {
    fn sight(&self) -> f32 {
        self.sight.max(self.flock.sight)
    }

    fn step(
        &self,
        own: &OwnEntity<D>,
        around: &impl NearbyEntities<D>,
        context: &TickContext<D>,
    ) -> Motion<D> {
        let hunted = if own.kind == PREY { PREDATOR } else { PREY };
        let mut nearest: Option<OtherEntity<D>> = None;
        around.for_each(|other| {
            let nearer = nearest.is_none_or(|nearest| other.distance_sq < nearest.distance_sq);
            if other.kind == hunted && nearer {
                nearest = Some(*other);
            }
        });
        match (own.kind, nearest) {
            (PREDATOR, Some(prey)) => PredatorPrey::towards(prey.offset, self.chase_speed, own, context),
            (PREY, Some(predator)) => {
                PredatorPrey::towards(predator.offset.map(|along| -along), self.panic_speed, own, context)
            }
            (PREY, None) => self.flock.step(own, around, context),
            _ => context.move_straight(&own.position, &own.velocity),
        }
    }
}
