//! Tests of forecasts: how accurate they are, when the scaler uses them, and what it may do because of them.

use std::f64::consts::TAU;

use dunlin_scale::{
    ForecastPolicy, Forecaster, Policy, ScaleOutTrigger, Scaler, ScalerLimits, SchedulerSample,
};

use super::simulation::{ScalerSimulation, load_sample};

const DAY: usize = 48;

fn config() -> ForecastPolicy {
    Policy::cloud(1, 100).with_forecast(75_000, vec![DAY]).predictive.unwrap()
}

fn wave(bucket: f64) -> f64 {
    100.0 - 80.0 * (TAU * bucket / DAY as f64).cos()
}

fn trained_forecaster(buckets: usize) -> Forecaster {
    let mut forecaster = Forecaster::new(config(), ScalerLimits::default().buckets_max);
    forecaster.learn(0, (0..buckets).map(|bucket| wave(bucket as f64 - buckets as f64 + 0.5)));
    forecaster
}

#[test]
fn periodic_load_is_forecast_within_five_percent() {
    let mut forecaster = trained_forecaster(4 * DAY);
    for step in 0..DAY as u64 * 15 {
        let now_ms = step * 5_000;
        forecaster.record(now_ms, wave(now_ms as f64 / 75_000.0));
    }
    let error = forecaster.error().unwrap();
    assert!(error < 0.05, "{error}");
    assert!(forecaster.is_trusted());
}

#[test]
fn load_rarely_exceeds_the_upper_bound_of_its_forecast() {
    let mut random = 1_u64;
    let mut noise = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 40) as f64 / (1_u64 << 24) as f64 * 6.0 - 3.0
    };
    let mut forecaster = Forecaster::new(config(), ScalerLimits::default().buckets_max);
    forecaster.learn(0, (0..5 * DAY as u64).map(|bucket| wave(bucket as f64 + 0.5) + noise()));
    let (mut above, mut all) = (0, 0);
    for bucket in 0..2 * DAY as u64 {
        let now_ms = bucket * 75_000;
        let middle_ms = now_ms + 75_000 + 37_500;
        let ahead = forecaster.trusted_forecast(middle_ms, middle_ms).unwrap();
        assert!(ahead.upper > ahead.point);
        all += 1;
        above += u32::from(wave((bucket + 1) as f64 + 0.5) + noise() > ahead.upper);
        forecaster.record(now_ms, wave(bucket as f64 + 0.5) + noise());
    }
    assert!(above * 10 <= all, "{above} of {all} above the quantile of 0.95");
}

#[test]
fn forecast_needs_a_history_of_two_seasons() {
    assert!(trained_forecaster(2 * DAY - 1).trusted_forecast(0, 75_000).is_none());
    assert!(trained_forecaster(2 * DAY).trusted_forecast(0, 75_000).is_some());
}

#[test]
fn forecasts_are_ignored_while_their_error_is_large() {
    let mut forecaster = trained_forecaster(4 * DAY);
    let mut now_ms = 0;
    let mut run = |forecaster: &mut Forecaster, buckets: u64, of: &dyn Fn(u64) -> f64| {
        for _ in 0..buckets * 15 {
            forecaster.record(now_ms, of(now_ms));
            now_ms += 5_000;
        }
        forecaster.trusted_forecast(now_ms, now_ms + 75_000)
    };
    assert!(run(&mut forecaster, 20, &|ms| wave(ms as f64 / 75_000.0)).is_some());
    // These arrivals do not follow the pattern of the history.
    let wild = |ms: u64| if (ms / 75_000).is_multiple_of(2) { 20.0 } else { 900.0 };
    assert!(run(&mut forecaster, 30, &wild).is_none());
    assert!(!forecaster.is_trusted());
    let calm = run(&mut forecaster, 6 * DAY as u64, &|ms| wave(ms as f64 / 75_000.0));
    assert!(forecaster.is_trusted() && calm.is_some());
}

