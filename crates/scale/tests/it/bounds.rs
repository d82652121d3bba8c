//! Tests that a scaler is deterministic and stays within its bounds, whatever is measured.

use dunlin_scale::{
    InstancePhase, Policy, PolicyError, ProviderDelays, SchedulerSample, SpotPolicy, WarmPoolPolicy,
    WeeklyWindow,
};
use proptest::prelude::*;

use super::simulation::ScalerSimulation;

fn samples() -> impl Strategy<Value = Vec<SchedulerSample>> {
    let sample = (0.0..1.2_f64, 0..20_000_u64, 0..5_000_u64, 0.0..500.0_f64, 0..40_usize);
    let sample = sample.prop_map(|(cpu, startable, latency_ms, per_s, idle)| SchedulerSample {
        cpu,
        workers: 12.0,
        startable: if startable < 10_000 { 0 } else { startable },
        latency_ms: Some(latency_ms),
        arrived_per_s: per_s,
        done_per_s: per_s,
        idle: (1..=idle as u64).map(|instance| (instance, 0)).collect(),
        ..SchedulerSample::default()
    });
    // Each sample will be repeated for 90 seconds.
    prop::collection::vec(sample, 1..40)
}

fn policy() -> Policy {
    Policy {
        warm: WarmPoolPolicy { size: 3, detect_ms: 10_000, takes_drained: true },
        spot: SpotPolicy { percent: 60, base: 2, fallback_after: 3, fallback_ms: 300_000 },
        ..Policy::cloud(4, 30).with_forecast(60_000, vec![10])
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn worker_fleet_stays_within_the_bounds_of_its_policy(
        samples in samples(), seed in any::<u64>()
    ) {
        let delays = ProviderDelays { interruptions_per_hour: 2.0, spot_max: Some(12), ..ProviderDelays::cloud() };
        let mut simulations = [ScalerSimulation::new(policy(), delays, seed), ScalerSimulation::new(policy(), delays, seed)];
        for sample in &samples {
            for _ in 0..90 {
                simulations.iter_mut().for_each(|simulation| simulation.step(sample));
                let fleet = simulations[0].scaler.fleet();
                prop_assert!(fleet.serving() <= 30, "{} serve", fleet.serving());
            }
        }
        prop_assert_eq!(&simulations[0].actions, &simulations[1].actions, "equal inputs give different actions");
        // The load is calm from now on, so in the end the scaler must have replaced all instances that ended.
        let least = 4;
        simulations[0].run(600, |_| super::simulation::calm());
        let fleet = simulations[0].scaler.fleet();
        let on_the_way = fleet.serving() + fleet.count(InstancePhase::Draining);
        prop_assert!(on_the_way >= least, "{on_the_way} of {least}");
    }
}

#[test]
fn contradictory_policy_is_refused() {
    let refused = |policy: Policy| {
        dunlin_scale::Scaler::new(policy, dunlin_scale::ScalerLimits::default())
            .err()
            .map(|error| error.to_string())
    };
    let document = || Policy::cloud(1, 10);
    assert_eq!(refused(document()), None);
    assert_eq!(
        refused(Policy::cloud(11, 10)).unwrap(),
        "workers_min is 11 and workers_max is 10: workers_max must be 1 to 1000000, and workers_min not more than workers_max"
    );
    assert_eq!(refused(Policy::cloud(0, 10)), None);
    assert!(refused(Policy::cloud(0, 0)).is_some());
    let mut policy = document();
    policy.triggers.cpu_low = 0.8;
    assert!(refused(policy).unwrap().contains("the low mark of processors is 0.8"));
    let mut policy = document();
    policy.triggers.cpu_target = f64::NAN;
    assert!(refused(policy).is_some());
    assert!(refused(document().with_forecast(0, vec![48])).is_some());
    assert!(refused(document().with_forecast(1_000, vec![])).is_some());
    assert!(refused(document().with_forecast(1_000, vec![1])).is_some());
    assert!(refused(document().with_forecast(1_000, vec![usize::MAX])).is_some());
    let window = WeeklyWindow { days: 0, from_minute: 0, to_minute: 1, workers_min: 1 };
    assert!(matches!(
        Policy { windows: vec![window], ..document() }.check(&dunlin_scale::ScalerLimits::default()),
        Err(PolicyError::Share { .. })
    ));
}
