//! Tests that equal inputs give equal bytes, whatever the number of regions. Also tests that a standby that has read an
//! owner's records has the owner's state.

use dunlin_space::behaviour::{Flock, Oscillation, PREDATOR, PREY, PredatorPrey, RandomWalk};

use super::*;

fn populate<const D: usize, B: Behaviour<D> + Clone>(
    stage: &mut Lockstep<D, B>,
    count: u64,
    edge: f32,
    seed: u64,
) {
    let mut dice = Dice(seed);
    for id in 0..count {
        let mut entity = Entity::at(id, std::array::from_fn(|_| dice.unit() * edge));
        entity.velocity = std::array::from_fn(|_| (dice.unit() - 0.5) * 60.0);
        entity.kind = if id % 12 == 0 { PREDATOR } else { PREY };
        stage.spawn(&entity).unwrap();
    }
}

/// Runs a world that is divided into `regions` regions. Returns the entities of the world after each tick.
fn run<const D: usize, B: Behaviour<D> + Clone>(
    behaviour: &B,
    strip: f32,
    regions: u32,
) -> Vec<Vec<(EntityId, u32, u64)>> {
    let world = WorldBox::<D>::cube(100.0).unwrap();
    let mut stage = Lockstep::new(&RegionSetup::new(RegionId(0), world, strip), behaviour, regions);
    populate(&mut stage, 400, 100.0, 42);
    let mut handed_over = 0;
    let ledgers = (0..40)
        .map(|tick| {
            if tick == 20 {
                let late = Entity { velocity: [9.0; D], kind: PREY, ..Entity::at(4_000, [49.9; D]) };
                stage.spawn(&late).unwrap();
            }
            stage.tick().unwrap();
            handed_over = stage.regions().map(|region| region.handover().counts().departed).sum();
            stage.ledger()
        })
        .collect();
    assert!(regions == 1 || handed_over > 5, "{handed_over} crossed a border");
    assert_eq!(stage.take_reports(), []);
    ledgers
}

fn assert_region_count_changes_nothing<const D: usize, B: Behaviour<D> + Clone>(behaviour: &B, strip: f32) {
    let one = run::<D, B>(behaviour, strip, 1);
    assert_ne!(one[0], one[39]);
    for regions in [2, 3, 8] {
        assert!(one == run::<D, B>(behaviour, strip, regions), "{regions} regions");
    }
}

#[test]
fn birds_move_equally_with_any_number_of_regions() {
    let flock = Flock { sight: 9.0, ..Flock::default() };
    assert_region_count_changes_nothing::<3, _>(&flock, 9.0);
    assert_region_count_changes_nothing::<2, _>(&flock, 9.0);
}

/// Wraps a behaviour without its method `step_lanes`, so that the region moves entities one by one.
#[derive(Clone)]
struct Alone<B>(B);

impl<const D: usize, B: Behaviour<D>> Behaviour<D> for Alone<B> {
    fn sight(&self) -> f32 {
        self.0.sight()
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

/// Moves entities in groups. Checks that the result equals the result of moving the entities one by one.
fn run_in_groups<const D: usize, B: Behaviour<D> + Clone>(behaviour: &B, strip: f32) -> u64 {
    let grouped = run::<D, _>(behaviour, strip, 3);
    assert!(
        grouped == run::<D, _>(&Alone(behaviour.clone()), strip, 3),
        "groups and single entities must move alike"
    );
    grouped[39].iter().fold(0, |sum, (id, _, state)| sum.rotate_left(5) ^ id.0 ^ state)
}

#[test]
fn batched_and_single_steps_give_equal_states_on_any_processor() {
    let near = Flock { sight: 9.0, ..Flock::default() };
    let far = Flock { sight: 60.0, apart: 20.0, ..Flock::default() };
    let states = [
        run_in_groups::<3, _>(&near, 9.0),
        run_in_groups::<2, _>(&near, 9.0),
        run_in_groups::<3, _>(&far, 60.0),
    ];
    assert_eq!(
        states.map(|state| format!("{state:016x}")),
        ["238e235c325d4e33", "ec44ed2bda4038df", "8ccab7510086a06c"]
    );
}

/// A region moves entities in groups if the behaviour has no sight. `Sees` gives the behaviour a sight, so that the
/// region moves the entities one by one.
#[test]
fn entities_move_equally_in_groups_and_one_by_one() {
    let (walk, straight) = (RandomWalk { speed_max: 30.0, turn: 4.0 }, Oscillation { low: 20.0, high: 80.0 });
    for regions in [1, 2, 3] {
        assert!(run::<3, _>(&walk, 0.5, regions) == run::<3, _>(&Sees(walk), 0.5, regions));
        assert!(run::<3, _>(&straight, 0.5, regions) == run::<3, _>(&Sees(straight), 0.5, regions));
        assert!(run::<2, _>(&straight, 0.5, regions) == run::<2, _>(&Sees(straight), 0.5, regions));
    }
}

#[test]
fn predator_and_prey_movement_is_independent_of_region_count() {
    assert_region_count_changes_nothing::<3, _>(
        &PredatorPrey {
            sight: 12.0,
            flock: Flock { sight: 9.0, ..Flock::default() },
            ..PredatorPrey::default()
        },
        12.0,
    );
}

#[test]
fn random_walks_and_oscillations_do_not_depend_on_region_count() {
    assert_region_count_changes_nothing::<3, _>(&RandomWalk { speed_max: 30.0, turn: 4.0 }, 0.5);
    assert_region_count_changes_nothing::<2, _>(&Oscillation { low: 26.0, high: 74.0 }, 0.5);
}

/// Checks that the comparison of region counts can fail: with a very narrow strip, entities near a border miss some
/// neighbours.
#[test]
fn too_few_ghosts_change_the_movement_of_entities() {
    let flock = Flock { sight: 9.0, ..Flock::default() };
    assert!(run::<3, _>(&flock, 0.01, 1) != run::<3, _>(&flock, 0.01, 3));
}

#[test]
fn standby_that_reads_the_records_has_the_state_of_the_owner() {
    let world = WorldBox::<3>::cube(100.0).unwrap();
    let walk = Sees(RandomWalk { speed_max: 40.0, turn: 6.0 });
    let mut setup = RegionSetup::new(RegionId(0), world, 1.0);
    setup.sort_every = 7;
    let mut stage = Lockstep::new(&setup, &walk, 3);
    let fresh = |id: u32| {
        RegionState::new(
            world,
            EntityStore::new(Schema::default(), RegionLimits::default()),
            Handover::new(RegionId(id), 1, StandbyMode::None, HandoverTiming::default()),
        )
    };
    let mut twins: Vec<RegionState<3>> = (1..=3).map(fresh).collect();
    populate(&mut stage, 300, 100.0, 5);
    for _ in 0..60 {
        stage.tick().unwrap();
        for ((_, record), twin) in stage.take_records().into_iter().zip(&mut twins) {
            twin.follow(&record).unwrap();
        }
        for (region, twin) in stage.regions().zip(&twins) {
            // The ids are equal row by row, not only as a set.
            assert_eq!(region.store().ids(), twin.store().ids());
            assert_eq!(region.store().ledger(), twin.store().ledger());
            assert_eq!(region.tick_number(), twin.tick());
        }
    }
    assert!(stage.regions().map(|region| region.handover().counts().admitted).sum::<u64>() > 50);
}
