//! Worlds over many processes: the runner, which makes ticks at a fixed rate, and the connections between runners.
//!
//! A [`WorldRunner`] is one thread. It makes the ticks of its [`Host`](dunlin::space::Host)'s regions when they are due.
//! It has one connection to each other runner, over which it sends handovers, ghosts and records for standbys.
//! Between ticks, it waits for messages on all connections and handles them.
//!
//! Clients send requests to a [`SpaceEndpoint`]. The runner handles these requests between ticks.
//!
//! The crate `space` defines the messages, and the crate `dunlin` runs the regions of one process.

mod config;
mod connection;
mod description;
mod endpoint;
mod error;
mod frame;
mod handle;
mod hello;
mod links;
mod lockstep;
mod owners;
mod pace;
mod poll;
mod process;
mod runner;
mod samples;
mod secret;
mod standby_tracker;
mod stats;

pub use config::{SpaceConfig, SpaceLimits, WorldPeer};
pub use description::{WorldDescription, WorldDescriptionError};
pub use endpoint::{SpaceEndpoint, command_subject, spawn_subject, watch_subject};
pub use error::{RunnerRefusal, SpaceError};
pub use handle::{RunnerListener, Space};
pub use hello::{VERSION, WorldIdentity};
pub use owners::{
    RegionOwnership, RegionOwnershipConfig, RegionPopulator, TTL_MIN, WorldEvent, process_number,
};
pub use pace::{TickPace, monotonic_ns};
pub use process::{WorldConfig, WorldProcess};
pub use runner::{SpawnError, WorldRunner};
pub use samples::DurationHistogram;
pub use secret::Secret;
pub use stats::RunnerStats;
