//! Simulates a cluster: runs the real scheduler and the real scaler in virtual time.
//!
//! Every task goes through the real [`dunlin_tasks::SchedulerState`], and a real [`Scaler`](crate::Scaler) makes every
//! decision. Workers join, receive tasks, respond, drain and leave. A [`SimulationScenario`] sets how long tasks run,
//! how much a node can do, and which delays a provider has. The same scenario always gives the same run, with the same
//! digest of task starts.

mod cases;
mod meter;
mod node;
mod outcome;
mod scenario;
mod series;
mod workers;
mod workload;
mod world;

pub use cases::{
    CostRow, NoisyNeighbourRow, PolicyRow, ScaleInPhases, ScaleOutPhases, TenantRow, ThroughputRow,
    WarmPoolRow, compare, noisy_neighbour, policy_scenario, savings, scale_in, scale_out, tenants,
    throughput, warm_pool,
};
pub use node::{SimulatedNode, Utilization};
pub use outcome::{SimulationOutcome, TenantOutcome, WaitTimes};
pub use scenario::{ServiceTime, SimulationScenario, SubmissionLoad, TenantLoad, WorkerSupply};
pub use series::{TimeSeries, TimeSeriesError};
pub use workload::Workload;

/// Runs a scenario to its end, and returns the results.
pub fn run(scenario: &SimulationScenario) -> SimulationOutcome {
    world::SimulatedWorld::new(scenario).run()
}
