//! Errors of processes that run regions of a world, and of connections between them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use dunlin::space::{HostError, RegionId, WorldNameError};

use super::owners::TTL_MIN;

/// The reason why a process cannot run regions of a world, or cannot perform a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// The world's name is invalid.
    #[error(transparent)]
    Name(#[from] WorldNameError),
    /// The lease's time to live is too short for renewing it in time, or longer than a cluster allows.
    #[error("the time to live of a process's lease must be {} ms to 366 days, not {} ms", TTL_MIN.as_millis(), .0.as_millis())]
    Ttl(Duration),
    /// Listening on the address failed.
    #[error("cannot listen on {address} for other processes of this world: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        why: io::Error,
    },
    /// Other machines can reach the address, although connections between processes are not encrypted.
    #[error(
        "{0} can be reached from other machines, and connections between the processes of a world are not \
         encrypted: listen on a loopback address, or set the option that the network is trusted"
    )]
    Exposed(SocketAddr),
    /// The operating system provided no random numbers.
    #[error("the system returned no random numbers: {0}")]
    Random(String),
    /// Another process in the configuration has this process's number.
    #[error("two processes have number {0}")]
    Number(u64),
    /// The process's number is 0.
    #[error("a process's number must be above 0")]
    NumberZero,
    /// The configuration names more other processes than allowed.
    #[error("{count} other processes exceed the limit of {max}")]
    Peers {
        /// The number of other processes.
        count: usize,
        /// The maximum number of other processes.
        max: usize,
    },
    /// A region cannot be started.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The process cannot respond to clients at one of its subjects.
    #[error("cannot respond to clients at {subject}: {why}")]
    Endpoint {
        /// The subject.
        subject: String,
        /// Why the process cannot respond.
        why: String,
    },
    /// The runner's thread cannot be started.
    #[error("cannot start the thread that runs the regions: {0}")]
    Thread(io::Error),
    /// The thread that runs the regions has ended.
    #[error("the thread that runs the regions has ended{}", .0.as_deref().map(|why| format!(": {why}")).unwrap_or_default())]
    Ended(Option<String>),
    /// Too many calls wait for the thread that runs the regions.
    #[error(
        "too many requests wait for the thread that runs the regions: the limit orders_max = {max} is reached; retry later"
    )]
    Busy {
        /// The maximum number of waiting calls.
        max: usize,
    },
}

/// The reason why a process refuses to connect to another process of a world.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerRefusal {
    /// The other side is not a process of a world.
    #[error("the peer does not use the protocol between a world's processes")]
    Stranger,
    /// The other process does not know the world's secret.
    #[error("the peer does not know the world's secret, which is the value of the key `space-secret/WORLD`")]
    Secret,
    /// The other process uses another version of the protocol.
    #[error(
        "the peer uses version {theirs} of the protocol between processes, this process version {ours}: \
             use the same release on both sides"
    )]
    Version {
        /// The other process's version.
        theirs: u16,
        /// This process's version.
        ours: u16,
    },
    /// The other process belongs to another world.
    #[error("the peer runs world {theirs:?}, but this process runs world {ours:?}")]
    World {
        /// The name of the other process's world.
        theirs: String,
        /// The name of this process's world.
        ours: String,
    },
    /// The other process has a world of the same name, but with another setup.
    #[error(
        "the peer has another setup of world {0:?}: extent, dimensions, components, tick, strip and \
             partition must be the same"
    )]
    Setup(String),
    /// The other process has the same number as this process.
    #[error("the peer has number {0}, which is this process's number")]
    Number(u64),
    /// The other process claims to run a region that runs at this process.
    #[error("the peer claims region {} in epoch {epoch}, but this process runs the region in epoch {ours}", .region.0)]
    Region {
        /// The region.
        region: RegionId,
        /// The epoch in which the other process claims the region.
        epoch: u64,
        /// The epoch in which the region runs at this process.
        ours: u64,
    },
    /// Too many other processes are connected.
    #[error("{max} processes are connected already")]
    Full {
        /// The maximum number of connected processes.
        max: usize,
    },
    /// The other process violated the protocol.
    #[error("the peer sent an invalid message: {0}")]
    Frame(&'static str),
    /// The other process refused the connection for this reason.
    #[error("the peer refused the connection: {0}")]
    ByThem(String),
}
