//! Tests that regions survive faulty entities and behaviours, expired leases and unexpected messages.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;

/// A behaviour that records the kinds of the entities near entity 1, in the order in which they are visited.
#[derive(Clone)]
struct VisitRecorder(Rc<RefCell<Vec<u32>>>);

impl Behaviour<3> for VisitRecorder {
    fn sight(&self) -> f32 {
        4.0
    }

    fn step(&self, own: &OwnEntity<3>, around: &impl NearbyEntities<3>, _: &TickContext<3>) -> Motion<3> {
        if own.id.0 == 1 {
            around.for_each(|other| self.0.borrow_mut().push(other.kind));
        }
        Motion { position: own.position, velocity: own.velocity }
    }
}

#[derive(Clone)]
struct Fails;

impl Behaviour<3> for Fails {
    fn step(&self, own: &OwnEntity<3>, _: &impl NearbyEntities<3>, context: &TickContext<3>) -> Motion<3> {
        assert!(own.id.0 != 3, "of all entities this one");
        let mut motion = context.move_straight(&own.position, &own.velocity);
        if own.id.0 == 5 {
            motion.position[1] = f32::NAN;
        }
        if own.id.0 == 6 {
            motion.position = [1e9; 3];
        }
        motion
    }
}

/// A behaviour that panics like `Fails`, but moves entities in groups.
#[derive(Clone)]
struct FailsTogether;

impl Behaviour<3> for FailsTogether {
    fn sight(&self) -> f32 {
        5.0
    }

    fn step(
        &self,
        own: &OwnEntity<3>,
        around: &impl NearbyEntities<3>,
        context: &TickContext<3>,
    ) -> Motion<3> {
        Fails.step(own, around, context)
    }

    fn step_lanes(
        &self,
        own: &OwnEntityLanes<3>,
        around: &impl NearbyEntityLanes<3>,
        context: &TickContext<3>,
    ) -> Option<[Motion<3>; LANES]> {
        assert!(around.others().all(|other| other.kind == 0), "all entities are of one kind");
        assert!(own.ids.iter().all(|id| ![3, 5, 6].contains(&id.0)), "one of these is among them");
        let each = |lane| own.own(lane);
        Some(std::array::from_fn(|lane| context.move_straight(&each(lane).position, &each(lane).velocity)))
    }
}

fn world() -> WorldBox<3> {
    WorldBox::cube(100.0).unwrap()
}

fn single_region<B: Behaviour<3>>(
    behaviour: B,
    change: impl FnOnce(&mut RegionSetup<3>),
) -> (Region<3, B>, RegionOutputs) {
    let mut setup = RegionSetup::new(RegionId(1), world(), 5.0);
    change(&mut setup);
    let partition = Partition::even(3, &[RegionId(1)]);
    let authority = RegionAuthority { epoch: 1, until_ns: 1_000 };
    (Region::new(setup, behaviour, partition, authority), RegionOutputs::default())
}

fn flying(id: u64) -> Entity<'static, 3> {
    Entity { velocity: [10.0, 0.0, 0.0], ..Entity::at(id, [50.0, 50.0, 50.0]) }
}

/// Cells are 4 units long, along the first axis 1 unit. On the curve, entity 2 would come before entity 3.
#[test]
fn neighbours_are_visited_by_row_then_by_cell_then_by_id() {
    let visits = Rc::default();
    let (mut region, mut out) = single_region(VisitRecorder(Rc::clone(&visits)), |_| {});
    let entities = [
        (9_u64, [51.1, 50.5, 50.0]),
        (5, [53.0, 50.5, 50.0]),
        (2, [49.0, 53.0, 50.0]),
        (1, [50.0, 51.5, 50.0]),
        (4, [50.0, 51.5, 47.9]),
        (3, [51.2, 50.6, 50.0]),
    ];
    for (id, at) in entities {
        region.spawn(&Entity { kind: id as u32, ..Entity::at(id, at) }, &mut out).unwrap();
    }
    region.tick(1, &mut out).unwrap();
    assert_eq!(*visits.borrow(), [4, 3, 9, 5, 2]);
}

#[test]
fn failing_behaviour_freezes_only_the_entity_that_it_moves() {
    assert_failing_entities_freeze(Fails);
    assert_failing_entities_freeze(FailsTogether);
}

