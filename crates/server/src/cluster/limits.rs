//! Defines the limits of the connections between nodes.

/// Limits of the connections between a cluster's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterLimits {
    /// Maximum number of connections from other nodes. Above it, new connections are closed.
    pub connections_max: usize,
    /// Maximum number of connections whose peer has not shown a certificate of the cluster. A new connection above this
    /// number closes the oldest of them.
    pub unverified_max: usize,
    /// Maximum number of requests from one connection that are handled at the same time.
    pub answers_max: usize,
    /// Maximum number of requests that wait to be sent over one connection.
    pub ask_queue_max: usize,
    /// Largest frame between nodes, bytes. Frames carry commands or blocks of snapshots.
    pub frame_bytes_max: usize,
    /// Largest frame from a peer that has not identified itself yet, bytes.
    pub hello_bytes_max: usize,
    /// Time limit for establishing a connection, ms.
    pub connect_ms_max: u64,
    /// Time limit in which a connecting peer must identify itself, ms.
    pub handshake_ms_max: u64,
    /// A connection with pending requests is closed if no message arrives for this time, ms.
    pub silent_ms_max: u64,
    /// Time limit for the response to a request, ms.
    pub ask_ms_max: u64,
    /// Time limit for joining a cluster, ms.
    pub join_ms_max: u64,
}

impl Default for ClusterLimits {
    fn default() -> ClusterLimits {
        ClusterLimits {
            connections_max: 1_024,
            unverified_max: 256,
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
