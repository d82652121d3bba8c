//! Tests of documents that describe clusters: parsing them, planning with them, and recommending them.

use dunlin_scale::sim::SimulatedNode;
use dunlin_scale::{Demand, Prices, ScalingDocument, WeeklyWindow, WorkerNeed, plan, recommend};

const SEED: &str = "\
coordinators:
  count: 5
  instanceType: m6i.2xlarge
  cpu: 8
  memory: 32Gi

workers:
  count: 95
  instanceType: m6i.large
  cpu: 2
  memory: 8Gi
  spotPercentage: 70%

scaling:
  horizontal:
    minWorkers: 50
    maxWorkers: 200
    targetCpuUtilization: 70%
  vertical:
    coordinators: manual
    workers: auto
  predictive:
    enabled: true
    leadTime: 10m
";

const DEMAND: Demand =
    Demand { per_s: 5_000.0, peak_per_s: 11_000.0, task_ms: 11.76, queued: 1_000_000, payload_bytes: 200 };

#[test]
fn example_cluster_document_is_read() {
    let document = ScalingDocument::parse(SEED).unwrap();
    assert_eq!((document.coordinators.count, document.coordinators.memory_gib), (5, 32.0));
    assert_eq!((document.workers.count, document.workers.cpus), (95, 2.0));
    assert!(document.is_vertical);
    let policy = &document.policy;
    assert_eq!((policy.workers_min, policy.workers_max, policy.spot.percent), (50, 200, 70));
    assert!((policy.triggers.cpu_target - 0.7).abs() < 1e-9);
    assert_eq!(policy.predictive.as_ref().unwrap().lead_ms, 600_000);
}

#[test]
fn scaling_document_may_set_schedule_and_warm_pool() {
    let more = "  warmPool: { size: 7 }\n  schedule: [{ days: \"Fri-Sun, Tue\", from: \"22:30\", to: \"06:00\", minWorkers: 80 }]\n";
    let document = ScalingDocument::parse(&format!("{SEED}{more}")).unwrap();
    assert_eq!(document.policy.warm.size, 7);
    let window = WeeklyWindow { days: 0b111_0010, from_minute: 1_350, to_minute: 360, workers_min: 80 };
    assert_eq!(document.policy.windows, [window]);
}

#[test]
fn error_in_a_scaling_document_names_the_invalid_field() {
    let refused = |from: &str, to: &str| {
        let text = SEED.replace(from, to);
        assert_ne!(text, SEED);
        ScalingDocument::parse(&text).unwrap_err().to_string()
    };
    for (from, to, message) in [
        ("minWorkers", "minWokers", "minWokers"),
        ("minWorkers: 50", "minWorkers: 500", "workers_min is 500 and workers_max is 200"),
        ("minWorkers: 50", "minWorkers: many", "invalid"),
        ("70%\n\nscaling", "170%\n\nscaling", "workers.spotPercentage is \"170%\""),
        ("cpu: 2", "cpu: -2", "cpu is \"-2\", but must be a number above 0"),
        ("8Gi", "8GB", "workers.memory is \"8GB\", but must be a number with Mi, Gi or Ti"),
        ("10m", "10 minutes", "scaling.predictive.leadTime"),
        ("coordinators: manual", "coordinators: auto", "people change coordinators one by one"),
        ("memory: 32Gi\n", "memory: 32Gi\n  spotPercentage: 10%\n", "coordinators.spotPercentage"),
        ("workers:\n  count", "workers: [\n  count", ""),
    ] {
        let error = refused(from, to);
        assert!(error.contains(message), "{to}: {error}");
    }
    assert!(ScalingDocument::parse("").is_err());
    assert!(ScalingDocument::parse(&" ".repeat(2 << 20)).unwrap_err().to_string().contains("the limit is"));
}

#[test]
fn scaling_plan_contains_worker_count_cost_and_warnings() {
    let document = ScalingDocument::parse(SEED).unwrap();
    let planned = plan(&document, &DEMAND, &Prices::default(), &SimulatedNode::default());
    assert_eq!(planned.workers_peak, 185);
    assert!((planned.workers - 84.0).abs() < 0.1, "{planned:?}");
    assert_eq!(planned.warnings, Vec::<String>::new());
    assert!((planned.cost[0] - 5.0 * 0.384 * 730.0).abs() < 1e-6);
    let much = Demand { peak_per_s: 400_000.0, queued: 100_000_000, ..DEMAND };
    let warnings = plan(&document, &much, &Prices::default(), &SimulatedNode::default()).warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    let other = ScalingDocument::parse(&SEED.replace("m6i.large", "m9.huge").replace("count: 5", "count: 4"))
        .unwrap();
    let little = Demand { per_s: 1.0, peak_per_s: 2.0, ..DEMAND };
    assert_eq!(
        plan(&document, &little, &Prices::default(), &SimulatedNode::default()).workers_peak,
        50,
        "the number of workers stays within its bounds"
    );
    let large = ScalingDocument::parse(&SEED.replace("cpu: 2", "cpu: 2.5")).unwrap();
    let warnings = plan(&large, &DEMAND, &Prices::default(), &SimulatedNode::default()).warnings;
    assert_eq!(warnings, ["2.5 processors and 8 GiB do not fit onto a machine of type m6i.large"]);
    let warnings = plan(&other, &DEMAND, &Prices::default(), &SimulatedNode::default()).warnings;
    assert!(warnings.iter().any(|warning| warning.contains("no machine m9.huge")), "{warnings:?}");
    assert!(warnings.iter().any(|warning| warning.contains("odd")), "{warnings:?}");
}

#[test]
fn recommended_settings_cause_no_warnings_in_the_plan() {
    let need = WorkerNeed { cpus: 1.4, memory_gib: 4.6 };
    let prices = Prices::default();
    for demand in [DEMAND, Demand { per_s: 100.0, peak_per_s: 200.0, ..DEMAND }] {
        let recommended = recommend(&demand, &need, &prices, &SimulatedNode::default(), 70).unwrap();
        let document = ScalingDocument::parse(&recommended.to_yaml(70)).unwrap();
        let node = SimulatedNode { shards: recommended.shards, ..SimulatedNode::default() };
        let planned = plan(&document, &demand, &prices, &node);
        assert_eq!(planned.warnings, Vec::<String>::new());
        let cost: f64 = planned.cost.iter().sum();
        // The two costs may differ a little, because only whole workers are counted, and numbers are rounded.
        assert!(
            (cost / recommended.cost - 1.0).abs() < 0.05,
            "{cost} planned, {} recommended",
            recommended.cost
        );
    }
    let endless = Demand { queued: 1 << 40, ..DEMAND };
    assert!(recommend(&endless, &need, &prices, &SimulatedNode::default(), 70).is_none());
}