fn assert_failing_entities_freeze(behaviour: impl Behaviour<3>) {
    let (mut region, mut out) = single_region(behaviour, |_| {});
    for id in 0..8 {
        region.spawn(&flying(id), &mut out).unwrap();
    }
    region.tick(1, &mut out).unwrap();
    let frozen = |id, panicked| RegionReport::Frozen { id: EntityId(id), panicked };
    assert_eq!(out.reports, [frozen(3, true), frozen(5, false)]);
    out.clear();
    region.tick(2, &mut out).unwrap();
    assert_eq!(out.reports, [], "a frozen entity does not run again");
    for row in 0..8 {
        let (id, at) = (region.store().ids()[row].0, region.store().position(row));
        let expected = match id {
            3 | 5 => [50.0, 50.0, 50.0],
            6 => [100.0; 3],
            _ => [50.4, 50.0, 50.0],
        };
        assert!(
            at.iter().zip(&expected).all(|(at, expected_along)| (at - expected_along).abs() < 1e-3),
            "{id} is at {at:?}"
        );
    }
}

/// A behaviour with two faults: it gives one entity an infinite velocity, and moves another entity out of the world.
/// All other entities keep their velocity.
#[derive(Clone)]
struct Strays;

impl Behaviour<3> for Strays {
    fn step(&self, own: &OwnEntity<3>, _: &impl NearbyEntities<3>, context: &TickContext<3>) -> Motion<3> {
        let mut motion = context.move_straight(&own.position, &own.velocity);
        match own.id.0 {
            13 => motion.velocity[2] = f32::INFINITY,
            14 => motion.position = [-1e9; 3],
            _ => {}
        }
        motion
    }
}

#[test]
fn only_the_entity_with_a_non_finite_move_is_frozen() {
    let (mut region, mut out) = single_region(Strays, |_| {});
    (0..21).for_each(|id| region.spawn(&flying(id), &mut out).unwrap());
    out.clear();
    region.tick(1, &mut out).unwrap();
    assert_eq!(out.reports, [RegionReport::Frozen { id: EntityId(13), panicked: false }]);
    for row in 0..21 {
        let (id, at) = (region.store().ids()[row].0, region.store().position(row));
        let expected = match id {
            13 => [50.0, 50.0, 50.0],
            14 => [0.0; 3],
            _ => [50.2, 50.0, 50.0],
        };
        assert!(
            at.iter().zip(&expected).all(|(at, expected_along)| (at - expected_along).abs() < 1e-3),
            "{id} is at {at:?}"
        );
        assert!(region.store().velocity(row).iter().all(|along| along.is_finite()));
    }
}

#[test]
fn invalid_entities_are_refused_and_change_nothing() {
    let (mut region, mut out) = single_region(Fails, |setup| setup.limits.entities_max = 2);
    region.spawn(&flying(1), &mut out).unwrap();
    out.clear();
    let mut refused = |entity: Entity<'_, 3>| region.spawn(&entity, &mut out).unwrap_err();
    assert_eq!(refused(flying(1)), StoreError::Duplicate(EntityId(1)));
    let what = "its position";
    for along in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let wrong = Entity { position: [1.0, along, 1.0], ..flying(2) };
        assert_eq!(refused(wrong), StoreError::NotFinite { id: EntityId(2), what });
    }
    let endless = Entity { velocity: [f32::NAN; 3], ..flying(2) };
    assert_eq!(refused(endless), StoreError::NotFinite { id: EntityId(2), what: "its velocity" });
    let outside = Entity { position: [1.0, 100.5, 1.0], ..flying(2) };
    assert_eq!(refused(outside), StoreError::Outside(EntityId(2)));
    let wrong = Entity { components: &[1, 2, 3], ..flying(2) };
    assert_eq!(refused(wrong), StoreError::State(StateError::Components { bytes: 3, wanted: 0 }));
    assert_eq!((region.store().len(), out.record.len()), (1, 0));
    region.spawn(&flying(2), &mut out).unwrap();
    assert_eq!(region.spawn(&flying(3), &mut out), Err(StoreError::Full { max: 2 }));
    assert_eq!(region.despawn(EntityId(9), &mut out), Err(StoreError::Unknown(EntityId(9))));
}

