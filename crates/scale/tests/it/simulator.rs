//! Tests of the cluster simulator: it is deterministic, loses no task, and computes the rows of the tables in Dunlin's
//! requirements.

use std::sync::Arc;

use dunlin_scale::sim::{
    ServiceTime, SimulatedNode, SimulationScenario, SubmissionLoad, TenantLoad, TimeSeries, TimeSeriesError,
    WorkerSupply, Workload, compare, noisy_neighbour, run, scale_in, scale_out, tenants, throughput,
    warm_pool,
};
use dunlin_scale::{Policy, ProviderDelays, ScaleOutTrigger, SpotPolicy};

fn crowd_scenario(seed: u64) -> SimulationScenario {
    let policy = Policy {
        spot: SpotPolicy { percent: 50, base: 2, fallback_after: 3, fallback_ms: 60_000 },
        ..Policy::local(5, 40)
    };
    let delays = ProviderDelays {
        ready_ms: 5_000,
        interruptions_per_hour: 30.0,
        notice_ms: 1_000,
        ..ProviderDelays::cloud()
    };
    let supply = WorkerSupply::ScaledFleet {
        policy: Box::new(policy),
        delays,
        sample_ms: 1_000,
        workers: 5,
        unix_ms: 0,
        is_oracle: false,
    };
    let workload = Workload::Crowd { base_per_s: 20.0, peak_per_s: 150.0, from_ms: 30_000, for_ms: 60_000 };
    SimulationScenario {
        duration_ms: 240_000,
        step_ms: 5,
        service: ServiceTime { mean_us: 150_000.0, spread: 0.5 },
        ..SimulationScenario::new(seed, vec![TenantLoad::new("all", SubmissionLoad::Paced(workload))], supply)
    }
}

#[test]
fn simulator_runs_are_equal_only_for_equal_seeds() {
    let (a, b, c) = (run(&crowd_scenario(1)), run(&crowd_scenario(1)), run(&crowd_scenario(2)));
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
    assert_ne!(a.digest, c.digest);
}

#[test]
fn arriving_leaving_and_interrupted_workers_lose_no_task() {
    let outcome = run(&crowd_scenario(3));
    assert!(outcome.interruptions > 0, "the scenario must interrupt workers");
    assert!(outcome.workers_most > 10);
    assert!(outcome.decisions.scale_ins().count() > 0);
    // At the end of the run, up to 40 tasks may still be in progress. All others must be completed.
    assert!(outcome.completed + 40 >= outcome.submitted, "{} of {}", outcome.completed, outcome.submitted);
    assert!(outcome.started >= outcome.completed);
}

#[test]
fn simulated_saturated_workers_reach_98_percent_efficiency() {
    let row = throughput(1, 20, 20_000, SimulatedNode::default());
    assert!(row.efficiency >= 0.98, "{row:?}");
    assert_eq!(row.used.bottleneck(), "workers");
}

#[test]
fn simulation_names_the_slow_resource_as_the_bottleneck() {
    let slow = SimulatedNode { dispatch_us: 2_000.0, ..SimulatedNode::default() };
    let row = throughput(1, 50, 5_000, slow);
    assert!(row.efficiency < 0.2, "{row:?}");
    assert_eq!(row.used.bottleneck(), "coordinator CPU");
    let sharded = throughput(1, 50, 5_000, SimulatedNode { shards: 4, ..slow });
    assert!(sharded.per_s > row.per_s * 3.0, "{sharded:?}");
    // A task adds 250 bytes to the log, so this log can store 2,000 tasks per second, although the workers could
    // complete 4,250.
    let log =
        throughput(1, 50, 10_000, SimulatedNode { log_bytes_per_s: 500_000.0, ..SimulatedNode::default() });
    assert_eq!(log.used.bottleneck(), "log");
    assert!((log.per_s - 2_000.0).abs() < 100.0, "{log:?}");
    let network = throughput(
        1,
        50,
        10_000,
        SimulatedNode { network_bytes_per_s: 1_200_000.0, ..SimulatedNode::default() },
    );
    assert_eq!(network.used.bottleneck(), "network");
    assert!((network.per_s - 2_000.0).abs() < 100.0, "{network:?}");
}

