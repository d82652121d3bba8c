//! What connections between nodes hold at most.

/// Every bound of a cluster's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterLimits {
    /// Connections from other nodes; more wait to be accepted.
    pub connections_max: usize,
    /// Of one connection so many questions are answered at a time.
    pub answers_max: usize,
    /// Questions that wait for their way to one node, in one lane.
    pub ask_queue_max: usize,
    /// The longest frame between nodes, bytes: it holds a command, or a block of a snapshot.
    pub frame_bytes_max: usize,
    /// The longest one of who has not said who it is, bytes.
    pub hello_bytes_max: usize,
    /// How long a node may take until a connection to it stands, ms.
    pub connect_ms_max: u64,
    /// How long who connects may take to say who it is, ms.
    pub handshake_ms_max: u64,
    /// A connection on which a node is silent for so long, though something was asked, is ended, ms.
    pub silent_ms_max: u64,
    /// How long an answer may take, ms.
    pub ask_ms_max: u64,
    /// How long a node tries to join, ms.
    pub join_ms_max: u64,
}

impl Default for ClusterLimits {
    fn default() -> ClusterLimits {
        ClusterLimits {
            connections_max: 1_024,
            answers_max: 1_024,
            ask_queue_max: 4_096,
            frame_bytes_max: 64 << 20,
            hello_bytes_max: 64 << 10,
            connect_ms_max: 1_000,
            handshake_ms_max: 5_000,
            silent_ms_max: 1_500,
            ask_ms_max: 310_000,
            join_ms_max: 30_000,
        }
    }
}
