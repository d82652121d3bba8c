//! Tests that a viewer knows exactly the entities that are in its sight and that it may see. Also tests that the
//! updates stay within the viewer's byte budget.

use std::collections::BTreeMap;

use super::*;

const VIEWER: ViewerId = ViewerId(1);

fn store(dice: &mut Dice, count: u64) -> EntityStore<2> {
    let mut store = EntityStore::new(Schema::default(), RegionLimits::default());
    for id in 0..count {
        let at = [dice.unit() * 100.0, dice.unit() * 100.0];
        let entity = Entity { kind: (id % 3) as u32, velocity: [1.0, -1.0], ..Entity::at(id, at) };
        store.insert(&entity).unwrap();
    }
    store
}

/// A viewer's scene: the entities in sight, each with the tick of its last update.
#[derive(Default)]
struct ViewerModel(BTreeMap<EntityId, u64>);

impl ViewerModel {
    fn apply(&mut self, bytes: &[u8], tick: u64) -> usize {
        let mut updates = 0;
        for event in ViewerEvent::<2>::decode_all(bytes) {
            match event.unwrap() {
                ViewerEvent::Enter { id, .. } => {
                    assert_eq!(self.0.insert(id, tick), None, "{id} enters twice")
                }
                ViewerEvent::Begin => assert!(self.0.is_empty(), "Begin comes once"),
                ViewerEvent::Leave { id } => {
                    assert!(self.0.remove(&id).is_some(), "{id} leaves, but was not in sight")
                }
                ViewerEvent::Update { id, .. } => {
                    updates += 1;
                    assert!(self.0.insert(id, tick).is_some(), "{id} moves, and is not in sight");
                }
            }
        }
        updates
    }
}

fn watch(rule: VisibilityRule, bytes_per_tick: u32) -> SurroundingsWatch {
    SurroundingsWatch { rule, bytes_per_tick, ..SurroundingsWatch::around(EntityId(0), 25.0) }
}

fn in_sight(store: &EntityStore<2>, rule: impl Fn(u32) -> bool) -> Vec<EntityId> {
    let Some(row) = store.row(EntityId(0)) else { return vec![] };
    let center = store.position(row);
    let near = |row: &usize| {
        let at = store.position(*row);
        (at[0] - center[0]).powi(2) + (at[1] - center[1]).powi(2) <= 625.0 && rule(store.kinds()[*row])
    };
    let mut ids: Vec<_> = (0..store.len()).filter(near).map(|row| store.ids()[row]).collect();
    ids.sort_unstable();
    ids
}

/// Moves every entity a little at random.
fn shuffle(store: &EntityStore<2>, dice: &mut Dice, step: f32) -> EntityStore<2> {
    let mut moved = EntityStore::new(Schema::default(), RegionLimits::default());
    for row in 0..store.len() {
        let at = store.position(row).map(|along| (along + (dice.unit() - 0.5) * step).clamp(0.0, 100.0));
        let (id, kind) = (store.ids()[row].0, store.kinds()[row]);
        moved.insert(&Entity { kind, ..Entity::at(id, at) }).unwrap();
    }
    moved
}

#[test]
fn viewer_knows_exactly_the_entities_in_range_that_it_may_see() {
    let world = WorldBox::<2>::cube(100.0).unwrap();
    for (rule, shown) in [
        (VisibilityRule::All, (|_| true) as fn(u32) -> bool),
        (VisibilityRule::OfKind(1), |kind| kind == 1),
        (VisibilityRule::NotOfKind(2), |kind| kind != 2),
        (VisibilityRule::Where(|_, kind| kind != 0), |kind| kind != 0),
    ] {
        let (mut dice, mut viewer) = (Dice(4), ViewerModel::default());
        let mut store = store(&mut dice, 300);
        let mut interests = Interests::new(world, 25.0, 10);
        interests.watch(VIEWER, watch(rule, 400)).unwrap();
        for tick in 1..40 {
            interests.send_updates(&store, tick, |_, bytes| _ = viewer.apply(bytes, tick));
            let known: Vec<EntityId> = viewer.0.keys().copied().collect();
            assert_eq!(known, in_sight(&store, shown));
            store = shuffle(&store, &mut dice, 8.0);
        }
        store.remove(EntityId(0)).unwrap();
        interests.send_updates(&store, 40, |_, bytes| _ = viewer.apply(bytes, 40));
        assert_eq!(viewer.0.len(), 0, "a viewer without its center sees no entity");
    }
}

