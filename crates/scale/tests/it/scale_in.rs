//! Tests of removing workers: when, which ones, and how much time they get to finish their tasks.

use dunlin_scale::{InstanceId, InstancePhase, Policy, SchedulerSample, WarmPoolPolicy};

use super::simulation::{ScalerSimulation, calm, load_sample};

/// Returns a simulation with 20 workers, although 12 are enough.
fn oversized_fleet(policy: Policy) -> ScalerSimulation {
    let first = Policy { workers_min: 20, ..policy.clone() };
    let mut simulation = ScalerSimulation::settled(first);
    simulation.scaler.set_policy(policy).unwrap();
    simulation
}

fn low_load_sample(simulation: &ScalerSimulation) -> SchedulerSample {
    let ready = simulation.instances(InstancePhase::Ready);
    // The younger half of the workers is idle. The youngest worker is the first in the list, and therefore counts as
    // idle longest.
    let idle = ready.iter().rev().take(10).map(|&instance| (instance, 100 + instance)).collect();
    SchedulerSample { idle, ..load_sample(80.0, ready.len() as u32) }
}

fn run_low_load(simulation: &mut ScalerSimulation, seconds: u64) {
    for _ in 0..seconds {
        let sample = low_load_sample(simulation);
        simulation.step(&sample);
        let draining: Vec<InstanceId> = simulation.instances(InstancePhase::Draining);
        draining.into_iter().for_each(|instance| simulation.provider.report_drained(instance));
    }
}

#[test]
fn scale_in_waits_for_the_required_cool_down() {
    let mut simulation = oversized_fleet(Policy::cloud(10, 50));
    run_low_load(&mut simulation, 359);
    assert_eq!(simulation.drained(), []);
    run_low_load(&mut simulation, 60);
    let decision = simulation.scaler.decisions().scale_ins().next().unwrap();
    assert_eq!(decision.cooled_ms - decision.low_ms, 300_000);
    assert_eq!(decision.decided_ms - decision.cooled_ms, 60_000);
    assert!(decision.drained_ms - decision.decided_ms <= 60_000);
    assert_eq!(decision.gone_ms - decision.drained_ms, 30_000);
    assert!(decision.gone_ms - decision.low_ms <= 450_000, "the required maximum");
}

#[test]
fn scale_in_stops_at_the_worker_count_that_the_load_needs() {
    let mut simulation = oversized_fleet(Policy::cloud(10, 50));
    run_low_load(&mut simulation, 1_800);
    // A worker completes 10 tasks per second and should be busy for 70 % of the time, so 80 tasks per second need 12
    // workers.
    assert_eq!(simulation.ready(), 12);
}

#[test]
fn load_during_the_cool_down_restarts_the_cool_down() {
    let mut simulation = oversized_fleet(Policy::cloud(10, 50));
    for _ in 0..10 {
        run_low_load(&mut simulation, 299);
        simulation.run(1, |_| calm());
    }
    assert_eq!(simulation.ready(), 20);
}

#[test]
fn scale_in_drains_only_idle_workers() {
    let mut simulation = oversized_fleet(Policy::cloud(5, 50));
    let busy: Vec<InstanceId> = simulation.instances(InstancePhase::Ready).into_iter().take(10).collect();
    run_low_load(&mut simulation, 361);
    assert!(!simulation.drained().is_empty());
    assert!(simulation.drained().iter().all(|(instance, _)| !busy.contains(instance)));
    // The first worker in the sample, which has been idle longest, is removed first.
    let first = simulation.drained()[0].0;
    assert_eq!(first, 20);

    let mut simulation = oversized_fleet(Policy::cloud(5, 50));
    simulation.run(1_000, |ready| load_sample(30.0, ready));
    assert_eq!(simulation.drained(), [], "every worker holds a task");
}

#[test]
fn draining_worker_gets_a_minute_or_more_if_its_tasks_need_it() {
    for (grace_ms, expected_ms) in [(0, 60_000), (5_000, 60_000), (900_000, 900_000)] {
        let mut simulation = oversized_fleet(Policy::cloud(10, 50));
        for _ in 0..400 {
            let sample = SchedulerSample { grace_ms, ..low_load_sample(&simulation) };
            simulation.step(&sample);
        }
        assert!(!simulation.drained().is_empty());
        assert!(simulation.drained().iter().all(|(_, ms)| *ms == expected_ms), "{:?}", simulation.drained());
    }
}

#[test]
fn cpu_use_between_the_thresholds_keeps_the_worker_count() {
    let mut simulation = oversized_fleet(Policy::cloud(5, 50));
    let idle: Vec<_> =
        simulation.instances(InstancePhase::Ready).into_iter().map(|instance| (instance, 0)).collect();
    for cpu in [0.57, 0.60, 0.65, 0.69, 0.70] {
        simulation.run(1_000, |_| SchedulerSample { cpu, workers: 20.0, idle: idle.clone(), ..calm() });
        assert_eq!((simulation.ready(), simulation.drained().len()), (20, 0), "at {cpu}");
    }
}

#[test]
fn drained_workers_fill_the_warm_pool() {
    let warm = WarmPoolPolicy { size: 3, detect_ms: 15_000, takes_drained: true };
    let mut simulation = oversized_fleet(Policy::cloud(10, 50));
    // The warm pool has no room until the policy is changed below. Until then, no drained worker can return to the
    // pool.
    run_low_load(&mut simulation, 358);
    let policy = Policy { warm, ..simulation.scaler.policy().clone() };
    run_low_load(&mut simulation, 3);
    assert!(!simulation.instances(InstancePhase::Draining).is_empty());
    simulation.scaler.set_policy(policy).unwrap();
    let leaving: Vec<InstanceId> = simulation.instances(InstancePhase::Draining);
    let mut actions = Vec::new();
    for &instance in &leaving {
        let event = dunlin_scale::ProviderEvent::Drained { instance };
        simulation.scaler.on_event(simulation.now_ms, &event, &mut actions);
    }
    let parked =
        actions.iter().filter(|action| matches!(action, dunlin_scale::ProviderAction::Park { .. })).count();
    assert_eq!(parked, 3.min(leaving.len()));
}

#[test]
fn drained_local_workers_end_even_if_the_warm_pool_has_room() {
    let mut simulation = oversized_fleet(Policy::cloud(10, 50));
    run_low_load(&mut simulation, 361);
    let policy = simulation.scaler.policy().clone().with_local_pool(30);
    simulation.scaler.set_policy(policy).unwrap();
    let leaving = simulation.instances(InstancePhase::Draining);
    assert!(!leaving.is_empty());
    let mut actions = Vec::new();
    for &instance in &leaving {
        simulation.scaler.on_event(
            simulation.now_ms,
            &dunlin_scale::ProviderEvent::Drained { instance },
            &mut actions,
        );
    }
    let ended: Vec<_> =
        leaving.iter().map(|&instance| dunlin_scale::ProviderAction::Terminate { instance }).collect();
    assert_eq!(actions, ended);
}
