//! Compares a reactive policy, a predictive policy and an oracle on the same arrivals.

use crate::policy::Policy;
use crate::sim::outcome::SimulationOutcome;
use crate::sim::scenario::{ServiceTime, SimulationScenario, SubmissionLoad, TenantLoad, WorkerSupply};
use crate::sim::workload::Workload;
use crate::simulated::ProviderDelays;

/// The simulated result of one scaling policy: worker hours, errors, and minutes with long waits.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRow {
    /// The policy's name: `reactive`, `predictive` or `oracle`.
    pub policy: &'static str,
    /// Minutes in which the P99 of the time from submission to start exceeded 2 s.
    pub violated_minutes: u64,
    /// The number of simulated minutes.
    pub minutes: u64,
    /// The hours of all workers together.
    pub worker_hours: f64,
    /// The worker hours in addition to the oracle's.
    pub excess_hours: f64,
    /// The mean error of the forecasts, as a share of the actual values; `None` without forecasts.
    pub forecast_error: Option<f64>,
    /// How often the scaler added workers within ten minutes after removing some, or the reverse.
    pub thrash: u64,
    /// Number of completed tasks.
    pub tasks: u64,
}

/// Returns a scenario with a day's load within an hour, and the delays of Dunlin's requirements.
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

/// Simulates the three policies on the same workload. `policy` is the predictive policy. The reactive policy is
/// `policy` without forecasts.
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