#[test]
fn velocity_below_the_coordinate_resolution_is_refused() {
    let world = WorldBox::cube(4.0e7).unwrap();
    let (mut region, mut out) = single_region(Fails, |setup| setup.world = world);
    region.spawn(&flying(1), &mut out).unwrap();
    let far = [3.9e7; 3];
    let mut apply_command = |position, velocity: Option<[f32; 3]>| {
        let command = EntityCommand { position, velocity, ..EntityCommand::of(EntityId(1)) };
        region.apply_client_command(&command, 0, &mut out)
    };
    let refused = apply_command(Some(far), Some([10.0, 0.0, 0.0])).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "entity 1 would not move: adjacent coordinates at its position are 4 units apart, \
         more than it moves in a tick; use a speed of at least 200 units per second, or a position nearer to 0"
    );
    apply_command(Some(far), Some([0.0, 200.0, 0.0])).unwrap();
    apply_command(Some(far), Some([0.0; 3])).unwrap();
    apply_command(Some([5.0; 3]), Some([10.0, 0.0, 0.0])).unwrap();
}

#[test]
fn client_cannot_stop_all_entities_by_extreme_velocities() {
    let flock = dunlin_space::behaviour::Flock::default();
    let (mut region, mut out) = single_region(flock, |_| {});
    region.spawn(&flying(1), &mut out).unwrap();
    let with_velocity = |id, along: f32| Entity { velocity: [along; 3], ..flying(id) };
    let refused = region.spawn_for_client(&with_velocity(2, -3e38), 0, &mut out).unwrap_err();
    let expected = StoreError::TooFast { id: EntityId(2), speed_max: 1e18 };
    assert_eq!(refused, CommandError::Store(expected.clone()));
    assert_eq!(
        expected.to_string(),
        "the velocity of entity 2 is too large: use at most 1e18 units per second along each axis"
    );
    (2..10).for_each(|id| _ = region.spawn_for_client(&with_velocity(id, 1e18), 0, &mut out).unwrap());
    let velocity = Some([3e38; 3]);
    let command = EntityCommand { velocity, ..EntityCommand::of(EntityId(2)) };
    assert_eq!(region.apply_client_command(&command, 0, &mut out), Err(CommandError::Store(expected)));
    out.clear();
    region.tick(1, &mut out).unwrap();
    assert_eq!(out.reports, [], "all entities still move");
}

#[test]
fn region_without_a_lease_neither_ticks_nor_sends() {
    let (mut region, mut out) = single_region(Fails, |_| {});
    region.spawn(&flying(1), &mut out).unwrap();
    region.tick(999, &mut out).unwrap();
    let (before, bytes) = (region.store().ledger(), out.record.len());
    let refused = Err(StepError::NoAuthority { region: RegionId(1), now_ns: 1_000 });
    assert_eq!(region.tick(1_000, &mut out), refused);
    assert_eq!(region.advance_time(1_000, &mut out), refused);
    region.set_authority(Some(RegionAuthority { epoch: 2, until_ns: 9_000 }));
    assert!(region.tick(1_000, &mut out).is_err(), "a lease of another epoch belongs to another owner");
    assert_eq!((region.store().ledger(), out.record.len()), (before, bytes));
    region.set_authority(Some(RegionAuthority { epoch: 1, until_ns: 9_000 }));
    region.tick(1_000, &mut out).unwrap();
}

#[test]
fn owner_is_at_most_one_tick_ahead_of_its_standby() {
    let (mut region, mut out) = single_region(Fails, |setup| setup.standby = StandbyMode::Required);
    region.tick(1, &mut out).unwrap();
    assert_eq!(region.tick(2, &mut out), Err(StepError::StandbyBehind { known: 0, next: 2 }));
    region.standby_acknowledged(0, 1, 3, &mut out);
    region.tick(4, &mut out).unwrap();
}

/// The standby continues from the last tick that it received, so later ticks of the owner are repeated.
#[test]
fn standby_continues_after_the_last_tick_that_it_received() {
    let walk = Sees(dunlin_space::behaviour::RandomWalk { speed_max: 9.0, turn: 1.0 });
    let (mut owner, mut out) =
        single_region(walk, |setup| (setup.standby, setup.sort_every) = (StandbyMode::Required, 3));
    let mut twin = owner.copy_for_standby();
    for id in 0..50 {
        owner.spawn(&flying(id), &mut out).unwrap();
    }
    for now in 0..10 {
        owner.tick(now, &mut out).unwrap();
        twin.follow(&out.record).unwrap();
        out.clear();
        owner.standby_acknowledged(0, now + 1, now, &mut out);
    }
    let known = owner.store().ledger();
    owner.tick(10, &mut out).unwrap();
    assert_ne!(owner.store().ledger(), known);
    let mut setup = RegionSetup::new(RegionId(1), world(), 5.0);
    (setup.standby, setup.sort_every) = (StandbyMode::Required, 3);
    let authority = RegionAuthority { epoch: 2, until_ns: 1_000 };
    let succession = Takeover { authority, peers: &[], now_ns: 11 };
    let partition = Partition::even(3, &[RegionId(1)]);
    let mut heir = Region::take_over(setup, walk, partition, twin, &succession, &mut out);
    assert_eq!((heir.store().ledger(), heir.tick_number()), (known, 10));
    assert_eq!(heir.tick(12, &mut out), Err(StepError::StandbyBehind { known: 0, next: 11 }));
    let entries = heir.handover().written();
    heir.standby_acknowledged(entries, 10, 12, &mut out);
    heir.tick(12, &mut out).unwrap();
    // The same inputs give the same result again.
    assert_eq!(heir.store().ledger(), owner.store().ledger());
}

