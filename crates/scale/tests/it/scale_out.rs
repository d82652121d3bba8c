//! Tests of adding workers: when, for which reason, and how many.

use dunlin_scale::{
    InstancePhase, Policy, ProviderAction, ScaleOutTrigger, SchedulerSample, WarmPoolPolicy, WeeklyWindow,
};

use super::simulation::{ScalerSimulation, calm, load_sample};

fn times(simulation: &ScalerSimulation, trigger: ScaleOutTrigger) -> (u64, u64, u64) {
    let decision =
        simulation.scaler.decisions().scale_outs().find(|decision| decision.trigger == trigger).unwrap();
    assert_eq!(decision.missing, 0);
    (
        decision.detected_ms - decision.passed_ms,
        decision.decided_ms - decision.detected_ms,
        decision.ready_ms - decision.decided_ms,
    )
}

#[test]
fn workers_start_after_a_threshold_is_exceeded_for_a_minute() {
    let busy = |_| SchedulerSample { cpu: 0.9, ..calm() };
    let full = |_| SchedulerSample { startable: 6_000, ..calm() };
    let late = |_| SchedulerSample { startable: 10, latency_ms: Some(2_500), ..calm() };
    for (trigger, decide_ms, sample) in [
        (ScaleOutTrigger::Cpu, 15_000, &busy as &dyn Fn(u32) -> SchedulerSample),
        (ScaleOutTrigger::Queue, 10_000, &full),
        (ScaleOutTrigger::Latency, 20_000, &late),
    ] {
        let mut simulation = ScalerSimulation::settled(Policy::cloud(10, 50));
        simulation.run(200, sample);
        assert_eq!(times(&simulation, trigger), (60_000, decide_ms, 45_000), "{trigger:?}");
    }
}

#[test]
fn empty_fleet_starts_one_worker_and_drops_it_when_idle() {
    let mut simulation = ScalerSimulation::settled(Policy::local(0, 4));
    let nothing = |_| SchedulerSample::default();
    simulation.run(60, nothing);
    assert_eq!(simulation.ready(), 0);
    simulation.run(1, |_| SchedulerSample { startable: 1, ..SchedulerSample::default() });
    assert_eq!(simulation.scaler.fleet().serving(), 1);
    let decision = simulation.scaler.decisions().scale_outs().last().unwrap();
    assert_eq!((decision.trigger, decision.workers), (ScaleOutTrigger::Queue, 1));
    simulation.run(60, |ready| SchedulerSample {
        startable: u64::from(ready == 0),
        workers: f64::from(ready),
        ..SchedulerSample::default()
    });
    assert_eq!(simulation.ready(), 1, "no second worker starts before the first is ready");
    let instance = simulation.instances(InstancePhase::Ready)[0];
    let idle = |ready| SchedulerSample {
        workers: f64::from(ready),
        idle: vec![(instance, 0)],
        ..SchedulerSample::default()
    };
    simulation.run(120, idle);
    assert_eq!(simulation.scaler.fleet().serving(), 0);
}

#[test]
fn repeated_short_load_peaks_start_no_worker() {
    let mut simulation = ScalerSimulation::settled(Policy::cloud(10, 50));
    for _ in 0..20 {
        simulation.run(59, |_| SchedulerSample { cpu: 0.95, startable: 9_000, ..calm() });
        simulation.run(1, |_| calm());
    }
    assert_eq!(simulation.ready(), 10);
}

#[test]
fn scale_out_returns_cpu_use_to_its_target() {
    let mut simulation = ScalerSimulation::settled(Policy::cloud(10, 50));
    simulation.run(600, |ready| load_sample(130.0, ready));
    // A worker completes 10 tasks per second and should be busy for 70 % of the time, so 130 tasks per second need 19
    // workers.
    assert_eq!(simulation.ready(), 19);
}

#[test]
fn policy_limits_the_workers_that_start_within_a_minute() {
    let mut simulation = ScalerSimulation::settled(Policy::cloud(10, 500));
    simulation.run(200, |ready| load_sample(3_000.0, ready));
    let decisions: Vec<_> =
        simulation.scaler.decisions().scale_outs().filter(|d| d.trigger != ScaleOutTrigger::Bounds).collect();
    assert!(decisions.len() >= 2);
    for first in &decisions {
        let within = |ms: u64| (first.decided_ms..first.decided_ms + 60_000).contains(&ms);
        let workers: u32 = decisions.iter().filter(|d| within(d.decided_ms)).map(|d| d.workers).sum();
        assert!(workers <= 20, "{decisions:?}");
    }
}

