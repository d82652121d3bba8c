//! Tests of partitions, which divide the space-filling curve among regions.

use super::*;

fn ids(count: u32) -> Vec<RegionId> {
    (1..=count).map(RegionId).collect()
}

#[test]
fn regions_divide_the_whole_curve_without_overlap() {
    for count in [1, 2, 3, 8, 100] {
        let partition = Partition::even(3, &ids(count));
        let mut next = 0;
        for region in ids(count) {
            let (first, end) = partition.stretch(region).unwrap();
            assert_eq!(first, next);
            assert_eq!((partition.owner(first), partition.owner(end - 1)), (region, region));
            next = end;
        }
        assert_eq!(next, MortonCurve::end(3));
        assert!(partition.owners(0, MortonCurve::end(3)).eq(ids(count)));
    }
}

#[test]
fn splits_and_merges_leave_no_region_empty() {
    let one = Partition::even(2, &ids(1));
    let two = one.split(RegionId(1), 1_000, RegionId(2)).unwrap();
    assert_eq!((two.owner(999), two.owner(1_000), two.version()), (RegionId(1), RegionId(2), 2));
    assert_eq!(two.split(RegionId(2), 1_000, RegionId(3)), Err(PartitionError::Empty { at: 1_000 }));
    assert_eq!(two.split(RegionId(2), 5_000, RegionId(1)), Err(PartitionError::Known(RegionId(1))));
    assert_eq!(two.split(RegionId(9), 5_000, RegionId(3)), Err(PartitionError::Unknown(RegionId(9))));
    let three = two.split(RegionId(2), 5_000, RegionId(3)).unwrap();
    assert_eq!(three.merge(RegionId(1), RegionId(3)), Err(PartitionError::Apart(RegionId(1), RegionId(3))));
    let merged = three.merge(RegionId(3), RegionId(2)).unwrap();
    assert_eq!(merged.stretch(RegionId(3)), Some((1_000, MortonCurve::end(2))));
    assert_eq!(merged.stretch(RegionId(2)), None);
}

/// Returns the keys of many entities close together, and of some scattered entities.
fn crowd(dice: &mut Dice) -> Vec<u64> {
    let world = WorldBox::<2>::cube(100.0).unwrap();
    let mut keys: Vec<u64> = (0..20_000)
        .map(|nth| {
            let spread = if nth % 5 == 0 { 100.0 } else { 8.0 };
            MortonCurve::key(world.grid_point(&[30.0 + dice.unit() * spread, 60.0 + dice.unit() * spread]))
        })
        .collect();
    keys.sort_unstable();
    keys
}

fn loads(partition: &Partition, keys: &[u64]) -> Vec<RegionLoad> {
    let load = |(_, region): &(u64, RegionId)| {
        let (first, end) = partition.stretch(*region).unwrap();
        let own = &keys[keys.partition_point(|key| *key < first)..keys.partition_point(|key| *key < end)];
        let quantiles = (1..64).filter_map(|part| own.get(own.len() * part / 64).copied()).collect();
        RegionLoad { region: *region, amount: own.len() as f64, quantiles }
    };
    partition.regions().iter().map(load).collect()
}

fn max_to_mean_load(loads: &[RegionLoad]) -> f64 {
    let total: f64 = loads.iter().map(|load| load.amount).sum();
    loads.iter().fold(0.0_f64, |most, load| most.max(load.amount)) / (total / loads.len() as f64)
}

#[test]
fn crowd_is_rebalanced_in_two_steps_at_most() {
    let keys = crowd(&mut Dice(3));
    let mut partition = Partition::even(2, &ids(4));
    let before = max_to_mean_load(&loads(&partition, &keys));
    assert!(before > 2.0, "{before}");
    let mut steps = 0;
    while let Some(next) = partition.rebalance(&loads(&partition, &keys), 1.15) {
        partition = next;
        steps += 1;
        assert!(steps < 4);
    }
    assert!(max_to_mean_load(&loads(&partition, &keys)) <= 1.15);
    assert!(steps <= 2, "{steps}");
}

#[test]
fn small_load_differences_move_no_region_border() {
    let partition = Partition::even(2, &ids(2));
    let load = |region, amount| RegionLoad { region: RegionId(region), amount, quantiles: vec![] };
    assert_eq!(partition.rebalance(&[load(1, 1_100.0), load(2, 900.0)], 1.15), None);
    assert_eq!(partition.rebalance(&[load(1, 0.0), load(2, 0.0)], 1.15), None);
    assert_eq!(partition.rebalance(&[load(1, f64::NAN), load(2, 1.0)], 1.15), None);
    assert!(partition.rebalance(&[load(1, 1_300.0), load(2, 700.0)], 1.15).is_some());
}

