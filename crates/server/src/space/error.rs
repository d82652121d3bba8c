//! Errors of runners and of connections between them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use dunlin::space::{HostError, RegionId, WorldNameError};

use super::owners::TTL_MIN;

/// The reason why a process cannot run regions of a world, or cannot execute a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// A world's name is invalid.
    #[error(transparent)]
    Name(#[from] WorldNameError),
    /// The lease's time to live is too short to be renewed, or longer than a cluster allows.
    #[error("the time to live of a process's lease must be {} ms to 366 days, not {} ms", TTL_MIN.as_millis(), .0.as_millis())]
    Ttl(Duration),
    /// Listening on the address failed.
    #[error("cannot listen on {address} for other processes of this world: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        why: io::Error,
    },
    /// Other machines can reach the address, but connections between runners are not encrypted.
    #[error(
        "{0} can be reached from other machines, and connections between the processes of a world are not encrypted: \
         listen on a loopback address, or say that the network is trusted"
    )]
    Exposed(SocketAddr),
    /// The system returned no random numbers.
    #[error("the system returned no random numbers: {0}")]
    Random(String),
    /// Two processes have the same number.
    #[error("two processes have number {0}")]
    Number(u64),
    /// The process's number is 0.
    #[error("a process's number must be above 0")]
    NumberZero,
    /// The world has too many processes.
    #[error("{count} other processes exceed the limit of {max}")]
    Peers {
        /// The number of other processes.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A region cannot be started.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The process cannot serve its subjects for clients.
    #[error("cannot answer clients at {subject}: {why}")]
    Endpoint {
        /// The subject.
        subject: String,
        /// The cause.
        why: String,
    },
    /// The runner's thread cannot be started.
    #[error("cannot start the thread that runs the regions: {0}")]
    Thread(io::Error),
    /// The thread that runs the regions has ended.
    #[error("the thread that runs the regions has ended{}", .0.as_deref().map(|why| format!(": {why}")).unwrap_or_default())]
    Ended(Option<String>),
    /// The runner's queue of orders is full.
    #[error(
        "too many requests wait for the thread that runs the regions: the limit orders_max = {max} is reached; retry later"
    )]
    Busy {
        /// The limit.
        max: usize,
    },
}

/// The reason why two processes of a world refuse to connect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerRefusal {
    /// The peer is not a process of a world.
    #[error("the peer does not use the protocol between a world's processes")]
    Stranger,
    /// The peer does not know the world's secret.
    #[error("the peer does not know the world's secret, which is the value of the key `space-secret/WORLD`")]
    Secret,
    /// The peer uses another protocol version.
    #[error(
        "the peer uses version {theirs} of the protocol between processes, this process version {ours}: \
             use the same release on both sides"
    )]
    Version {
        /// The peer's version.
        theirs: u16,
        /// This runner's version.
        ours: u16,
    },
    /// The peer is a process of another world.
    #[error("the peer runs world {theirs:?}, but this process runs world {ours:?}")]
    World {
        /// The peer's world.
        theirs: String,
        /// This runner's world.
        ours: String,
    },
    /// The peer's world has the same name but another setup.
    #[error(
        "the peer has another setup of world {0:?}: extent, dimensions, components, tick, strip and \
             partition must be the same"
    )]
    Setup(String),
    /// The peer states the number of this process.
    #[error("the peer has number {0}, which is this process's number")]
    Number(u64),
    /// The peer claims a region that this process runs.
    #[error("the peer claims region {} in epoch {epoch}, but this process runs the region in epoch {ours}", .region.0)]
    Region {
        /// The region.
        region: RegionId,
        /// The peer's epoch.
        epoch: u64,
        /// This process's epoch.
        ours: u64,
    },
    /// Too many other processes are connected.
    #[error("{max} processes are connected already")]
    Full {
        /// The limit.
        max: usize,
    },
    /// The peer violated the protocol.
    #[error("the peer sent an invalid message: {0}")]
    Frame(&'static str),
    /// The peer refused the connection.
    #[error("the peer refused the connection: {0}")]
    ByThem(String),
}
