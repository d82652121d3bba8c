//! The limits of a Raft group, and its intervals and time limits.

/// Allowed values of [`RaftLimits::heartbeat_ms`].
pub const HEARTBEAT_MS: std::ops::RangeInclusive<u64> = 10..=10_000;

/// The limits of a Raft group, and the times that decide how soon a dead leader is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaftLimits {
    /// Interval of the leader's heartbeats, and time limit for each response, ms. A leader that receives no timely
    /// responses accepts no writes. The interval must therefore exceed a round trip between nodes. Within
    /// [`HEARTBEAT_MS`], and equal on every node.
    pub heartbeat_ms: u64,
    /// Maximum number of commands that may wait to be proposed.
    pub waiting_max: usize,
    /// Maximum size of all commands without a response, bytes; a single larger batch is allowed. Batches of up to 4 KiB
    /// do not count and are always allowed, so that leases are kept alive.
    pub waiting_bytes_max: usize,
    /// Maximum size of the commands in one log entry, bytes; a single larger command is allowed.
    pub entry_bytes_max: usize,
    /// Maximum size of one command, bytes.
    pub command_bytes_max: usize,
    /// Maximum number of entries in flight.
    pub in_flight_max: usize,
    /// Longest wait for the response to a command or read, ms. After this time, the outcome of a command is unknown,
    /// and a read is refused.
    pub answer_ms_max: u64,
    /// A new snapshot is taken when the log has grown by this number of bytes since the last snapshot, or by an eighth
    /// of the last snapshot's size if that is more. After the snapshot, entries up to a quarter of this limit stay in
    /// the log, for followers that lack only the last entries.
    pub log_bytes_max: usize,
    /// Bytes that the log and the snapshots each reserve on the disk, 0 for none. When the disk is full, commands that
    /// free room can use these bytes.
    pub reserve_bytes: u64,
    /// Maximum size of entries in one request to another node, bytes; a single larger entry is allowed.
    pub append_bytes_max: usize,
    /// Maximum number of requests with entries in flight to one node.
    pub appends_in_flight_max: usize,
    /// Time limit for a node to store and sync a request with log entries, ms. Afterwards the request is repeated.
    pub append_ms_max: u64,
    /// Maximum number of bytes of a snapshot that this node accepts from another node.
    pub snapshot_bytes_max: usize,
    /// Maximum time for a node to take one block of a snapshot, ms.
    pub block_ms_max: u64,
    /// Maximum time for a node to install a complete snapshot, ms.
    pub install_ms_max: u64,
}

impl Default for RaftLimits {
    fn default() -> RaftLimits {
        RaftLimits {
            heartbeat_ms: 250,
            waiting_max: 64 << 10,
            waiting_bytes_max: 128 << 20,
            entry_bytes_max: 1 << 20,
            command_bytes_max: 8 << 20,
            in_flight_max: 4,
            answer_ms_max: 5_000,
            log_bytes_max: 64 << 20,
            reserve_bytes: 8 << 20,
            append_bytes_max: 1 << 20,
            appends_in_flight_max: 8,
            append_ms_max: 10_000,
            snapshot_bytes_max: 16 << 30,
            block_ms_max: 10_000,
            install_ms_max: 300_000,
        }
    }
}

impl RaftLimits {
    /// The shortest random wait of a follower before it starts an election, ms. The longest is
    /// [`election_ms_max`](RaftLimits::election_ms_max). The wait begins when no heartbeat has arrived for
    /// `election_ms_max`.
    pub fn election_ms_min(&self) -> u64 {
        self.heartbeat_ms * 6 / 5
    }

    /// How long the response to a heartbeat confirms that the node which sent the heartbeat leads, ms. openraft sends
    /// the next heartbeat up to 1.2 intervals later, and the response may take one interval. Less than 2.2 intervals
    /// would stop the writes of a leader that all other nodes follow.
    pub fn election_ms_max(&self) -> u64 {
        self.heartbeat_ms * 12 / 5
    }
}