#[test]
fn forecast_starts_workers_before_the_load_rises() {
    let mut simulation = ScalerSimulation::settled(Policy::cloud(5, 100).with_forecast(75_000, vec![DAY]));
    simulation.scaler.assume_rate(10.0);
    let at = |ms: u64| wave(ms as f64 / 75_000.0);
    simulation.scaler.learn(
        simulation.now_ms,
        (1..=4 * DAY).rev().map(|back| wave(simulation.now_ms as f64 / 75_000.0 - back as f64 + 0.5)),
    );
    let mut worst: f64 = 0.0;
    for _ in 0..3_600 {
        let sample = load_sample(at(simulation.now_ms), simulation.ready());
        worst = worst.max(sample.cpu);
        simulation.step(&sample);
    }
    assert!(worst < 0.9, "{worst}");
    let decision = simulation
        .scaler
        .decisions()
        .scale_outs()
        .find(|decision| decision.trigger == ScaleOutTrigger::Predictive)
        .unwrap();
    let total_ms = decision.ready_ms - decision.passed_ms;
    assert!(total_ms <= 55_000, "{total_ms} ms exceeds the required 55 s");
}

#[test]
fn forecast_never_removes_a_worker() {
    // The forecast is low, but the measured load requires all workers.
    let policy = Policy { workers_min: 3, ..Policy::cloud(20, 100).with_forecast(75_000, vec![DAY]) };
    let mut simulation = ScalerSimulation::settled(Policy { workers_min: 20, ..policy.clone() });
    simulation.scaler.set_policy(policy).unwrap();
    simulation.scaler.assume_rate(10.0);
    simulation.scaler.learn(simulation.now_ms, vec![0.1; 4 * DAY]);
    let idle: Vec<_> = (1..=20).map(|instance| (instance, 0)).collect();
    simulation.run(1_800, |_| SchedulerSample {
        cpu: 0.6,
        workers: 20.0,
        idle: idle.clone(),
        done_per_s: 120.0,
        arrived_per_s: 120.0,
        ..SchedulerSample::default()
    });
    assert_eq!(simulation.ready(), 20);
    assert_eq!(simulation.drained(), []);
}

#[test]
fn forecast_stays_finite_for_any_measurement() {
    let mut forecaster = trained_forecaster(4 * DAY);
    for (step, value) in
        [f64::NAN, f64::INFINITY, -1.0, 1e300, 0.0].into_iter().cycle().take(2_000).enumerate()
    {
        forecaster.record(step as u64 * 40_000, value);
        if let Some(ahead) = forecaster.trusted_forecast(step as u64 * 40_000, step as u64 * 40_000 + 120_000)
        {
            assert!(ahead.point.is_finite() && ahead.upper.is_finite() && ahead.point >= 0.0);
        }
    }
    forecaster.record(u64::MAX / 2, 1.0);
    assert!(
        forecaster.trusted_forecast(u64::MAX / 2, u64::MAX / 2 + 120_000).is_none(),
        "the history is cleared after a long time without measurements"
    );
}

#[test]
fn forecast_starts_when_the_history_covers_two_seasons() {
    let mut forecaster = Forecaster::new(Policy::local(1, 8).with_season(60_000).predictive.unwrap(), 16_384);
    // The load is high in the first ten seconds of each minute. As in a node, there are two measurements per second.
    let per_s = |now_ms: u64| if now_ms % 60_000 < 10_000 { 40.0 } else { 2.0 };
    for now_ms in (0..240_000).step_by(500) {
        forecaster.record(now_ms, per_s(now_ms));
        let (known, needed) = forecaster.history_ms();
        assert_eq!(needed, 120_000);
        assert_eq!(forecaster.peak_forecast(now_ms, now_ms + 5_000).is_some(), known >= needed, "{now_ms}");
    }
    let most = |from_ms: u64| forecaster.peak_forecast(from_ms, from_ms + 5_000).unwrap().point;
    assert!(most(237_000) > 30.0, "{} just before the next", most(237_000));
}

#[test]
fn forecast_status_shows_forecast_and_needed_workers() {
    assert!(Scaler::new(Policy::local(1, 8), ScalerLimits::default()).unwrap().forecast_status(0).is_none());
    let mut scaler = Scaler::new(Policy::local(1, 8).with_season(60_000), ScalerLimits::default()).unwrap();
    let empty = scaler.forecast_status(0).unwrap();
    assert_eq!((empty.ahead, empty.workers, empty.error), (None, 0, None));
    scaler.assume_rate(10.0);
    let wave = (0..48).map(|bucket| if bucket % 24 < 4 { 40.0 } else { 2.0 });
    scaler.learn(120_000, wave);
    let status = scaler.forecast_status(120_000).unwrap();
    // A worker completes 10 tasks per second and should be busy for 70 % of the time, so 40 tasks per second need 6
    // workers.
    assert!(status.is_trusted && (6..=8).contains(&status.workers), "{status:?}");
}
