//! How a group works, and how much it takes.

/// Bounds, and the times that decide how soon a dead leader is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The leader says so often that it is there, ms.
    pub heartbeat_ms: u64,
    /// A follower that has heard nothing for the longest of these, and then for a random time between them, asks to lead, ms.
    pub election_ms_min: u64,
    /// See above, ms.
    pub election_ms_max: u64,
    /// Those who wait for commands that are to be proposed.
    pub waiting_max: usize,
    /// Bytes of the commands of one entry of the log, one command apart.
    pub entry_bytes_max: usize,
    /// Bytes of one command.
    pub command_bytes_max: usize,
    /// Entries on their way at once.
    pub in_flight_max: usize,
    /// How long whoever asks waits for an answer at most: after that it is unknown what became of commands, and readers are
    /// refused, ms.
    pub answer_ms_max: u64,
    /// A log that has grown to this many bytes since the last snapshot, or to an eighth of that if it is more, is replaced by
    /// one. A quarter of this limit is kept behind the snapshot, for followers that lack only that.
    pub log_bytes_max: usize,
    /// Bytes that the log, and the snapshots, each keep free on the disk for when it is full: for what makes room again. 0: none.
    pub reserve_bytes: u64,
    /// Bytes of the entries that one request brings to another node, one entry apart.
    pub append_bytes_max: usize,
    /// Such requests on their way to one node at once.
    pub appends_in_flight_max: usize,
    /// How long a node may take to have such a request on its disk, ms; then it is asked again.
    pub append_ms_max: u64,
    /// Bytes of a machine's snapshot that this node takes from another.
    pub snapshot_bytes_max: usize,
    /// How long a node may take over one block of a snapshot, ms.
    pub block_ms_max: u64,
    /// How long it may take to become the state of a snapshot once it has all of it, ms.
    pub install_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            heartbeat_ms: 30,
            election_ms_min: 60,
            election_ms_max: 120,
            waiting_max: 64 << 10,
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