#[test]
fn malformed_messages_are_refused_and_change_nothing() {
    let (mut region, mut out) = single_region(Fails, |_| {});
    region.spawn(&flying(1), &mut out).unwrap();
    let before = region.store().ledger();
    assert_eq!(region.receive(&[], 1, &mut out), Err(SpaceDecodeError::Short.into()));
    assert_eq!(region.receive(&[9, 1], 1, &mut out), Err(StepError::Channel(9)));
    for channel in [1, 2] {
        assert_eq!(region.receive(&[channel, 7], 1, &mut out), Err(SpaceDecodeError::Version(7).into()));
        for length in 0..60 {
            assert!(
                region
                    .receive(&[&[channel, VERSION][..], &vec![0xff; length]].concat(), 1, &mut out)
                    .is_err()
            );
        }
    }
    assert_eq!(region.store().ledger(), before);
}

/// In this test, a region has two owners, and the earlier owner does not know of the later owner.
#[test]
fn ghosts_of_a_replaced_owner_are_ignored() {
    let ids = [RegionId(1), RegionId(2)];
    let partition = Partition::even(3, &ids);
    let setup = |region| RegionSetup::new(region, world(), 20.0);
    let owner = |region, epoch| {
        Region::new(setup(region), Fails, partition.clone(), RegionAuthority { epoch, until_ns: u64::MAX })
    };
    let (mut observer, mut out) = (owner(RegionId(1), 1), RegionOutputs::default());
    observer.record_peer_epoch(RegionId(2), 2, 0, &mut out).unwrap();
    for (epoch, known_tick) in [(1, None), (2, Some(1)), (1, Some(1))] {
        let mut other = owner(RegionId(2), epoch);
        other.spawn(&Entity::at(9, [50.0, 50.0, 51.0]), &mut out).unwrap();
        other.tick(1, &mut out).unwrap();
        other.send_ghosts(&mut out);
        for (_, message) in std::mem::take(&mut out.messages) {
            observer.receive(&message, 1, &mut out).unwrap();
        }
        assert_eq!(observer.ghosts().last_known_tick(RegionId(2)), known_tick);
    }
    assert_eq!(observer.ghosts().stale(), 2);
    let count = |tick| {
        let mut count = 0;
        observer.ghosts().for_each(tick, 0.02, 25, |_| count += 1);
        count
    };
    assert_eq!((count(1), count(25), count(26)), (1, 1, 0), "after 25 ticks the ghost is not visible");
}

/// The numbers of two regions' ticks may differ, because the regions may have started at different times.
#[test]
fn ghost_age_counts_local_ticks_since_the_ghost_arrived() {
    let partition = Partition::even(3, &[RegionId(1), RegionId(2)]);
    let owner = |region| {
        let authority = RegionAuthority { epoch: 1, until_ns: u64::MAX };
        Region::new(RegionSetup::new(region, world(), 20.0), Fails, partition.clone(), authority)
    };
    let (mut early, mut late, mut out) = (owner(RegionId(1)), owner(RegionId(2)), RegionOutputs::default());
    early.record_peer_epoch(RegionId(2), 1, 0, &mut out).unwrap();
    (0..100).for_each(|now| early.tick(now, &mut out).unwrap());
    late.spawn(&Entity::at(9, [50.0, 50.0, 51.0]), &mut out).unwrap();
    late.tick(1, &mut out).unwrap();
    late.send_ghosts(&mut out);
    for (_, message) in std::mem::take(&mut out.messages) {
        early.receive(&message, 1, &mut out).unwrap();
    }
    let count = |tick| {
        let mut count = 0;
        early.ghosts().for_each(tick, 0.02, 25, |_| count += 1);
        count
    };
    assert_eq!((count(100), count(125), count(126)), (1, 1, 0));
}