#[test]
fn near_entities_are_updated_more_often_than_far_ones() {
    let mut dice = Dice(6);
    let store = store(&mut dice, 400);
    let mut interests = Interests::new(WorldBox::<2>::cube(100.0).unwrap(), 25.0, 10);
    interests.watch(VIEWER, watch(VisibilityRule::All, 10 * 25)).unwrap();
    let mut viewer = ViewerModel::default();
    interests.send_updates(&store, 1, |_, bytes| _ = viewer.apply(bytes, 1));
    let (mut update_counts, mut oldest) = (BTreeMap::<EntityId, u64>::new(), 0);
    for tick in 2..400 {
        interests.send_updates(&store, tick, |_, bytes| {
            assert!(bytes.len() <= 250);
            assert_eq!(viewer.apply(bytes, tick), 10);
        });
        for (id, last) in &viewer.0 {
            *update_counts.entry(*id).or_default() += u64::from(*last == tick);
            oldest = oldest.max(tick - last);
        }
    }
    let center = store.position(store.row(EntityId(0)).unwrap());
    let far = |id: &EntityId| {
        let at = store.position(store.row(*id).unwrap());
        (at[0] - center[0]).hypot(at[1] - center[1])
    };
    let mean = |near: bool| {
        let counts: Vec<u64> = update_counts
            .iter()
            .filter(|(id, _)| (far(id) < 12.5) == near)
            .map(|(_, count)| *count)
            .collect();
        counts.iter().sum::<u64>() as f64 / counts.len() as f64
    };
    assert!(mean(true) > 1.3 * mean(false), "{} {}", mean(true), mean(false));
    assert!(update_counts.values().all(|count| *count > 0), "every entity gets updates");
    assert!(oldest < 10 * viewer.0.len() as u64 / 10 * 3, "{oldest}");
}

#[test]
fn excess_viewers_and_invalid_radii_are_refused() {
    let mut interests = Interests::new(WorldBox::<2>::cube(100.0).unwrap(), 25.0, 1);
    let blind = SurroundingsWatch { radius: f32::NAN, ..watch(VisibilityRule::All, 1) };
    assert!(matches!(interests.watch(VIEWER, blind), Err(InterestError::Radius(_))));
    interests.watch(VIEWER, watch(VisibilityRule::All, 1)).unwrap();
    assert_eq!(
        interests.watch(ViewerId(2), watch(VisibilityRule::All, 1)),
        Err(InterestError::TooMany { max: 1 })
    );
    assert!(interests.remove(VIEWER) && !interests.remove(VIEWER));
}

/// The update that a region sends to a viewer after a tick.
struct RegionUpdate {
    epoch: u64,
    events: Vec<u8>,
}

fn apply_update(scene: &mut Scene<2>, region: u32, tick: u64, update: &RegionUpdate) -> Vec<SceneChange> {
    let mut changes = Vec::new();
    let RegionUpdate { epoch, events } = update;
    scene
        .apply(&ViewerUpdate { region: RegionId(region), epoch: *epoch, tick, events }, &mut changes)
        .unwrap();
    changes.sort_by_key(|change| match change {
        SceneChange::Entered(id) | SceneChange::Moved(id) | SceneChange::Left(id) => *id,
    });
    changes
}

/// The first update that a region with these entities sends to a viewer that knows no entity yet.
fn first_update(epoch: u64, ids: &[u64]) -> RegionUpdate {
    let mut store = EntityStore::<2>::new(Schema::default(), RegionLimits::default());
    ids.iter().for_each(|id| _ = store.insert(&Entity::at(*id, [50.0, *id as f32])).unwrap());
    let mut interests = Interests::new(WorldBox::cube(100.0).unwrap(), 90.0, 1);
    interests.watch(VIEWER, SurroundingsWatch::around(EntityId(ids[0]), 90.0)).unwrap();
    let mut events = Vec::new();
    interests.send_updates(&store, 1, |_, bytes| events = bytes.to_vec());
    RegionUpdate { epoch, events }
}

#[test]
fn viewer_follows_a_handed_over_entity_to_its_new_region() {
    let mut scene = Scene::<2>::new(Schema::default());
    use SceneChange::{Entered, Left, Moved};
    let id = EntityId;
    assert_eq!(
        apply_update(&mut scene, 1, 1, &first_update(5, &[1, 2, 3])),
        [Entered(id(1)), Entered(id(2)), Entered(id(3))]
    );
    // Entity 2 is handed over: its new region sends `Enter` first.
    assert_eq!(apply_update(&mut scene, 2, 2, &first_update(6, &[2])), [Moved(id(2))]);
    assert_eq!(apply_update(&mut scene, 1, 2, &first_update(5, &[1, 3])), [Moved(id(1)), Moved(id(3))]);
    assert!(scene.visible().contains_key(&id(2)));
    // A new owner of region 1 does not have entity 3.
    assert_eq!(apply_update(&mut scene, 1, 3, &first_update(7, &[1])), [Moved(id(1)), Left(id(3))]);
    assert_eq!(
        apply_update(&mut scene, 1, 3, &first_update(5, &[3])),
        [],
        "updates of the former owner are ignored"
    );
    assert_eq!(scene.visible().len(), 2);
}

