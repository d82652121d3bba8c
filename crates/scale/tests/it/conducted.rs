//! From a scheduler's signals to a provider's instances, as in a node, in virtual time.

use dunlin_scale::{Conductor, Delays, Limits, Looked, Meter, Phase, Policy, Simulated, Totals};
use dunlin_tasks::Signals;

use super::play::sound;

fn delays() -> Delays {
    Delays { ready_ms: 300, terminate_ms: 50, ..sound() }
}

fn conductor(workers_min: u32, workers_max: u32) -> Conductor<Simulated> {
    let policy = Policy::local(workers_min, workers_max);
    Conductor::new(policy, Limits::default(), Simulated::new(delays(), 1), 500).unwrap()
}

/// Workers with one slot each, all busy with this many waiting tasks, or all idle.
fn looked(ready: u32, waiting: u64, idle_since_ms: Option<u64>) -> Looked {
    let ready = u64::from(ready);
    // Missing workers are not chosen.
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
    Looked { signals, totals: Totals::default() }
}

fn ready(conductor: &Conductor<Simulated>) -> u32 {
    conductor.members().filter(|(_, member)| member.phase == Phase::Ready).count() as u32
}

fn run(conductor: &mut Conductor<Simulated>, from_ms: u64, until_ms: u64, waiting: u64, is_idle: bool) {
    for now_ms in (from_ms..until_ms).step_by(100) {
        let looked = looked(ready(conductor), waiting, is_idle.then_some(from_ms));
        conductor.look(now_ms, 0, &looked, Some);
    }
}

#[test]
fn backlog_scales_out_to_the_maximum_and_silence_back_in() {
    let mut conductor = conductor(2, 12);
    run(&mut conductor, 0, 1_000, 0, false);
    assert_eq!(ready(&conductor), 2);
    run(&mut conductor, 1_000, 6_000, 5_000, false);
    assert_eq!(ready(&conductor), 12, "five seconds from the trigger to all of them");
    run(&mut conductor, 6_000, 15_000, 0, true);
    assert_eq!(ready(&conductor), 12, "it cools down");
    run(&mut conductor, 15_000, 60_000, 0, true);
    assert_eq!(ready(&conductor), 2);
}

#[test]
fn stopping_conductor_launches_nobody_and_ends_after_grace() {
    let mut conductor = conductor(3, 12);
    run(&mut conductor, 0, 1_000, 0, false);
    conductor.stop(1_000, 400);
    assert!(!conductor.is_over());
    run(&mut conductor, 1_000, 1_300, 5_000, false);
    conductor.poll(1_399);
    assert!(!conductor.is_over(), "they have their grace");
    conductor.poll(1_400);
    conductor.poll(1_450);
    assert!(conductor.is_over());
}

#[test]
fn meter_averages_signals_and_counts_arrivals_per_second() {
    let mut meter = Meter::default();
    assert_eq!(meter.measure(1_000, Totals { submitted: 70, ended: 30 }).arrived_per_s, 0.0, "since when?");
    let busy = |held, credit| Signals { held, credit, ..Signals::default() };
    meter.note(&busy(8, 2), 10);
    meter.note(&busy(4, 6), 20);
    let measured = meter.measure(3_000, Totals { submitted: 170, ended: 90 });
    assert!((measured.cpu - 0.6).abs() < 1e-9 && (measured.workers - 15.0).abs() < 1e-9, "{measured:?}");
    assert_eq!((measured.arrived_per_s, measured.done_per_s), (50.0, 30.0));
    let measured = meter.measure(4_000, Totals { submitted: 100, ended: 0 });
    assert_eq!(
        (measured.arrived_per_s, measured.done_per_s, measured.cpu),
        (0.0, 0.0, 0.0),
        "who counts began anew"
    );
}
