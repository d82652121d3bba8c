//! The result of a simulation.

use crate::decision::Decisions;

use super::node::Utilization;

/// The result of a simulation: its tasks, waiting times, throughput and workers.
#[derive(Debug, Clone, Default)]
pub struct SimulationOutcome {
    /// The virtual duration of the run without the warm-up, in ms.
    pub ran_ms: u64,
    /// Number of submitted tasks.
    pub submitted: u64,
    /// Number of started tasks.
    pub started: u64,
    /// Number of completed tasks.
    pub completed: u64,
    /// Times from submission to start.
    pub waits: WaitTimes,
    /// Times from submission to completion.
    pub done: WaitTimes,
    /// Completed tasks per second.
    pub per_s: f64,
    /// The throughput as a share of what the same workers reach without a scheduler.
    pub efficiency: f64,
    /// The throughput as a share of 85 tasks per second for each worker.
    pub efficiency_nominal: f64,
    /// The share of each resource that the run used.
    pub used: Utilization,
    /// Number of simulated minutes.
    pub minutes: u64,
    /// The number of minutes in which the P99 of the waiting time was too long.
    pub violated_minutes: u64,
    /// Hours of on-demand workers, from launch to end.
    pub on_demand_hours: f64,
    /// Hours of spot workers.
    pub spot_hours: f64,
    /// Hours of instances in the warm pool.
    pub warm_hours: f64,
    /// Peak number of ready workers.
    pub workers_most: u32,
    /// The result of each tenant, in the order of the scenario.
    pub tenants: Vec<TenantOutcome>,
    /// Jain's fairness index of the tenants' ratios of received share to fair share; 1 if all ratios are equal.
    pub jain: f64,
    /// The scaler's decisions.
    pub decisions: Decisions,
    /// How many times the scaler added workers within ten minutes after removing some, or the reverse.
    pub thrash: u64,
    /// The mean error of the forecasts, as a share of the actual values; `None` without forecasts.
    pub forecast_error: Option<f64>,
    /// The number of cold starts, and of starts from the warm pool.
    pub launches: (u64, u64),
    /// The number of failed cold starts, and of failed starts from the warm pool.
    pub failures: (u64, u64),
    /// Number of interrupted spot instances.
    pub interruptions: u64,
    /// The digest of all task starts, which is equal for equal runs.
    pub digest: u64,
}

/// The median, 99th percentile and maximum of the tasks' waiting times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// Number of measured waiting times.
    pub count: u64,
    /// The median waiting time, µs.
    pub p50_us: u64,
    /// The 99th percentile of the waiting times, µs.
    pub p99_us: u64,
    /// The longest waiting time, µs.
    pub max_us: u64,
}

/// The tasks and the used resources of one tenant in a simulation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantOutcome {
    /// The tenant's name.
    pub name: String,
    /// Number of submitted tasks.
    pub submitted: u64,
    /// Number of completed tasks.
    pub completed: u64,
    /// Workers' busy time for the tenant, µs.
    pub busy_us: u64,
    /// The most milli-processors, and the most bytes of memory, that the tenant's tasks held at the same time.
    pub held_most: [u64; 2],
    /// The mean number of milli-processors, and the mean number of bytes of memory, that the tenant's tasks held.
    pub held_mean: [f64; 2],
}

impl SimulationOutcome {
    /// Returns the hours of all workers, without the warm pool.
    pub fn worker_hours(&self) -> f64 {
        self.on_demand_hours + self.spot_hours
    }
}
