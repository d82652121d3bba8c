//! Tests that the reducer of a region's topic, to which all records of the region's owner were applied, has the owner's
//! state.

use dunlin_space::behaviour::{Oscillation, RandomWalk};
use dunlin_topic::{Frame, Reducer};

use super::*;

fn reducer(region: u32) -> RegionReducer<3> {
    let world = WorldBox::cube(100.0).unwrap();
    let (schema, limits) = (Schema::default(), RegionLimits::default());
    RegionReducer::new(RegionId(region), world, schema, limits, StandbyMode::None, HandoverTiming::default())
}

/// Encodes a record in the form that a log stores.
fn framed(payload: &[u8]) -> Vec<u8> {
    let meta = dunlin_topic::RecordMeta::default();
    let encoded = meta.measure(payload.len()).unwrap();
    let mut bytes = vec![0; encoded.padded()];
    meta.encode(encoded, 1, payload, &mut bytes);
    bytes
}

fn apply(reducer: &mut RegionReducer<3>, payload: &[u8]) -> Result<(), String> {
    let bytes = framed(payload);
    let (frame, _) = Frame::split(&bytes).unwrap();
    reducer.check(&mut std::iter::once(frame)).map_err(|error| error.to_string())?;
    reducer.apply(1, &frame).map_err(|error| error.to_string())
}

fn lockstep_with_entities() -> Lockstep<3, RandomWalk> {
    let world = WorldBox::<3>::cube(100.0).unwrap();
    let mut lockstep = Lockstep::new(
        &RegionSetup::new(RegionId(0), world, 1.0),
        &RandomWalk { speed_max: 40.0, turn: 6.0 },
        2,
    );
    let mut dice = Dice(9);
    for id in 0..100 {
        lockstep.spawn(&Entity::at(id, std::array::from_fn(|_| dice.unit() * 100.0))).unwrap();
    }
    lockstep
}

#[test]
fn reducer_restored_from_a_snapshot_has_the_state_of_the_owner() {
    let (mut lockstep, mut reducers) = (lockstep_with_entities(), [reducer(1), reducer(2)]);
    let mut late: Option<[RegionReducer<3>; 2]> = None;
    for tick in 0..40 {
        lockstep.tick().unwrap();
        for (at, (_, record)) in lockstep.take_records().into_iter().enumerate() {
            apply(&mut reducers[at], &record).unwrap();
            if let Some(late) = &mut late {
                apply(&mut late[at], &record).unwrap();
            }
        }
        if tick == 17 {
            late = Some([1, 2].map(|region| {
                let (mut bytes, mut restored) = (Vec::new(), reducer(region));
                reducers[region as usize - 1].freeze().write(&mut bytes);
                restored.restore(1, &bytes).unwrap();
                restored
            }));
        }
        for (region, reducer) in lockstep.regions().zip(&reducers) {
            assert_eq!(region.store().ledger(), reducer.state().store().ledger());
        }
    }
    for (reducer, late) in reducers.iter().zip(&late.unwrap()) {
        assert_eq!((reducer.checksum(), reducer.entries()), (late.checksum(), late.entries()));
        assert_eq!(reducer.state().store().ids(), late.state().store().ids());
    }
}

/// In this test, the records of entities that fly straight omit the velocities, and rows are sorted in parts.
#[test]
fn reducer_reaches_the_owner_state_without_velocities() {
    let world = WorldBox::<3>::cube(100.0).unwrap();
    let setup = RegionSetup { sort_every: 4, ..RegionSetup::new(RegionId(0), world, 1.0) };
    let (mut reducers, mut dice) = ([reducer(1), reducer(2)], Dice(3));
    let mut lockstep = Lockstep::new(&setup, &Sees(Oscillation { low: 0.0, high: 100.0 }), 2);
    for id in 0..4_000 {
        let velocity = std::array::from_fn(|_| (dice.unit() - 0.5) * 40.0);
        let position = std::array::from_fn(|_| dice.unit() * 100.0);
        lockstep.spawn(&Entity { velocity, ..Entity::at(id, position) }).unwrap();
    }
    for tick in 0..20 {
        lockstep.tick().unwrap();
        for (reducer, (_, record)) in reducers.iter_mut().zip(lockstep.take_records()) {
            apply(reducer, &record).unwrap();
            let all = reducer.entries() as usize * 24;
            assert!(tick == 0 || record.len() < all * 3 / 4, "{} bytes of {all}", record.len());
        }
        for (region, reducer) in lockstep.regions().zip(&reducers) {
            assert_eq!(region.store().ids(), reducer.state().store().ids());
            assert_eq!(region.store().ledger(), reducer.state().store().ledger());
        }
    }
}