#[test]
fn workers_are_ready_in_the_required_time_for_each_trigger() {
    let rows = scale_out(1);
    let most = [
        (ScaleOutTrigger::Cpu, 120),
        (ScaleOutTrigger::Queue, 115),
        (ScaleOutTrigger::Latency, 125),
        (ScaleOutTrigger::Predictive, 55),
    ];
    assert_eq!(rows.len(), most.len());
    for (row, (trigger, most_s)) in rows.iter().zip(most) {
        assert_eq!(row.trigger, trigger);
        assert!(row.total_ms() <= most_s * 1_000 && row.workers > 0, "{row:?}");
    }
}

#[test]
fn surplus_workers_are_removed_within_the_allowed_time() {
    let row = scale_in(1).unwrap();
    assert!(row.total_ms() <= 450_000, "{row:?}");
    assert!(row.cooldown_ms >= 300_000, "{row:?}");
}

#[test]
fn warm_starts_are_faster_and_fail_less_than_cold_ones() {
    let rows = warm_pool(1, 5_000);
    let (cold, warm) = (rows[0], rows[1]);
    assert!(warm.total_ms <= 55_000 && cold.total_ms <= 120_000, "{rows:?}");
    let share = |row: &dunlin_scale::sim::WarmPoolRow| row.failed as f64 / row.starts as f64;
    assert!(share(&warm) < share(&cold), "{rows:?}");
}

#[test]
fn tenants_get_their_quota_and_no_more() {
    let (rows, jain) = tenants(1);
    assert!(jain >= 0.99, "{jain}");
    for row in rows {
        assert!(row.is_compliant, "{row:?}");
        assert!(row.cpu >= row.cpu_quota * 0.95 && row.cpu <= row.cpu_quota, "{row:?}");
    }
}

#[test]
fn noisy_neighbour_slows_other_tenants_by_at_most_one_percent() {
    let rows = noisy_neighbour(1);
    assert_eq!(rows.len(), 8);
    for row in rows.iter().filter(|row| row.tenant != "tenant-a") {
        assert!(row.change() >= -0.01, "{row:?}");
    }
    assert!(rows[0].change() > 3.94, "the required +394 %: {:?}", rows[0]);
}

#[test]
fn forecast_avoids_most_missed_targets_at_10_percent_more_cost() {
    let workload = Workload::Diurnal { low_per_s: 10.0, high_per_s: 70.0, day_ms: 3_600_000, differ: 0.05 };
    let policy = Policy::cloud(10, 250).with_forecast(75_000, vec![48]);
    let rows = compare(1, &workload, &policy, 2_000_000.0);
    let (reactive, predictive, oracle) = (&rows[0], &rows[1], &rows[2]);
    assert!(reactive.violated_minutes >= 3, "{rows:?}");
    assert!(predictive.violated_minutes * 5 <= reactive.violated_minutes, "{rows:?}");
    assert!(predictive.worker_hours <= reactive.worker_hours * 1.1, "{rows:?}");
    assert!(oracle.violated_minutes <= predictive.violated_minutes, "{rows:?}");
    assert!(oracle.worker_hours < predictive.worker_hours, "{rows:?}");
}

#[test]
fn time_series_of_load_is_read_from_a_python_or_json_list() {
    let python =
        "# [notes]\ndef load():\n    return np.array([22262, 21756,\n 22247.5, 22759,\n ], dtype='float')";
    let series = TimeSeries::parse(python).unwrap();
    assert_eq!((series.len(), series.highest()), (4, 22_759.0));
    assert_eq!((series.at(0.5), series.at(-1.0), series.at(4.0)), (22_009.0, 22_759.0, 22_262.0));
    let workload = Workload::Series { series: Arc::new(series), high_per_s: 100.0, value_ms: 1_000, from: 3 };
    assert!((workload.per_s(0) - 100.0).abs() < 1e-9);

    assert_eq!(TimeSeries::parse("nothing"), Err(TimeSeriesError::NoList));
    assert_eq!(TimeSeries::parse("[1, 2"), Err(TimeSeriesError::NoList), "the list has no end");
    assert_eq!(
        TimeSeries::parse("[1, x]"),
        Err(TimeSeriesError::NoNumber { text: "x".to_owned(), position: 2 })
    );
    assert!(
        TimeSeries::parse("[1, 0]").is_err()
            && TimeSeries::parse("[1]").is_err()
            && TimeSeries::parse("[1, NaN]").is_err()
    );
}
