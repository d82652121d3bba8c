//! Tests the autoscaler in virtual time, as a node uses it: with the signals of a scheduler, and with instances of a
//! provider.

use dunlin_scale::{
    Autoscaler, InstancePhase, LoadMeter, Policy, ProviderDelays, ScalerLimits, SchedulerSnapshot,
    SchedulerTotals, SimulatedProvider,
};
use dunlin_tasks::Signals;

use super::simulation::reliable_delays;

fn delays() -> ProviderDelays {
    ProviderDelays { ready_ms: 300, terminate_ms: 50, ..reliable_delays() }
}

fn autoscaler(workers_min: u32, workers_max: u32) -> Autoscaler<SimulatedProvider> {
    let policy = Policy::local(workers_min, workers_max);
    Autoscaler::new(policy, ScalerLimits::default(), SimulatedProvider::new(delays(), 1), 500).unwrap()
}

/// Returns the state of a scheduler with `ready` workers, which have one slot each, and `waiting` waiting tasks. The
/// workers are busy, unless `idle_since_ms` is set: they have then been idle since this time.
fn snapshot(ready: u32, waiting: u64, idle_since_ms: Option<u64>) -> SchedulerSnapshot {
    let ready = u64::from(ready);
    // The list also contains workers that do not exist, which the scaler must ignore.
    let idle = idle_since_ms.map(|since_ms| (1..=64).map(|worker| (worker, since_ms)).collect());
    let signals = Signals {
        startable: waiting,
        oldest_ms: waiting,
        held: if idle.is_some() { 0 } else { ready },
        credit: if idle.is_some() { ready } else { 0 },
        workers: ready,
        idle: idle.unwrap_or_default(),
        grace_ms: 40_000,
        ..Signals::default()
    };
    SchedulerSnapshot { signals, totals: SchedulerTotals::default() }
}

fn ready(autoscaler: &Autoscaler<SimulatedProvider>) -> u32 {
    autoscaler.members().filter(|(_, member)| member.phase == InstancePhase::Ready).count() as u32
}

fn run(
    autoscaler: &mut Autoscaler<SimulatedProvider>,
    from_ms: u64,
    until_ms: u64,
    waiting: u64,
    is_idle: bool,
) {
    for now_ms in (from_ms..until_ms).step_by(100) {
        let snapshot = snapshot(ready(autoscaler), waiting, is_idle.then_some(from_ms));
        autoscaler.tick(now_ms, 0, &snapshot, Some);
    }
}

#[test]
fn autoscaler_scales_out_on_backlog_and_back_in_when_idle() {
    let mut autoscaler = autoscaler(2, 12);
    run(&mut autoscaler, 0, 1_000, 0, false);
    assert_eq!(ready(&autoscaler), 2);
    run(&mut autoscaler, 1_000, 6_000, 5_000, false);
    assert_eq!(ready(&autoscaler), 12, "all workers are ready five seconds after the trigger");
    run(&mut autoscaler, 6_000, 15_000, 0, true);
    assert_eq!(ready(&autoscaler), 12, "no worker ends during the cooldown");
    run(&mut autoscaler, 15_000, 60_000, 0, true);
    assert_eq!(ready(&autoscaler), 2);
}

#[test]
fn stopped_autoscaler_starts_no_worker_and_ends_after_draining() {
    let mut autoscaler = autoscaler(3, 12);
    run(&mut autoscaler, 0, 1_000, 0, false);
    autoscaler.stop(1_000, 400);
    assert!(!autoscaler.is_stopped());
    run(&mut autoscaler, 1_000, 1_300, 5_000, false);
    autoscaler.poll(1_399);
    assert!(!autoscaler.is_stopped(), "the workers still have time to drain");
    autoscaler.poll(1_400);
    autoscaler.poll(1_450);
    assert!(autoscaler.is_stopped());
}

#[test]
fn load_meter_computes_average_load_and_arrival_rate() {
    let mut meter = LoadMeter::default();
    assert_eq!(
        meter.measure(1_000, SchedulerTotals { submitted: 70, ended: 30 }).arrived_per_s,
        0.0,
        "the first measurement has no earlier counters"
    );
    let busy = |held, credit| Signals { held, credit, ..Signals::default() };
    meter.record(&busy(8, 2), 10);
    meter.record(&busy(4, 6), 20);
    let measured = meter.measure(3_000, SchedulerTotals { submitted: 170, ended: 90 });
    assert!((measured.cpu - 0.6).abs() < 1e-9 && (measured.workers - 15.0).abs() < 1e-9, "{measured:?}");
    assert_eq!((measured.arrived_per_s, measured.done_per_s), (50.0, 30.0));
    let measured = meter.measure(4_000, SchedulerTotals { submitted: 100, ended: 0 });
    assert_eq!(
        (measured.arrived_per_s, measured.done_per_s, measured.cpu),
        (0.0, 0.0, 0.0),
        "the counters restarted"
    );
}
