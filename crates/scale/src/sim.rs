//! The cluster simulator: the real scheduler and scaler in virtual time.
//!
//! Real: every task goes through [`dunlin_tasks::SchedulerState`]; every worker joins, receives tasks, responds, drains and
//! leaves; every decision comes from a [`Scaler`](crate::Scaler). Assumed in a [`Scenario`]: run times, a node's
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
pub use node::{Node, Utilization};
pub use outcome::{Outcome, TenantOutcome, WaitTimes};
pub use scenario::{Load, Scenario, Service, TenantLoad, WorkerSupply};
pub use series::{Series, SeriesError};
pub use workload::Workload;

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Outcome {
    world::World::new(scenario).run()
}
