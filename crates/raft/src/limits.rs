//! Defines the limits of a Raft group, and its intervals and time limits.

/// Allowed values of [`RaftLimits::heartbeat_ms`].
pub const HEARTBEAT_MS: std::ops::RangeInclusive<u64> = 10..=10_000;

/// The limits of a Raft group, and the times that decide how soon a dead leader is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaftLimits {
    /// Interval of the leader's heartbeats, and time limit for each response, ms. The value must be within
    /// [`HEARTBEAT_MS`], and equal on every node. It must be longer than a round trip between nodes: a leader that
    /// receives no responses in time accepts no writes.
    pub heartbeat_ms: u64,
    /// Maximum number of commands that may wait to be proposed.
    pub waiting_max: usize,
    /// Maximum total size of the commands that have no response yet, bytes. If there are no such commands, a batch of
    /// any size is allowed. Batches of up to 4 KiB are always allowed and not counted, so that leases can still be
    /// renewed.
    pub waiting_bytes_max: usize,
    /// Maximum size of the commands in one log entry, bytes. A single command that is larger gets its own entry.
    pub entry_bytes_max: usize,
    /// Maximum size of one command, bytes.
    pub command_bytes_max: usize,
    /// Maximum number of log entries that are proposed and not yet applied.
    pub in_flight_max: usize,
    /// Longest wait for the response to a command or read, ms. A command without a response then has an unknown
    /// outcome, and a read has failed.
    pub answer_ms_max: u64,
    /// The number of bytes by which the log grows before a new snapshot is taken. After a snapshot of more than eight
    /// times this size, an eighth of the snapshot's size replaces the number. After each snapshot, the newest entries
    /// stay in the log, about a quarter of `log_bytes_max`: followers that lack only these entries need no snapshot.
    pub log_bytes_max: usize,
    /// Size of the log's reserve on the disk, bytes; 0 for none. The snapshots have another reserve of the same size.
    /// When the disk is full, commands that make the state smaller are written to the reserved bytes.
    pub reserve_bytes: u64,
    /// Maximum size of the log entries in one request to another node, bytes. A larger entry is sent alone.
    pub append_bytes_max: usize,
    /// Maximum number of requests with log entries that are in flight to one node.
    pub appends_in_flight_max: usize,
    /// Time limit for another node to store and sync the log entries of one request, ms. A request without a response
    /// in this time is repeated.
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
    /// The shortest random wait before a follower starts an election, ms. The longest is
    /// [`election_ms_max`](RaftLimits::election_ms_max). The wait begins when the follower has received no heartbeat
    /// for `election_ms_max`.
    pub fn election_ms_min(&self) -> u64 {
        self.heartbeat_ms * 6 / 5
    }

    /// How long a response to a heartbeat confirms the leader, ms. After a heartbeat, openraft sends the next one up to
    /// 1.2 intervals later, and the response to it may take another interval. With a time below 2.2 intervals, a leader
    /// that all other nodes follow could therefore be forced to stop writing.
    pub fn election_ms_max(&self) -> u64 {
        self.heartbeat_ms * 12 / 5
    }
}