/// The error of a ghost's extrapolated position is at most `a t² / 2`.
#[test]
fn ghost_position_error_is_bounded_by_the_acceleration() {
    #[derive(Clone)]
    struct Brakes;
    const FORCE: f32 = 8.0;
    impl Behaviour<3> for Brakes {
        fn step(
            &self,
            own: &OwnEntity<3>,
            _: &impl NearbyEntities<3>,
            context: &TickContext<3>,
        ) -> Motion<3> {
            let velocity = [own.velocity[0] - FORCE * context.seconds, own.velocity[1], own.velocity[2]];
            context.move_straight(&own.position, &velocity)
        }
    }
    let mut setup = RegionSetup::new(RegionId(0), world(), 30.0);
    setup.ghosts_every = 10;
    let mut stage = Lockstep::new(&setup, &Brakes, 2);
    stage.spawn(&Entity { velocity: [10.0, 1.0, 0.0], ..Entity::at(1, [50.0, 50.0, 45.0]) }).unwrap();
    let mut ghost_count = 0;
    for tick in 1..=60 {
        stage.tick().unwrap();
        let regions: Vec<_> = stage.regions().collect();
        let Some(owner) = regions.iter().position(|region| region.store().len() == 1) else { continue };
        let at = regions[owner].store().position(0);
        regions[1 - owner].ghosts().for_each(tick, 0.02, 25, |ghost| {
            let seconds = (tick - tick / 10 * 10) as f32 * 0.02;
            let off = (0..3).map(|axis| (ghost.position[axis] - at[axis]).powi(2)).sum::<f32>().sqrt();
            // In each tick, an entity moves by the velocity that it has at the end of this tick. Compared with
            // continuous movement, this adds half of the change of velocity in a tick.
            let bound = FORCE * seconds * (seconds + 0.02) / 2.0 + 1e-3;
            assert!(off <= bound, "tick {tick}: off by {off}, bound {bound}");
            ghost_count += 1;
        });
    }
    assert!(ghost_count > 40, "{ghost_count}");
}

#[test]
fn handover_waits_for_cool_down_and_hysteresis() {
    let run = |cooldown_ticks, hysteresis| {
        let mut setup = RegionSetup::new(RegionId(0), world(), 10.0);
        (setup.cooldown_ticks, setup.hysteresis) = (cooldown_ticks, hysteresis);
        let to_and_fro = dunlin_space::behaviour::Oscillation { low: 49.0, high: 51.0 };
        let mut stage = Lockstep::new(&setup, &to_and_fro, 8);
        stage.spawn(&Entity { velocity: [25.0, 0.0, 0.0], ..Entity::at(1, [49.5, 10.0, 10.0]) }).unwrap();
        (0..200).for_each(|_| stage.tick().unwrap());
        stage.regions().map(|region| region.handover().counts().departed).sum::<u64>()
    };
    let every_time = run(0, 0.0);
    assert!(every_time >= 45, "{every_time}");
    assert!(run(40, 0.0) <= 6);
    assert_eq!(run(0, 2.0), 0, "it never strays so far");
}

/// The measured memory includes the region's index, its grid of visible entities and its ghosts.
#[test]
fn each_entity_of_a_flock_takes_at_most_128_bytes() {
    const COUNT: u64 = 5_000;
    // With this sight, an entity has 30 neighbours on average.
    let sight = (100.0_f32.powi(3) / COUNT as f32 * 31.0 * 3.0 / (4.0 * std::f32::consts::PI)).cbrt();
    let flock = dunlin_space::behaviour::Flock { sight, ..Default::default() };
    let (mut region, mut out) = single_region(flock, |setup| setup.sort_every = 4);
    let mut dice = Dice(3);
    for id in 0..COUNT {
        let place = std::array::from_fn(|_| dice.unit() * 100.0);
        region.spawn(&Entity { velocity: [5.0, 1.0, 0.0], ..Entity::at(id, place) }, &mut out).unwrap();
    }
    for now in 0..6 {
        out.clear();
        region.tick(now, &mut out).unwrap();
    }
    let each = region.bytes() as f64 / COUNT as f64;
    assert!(each <= 128.0, "{each} bytes");
    assert!(out.record.len() as f64 / COUNT as f64 <= 25.0, "its record is {} bytes", out.record.len());
}
