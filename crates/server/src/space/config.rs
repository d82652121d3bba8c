//! Configuration of a runner.

use std::net::SocketAddr;

use dunlin::space::BalancePolicy;

use super::pace::TickPace;
use super::secret::Secret;

/// The configuration of a process that runs regions of a world.
#[derive(Debug, Clone)]
pub struct SpaceConfig {
    /// The world's name; runners of other worlds are refused.
    pub world: String,
    /// This process's number, which is unique in the world. Of two processes, the one with the higher number opens the
    /// connection.
    pub process: u64,
    /// Address at which other processes connect; port 0 selects a free port. Must be a loopback address unless
    /// `insecure` is set.
    pub listen: SocketAddr,
    /// The other processes known at the start.
    pub peers: Vec<WorldPeer>,
    /// The rate of the ticks.
    pub pace: TickPace,
    /// If set, each tick waits until all processes have finished the last tick, its handovers and its ghosts. The same
    /// inputs then give the same bytes on any number of processes.
    pub lockstep: bool,
    /// If set, regions move between processes when the loads diverge. Cannot be combined with `lockstep`.
    pub balance: Option<BalancePolicy>,
    /// If set, `listen` may be an address that other machines can reach, without encryption.
    pub insecure: bool,
    /// The secret that a process must have to connect. Processes of a cluster read it from a key.
    pub secret: Secret,
    /// Limits of the runner.
    pub limits: SpaceLimits,
}

/// The number and address of another process of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorldPeer {
    /// The process's number.
    pub process: u64,
    /// The process's address.
    pub address: SocketAddr,
}

/// Limits of a process that runs regions of a world: connections, messages and delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Maximum number of connected processes.
    pub peers_max: usize,
    /// Maximum number of connections whose process has not proved its number yet.
    pub strangers_max: usize,
    /// Maximum number of bytes that wait to be sent to one process. Above this limit, messages are dropped; dropped
    /// handovers and ghosts are sent again later.
    pub queued_bytes_max: usize,
    /// Maximum size of a message, bytes; a whole region for a standby is the largest.
    pub frame_bytes_max: usize,
    /// Time limit for the handshake, ms.
    pub hello_ms_max: u64,
    /// Number of ticks by which the runner may be late before it skips ticks.
    pub ticks_behind_max: u64,
    /// Maximum number of orders in the queue of the runner's thread.
    pub orders_max: usize,
    /// Maximum number of reports that are kept until the program takes them. Further reports are only counted.
    pub reports_max: usize,
}

impl Default for SpaceLimits {
    fn default() -> SpaceLimits {
        SpaceLimits {
            peers_max: 1_024,
            strangers_max: 64,
            queued_bytes_max: 256 << 20,
            frame_bytes_max: 512 << 20,
            hello_ms_max: 5_000,
            ticks_behind_max: 5,
            orders_max: 1_024,
            reports_max: 4_096,
        }
    }
}