/// In this test, the updates of region 2 arrive after entity 2 has returned to region 1.
#[test]
fn entity_that_returned_stays_visible_despite_late_updates() {
    use SceneChange::{Entered, Left, Moved};
    let id = EntityId;
    let world = WorldBox::<2>::cube(100.0).unwrap();
    let mut store = EntityStore::<2>::new(Schema::default(), RegionLimits::default());
    [1, 2].into_iter().for_each(|id| _ = store.insert(&Entity::at(id, [50.0, 50.0])).unwrap());
    let mut interests = Interests::new(world, 90.0, 1);
    interests.watch(VIEWER, SurroundingsWatch::around(id(1), 90.0)).unwrap();
    let mut scene = Scene::<2>::new(Schema::default());
    let mut apply_tick = |scene: &mut Scene<2>, store: &EntityStore<2>, tick| {
        let mut update = RegionUpdate { epoch: 5, events: Vec::new() };
        interests.send_updates(store, tick, |_, bytes| update.events = bytes.to_vec());
        apply_update(scene, 1, tick, &update)
    };
    assert_eq!(apply_tick(&mut scene, &store, 1), [Entered(id(1)), Entered(id(2))]);
    store.remove(id(2)).unwrap();
    assert_eq!(apply_tick(&mut scene, &store, 2), [Moved(id(1)), Left(id(2))]);
    store.insert(&Entity::at(2, [60.0, 60.0])).unwrap();
    assert_eq!(apply_tick(&mut scene, &store, 3), [Moved(id(1)), Entered(id(2))]);
    // Region 2 reports that entity 2 has entered. After that, it reports that entity 2 has left.
    assert_eq!(apply_update(&mut scene, 2, 2, &first_update(6, &[2])), [Moved(id(2))]);
    let mut left = first_update(6, &[2]);
    left.events = vec![3, 2, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(apply_update(&mut scene, 2, 3, &left), [Moved(id(2))]);
    let shown = &scene.visible()[&id(2)];
    assert_eq!((shown.region, shown.position), (RegionId(1), [60.0, 60.0]));
    store.remove(id(2)).unwrap();
    assert_eq!(apply_tick(&mut scene, &store, 4), [Moved(id(1)), Left(id(2))]);
}

/// In this test, the entity at the viewer's center moves through all regions, and each region sends its own entities.
#[test]
fn viewer_crossing_borders_sees_exactly_its_surroundings() {
    const RADIUS: f32 = 9.0;
    let world = WorldBox::<2>::cube(100.0).unwrap();
    let oscillate = dunlin_space::behaviour::Oscillation { low: 0.0, high: 100.0 };
    let mut stage = Lockstep::new(&RegionSetup::new(RegionId(0), world, 10.0), &oscillate, 4);
    let mut dice = Dice(11);
    for nth in 0..400 {
        let at = if nth == 0 { [1.0, 48.0] } else { [dice.unit() * 100.0, dice.unit() * 100.0] };
        let speed = if nth == 0 { 60.0 } else { (dice.unit() - 0.5) * 100.0 };
        let kind = (nth % 3) as u32;
        stage.spawn(&Entity { kind, velocity: [speed, 0.0], ..Entity::at(nth, at) }).unwrap();
    }
    let watch = SurroundingsWatch {
        rule: VisibilityRule::NotOfKind(2),
        allowed: VisibilityRule::Where(|id, _| id.0 % 7 != 3),
        ..SurroundingsWatch::around(EntityId(0), RADIUS)
    };
    stage.regions_mut().for_each(|(region, _)| region.watch(VIEWER, watch).unwrap());
    let (mut scene, mut homes, mut changes) = (Scene::<2>::new(Schema::default()), Vec::new(), Vec::new());
    for tick in 1..260 {
        stage.tick().unwrap();
        let mut known: std::collections::BTreeSet<EntityId> = scene.visible().keys().copied().collect();
        changes.clear();
        for (region, _) in stage.regions_mut() {
            let (epoch, id) = (region.handover().epoch(), region.handover().region());
            region.send_viewer_updates(|_, events| {
                scene.apply(&ViewerUpdate { region: id, epoch, tick, events }, &mut changes).unwrap();
            });
        }
        let at = |id: EntityId| {
            let row = |region: &Region<2, _>| Some(region.store().position(region.store().row(id)?));
            stage.regions().find_map(row)
        };
        let center = at(EntityId(0)).unwrap();
        let shown: BTreeMap<EntityId, [f32; 2]> = (0..400)
            .filter(|nth| nth % 3 != 2 && nth % 7 != 3)
            .map(|nth| (EntityId(nth), at(EntityId(nth)).unwrap()))
            .filter(|(_, at)| (at[0] - center[0]).powi(2) + (at[1] - center[1]).powi(2) <= RADIUS * RADIUS)
            .collect();
        let seen = scene.visible().iter().map(|(id, one)| (*id, one.position));
        assert_eq!(seen.collect::<BTreeMap<_, _>>(), shown, "after tick {tick}");
        for change in &changes {
            match change {
                SceneChange::Entered(id) => assert!(known.insert(*id), "{id} enters twice"),
                SceneChange::Left(id) => assert!(known.remove(id), "{id} leaves, but was not in sight"),
                SceneChange::Moved(id) => assert!(known.contains(id), "{id} moves, and is not in sight"),
            }
        }
        assert!(known.iter().eq(shown.keys()));
        let home =
            |region: &Region<2, _>| region.store().row(EntityId(0)).map(|_| region.handover().region());
        homes.extend(stage.regions().find_map(home));
    }
    homes.dedup();
    assert!(homes.len() > 3, "it changes hands: {homes:?}");
}
