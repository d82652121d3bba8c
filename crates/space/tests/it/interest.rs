//! A viewer knows exactly who is within its sight and may be seen, and spends no more bytes than it has.

use std::collections::BTreeMap;

use super::*;

const VIEWER: ViewerId = ViewerId(1);

fn store(dice: &mut Dice, count: u64) -> Store<2> {
    let mut store = Store::new(Schema::default(), Limits::default());
    for id in 0..count {
        let at = [dice.unit() * 100.0, dice.unit() * 100.0];
        let entity = Entity { kind: (id % 3) as u32, velocity: [1.0, -1.0], ..Entity::at(id, at) };
        store.insert(&entity).unwrap();
    }
    store
}

/// What a viewer has made of all it was told: who is in sight, and the tick at which it heard of each last.
#[derive(Default)]
struct Knows(BTreeMap<EntityId, u64>);

impl Knows {
    fn take(&mut self, bytes: &[u8], tick: u64) -> usize {
        let mut updates = 0;
        for glimpse in Glimpse::<2>::decode_all(bytes) {
            match glimpse.unwrap() {
                Glimpse::Enter { id, .. } => assert_eq!(self.0.insert(id, tick), None, "{id} enters twice"),
                Glimpse::Leave { id } => {
                    assert!(self.0.remove(&id).is_some(), "{id} leaves, and was not there")
                }
                Glimpse::Update { id, .. } => {
                    updates += 1;
                    assert!(self.0.insert(id, tick).is_some(), "{id} moves, and is not in sight");
                }
            }
        }
        updates
    }
}

fn watch(rule: Rule, bytes_per_tick: u32) -> Watch {
    Watch { center: EntityId(0), radius: 25.0, rule, bytes_per_tick }
}

fn in_sight(store: &Store<2>, rule: impl Fn(u32) -> bool) -> Vec<EntityId> {
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

/// Everybody somewhere else.
fn shuffle(store: &Store<2>, dice: &mut Dice, step: f32) -> Store<2> {
    let mut moved = Store::new(Schema::default(), Limits::default());
    for row in 0..store.len() {
        let at = store.position(row).map(|along| (along + (dice.unit() - 0.5) * step).clamp(0.0, 100.0));
        let (id, kind) = (store.ids()[row].0, store.kinds()[row]);
        moved.insert(&Entity { kind, ..Entity::at(id, at) }).unwrap();
    }
    moved
}

#[test]
fn a_viewer_knows_exactly_who_is_in_sight_and_may_be_seen() {
    let world = World::<2>::cube(100.0).unwrap();
    for (rule, shown) in [
        (Rule::All, (|_| true) as fn(u32) -> bool),
        (Rule::OfKind(1), |kind| kind == 1),
        (Rule::NotOfKind(2), |kind| kind != 2),
        (Rule::Where(|_, kind| kind != 0), |kind| kind != 0),
    ] {
        let (mut dice, mut knows) = (Dice(4), Knows::default());
        let mut store = store(&mut dice, 300);
        let mut interests = Interests::new(world, 25.0, 10);
        interests.watch(VIEWER, watch(rule, 400)).unwrap();
        for tick in 1..40 {
            interests.tell(&store, tick, |_, bytes| _ = knows.take(bytes, tick));
            let known: Vec<EntityId> = knows.0.keys().copied().collect();
            assert_eq!(known, in_sight(&store, shown));
            store = shuffle(&store, &mut dice, 8.0);
        }
        store.remove(EntityId(0)).unwrap();
        interests.tell(&store, 40, |_, bytes| _ = knows.take(bytes, 40));
        assert_eq!(knows.0.len(), 0, "who is not here sees nobody here");
    }
}

#[test]
fn bytes_are_spent_on_all_in_turn_and_more_often_on_the_near() {
    let mut dice = Dice(6);
    let store = store(&mut dice, 400);
    let mut interests = Interests::new(World::<2>::cube(100.0).unwrap(), 25.0, 10);
    interests.watch(VIEWER, watch(Rule::All, 10 * 25)).unwrap();
    let mut knows = Knows::default();
    interests.tell(&store, 1, |_, bytes| _ = knows.take(bytes, 1));
    let (mut told, mut oldest) = (BTreeMap::<EntityId, u64>::new(), 0);
    for tick in 2..400 {
        interests.tell(&store, tick, |_, bytes| {
            assert!(bytes.len() <= 250);
            assert_eq!(knows.take(bytes, tick), 10);
        });
        for (id, last) in &knows.0 {
            *told.entry(*id).or_default() += u64::from(*last == tick);
            oldest = oldest.max(tick - last);
        }
    }
    let center = store.position(store.row(EntityId(0)).unwrap());
    let far = |id: &EntityId| {
        let at = store.position(store.row(*id).unwrap());
        (at[0] - center[0]).hypot(at[1] - center[1])
    };
    let mean = |near: bool| {
        let counts: Vec<u64> =
            told.iter().filter(|(id, _)| (far(id) < 12.5) == near).map(|(_, count)| *count).collect();
        counts.iter().sum::<u64>() as f64 / counts.len() as f64
    };
    assert!(mean(true) > 1.3 * mean(false), "{} {}", mean(true), mean(false));
    assert!(told.values().all(|count| *count > 0), "nobody is forgotten");
    assert!(oldest < 10 * knows.0.len() as u64 / 10 * 3, "{oldest}");
}

#[test]
fn viewers_beyond_the_limit_and_sights_that_are_none_are_refused() {
    let mut interests = Interests::new(World::<2>::cube(100.0).unwrap(), 25.0, 1);
    let blind = Watch { radius: f32::NAN, ..watch(Rule::All, 1) };
    assert!(matches!(interests.watch(VIEWER, blind), Err(InterestError::Radius(_))));
    interests.watch(VIEWER, watch(Rule::All, 1)).unwrap();
    assert_eq!(interests.watch(ViewerId(2), watch(Rule::All, 1)), Err(InterestError::TooMany { max: 1 }));
    assert!(interests.forget(VIEWER) && !interests.forget(VIEWER));
}
