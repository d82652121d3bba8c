//! How a group works, and how much it takes.

/// What [`Limits::heartbeat_ms`] may be.
pub const HEARTBEAT_MS: std::ops::RangeInclusive<u64> = 10..=10_000;

/// Bounds, and the times that decide how soon a dead leader is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The leader sends a heartbeat so often, ms, and each answer has so long to arrive. A leader that receives no answers in time takes
    /// no writes, so this has to be longer than a round trip to the other nodes. [`HEARTBEAT_MS`] are allowed, and it is the same on every node.
    pub heartbeat_ms: u64,
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
            heartbeat_ms: 250,
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

impl Limits {
    /// A follower that has heard nothing for [`election_ms_max`](Limits::election_ms_max), and then for a random time between this and
    /// that, asks to lead, ms.
    pub fn election_ms_min(&self) -> u64 {
        self.heartbeat_ms * 6 / 5
    }

    /// How long an answer to a heartbeat counts, ms. openraft sends the next one up to 1.2 intervals after it, and the answer takes up
    /// to one: less than 2.2 intervals would stop the writes of a leader that all others follow.
    pub fn election_ms_max(&self) -> u64 {
        self.heartbeat_ms * 12 / 5
    }
}
