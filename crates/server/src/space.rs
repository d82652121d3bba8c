//! Runs the regions of a world in this process, and connects the process to the other processes of the world.
//!
//! A [`WorldRunner`] is one thread. It holds a [`Host`](dunlin::space::Host) with the process's regions, and makes the
//! regions' ticks when they are due. It has one connection to the runner of each other process, over which it sends
//! handovers, ghosts and records for standbys. Between ticks, it waits for messages on all connections and handles
//! them.
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
    RegionOwnership, RegionOwnershipConfig, RegionPopulator, TTL_MIN, WorldEvent, check_world_permissions,
    process_number,
};
pub use pace::{TickPace, monotonic_ns};
pub use process::{WorldConfig, WorldProcess};
pub use runner::{SpawnError, WorldRunner};
pub use samples::DurationHistogram;
pub use secret::Secret;
pub use stats::RunnerStats;
