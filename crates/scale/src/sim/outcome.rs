//! The result of a run.

use crate::decision::Decisions;

use super::node::Utilization;

/// The result of a simulation: its tasks, waiting times, throughput and workers.
#[derive(Debug, Clone, Default)]
pub struct SimulationOutcome {
    /// Virtual duration without the warm-up, ms.
    pub ran_ms: u64,
    /// Submitted tasks.
    pub submitted: u64,
    /// Started tasks.
    pub started: u64,
    /// Completed tasks.
    pub completed: u64,
    /// Times from submission to start.
    pub waits: WaitTimes,
    /// Times from submission to completion.
    pub done: WaitTimes,
    /// Completed tasks per second.
    pub per_s: f64,
    /// Throughput relative to the same workers looping without a scheduler.
    pub efficiency: f64,
    /// Throughput relative to 85 tasks per second for each worker.
    pub efficiency_nominal: f64,
    /// Use of the resources.
    pub used: Utilization,
    /// Number of minutes.
    pub minutes: u64,
    /// Minutes with too long waits (P99).
    pub violated_minutes: u64,
    /// Hours of on-demand workers, from launch to end.
    pub on_demand_hours: f64,
    /// Hours of spot workers.
    pub spot_hours: f64,
    /// Hours of instances in the warm pool.
    pub warm_hours: f64,
    /// Peak number of ready workers.
    pub workers_most: u32,
    /// The tenants, as in the scenario.
    pub tenants: Vec<TenantOutcome>,
    /// Jain's fairness index over each tenant's received ÷ due share.
    pub jain: f64,
    /// The scaler's decisions.
    pub decisions: Decisions,
    /// Changes of direction within ten minutes.
    pub thrash: u64,
    /// Mean error of forecasts, a share, if there were any.
    pub forecast_error: Option<f64>,
    /// Cold starts and wake-ups.
    pub launches: (u64, u64),
    /// Failed cold starts and failed wake-ups.
    pub failures: (u64, u64),
    /// Interrupted spot instances.
    pub interruptions: u64,
    /// Digest of all starts; equal for equal runs.
    pub digest: u64,
}

/// The median, 99th percentile and maximum of the tasks' waiting times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// Number of values.
    pub count: u64,
    /// The median.
    pub p50_us: u64,
    /// The 99th percentile.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// The tasks and the used resources of one tenant in a simulation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantOutcome {
    /// The tenant's name.
    pub name: String,
    /// Submitted tasks.
    pub submitted: u64,
    /// Completed tasks.
    pub completed: u64,
    /// Workers' busy time for the tenant, µs.
    pub busy_us: u64,
    /// Peak milli-processors and bytes of memory held by the tenant's tasks.
    pub held_most: [u64; 2],
    /// Mean milli-processors and bytes of memory.
    pub held_mean: [f64; 2],
}

impl SimulationOutcome {
    /// Hours of all workers, without the warm pool.
    pub fn worker_hours(&self) -> f64 {
        self.on_demand_hours + self.spot_hours
    }
}
