//! Errors of runners and of connections between them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use dunlin::space::{HostError, RegionId, WorldNameError};

use super::owners::TTL_MIN;

/// Why a runner cannot start, or cannot do an order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// The world's name is invalid.
    #[error(transparent)]
    Name(#[from] WorldNameError),
    /// The lease's time to live is too short to be renewed, or longer than a cluster allows.
    #[error("a process's lease lasts {} ms to 366 days, not {} ms", TTL_MIN.as_millis(), .0.as_millis())]
    Ttl(Duration),
    /// Listening failed.
    #[error("cannot listen on {address} for other processes of this world: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        why: io::Error,
    },
    /// The address can be reached from other machines, and connections between runners are not encrypted.
    #[error(
        "{0} can be reached from other machines, and connections between the processes of a world are not encrypted: \
         listen on a loopback address, or say that the network is trusted"
    )]
    Exposed(SocketAddr),
    /// The system returned no random numbers.
    #[error("the system has no random numbers: {0}")]
    Random(String),
    /// Two processes have the same number.
    #[error("process {0} is both this one and another")]
    Number(u64),
    /// The process's number is 0.
    #[error("a process's number is above 0")]
    NumberZero,
    /// Too many processes.
    #[error("{count} other processes are more than {max}")]
    Peers {
        /// Their number.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A region cannot be started.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The subjects for clients cannot be served.
    #[error("cannot answer clients at {subject}: {why}")]
    Door {
        /// The subject.
        subject: String,
        /// The cause.
        why: String,
    },
    /// The runner's thread cannot be started.
    #[error("cannot start the runner: {0}")]
    Thread(io::Error),
    /// The runner has ended.
    #[error("the runner has ended{}", .0.as_deref().map(|why| format!(": {why}")).unwrap_or_default())]
    Ended(Option<String>),
    /// Too many orders wait for the runner.
    #[error("{max} orders wait for the runner already")]
    Busy {
        /// The limit.
        max: usize,
    },
}

/// Why two runners do not connect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The peer is no runner.
    #[error("who connected does not speak as the processes of a world do")]
    Stranger,
    /// The peer does not know the world's secret.
    #[error("it does not know the world's secret, which stands in the cluster's keys")]
    Secret,
    /// The peer uses another protocol version.
    #[error(
        "it speaks version {theirs} between processes, this is version {ours}: use the same Dunlin on both sides"
    )]
    Version {
        /// The peer's version.
        theirs: u16,
        /// This runner's version.
        ours: u16,
    },
    /// The peer runs another world.
    #[error("it runs the world {theirs:?}, this is {ours:?}")]
    World {
        /// The peer's world.
        theirs: String,
        /// This runner's world.
        ours: String,
    },
    /// The peer's world has the same name and another setup.
    #[error(
        "the world {0:?} is set up otherwise there: extent, dimensions, components, tick, strip and how it is cut have to be the same"
    )]
    Setup(String),
    /// The peer has this process's number.
    #[error("it calls itself process {0}, which is this one's number")]
    Number(u64),
    /// The peer claims a region of this process.
    #[error("it claims region {} in epoch {epoch}, which is run here in epoch {ours}", .region.0)]
    Region {
        /// The region.
        region: RegionId,
        /// The peer's epoch.
        epoch: u64,
        /// This process's epoch.
        ours: u64,
    },
    /// Too many connected processes.
    #[error("{max} processes are connected already")]
    Full {
        /// The limit.
        max: usize,
    },
    /// The peer violated the protocol.
    #[error("it sent what is no message: {0}")]
    Frame(&'static str),
    /// The peer refused this runner.
    #[error("refused by the other side: {0}")]
    ByThem(String),
}