/// Checks that entities change their region when borders move, and that no entity is lost or changed in another way.
#[test]
fn no_entity_is_lost_or_changed_when_region_borders_move() {
    let world = WorldBox::<3>::cube(100.0).unwrap();
    let flock = dunlin_space::behaviour::Flock { sight: 4.0, ..Default::default() };
    let run = |rebalances: bool| {
        let mut stage = Lockstep::new(&RegionSetup::new(RegionId(0), world, 4.0), &flock, 4);
        let mut dice = Dice(8);
        for id in 0..500 {
            let crowded = if id % 5 == 0 { 100.0 } else { 20.0 };
            stage.spawn(&Entity::at(id, std::array::from_fn(|_| dice.unit() * crowded))).unwrap();
        }
        for tick in 0..30 {
            stage.tick().unwrap();
            if rebalances && tick % 5 == 0 {
                let mut keys: Vec<u64> = stage
                    .regions()
                    .flat_map(|region| {
                        (0..region.store().len()).map(|row| region.store().position(row)).collect::<Vec<_>>()
                    })
                    .map(|at| MortonCurve::key(world.grid_point(&at)))
                    .collect();
                keys.sort_unstable();
                if let Some(next) = stage.partition().rebalance(&loads(stage.partition(), &keys), 1.1) {
                    stage.set_partition(&next).unwrap();
                }
            }
        }
        (stage.ledger(), stage.regions().map(|region| region.store().len()).max().unwrap())
    };
    let ((left, crowded), (cut, shared)) = (run(false), run(true));
    assert_eq!(left, cut);
    assert!(crowded > 350 && shared < 200, "{crowded} {shared}");
}

#[test]
fn rebalancing_waits_for_entities_outside_their_region() {
    let partition = Partition::even(2, &ids(2));
    let balance = BalancePolicy { spare: 50.0, fresh_ns: 1_000, ..BalancePolicy::default() };
    let report = |region, amount, strayed, version| {
        let load = RegionLoad { region: RegionId(region), amount, quantiles: vec![u64::from(region)] };
        LoadReport { load, version, strayed }
    };
    let next = |reports: [LoadReport; 2], now_ns| {
        let mut load_reports = LoadReports::default();
        reports.into_iter().for_each(|report| {
            let mut bytes = Vec::new();
            report.encode(&mut bytes);
            assert!((0..bytes.len()).all(|part| LoadReport::decode(&bytes[..part]).is_err()));
            assert_eq!(LoadReport::decode(&bytes).as_ref(), Ok(&report));
            load_reports.record(report, 500);
        });
        load_reports.next(&partition, &balance, now_ns)
    };
    let cut = next([report(1, 1_500.0, 0.0, 1), report(2, 500.0, 0.0, 1)], 600).unwrap();
    assert_eq!(cut.version(), 2);
    let mut bytes = Vec::new();
    cut.encode(&mut bytes);
    assert_eq!(Partition::decode(2, &bytes), Ok(cut));
    assert!(Partition::decode(2, &bytes[..bytes.len() - 1]).is_err());
    let none = [
        next([report(1, 1_500.0, 100.0, 1), report(2, 500.0, 0.0, 1)], 600),
        next([report(1, 1_500.0, 0.0, 1), report(2, 500.0, 0.0, 2)], 600),
        next([report(1, 1_500.0, 0.0, 1), report(2, 500.0, 0.0, 1)], 1_500),
        next([report(1, 1_050.0, 0.0, 1), report(2, 950.0, 0.0, 1)], 600),
        next([report(1, 75.0, 0.0, 1), report(2, 25.0, 0.0, 1)], 600),
    ];
    assert!(none.iter().all(Option::is_none), "{none:?}");
    assert_eq!(LoadReports::default().next(&partition, &balance, 600), None, "no region has reported");
    let mut endless = Vec::new();
    report(1, f64::INFINITY, 0.0, 1).encode(&mut endless);
    assert!(LoadReport::decode(&endless).is_err());
}

#[test]
fn region_load_counts_strayed_entities_separately() {
    let world = WorldBox::<2>::cube(100.0).unwrap();
    let walk = dunlin_space::behaviour::RandomWalk { speed_max: 0.0, turn: 0.0 };
    let setup = RegionSetup::new(RegionId(1), world, 5.0);
    let authority = RegionAuthority { epoch: 1, until_ns: u64::MAX };
    let mut region = Region::new(setup, walk, Partition::even(2, &ids(2)), authority);
    let mut out = RegionOutputs::default();
    for nth in 0..3_000_u64 {
        // Two thirds of the entities are in the first half of the curve, in the curve's order.
        let high = if nth < 2_000 { 25.0 } else { 75.0 };
        let at = [(nth % 97) as f32, high];
        region.spawn(&Entity::at(nth, at), &mut out).unwrap();
    }
    let report = region.load_report();
    assert!((report.load.amount - 2_000.0).abs() < 30.0, "{report:?}");
    assert!((report.load.amount + report.strayed - 3_000.0).abs() < 1e-6);
    assert!(report.load.quantiles.is_sorted() && report.load.quantiles.len() == 63);
}
