//! Why a runner does not start, or does not speak with another.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use dunlin::space::{HostError, RegionId, WorldNameError};

use super::owners::TTL_MIN;

/// Why there is no runner.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// The world cannot have this name.
    #[error(transparent)]
    Name(#[from] WorldNameError),
    /// The process's lease would end before it is renewed, or outlive what a cluster keeps.
    #[error("a process's lease lasts {} ms to 366 days, not {} ms", TTL_MIN.as_millis(), .0.as_millis())]
    Ttl(Duration),
    /// It cannot listen there.
    #[error("cannot listen on {address} for other processes of this world: {why}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: io::Error,
    },
    /// Connections between runners are not encrypted.
    #[error(
        "{0} can be reached from other machines, and connections between the processes of a world are not encrypted: \
         listen on a loopback address, or say that the network is trusted"
    )]
    Exposed(SocketAddr),
    /// The system has none.
    #[error("the system has no random numbers: {0}")]
    Random(String),
    /// Two processes have one number.
    #[error("process {0} is both this one and another")]
    Number(u64),
    /// Process 0 is nobody.
    #[error("a process's number is above 0")]
    NumberZero,
    /// More processes than there may be.
    #[error("{count} other processes are more than {max}")]
    Peers {
        /// How many.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A region cannot be begun.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Clients cannot ask.
    #[error("cannot answer clients at {subject}: {why}")]
    Door {
        /// Where.
        subject: String,
        /// Why.
        why: String,
    },
    /// Its thread cannot be started.
    #[error("cannot start the runner: {0}")]
    Thread(io::Error),
    /// The runner has ended.
    #[error("the runner has ended{}", .0.as_deref().map(|why| format!(": {why}")).unwrap_or_default())]
    Ended(Option<String>),
    /// Too many orders wait for it.
    #[error("{max} orders wait for the runner already")]
    Busy {
        /// The limit.
        max: usize,
    },
}

/// Why two runners do not speak with each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It is no runner.
    #[error("who connected does not speak as the processes of a world do")]
    Stranger,
    /// It is none of this world's processes.
    #[error("it does not know the world's secret, which stands in the cluster's keys")]
    Secret,
    /// Another Dunlin.
    #[error(
        "it speaks version {theirs} between processes, this is version {ours}: use the same Dunlin on both sides"
    )]
    Version {
        /// Its version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// Another world.
    #[error("it runs the world {theirs:?}, this is {ours:?}")]
    World {
        /// Its world.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// A world of the same name that is not the same.
    #[error(
        "the world {0:?} is set up otherwise there: extent, dimensions, components, tick, strip and how it is cut have to be the same"
    )]
    Setup(String),
    /// It is this process, or another with its number.
    #[error("it calls itself process {0}, which is this one's number")]
    Number(u64),
    /// It claims what is ours.
    #[error("it claims region {} in epoch {epoch}, which is run here in epoch {ours}", .region.0)]
    Region {
        /// Which.
        region: RegionId,
        /// Its epoch.
        epoch: u64,
        /// Ours.
        ours: u64,
    },
    /// More processes than there may be.
    #[error("{max} processes are connected already")]
    Full {
        /// The limit.
        max: usize,
    },
    /// It broke the rules of the protocol.
    #[error("it sent what is no message: {0}")]
    Frame(&'static str),
    /// The other side refused us.
    #[error("refused by the other side: {0}")]
    ByThem(String),
}