#[test]
fn changing_a_state_does_not_change_its_frozen_copy() {
    let (mut lockstep, mut reducer) = (lockstep_with_entities(), reducer(1));
    lockstep.tick().unwrap();
    apply(&mut reducer, &lockstep.take_records()[0].1).unwrap();
    let frozen = reducer.freeze();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    frozen.write(&mut before);
    lockstep.tick().unwrap();
    apply(&mut reducer, &lockstep.take_records()[0].1).unwrap();
    frozen.write(&mut after);
    assert_eq!(before, after);
}

#[test]
fn invalid_records_are_refused_and_change_nothing() {
    let (mut lockstep, mut reducer) = (lockstep_with_entities(), reducer(1));
    lockstep.tick().unwrap();
    let record = lockstep.take_records().remove(0).1;
    apply(&mut reducer, &record).unwrap();
    let before = reducer.checksum();
    assert!(apply(&mut reducer, &record).unwrap_err().contains("already exists"));
    for end in [1, 5, record.len() - 1] {
        assert!(apply(&mut reducer, &record[..end]).is_err(), "cut at {end}");
    }
    let mut remove = vec![];
    RecordSection::Remove(EntityId(4_000)).encode(&mut remove);
    assert_eq!(apply(&mut reducer, &remove).unwrap_err(), "there is no entity 4000");
    assert!(apply(&mut reducer, &[99]).unwrap_err().contains("section 99"));
    // A record with NaN positions of all rows: kind 6, tick, rows, no velocities, then bytes 0xff.
    let rows = reducer.entries() as u32;
    let mut endless = [&[6][..], &7_u64.to_le_bytes(), &rows.to_le_bytes(), &[0]].concat();
    endless.resize(endless.len() + rows as usize * 12, 0xff);
    assert_eq!(apply(&mut reducer, &endless).unwrap_err(), "a coordinate is not finite");
    // A record with a velocity for a row that does not exist: kind 6, tick, rows, some velocities, positions,
    // the row.
    let mut beyond = [&[6][..], &7_u64.to_le_bytes(), &rows.to_le_bytes(), &[2]].concat();
    beyond.resize(beyond.len() + rows as usize * 12, 0);
    beyond.extend([1, rows].into_iter().flat_map(u32::to_le_bytes).chain([0; 12]));
    let (recorded, held) = (rows + 1, rows);
    let refused = format!("the record is for {recorded} entities, but the region has {held}");
    assert_eq!(apply(&mut reducer, &beyond).unwrap_err(), refused);
    // Records of kind 10, which sort rows. Two of them name rows that do not exist, and one has a distance of 0 between
    // the sorted rows.
    let sort = |numbers: [u32; 3]| [&[10][..], &numbers.map(u32::to_le_bytes).concat()].concat();
    assert_eq!(apply(&mut reducer, &sort([1, 1, rows])).unwrap_err(), refused);
    assert!(apply(&mut reducer, &sort([0, 0, 2])).unwrap_err().contains("step of rows 0"));
    assert!(apply(&mut reducer, &sort([u32::MAX; 3])).is_err());
    assert_eq!(reducer.checksum(), before);
    assert!(reducer.restore(1, &[1, 2, 3]).is_err());
    assert_eq!(reducer.entries(), 0, "another kind of state starts empty");
}

/// Limits are necessary because any client that may publish to the topic can write steps of handovers.
#[test]
fn reducer_counts_and_limits_handover_entries() {
    let mut reducer = reducer(1);
    let entry = |peer, number, step| {
        let transfer = TransferId { epoch: 1, number };
        RecordSection::HandoverEntry(HandoverEntry { peer: RegionId(peer), transfer, step })
    };
    let record = |sections: &[RecordSection]| {
        let mut bytes = Vec::new();
        sections.iter().for_each(|section| section.encode(&mut bytes));
        bytes
    };
    let before = reducer.bytes();
    let entity = TransferredEntity { id: EntityId(7), generation: 0, state: vec![0; 10_000].into() };
    let staged = HandoverStep::Staged { entities: vec![entity], refused: vec![] };
    apply(&mut reducer, &record(&[entry(2, 0, staged)])).unwrap();
    assert!(reducer.bytes() > before + 10_000);
    apply(&mut reducer, &record(&[entry(2, 0, HandoverStep::Dropped)])).unwrap();
    assert!(reducer.bytes() < before + 10_000);
    let leaving = |number| entry(3, number, HandoverStep::Leaving { addressed: 1, ids: vec![] });
    let many: Vec<RecordSection> = (0..1 << 15).map(leaving).collect();
    assert_eq!(
        apply(&mut reducer, &record(&many)).unwrap_err(),
        "a region's state may have at most 65536 entries about handovers"
    );
    apply(&mut reducer, &record(&many[..100])).unwrap();
}
