//! Moves the entities in worlds that `dunlin space run` starts: a flock of birds and recorded aircraft.

use std::sync::Arc;

use dunlin::space::behaviour::{Flock, Tracks};
use dunlin::space::{
    Behaviour, LANES, Motion, NearbyEntities, NearbyEntityLanes, OtherEntity, OtherEntityLanes, OwnEntity,
    OwnEntityLanes, TickContext,
};

/// The kind of the entities that are recorded aircraft.
pub const AIRCRAFT: u32 = 1;

/// The behaviour of a world with a flock of birds and with recorded aircraft. The birds ignore the aircraft.
#[derive(Debug, Clone)]
pub struct FlockAndAircraft {
    pub flock: Flock,
    pub aircraft: Arc<Tracks<3>>,
}

/// The neighbours of an entity, without the aircraft among them.
struct BirdsOnly<'a, A>(&'a A);

impl<A: NearbyEntities<3>> NearbyEntities<3> for BirdsOnly<'_, A> {
    #[inline(always)]
    fn for_each(&self, mut visit: impl FnMut(&OtherEntity<3>)) {
        self.0.for_each(|other| {
            if other.kind != AIRCRAFT {
                visit(other);
            }
        });
    }
}

impl<A: NearbyEntityLanes<3>> NearbyEntityLanes<3> for BirdsOnly<'_, A> {
    #[inline(always)]
    fn others(&self) -> impl Iterator<Item = OtherEntityLanes<3>> {
        self.0.others().filter(|other| other.kind != AIRCRAFT)
    }
}

impl Behaviour<3> for FlockAndAircraft {
    fn sight(&self) -> f32 {
        self.flock.sight
    }

    #[inline(always)]
    fn step(
        &self,
        own: &OwnEntity<3>,
        around: &impl NearbyEntities<3>,
        moment: &TickContext<3>,
    ) -> Motion<3> {
        if own.kind == AIRCRAFT {
            self.aircraft.step(own, around, moment)
        } else {
            self.flock.step(own, &BirdsOnly(around), moment)
        }
    }

    /// Moves a group of birds together. Returns `None` if the group contains an aircraft: the caller then moves the
    /// group's entities one by one.
    #[inline(always)]
    fn step_lanes(
        &self,
        own: &OwnEntityLanes<3>,
        around: &impl NearbyEntityLanes<3>,
        moment: &TickContext<3>,
    ) -> Option<[Motion<3>; LANES]> {
        if own.kinds.contains(&AIRCRAFT) {
            return None;
        }
        self.flock.step_lanes(own, &BirdsOnly(around), moment)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use dunlin::space::behaviour::Track;
    use dunlin::space::{Entity, EntityId, Lockstep, RegionId, RegionSetup, WorldBox};

    use super::*;

    const EDGE: f32 = 100.0;
    const BIRDS: u64 = 1_200;
    const FLIGHTS: u64 = 40;

    /// A behaviour for tests. With `alone`, all entities are moved one by one. Without `alone`, `together` counts the
    /// groups whose entities were moved together, and `beside_aircraft` counts the groups with an aircraft.
    #[derive(Clone)]
    struct CountingLife {
        life: FlockAndAircraft,
        alone: bool,
        together: Arc<AtomicU64>,
        beside_aircraft: Arc<AtomicU64>,
    }

    impl Behaviour<3> for CountingLife {
        fn sight(&self) -> f32 {
            self.life.sight()
        }

        fn step(
            &self,
            own: &OwnEntity<3>,
            around: &impl NearbyEntities<3>,
            moment: &TickContext<3>,
        ) -> Motion<3> {
            self.life.step(own, around, moment)
        }

        fn step_lanes(
            &self,
            own: &OwnEntityLanes<3>,
            around: &impl NearbyEntityLanes<3>,
            moment: &TickContext<3>,
        ) -> Option<[Motion<3>; LANES]> {
            if self.alone {
                return None;
            }
            let motions = self.life.step_lanes(own, around, moment);
            let counted = if motions.is_some() { &self.together } else { &self.beside_aircraft };
            counted.fetch_add(1, Relaxed);
            motions
        }
    }

    fn life() -> FlockAndAircraft {
        let track_of = |nth: u64| {
            let across = nth as f32 / FLIGHTS as f32 * EDGE;
            Track::new(vec![(0.0, [0.0, across, 50.0]), (10.0, [EDGE, EDGE - across, 50.0])]).unwrap()
        };
        let tracks: BTreeMap<_, _> = (0..FLIGHTS).map(|nth| (EntityId(BIRDS + nth), track_of(nth))).collect();
        let flock = Flock { sight: 12.0, ..Flock::default() };
        FlockAndAircraft { flock, aircraft: Arc::new(Tracks::new(tracks, 1.0)) }
    }

    /// The id of each entity, its generation, and a hash of its state.
    type Ledger = Vec<(EntityId, u32, u64)>;

    /// Runs a world for several ticks. Returns the entities after each tick, the number of groups whose entities were
    /// moved together, and the number of groups with an aircraft.
    fn fly(alone: bool) -> (Vec<Ledger>, u64, u64) {
        let (together, beside_aircraft) = <(Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let behaviour = CountingLife {
            life: life(),
            alone,
            together: together.clone(),
            beside_aircraft: beside_aircraft.clone(),
        };
        let world = WorldBox::cube(EDGE).unwrap();
        let mut lockstep = Lockstep::new(&RegionSetup::new(RegionId(0), world, 12.0), &behaviour, 3);
        let moment = TickContext { tick: 0, seconds: 0.0, world, seed: 11 };
        for nth in 0..BIRDS + FLIGHTS {
            let unit = |which| (moment.random_signed(EntityId(nth), which) + 1.0) / 2.0;
            let kind = if nth < BIRDS { 0 } else { AIRCRAFT };
            let velocity = [3, 4, 5].map(|which| (unit(which) - 0.5) * 20.0);
            let position = [0, 1, 2].map(|which| unit(which) * EDGE);
            lockstep.spawn(&Entity { kind, velocity, ..Entity::at(nth, position) }).unwrap();
        }
        let states = (0..25).map(|_| lockstep.tick().map(|_| lockstep.ledger()).unwrap()).collect();
        (states, together.load(Relaxed), beside_aircraft.load(Relaxed))
    }

    #[test]
    fn birds_move_equally_in_groups_and_one_by_one() {
        let (states, together, beside_aircraft) = fly(false);
        assert!(together > 1_000 && beside_aircraft > 100, "{together}, {beside_aircraft}");
        assert!(states[0] != states[24]);
        assert!(states == fly(true).0, "alone they go elsewhere");
    }
}
