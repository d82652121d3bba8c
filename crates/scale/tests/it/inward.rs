//! Tests of removing workers: when it happens, which workers end, and how much time they get.

use dunlin_scale::{Instance, Phase, Policy, SchedulerSample, Warm};

use super::play::{Play, calm, work};

/// Returns a run with 20 workers, of which 12 would suffice.
fn too_many(policy: Policy) -> Play {
    let first = Policy { workers_min: 20, ..policy.clone() };
    let mut play = Play::settled(first);
    play.scaler.set_policy(policy).unwrap();
    play
}

fn quiet(play: &Play) -> SchedulerSample {
    let ready = play.instances(Phase::Ready);
    // The later half of the workers is idle. The youngest worker is first in the list, as the longest idle one.
    let idle = ready.iter().rev().take(10).map(|&instance| (instance, 100 + instance)).collect();
    SchedulerSample { idle, ..work(80.0, ready.len() as u32) }
}

fn run_quiet(play: &mut Play, seconds: u64) {
    for _ in 0..seconds {
        let sample = quiet(play);
        play.second(&sample);
        let draining: Vec<Instance> = play.instances(Phase::Draining);
        draining.into_iter().for_each(|instance| play.provider.drained(instance));
    }
}

#[test]
fn scale_in_waits_for_the_required_cool_down() {
    let mut play = too_many(Policy::document(10, 50));
    run_quiet(&mut play, 359);
    assert_eq!(play.drained(), []);
    run_quiet(&mut play, 60);
    let decision = play.scaler.decisions().inward().next().unwrap();
    assert_eq!(decision.cooled_ms - decision.low_ms, 300_000);
    assert_eq!(decision.decided_ms - decision.cooled_ms, 60_000);
    assert!(decision.drained_ms - decision.decided_ms <= 60_000);
    assert_eq!(decision.gone_ms - decision.drained_ms, 30_000);
    assert!(decision.gone_ms - decision.low_ms <= 450_000, "the document's");
}

#[test]
fn scale_in_stops_at_the_worker_count_that_the_load_needs() {
    let mut play = too_many(Policy::document(10, 50));
    run_quiet(&mut play, 1_800);
    // 80 tasks a second, with workers that do 10 each and are to be busy for 70 % of the time.
    assert_eq!(play.ready(), 12);
}

#[test]
fn load_during_the_cool_down_restarts_the_cool_down() {
    let mut play = too_many(Policy::document(10, 50));
    for _ in 0..10 {
        run_quiet(&mut play, 299);
        play.run(1, |_| calm());
    }
    assert_eq!(play.ready(), 20);
}

#[test]
fn scale_in_drains_only_idle_workers() {
    let mut play = too_many(Policy::document(5, 50));
    let busy: Vec<Instance> = play.instances(Phase::Ready).into_iter().take(10).collect();
    run_quiet(&mut play, 361);
    assert!(!play.drained().is_empty());
    assert!(play.drained().iter().all(|(instance, _)| !busy.contains(instance)));
    // The longest idle worker comes first in the sample.
    let first = play.drained()[0].0;
    assert_eq!(first, 20);

    let mut play = too_many(Policy::document(5, 50));
    play.run(1_000, |ready| work(30.0, ready));
    assert_eq!(play.drained(), [], "all hold something");
}

#[test]
fn draining_grace_is_the_longest_task_or_at_least_a_minute() {
    for (grace_ms, expected_ms) in [(0, 60_000), (5_000, 60_000), (900_000, 900_000)] {
        let mut play = too_many(Policy::document(10, 50));
        for _ in 0..400 {
            let sample = SchedulerSample { grace_ms, ..quiet(&play) };
            play.second(&sample);
        }
        assert!(!play.drained().is_empty());
        assert!(play.drained().iter().all(|(_, ms)| *ms == expected_ms), "{:?}", play.drained());
    }
}

#[test]
fn cpu_use_between_the_thresholds_keeps_the_worker_count() {
    let mut play = too_many(Policy::document(5, 50));
    let idle: Vec<_> = play.instances(Phase::Ready).into_iter().map(|instance| (instance, 0)).collect();
    for cpu in [0.57, 0.60, 0.65, 0.69, 0.70] {
        play.run(1_000, |_| SchedulerSample { cpu, workers: 20.0, idle: idle.clone(), ..calm() });
        assert_eq!((play.ready(), play.drained().len()), (20, 0), "at {cpu}");
    }
}

#[test]
fn drained_workers_fill_the_warm_pool() {
    let warm = Warm { size: 3, detect_ms: 15_000, takes_drained: true };
    let mut play = too_many(Policy::document(10, 50));
    // A drained worker can return to the pool only after the pool has a free place.
    run_quiet(&mut play, 358);
    let policy = Policy { warm, ..play.scaler.policy().clone() };
    run_quiet(&mut play, 3);
    assert!(!play.instances(Phase::Draining).is_empty());
    play.scaler.set_policy(policy).unwrap();
    let leaving: Vec<Instance> = play.instances(Phase::Draining);
    let mut actions = Vec::new();
    for &instance in &leaving {
        let event = dunlin_scale::ProviderEvent::Drained { instance };
        play.scaler.on_event(play.now_ms, &event, &mut actions);
    }
    let parked =
        actions.iter().filter(|action| matches!(action, dunlin_scale::ProviderAction::Park { .. })).count();
    assert_eq!(parked, 3.min(leaving.len()));
}

#[test]
fn drained_local_workers_end_even_if_the_warm_pool_has_room() {
    let mut play = too_many(Policy::document(10, 50));
    run_quiet(&mut play, 361);
    let policy = play.scaler.policy().clone().with_local_pool(30);
    play.scaler.set_policy(policy).unwrap();
    let leaving = play.instances(Phase::Draining);
    assert!(!leaving.is_empty());
    let mut actions = Vec::new();
    for &instance in &leaving {
        play.scaler.on_event(play.now_ms, &dunlin_scale::ProviderEvent::Drained { instance }, &mut actions);
    }
    let ended: Vec<_> =
        leaving.iter().map(|&instance| dunlin_scale::ProviderAction::Terminate { instance }).collect();
    assert_eq!(actions, ended);
}
