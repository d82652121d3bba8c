//! Configuration of a process that runs regions of a world.

use std::net::SocketAddr;

use dunlin::space::BalancePolicy;

use super::pace::TickPace;
use super::secret::Secret;

/// The configuration of a process that runs regions of a world.
#[derive(Debug, Clone)]
pub struct SpaceConfig {
    /// The world's name. Processes of other worlds cannot connect.
    pub world: String,
    /// This process's number, which is unique in the world. Each pair of processes has one connection, which the
    /// process with the higher number opens.
    pub process: u64,
    /// The address on which this process listens for other processes; port 0 selects a free port. Must be a loopback
    /// address unless `insecure` is set.
    pub listen: SocketAddr,
    /// The other processes that are known when this process starts.
    pub peers: Vec<WorldPeer>,
    /// The rate at which ticks are made.
    pub pace: TickPace,
    /// If set, each tick waits until all processes have finished the previous tick, with its handovers and ghosts. The
    /// world's states then depend only on the inputs, not on the number of processes.
    pub lockstep: bool,
    /// If set, the sizes of regions change when the regions' loads diverge. Cannot be combined with `lockstep`.
    pub balance: Option<BalancePolicy>,
    /// If set, `listen` may be an address that other machines can reach, although connections are not encrypted.
    pub insecure: bool,
    /// The secret that a process must know to connect. In a cluster, processes read it from a key.
    pub secret: Secret,
    /// Limits on connections, messages and delays.
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

/// Limits on the connections, messages and delays of a process that runs regions of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Maximum number of connected processes.
    pub peers_max: usize,
    /// Maximum number of accepted connections whose process has not proved yet that it belongs to the world.
    pub strangers_max: usize,
    /// If more than this number of bytes wait to be sent to a process, further messages for it are dropped. Dropped
    /// handovers and ghosts are sent again later.
    pub queued_bytes_max: usize,
    /// Maximum size of a message, bytes. The largest messages are whole regions for standbys.
    pub frame_bytes_max: usize,
    /// Time within which a new connection must prove that its process belongs to the world, ms.
    pub hello_ms_max: u64,
    /// Maximum number of late ticks that the process makes up for. If more ticks are late, only one of them is made.
    pub ticks_behind_max: u64,
    /// Maximum number of calls of clients and of the program that wait for the runner's thread.
    pub orders_max: usize,
    /// Maximum number of reports that are kept until the program takes them. Further reports are dropped and counted.
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
