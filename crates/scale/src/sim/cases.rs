//! Runs the simulations from which the rows of the tables in Dunlin's requirements are computed.

mod compare;
mod cost;
mod neighbours;
mod phases;
mod throughput;

pub use compare::{PolicyRow, compare, policy_scenario};
pub use cost::{CostRow, savings};
pub use neighbours::{NoisyNeighbourRow, TenantRow, noisy_neighbour, tenants};
pub use phases::{ScaleInPhases, ScaleOutPhases, WarmPoolRow, scale_in, scale_out, warm_pool};
pub use throughput::{ThroughputRow, throughput};
