//! Tests handovers under random faults. Processes are killed at any step, networks are cut, and messages are lost,
//! duplicated, delayed and reordered. Each run has a seed.
//!
//! `DUNLIN_SPACE_SEEDS=5000` runs 5,000 seeds, `DUNLIN_SPACE_SEED=17` runs only seed 17. `cargo xtask chaos space` runs
//! a release build. The module `ledger` makes the checks. After every step, no two owners may move the same entity, and
//! no kill may have set an entity back by more than a tick. At the end, when all faults are repaired, the entities of
//! all owners (id, generation and state) must equal the ledger.

mod ledger;
mod node;
mod simulation;

use dunlin_space::StandbyMode;

use simulation::{ChaosSimulation, FaultRates};

/// Runs the simulation with each seed. Panics with the seed if a run fails.
fn seeds(promise: &str, run: impl Fn(u64) -> Result<ChaosSimulation, String>) -> Vec<ChaosSimulation> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("DUNLIN_SPACE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DUNLIN_SPACE_SEEDS").unwrap_or(30),
    };
    seeds
        .map(|seed| run(seed).unwrap_or_else(|why| panic!("{promise}: DUNLIN_SPACE_SEED={seed}: {why}")))
        .collect()
}

#[test]
fn no_fault_loses_or_duplicates_an_entity_if_standbys_exist() {
    let stages = seeds("with standbys", |seed| {
        ChaosSimulation::new(seed, StandbyMode::Required, FaultRates::all()).run()
    });
    let sum = |count: fn(&ChaosSimulation) -> u64| stages.iter().map(count).sum::<u64>();
    // A run of few seeds may have too few faults for these checks.
    if stages.len() >= 30 {
        assert!(sum(|stage| stage.counters.kills) > 30 && sum(|stage| stage.counters.taken_over) > 15);
        assert!(sum(|stage| stage.counters.reclaimed) > 0);
        assert!(sum(|stage| stage.counters.moved_over) > 300 && sum(|stage| stage.counters.refused) > 0);
        assert!(
            sum(|stage| stage.counters.lost_messages) > 300 && sum(|stage| stage.counters.late_messages) > 30
        );
    }
    assert_eq!(sum(|stage| stage.ledger.lost.len() as u64), 0);
}

#[test]
fn only_a_killed_process_without_standby_loses_its_entities() {
    let stages = seeds("without standbys", |seed| {
        ChaosSimulation::new(seed, StandbyMode::None, FaultRates::all()).run()
    });
    let lost: usize = stages.iter().map(|stage| stage.ledger.lost.len()).sum();
    let reclaimed: u64 = stages.iter().map(|stage| stage.counters.reclaimed).sum();
    assert!(stages.len() < 30 || reclaimed > 10, "an owner that comes back loses nothing");
    assert!(stages.len() < 30 || lost > 0, "kills without a standby lose what was held");
}

#[test]
fn every_handover_succeeds_if_no_fault_occurs() {
    for seed in 0..5 {
        let stage = ChaosSimulation::new(seed, StandbyMode::Required, FaultRates::none()).run().unwrap();
        assert_eq!((stage.counters.aborted, stage.ledger.lost.len()), (0, 0), "seed {seed}");
        assert!(stage.counters.moved_over > 10, "seed {seed}");
    }
}
