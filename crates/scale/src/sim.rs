//! The cluster simulator: the real scheduler and scaler in virtual time.
//!
//! Real: every task goes through [`dunlin_tasks::SchedulerState`]; every worker joins, receives tasks, responds, drains and
//! leaves; every decision comes from a [`Scaler`](crate::Scaler). Assumed in a [`SimulationScenario`]: run times, a node's
//! capacity, a provider's delays. The same scenario gives the same run, including the digest of its starts.

mod cases;
mod crew;
mod meter;
mod node;
mod outcome;
mod scenario;
mod series;
mod workload;
mod world;

pub use cases::{
    CostRow, NoisyNeighbourRow, PolicyRow, ScaleInRow, ScaleOutRow, TenantRow, ThroughputRow, WarmPoolRow,
    compare, noisy_neighbour, policy_scenario, savings, scale_in, scale_out, tenants, throughput, warm_pool,
};
pub use node::{SimulatedNode, Utilization};
pub use outcome::{SimulationOutcome, TenantOutcome, WaitTimes};
pub use scenario::{Service, SimulationScenario, SubmissionLoad, TenantLoad, WorkerSupply};
pub use series::{Series, SeriesError};
pub use workload::Workload;

/// Runs a scenario to its end.
pub fn run(scenario: &SimulationScenario) -> SimulationOutcome {
    world::SimulatedWorld::new(scenario).run()
}
