//! Defines the result of a simulation.

use crate::decision::Decisions;

use super::node::Utilization;

/// The result of a simulation: counts of tasks, waiting times, throughput and workers.
#[derive(Debug, Clone, Default)]
pub struct SimulationOutcome {
    /// The virtual time that was simulated after the warm-up, in ms.
    pub ran_ms: u64,
    /// The number of submitted tasks.
    pub submitted: u64,
    /// The number of started tasks.
    pub started: u64,
    /// The number of completed tasks.
    pub completed: u64,
    /// The times from submission to start.
    pub waits: WaitTimes,
    /// The times from submission to completion.
    pub done: WaitTimes,
    /// The number of completed tasks per second.
    pub per_s: f64,
    /// The throughput, as a share of the throughput that the same workers would have without a scheduler.
    pub efficiency: f64,
    /// The throughput, as a share of 85 tasks per second for each worker.
    pub efficiency_nominal: f64,
    /// The use of each resource.
    pub used: Utilization,
    /// The number of simulated minutes.
    pub minutes: u64,
    /// The number of slow minutes: minutes in which the 99th percentile of the time from submission to start was too
    /// long.
    pub violated_minutes: u64,
    /// The sum of the hours for which each on-demand worker existed.
    pub on_demand_hours: f64,
    /// The sum of the hours for which each spot worker existed.
    pub spot_hours: f64,
    /// The sum of the hours that instances spent in the warm pool.
    pub warm_hours: f64,
    /// The highest number of workers that were ready at the same time.
    pub workers_most: u32,
    /// The results of the tenants, in the order in which the scenario lists them.
    pub tenants: Vec<TenantOutcome>,
    /// Jain's fairness index of the tenants' ratios of received share to fair share. It is 1 if all ratios are equal,
    /// and lower otherwise.
    pub jain: f64,
    /// The decisions of the scaler.
    pub decisions: Decisions,
    /// How often the scaler added workers within ten minutes after it had removed some, or removed workers within ten
    /// minutes after it had added some.
    pub thrash: u64,
    /// The mean error of the forecasts, as a share of the actual values; `None` without forecasts.
    pub forecast_error: Option<f64>,
    /// The number of starts without the warm pool (cold starts), and the number of starts from the warm pool.
    pub launches: (u64, u64),
    /// The number of failed cold starts, and the number of failed starts from the warm pool.
    pub failures: (u64, u64),
    /// The number of spot instances that were interrupted.
    pub interruptions: u64,
    /// A digest of all task starts. Equal runs have equal digests.
    pub digest: u64,
}

/// The median, 99th percentile and maximum of the tasks' waiting times, and their number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// The number of measured waiting times.
    pub count: u64,
    /// The median of the waiting times, in µs.
    pub p50_us: u64,
    /// The 99th percentile of the waiting times, in µs.
    pub p99_us: u64,
    /// The longest waiting time, in µs.
    pub max_us: u64,
}

/// The results of one tenant in a simulation: its tasks, and the resources that they used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantOutcome {
    /// The name of the tenant.
    pub name: String,
    /// The number of submitted tasks.
    pub submitted: u64,
    /// The number of completed tasks.
    pub completed: u64,
    /// For how long workers were busy with the tenant's tasks, in µs.
    pub busy_us: u64,
    /// The highest number of thousandths of a processor, and the highest number of bytes of memory, that the tenant's
    /// tasks held at the same time.
    pub held_most: [u64; 2],
    /// The mean number of thousandths of a processor, and the mean number of bytes of memory, that the tenant's tasks
    /// held.
    pub held_mean: [f64; 2],
}

impl SimulationOutcome {
    /// Returns the sum of the hours for which workers existed, without the hours in the warm pool.
    pub fn worker_hours(&self) -> f64 {
        self.on_demand_hours + self.spot_hours
    }
}
