//! What came of a run.

use crate::decision::Decisions;

use super::node::Used;

/// All that was counted.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// How long it was, in virtual time, without its warm-up.
    pub ran_ms: u64,
    /// Tasks that were submitted, given out, done, in that time.
    pub submitted: u64,
    /// See `submitted`.
    pub started: u64,
    /// See `submitted`.
    pub completed: u64,
    /// From submission until a worker begins.
    pub waits: Waits,
    /// From submission until it is done.
    pub done: Waits,
    /// Tasks done in a second.
    pub per_s: f64,
    /// Against the same workers looping without a scheduler.
    pub efficiency: f64,
    /// Against 85 in a second for each.
    pub efficiency_nominal: f64,
    /// What was used of what there was.
    pub used: Used,
    /// Minutes, and those of them in which P99 of the wait was too long.
    pub minutes: u64,
    /// See `minutes`.
    pub violated_minutes: u64,
    /// Hours of workers on demand, from launch to end.
    pub on_demand_hours: f64,
    /// Hours of workers of the spot market.
    pub spot_hours: f64,
    /// Hours in the warm pool.
    pub warm_hours: f64,
    /// The most workers that were ready at once.
    pub workers_most: u32,
    /// By tenant, as in the scenario.
    pub tenants: Vec<TenantOutcome>,
    /// Jain's index over what each got ÷ what was due to it.
    pub jain: f64,
    /// What was decided.
    pub decisions: Decisions,
    /// How often it went the other way within ten minutes.
    pub thrash: u64,
    /// The mean error of forecasts, as a share, if there were any.
    pub forecast_error: Option<f64>,
    /// Launches to work, cold and warm; of those, the ones that failed.
    pub launches: (u64, u64),
    /// See `launches`.
    pub failures: (u64, u64),
    /// Spot instances that were taken away.
    pub interruptions: u64,
    /// Of what was started when and where: the same for the same run.
    pub digest: u64,
}

/// Times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Of so many.
    pub count: u64,
    /// The median.
    pub p50_us: u64,
    /// The 99th in a hundred.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// A tenant's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantOutcome {
    /// Its name.
    pub name: String,
    /// Tasks it submitted.
    pub submitted: u64,
    /// Tasks of it that were done.
    pub completed: u64,
    /// Time that workers were busy for it.
    pub busy_us: u64,
    /// The most thousandths of a processor and bytes of memory that its tasks held at once.
    pub held_most: [u64; 2],
    /// The means of them.
    pub held_mean: [f64; 2],
}

impl Outcome {
    /// All workers' hours, the warm pool apart.
    pub fn worker_hours(&self) -> f64 {
        self.on_demand_hours + self.spot_hours
    }
}
