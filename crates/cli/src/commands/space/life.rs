//! How entities of a world of the command line move.

use std::sync::Arc;

use dunlin::space::behaviour::{Flock, Tracks};
use dunlin::space::{Around, Behaviour, Moment, Motion, Other, Own};

/// The kind of those that fly as they were recorded.
pub const AIRCRAFT: u32 = 1;

/// A flock, and recorded aircraft among it, by their kind. Birds do not see aircraft.
#[derive(Debug, Clone)]
pub struct Life {
    pub flock: Flock,
    pub aircraft: Arc<Tracks<3>>,
}

/// Only those who flock.
struct Birds<'a, A>(&'a A);

impl<A: Around<3>> Around<3> for Birds<'_, A> {
    #[inline(always)]
    fn each(&self, mut visit: impl FnMut(&Other<3>)) {
        self.0.each(|other| {
            if other.kind != AIRCRAFT {
                visit(other);
            }
        });
    }
}

impl Behaviour<3> for Life {
    fn sight(&self) -> f32 {
        self.flock.sight
    }

    #[inline(always)]
    fn step(&self, own: &Own<3>, around: &impl Around<3>, moment: &Moment<3>) -> Motion<3> {
        if own.kind == AIRCRAFT {
            self.aircraft.step(own, around, moment)
        } else {
            self.flock.step(own, &Birds(around), moment)
        }
    }
}
