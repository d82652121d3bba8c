//! Compares three ways of scaling with the same arrivals of tasks: reactive, predictive, and by an oracle, which knows
//! the future load.

use crate::policy::Policy;
use crate::sim::outcome::SimulationOutcome;
use crate::sim::scenario::{ServiceTime, SimulationScenario, SubmissionLoad, TenantLoad, WorkerSupply};
use crate::sim::workload::Workload;
use crate::simulated::ProviderDelays;

/// The result of simulating one scaling policy, such as its worker hours and the number of slow minutes.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRow {
    /// The name of the policy: `reactive`, `predictive` or `oracle`.
    pub policy: &'static str,
    /// The number of slow minutes: minutes in which the 99th percentile (P99) of the time from a task's submission to
    /// its start exceeded 2 s.
    pub violated_minutes: u64,
    /// The number of simulated minutes.
    pub minutes: u64,
    /// The sum of the hours for which each worker existed.
    pub worker_hours: f64,
    /// How many more worker hours this policy needed than the oracle.
    pub excess_hours: f64,
    /// The mean error of the forecasts, as a share of the actual values; `None` without forecasts.
    pub forecast_error: Option<f64>,
    /// How often the scaler added workers within ten minutes after it had removed some, or removed workers within ten
    /// minutes after it had added some.
    pub thrash: u64,
    /// The number of completed tasks.
    pub tasks: u64,
}

/// Returns a scenario with the load of a whole day in one hour. The delays are those of Dunlin's requirements.
pub fn policy_scenario(
    seed: u64,
    workload: Workload,
    policy: Policy,
    is_oracle: bool,
    mean_us: f64,
) -> SimulationScenario {
    let first = workload.per_s(0) * mean_us / 1e6 / policy.triggers.cpu_target;
    let supply = WorkerSupply::ScaledFleet {
        workers: (first.ceil() as u32).clamp(policy.workers_min, policy.workers_max),
        policy: Box::new(policy),
        delays: ProviderDelays::cloud(),
        sample_ms: 5_000,
        unix_ms: 0,
        is_oracle,
    };
    let tenants = vec![TenantLoad::new("all", SubmissionLoad::Paced(workload))];
    SimulationScenario {
        duration_ms: 3_600_000,
        step_ms: ((mean_us / 10_000.0) as u64).clamp(1, 100),
        service: ServiceTime { mean_us, spread: 0.1 },
        ..SimulationScenario::new(seed, tenants, supply)
    }
}

/// Simulates three policies with the same workload: `policy` without forecasts (reactive), `policy` with its forecasts
/// (predictive), and an oracle that knows the future load. `mean_us` is the mean run time of a task.
pub fn compare(seed: u64, workload: &Workload, policy: &Policy, mean_us: f64) -> Vec<PolicyRow> {
    let reactive = Policy { predictive: None, ..policy.clone() };
    let run = |policy: &Policy, is_oracle| {
        super::super::run(&policy_scenario(seed, workload.clone(), policy.clone(), is_oracle, mean_us))
    };
    let oracle = run(&reactive, true);
    let row = |name, outcome: &SimulationOutcome| PolicyRow {
        policy: name,
        violated_minutes: outcome.violated_minutes,
        minutes: outcome.minutes,
        worker_hours: outcome.worker_hours(),
        excess_hours: outcome.worker_hours() - oracle.worker_hours(),
        forecast_error: outcome.forecast_error,
        thrash: outcome.thrash,
        tasks: outcome.completed,
    };
    vec![
        row("reactive", &run(&reactive, false)),
        row("predictive", &run(policy, false)),
        row("oracle", &oracle),
    ]
}
