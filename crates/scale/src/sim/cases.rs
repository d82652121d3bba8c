//! The tables of Dunlin's requirements as scenarios.

mod compare;
mod cost;
mod neighbours;
mod phases;
mod throughput;

pub use compare::{PolicyRow, compare, policy_scenario};
pub use cost::{CostRow, savings};
pub use neighbours::{NoisyRow, TenantRow, noisy_neighbour, tenants};
pub use phases::{InRow, OutRow, WarmRow, scale_in, scale_out, warm_pool};
pub use throughput::{ThroughputRow, throughput};