#[test]
fn tasks_that_wait_for_their_quota_start_no_worker() {
    // Tasks have waited for a minute, but only because of their tenant's quota. No task could start now, so more
    // workers would not help.
    let mut simulation = ScalerSimulation::settled(Policy::cloud(10, 50));
    simulation.run(600, |_| SchedulerSample { startable: 0, latency_ms: Some(60_000), ..calm() });
    assert_eq!(simulation.ready(), 10);
}

#[test]
fn warm_pool_shortens_scale_out_and_is_refilled() {
    let warm = WarmPoolPolicy { size: 5, detect_ms: 15_000, takes_drained: true };
    let mut simulation = ScalerSimulation::settled(Policy { warm, ..Policy::cloud(10, 50) });
    simulation.run(60, |_| calm());
    assert_eq!(simulation.instances(InstancePhase::Warm).len(), 5);
    simulation.run(200, |ready| load_sample(100.0, ready));
    let (detected, decided, ready) = times(&simulation, ScaleOutTrigger::Cpu);
    assert_eq!((detected, decided, ready), (15_000, 15_000, 20_000));
    assert!(detected + decided + ready <= 55_000, "the required maximum");
    assert_eq!(simulation.ready(), 15);
    assert_eq!(simulation.instances(InstancePhase::Warm).len(), 5, "the pool is refilled");
}

#[test]
fn workers_of_a_weekly_window_are_ready_when_the_window_begins() {
    // The first day of 1970 was a Thursday.
    let window =
        WeeklyWindow { days: WeeklyWindow::WORKDAYS, from_minute: 30, to_minute: 60, workers_min: 17 };
    let mut simulation = ScalerSimulation::settled(Policy { windows: vec![window], ..Policy::cloud(10, 50) });
    simulation.run(30 * 60 - 60 - 121, |_| calm());
    assert_eq!(simulation.ready(), 10);
    simulation.run(121, |_| calm());
    assert_eq!(simulation.ready(), 17);
    let scheduled =
        simulation.scaler.decisions().scale_outs().filter(|d| d.trigger == ScaleOutTrigger::Scheduled);
    assert_eq!(scheduled.map(|decision| decision.workers).sum::<u32>(), 7);
}

#[test]
fn window_over_midnight_ends_on_the_next_day() {
    let window = WeeklyWindow { days: 1 << 4, from_minute: 22 * 60, to_minute: 6 * 60, workers_min: 1 };
    let hour = |day: u64, hour: u64| (day * 24 + hour) * 3_600_000;
    // The first day of 1970 (day 0) was a Thursday, so day 1 was a Friday.
    assert!(!window.contains(hour(1, 21)) && window.contains(hour(1, 22)) && window.contains(hour(2, 5)));
    assert!(!window.contains(hour(2, 6)) && !window.contains(hour(1, 3)) && !window.contains(hour(2, 22)));
}

#[test]
fn failed_launches_of_workers_are_repeated() {
    let mut simulation = ScalerSimulation::new(
        Policy::cloud(50, 50),
        dunlin_scale::ProviderDelays {
            cold_failures_permille: 300.0,
            ..super::simulation::reliable_delays()
        },
        7,
    );
    simulation.run(900, |_| calm());
    assert_eq!(simulation.ready(), 50);
    let (launches, failures) = (simulation.provider.launches().0, simulation.provider.failures().0);
    assert!(failures > 5 && launches == 50 + failures, "{launches} launches, {failures} failed");
    let decision = simulation.scaler.decisions().scale_outs().next().unwrap();
    assert_eq!((decision.missing, u64::from(decision.failed)), (0, failures));
}

#[test]
fn failed_launches_of_workers_are_retried_at_a_limited_rate() {
    let mut simulation = ScalerSimulation::new(
        Policy::cloud(1, 50),
        dunlin_scale::ProviderDelays {
            cold_failures_permille: 1_000.0,
            ready_ms: 1_000,
            ..super::simulation::reliable_delays()
        },
        7,
    );
    simulation.run(3_600, |_| calm());
    let launches = simulation
        .actions
        .iter()
        .filter(|(_, action)| matches!(action, ProviderAction::Launch { .. }))
        .count();
    // The scaler launches five workers, and then pauses for half a minute before the next ones.
    assert!((100..=600).contains(&launches), "{launches}");
}

#[test]
fn dead_worker_is_replaced() {
    let mut simulation = ScalerSimulation::settled(Policy::cloud(10, 50));
    for instance in simulation.instances(InstancePhase::Ready).into_iter().take(3) {
        simulation.provider.kill(instance);
    }
    simulation.run(1, |_| calm());
    assert_eq!(simulation.ready(), 7);
    simulation.run(60, |_| calm());
    assert_eq!(simulation.ready(), 10);
}
