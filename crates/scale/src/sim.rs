//! The simulator of clusters: the same scheduler and the same scaler, in virtual time.
//!
//! What is real here: every task goes through [`dunlin_tasks::State`], every worker joins it, is given tasks by it, answers to it, drains and
//! leaves; every decision is a [`Scaler`](crate::Scaler)'s. What is made up is said in a [`Scenario`]: how long tasks take, what a node can do in a
//! second, how long a provider needs. The same scenario gives the same run, to the digest of its starts.

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
    CostRow, InRow, NoisyRow, OutRow, PolicyRow, TenantRow, ThroughputRow, WarmRow, compare, noisy_neighbour,
    policy_scenario, savings, scale_in, scale_out, tenants, throughput, warm_pool,
};
pub use node::{Node, Used};
pub use outcome::{Outcome, TenantOutcome, Waits};
pub use scenario::{Crew, Load, Scenario, Service, TenantLoad};
pub use series::{Series, SeriesError};
pub use workload::Workload;

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Outcome {
    world::World::new(scenario).run()
}
