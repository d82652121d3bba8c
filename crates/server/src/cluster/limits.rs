//! Limits of connections between nodes.

/// Limits of the connections between a cluster's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterLimits {
    /// Maximum number of connections from other nodes; further ones are closed.
    pub connections_max: usize,
    /// Maximum number of connections whose peer has no certificate of the cluster, or has not shown it yet; a further
    /// one closes the oldest.
    pub unverified_max: usize,
    /// Maximum number of requests of one connection that are handled at the same time.
    pub answers_max: usize,
    /// Maximum number of requests that wait for one connection.
    pub ask_queue_max: usize,
    /// Longest frame between nodes, bytes: a command, or a block of a snapshot.
    pub frame_bytes_max: usize,
    /// Longest frame before the peer has identified itself, bytes.
    pub hello_bytes_max: usize,
    /// Time limit for establishing a connection, ms.
    pub connect_ms_max: u64,
    /// Time limit for a connecting peer to identify itself, ms.
    pub handshake_ms_max: u64,
    /// Time without a message, while requests are pending, after which a connection is closed, ms.
    pub silent_ms_max: u64,
    /// Time limit for a response, ms.
    pub ask_ms_max: u64,
    /// Time limit for joining, ms.
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
