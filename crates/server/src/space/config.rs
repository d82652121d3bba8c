//! What a runner is started with.

use std::net::SocketAddr;

use dunlin::space::Balance;

use super::pace::Pace;
use super::secret::Secret;

/// What a runner is started with, beside its regions.
#[derive(Debug, Clone)]
pub struct SpaceConfig {
    /// The world's name: runners of others are refused.
    pub world: String,
    /// This process's number, told by no other of the world. Of two processes the one of the higher number connects to the other.
    pub process: u64,
    /// Where others connect to; port 0 for any. Only a loopback address, unless `insecure`.
    pub listen: SocketAddr,
    /// The other processes that are known from the start.
    pub peers: Vec<Peer>,
    /// When ticks are made.
    pub pace: Pace,
    /// A tick waits until everybody has made the last, has handed over whom it had to and told its ghosts: then the same inputs
    /// give the same bytes on any number of processes.
    pub lockstep: bool,
    /// Has the curve cut anew where regions' loads grow apart; not in lock-step.
    pub balance: Option<Balance>,
    /// Listens beyond this machine though connections are not encrypted.
    pub insecure: bool,
    /// What lets processes into the world; those that take part by a cluster's keys find it there.
    pub secret: Secret,
    /// What is held at most.
    pub limits: SpaceLimits,
}

/// Another process of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub process: u64,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Every bound of a runner, in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Processes it is connected to.
    pub peers_max: usize,
    /// Connections that have not said who they are.
    pub strangers_max: usize,
    /// Bytes that wait to be sent to one process. What comes on top is dropped: hand-overs are said again, ghosts are told anew.
    pub queued_bytes_max: usize,
    /// A message; a whole region for a standby is the largest.
    pub frame_bytes_max: usize,
    /// How long a connection may take to say who it is, ms.
    pub hello_ms_max: u64,
    /// How far ticks may fall behind before some are left out.
    pub ticks_behind_max: u64,
    /// Orders that wait for the runner's thread.
    pub orders_max: usize,
    /// Reports kept until they are taken; those beyond are counted.
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
